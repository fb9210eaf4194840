//! The catalogue of benchmarks. Its rows, each for a family of parameters, are in the files that define the
//! operations. A new benchmark is a row in such a file; a new file is a line in [`FILES`].
//! `docs/primitives.md` must name every primitive, which a test checks.
//!
//! Numbers in an id are examples: a row measures any other number too, so that a user can select the exact
//! size that an application uses. The keys in [`MODIFIERS`] can be added to any id.

use assay_quantity::{Key, Kind, PrimitiveId, Size, Unit};

use crate::benchmark::{Benchmark, Per, Row};
use crate::primitive;

/// Keys that change how a benchmark is run, not what it does.
pub(crate) const MODIFIERS: [Key; 3] = [Key::Cache, Key::Copies, Key::Placement];

/// The rows, file by file.
const FILES: &[&[Row]] = &[
    primitive::cpu::arithmetic::ROWS,
    primitive::cpu::expression::ROWS,
    primitive::cpu::branch::ROWS,
    primitive::cpu::atomic::ROWS,
    primitive::cpu::store::ROWS,
    primitive::entry::call::ROWS,
    primitive::entry::exception::ROWS,
    primitive::entry::signal::ROWS,
    primitive::entry::timer_interrupt::ROWS,
    primitive::entry::ipi::ROWS,
    primitive::file::lookup::ROWS,
    primitive::file::descriptor::ROWS,
    primitive::file::transfer::ROWS,
    primitive::file::directory::ROWS,
    primitive::file::sync::ROWS,
    primitive::memory::mapping::ROWS,
    primitive::memory::management::ROWS,
    primitive::process::address_space::ROWS,
    primitive::file::splice::ROWS,
    primitive::file::uring::ROWS,
    primitive::file::disk::ROWS,
    primitive::process::fork::ROWS,
    primitive::process::program::ROWS,
    primitive::process::thread::ROWS,
    primitive::cpu::procedure::ROWS,
    primitive::process::switch::ROWS,
    primitive::process::yielding::ROWS,
    primitive::process::wakeup::ROWS,
    primitive::process::wakeup_here::ROWS,
    primitive::ipc::round_trip::ROWS,
    primitive::ipc::channel::ROWS,
    primitive::ipc::futex::ROWS,
    primitive::ipc::mutex::ROWS,
    primitive::ipc::semaphore::ROWS,
    primitive::ipc::record_lock::ROWS,
    primitive::ipc::notify::ROWS,
    primitive::time::lateness::ROWS,
    primitive::time::timer_setting::ROWS,
    primitive::entry::random::ROWS,
    primitive::net::connection::ROWS,
    primitive::net::tcp::ROWS,
    primitive::net::cork::ROWS,
    primitive::net::bulk::ROWS,
    primitive::net::datagram::ROWS,
    primitive::net::rpc::ROWS,
    primitive::net::http::ROWS,
    primitive::net::socket_call::ROWS,
    primitive::net::remote::ROWS,
    primitive::memory::protection::ROWS,
    primitive::memory::fault::ROWS,
    primitive::memory::file_fault::ROWS,
    primitive::memory::bandwidth::ROWS,
    primitive::memory::stream::ROWS,
    primitive::memory::page::ROWS,
    primitive::memory::load::ROWS,
    primitive::memory::near::ROWS,
    primitive::memory::loaded::ROWS,
    primitive::memory::update::ROWS,
    primitive::memory::translate::ROWS,
    primitive::memory::node::ROWS,
    primitive::cpu::code::ROWS,
    primitive::cpu::cache::ROWS,
    primitive::net::event::ROWS,
    primitive::net::ready::ROWS,
];

/// Returns all benchmarks, in the order of [`FILES`].
///
/// # Panics
/// Panics if an id of a row is invalid, which a test excludes.
#[must_use]
pub fn catalogue() -> Vec<Benchmark> {
    rows().flat_map(|row| row.ids.iter().map(|id| benchmark(row, id))).collect()
}

