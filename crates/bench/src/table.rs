//! The catalogue of benchmarks. Its rows, each for a family of parameters, are in the files that define the
//! operations. A new benchmark is a row in such a file; a new file is a line in [`FILES`].
//! `docs/primitives.md` must name every primitive, which a test checks.
//!
//! Numbers in an id are examples: a row measures any other number too, so that a user can select the exact
//! size that an application uses. The keys in [`MODIFIERS`] can be added to any id.

use assay_quantity::{Key, Kind, PrimitiveId, Size, Unit};

use crate::benchmark::{Benchmark, Prepare};
use crate::primitive;

/// Benchmarks that differ in their parameters only.
#[derive(Debug)]
pub(crate) struct Row {
    /// Their ids, as [`PrimitiveId`] writes them.
    pub(crate) ids: &'static [&'static str],
    /// The smallest profile that measures them.
    pub(crate) profile: Profile,
    /// The unit of work that the cost refers to.
    pub(crate) cost: Per,
    /// Names of the system calls that one operation makes, including those of partners; empty for work in
    /// user mode only.
    pub(crate) calls: &'static [&'static str],
    /// Description of one operation.
    pub(crate) about: &'static str,
    /// Origin of the benchmark.
    pub(crate) source: &'static str,
    /// Prepares it in the measuring process.
    pub(crate) prepare: Prepare,
}

/// The unit of work that a cost refers to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Per {
    /// Cost per operation.
    Operation,
    /// Cost per byte; the id's `size` is the number of bytes per operation.
    ByteOfSize,
    /// Cost per byte, with this number of bytes per operation.
    ByteOf(u64),
}

/// A part of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// Every family, at the most important sizes.
    Quick,
    /// The quick profile and the sweeps.
    Full,
}

/// Keys that change how a benchmark is run, not what it does.
pub(crate) const MODIFIERS: [Key; 3] = [Key::Cache, Key::Copies, Key::Placement];

/// The rows, file by file.
const FILES: &[&[Row]] = &[
    primitive::arithmetic::ROWS,
    primitive::expression::ROWS,
    primitive::branch::ROWS,
    primitive::atomic::ROWS,
    primitive::store::ROWS,
    primitive::call::ROWS,
    primitive::exception::ROWS,
    primitive::signal::ROWS,
    primitive::timer::ROWS,
    primitive::ipi::ROWS,
    primitive::file::lookup::ROWS,
    primitive::file::descriptor::ROWS,
    primitive::file::transfer::ROWS,
    primitive::file::directory::ROWS,
    primitive::file::sync::ROWS,
    primitive::mapping::ROWS,
    primitive::memory_management::ROWS,
    primitive::address_space::ROWS,
    primitive::splice::ROWS,
    primitive::uring::ROWS,
    primitive::disk::ROWS,
    primitive::child::ROWS,
    primitive::program::ROWS,
    primitive::thread::ROWS,
    primitive::procedure::ROWS,
    primitive::switch::ROWS,
    primitive::yielding::ROWS,
    primitive::wakeup::ROWS,
    primitive::wakeup_here::ROWS,
    primitive::round_trip::ROWS,
    primitive::channel::ROWS,
    primitive::futex::ROWS,
    primitive::mutex::ROWS,
    primitive::semaphore::ROWS,
    primitive::record_lock::ROWS,
    primitive::notify::ROWS,
    primitive::lateness::ROWS,
    primitive::timer_setting::ROWS,
    primitive::random::ROWS,
    primitive::connection::ROWS,
    primitive::stream::ROWS,
    primitive::cork::ROWS,
    primitive::bulk::ROWS,
    primitive::datagram::ROWS,
    primitive::rpc::ROWS,
    primitive::http::ROWS,
    primitive::socket_call::ROWS,
    primitive::remote::ROWS,
    primitive::translation::ROWS,
    primitive::fault::ROWS,
    primitive::file_fault::ROWS,
    primitive::memory::bandwidth::ROWS,
    primitive::memory::stream::ROWS,
    primitive::memory::page::ROWS,
    primitive::memory::load::ROWS,
    primitive::memory::near::ROWS,
    primitive::memory::loaded::ROWS,
    primitive::memory::update::ROWS,
    primitive::memory::translate::ROWS,
    primitive::memory::node::ROWS,
    primitive::code::ROWS,
    primitive::cache::ROWS,
    primitive::event::ROWS,
    primitive::ready::ROWS,
];

/// Returns all benchmarks, in the order of the table.
///
/// # Panics
/// Panics if an id of the table is invalid, which a test excludes.
#[must_use]
pub fn catalogue() -> Vec<Benchmark> {
    rows().flat_map(|row| row.ids.iter().map(|id| benchmark(row, id))).collect()
}

/// Returns the benchmark with this id, which may differ from the ids of the table in numbers and modifiers.
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
    id.parse().expect("an id of the table is well formed")
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