/// Returns the benchmark with this id, which may differ from the ids of the rows in numbers and modifiers.
#[must_use]
pub fn find(id: &PrimitiveId) -> Option<Benchmark> {
    let shape = shape(id);
    let of_shape = |row: &&Row| row.ids.iter().any(|known| self::shape(&parsed(known)) == shape);
    rows().find(of_shape).map(|row| of_row(row, id.clone()))
}

fn rows() -> impl Iterator<Item = &'static Row> {
    FILES.iter().flat_map(|rows| rows.iter())
}

fn benchmark(row: &Row, id: &str) -> Benchmark {
    of_row(row, parsed(id))
}

#[expect(clippy::expect_used, reason = "the ids are constants, and a test parses all of them")]
fn parsed(id: &str) -> PrimitiveId {
    id.parse().expect("an id of a row is well formed")
}

/// Returns an id without its modifiers and numbers, and the keys of the removed numbers.
fn shape(id: &PrimitiveId) -> (PrimitiveId, Vec<Key>) {
    let mut rest = id.clone();
    let mut numbers = Vec::new();
    for key in id.keys().keys() {
        let is_number = !matches!(key.row().kind, Kind::Word(_));
        if is_number || MODIFIERS.contains(key) {
            rest = rest.without(*key);
        }
        if is_number && !MODIFIERS.contains(key) {
            numbers.push(*key);
        }
    }
    (rest, numbers)
}

fn of_row(row: &Row, primitive: PrimitiveId) -> Benchmark {
    let bytes = match row.cost {
        Per::Operation => None,
        Per::ByteOfSize => primitive.size().map(Size::bytes),
        Per::ByteOf(bytes) => Some(bytes),
    };
    let unit = if bytes.is_some() { Unit::NanosecondsPerByte } else { Unit::Nanoseconds };
    Benchmark {
        primitive,
        unit,
        bytes,
        profile: row.profile,
        calls: row.calls,
        about: row.about,
        source: row.source,
        prepare: row.prepare,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_is_well_formed_unique_and_explained() {
        let names: Vec<&str> = rows().flat_map(|row| row.ids).copied().collect();
        for name in &names {
            let benchmark = find(&parsed(name)).unwrap();
            assert_eq!(benchmark.primitive.to_string(), *name, "written as it reads back");
            assert!(!benchmark.about.is_empty() && !benchmark.source.is_empty(), "{name}");
            assert_eq!(benchmark.bytes.is_some(), benchmark.unit == Unit::NanosecondsPerByte, "{name}");
        }
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert_eq!(catalogue().len(), names.len());
    }

    #[test]
    fn a_row_that_costs_per_byte_of_its_size_has_a_size() {
        for row in rows().filter(|row| matches!(row.cost, Per::ByteOfSize)) {
            assert!(row.ids.iter().all(|id| find(&parsed(id)).unwrap().bytes.is_some()), "{:?}", row.ids);
        }
    }

    /// Returns the name of an id and its keys: a line of the documentation describes them for all values.
    fn described(id: &PrimitiveId) -> (String, Vec<Key>) {
        (format!("{}.{}", id.family(), id.operation()), id.keys().keys().copied().collect())
    }

    #[test]
    fn the_documentation_describes_every_primitive_and_no_other() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/primitives.md");
        let text = std::fs::read_to_string(path).unwrap();
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let words =
            rows.flat_map(|row| row.split(" | ").next().unwrap_or_default().split('`').skip(1).step_by(2));
        let named: BTreeSet<PrimitiveId> = words.filter_map(|word| word.parse().ok()).collect();
        let known: BTreeSet<PrimitiveId> =
            catalogue().into_iter().map(|benchmark| benchmark.primitive).collect();
        let strangers: Vec<String> = named.difference(&known).map(ToString::to_string).collect();
        assert!(strangers.is_empty(), "docs/primitives.md describes unknown primitives: {strangers:?}");
        let lines: BTreeSet<_> = named.iter().map(described).collect();
        let missing: BTreeSet<String> =
            known.iter().filter(|id| !lines.contains(&described(id))).map(ToString::to_string).collect();
        assert!(missing.is_empty(), "docs/primitives.md does not describe {missing:#?}");
    }
}
