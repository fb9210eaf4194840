//! The catalogue of benchmarks. Its rows, each for a family of parameters, are in the files that define the
//! operations. A new benchmark is a row in such a file; a new file is a line in [`FILES`]. The tables of
//! `docs/primitives.md` are made from the rows.
//!
//! Numbers in an id are examples: a row measures any other number too, so that a user can select the exact
//! size that an application uses. The keys in [`MODIFIERS`] can be added to any id.

#[cfg(test)]
mod page;
mod topology;

use std::collections::BTreeSet;

use assay_quantity::{Key, Pattern, PrimitiveId, Size, Unit};

use crate::benchmark::{Benchmark, Per, Profile, Row};
use crate::primitive;
use topology::Topology;

/// Keys that change how a benchmark is run, not what it does.
pub(crate) const MODIFIERS: [Key; 3] = [Key::Cache, Key::Copies, Key::Placement];

/// A file of benchmarks.
struct File {
    /// Its path below `primitive`.
    #[cfg(test)]
    name: &'static str,
    rows: &'static [Row],
}

macro_rules! files {
    ($($directory:ident / $file:ident,)+) => {
        &[$(File {
            #[cfg(test)]
            name: concat!(stringify!($directory), "/", stringify!($file)),
            rows: primitive::$directory::$file::ROWS,
        },)+]
    };
}

/// The files, in the order of lists and reports.
const FILES: &[File] = files![
    cpu / arithmetic,
    cpu / expression,
    cpu / branch,
    cpu / atomic,
    cpu / store,
    entry / call,
    entry / exception,
    entry / signal,
    entry / timer_interrupt,
    entry / ipi,
    file / lookup,
    file / descriptor,
    file / transfer,
    file / directory,
    file / listing,
    file / sync,
    memory / mapping,
    memory / release,
    memory / management,
    process / address_space,
    file / splice,
    file / uring,
    file / disk,
    process / fork,
    process / program,
    process / thread,
    cpu / procedure,
    process / switch,
    process / yielding,
    process / wakeup,
    process / wakeup_here,
    process / sleep,
    ipc / round_trip,
    ipc / channel,
    ipc / one_way,
    ipc / futex,
    ipc / mutex,
    ipc / semaphore,
    ipc / record_lock,
    ipc / notify,
    time / lateness,
    time / timer_setting,
    entry / random,
    net / connection,
    net / tcp,
    net / cork,
    net / bulk,
    net / datagram,
    net / rpc,
    net / http,
    net / socket_call,
    net / empty,
    net / remote,
    memory / protection,
    memory / fault,
    memory / file_fault,
    memory / bandwidth,
    memory / stream,
    memory / page,
    memory / load,
    memory / near,
    memory / loaded,
    memory / update,
    memory / translate,
    memory / node,
    cpu / code,
    cpu / cache,
    net / event,
    net / ready,
];

/// Returns all benchmarks, in the order of [`FILES`]. Those between two processors, or a processor and a
/// memory node, occur once: with processors 0 and 1, and with processor 0 and node 0.
///
/// # Panics
/// Panics if a pattern of a row is invalid, which a test excludes.
#[must_use]
pub fn catalogue() -> Vec<Benchmark> {
    on(&Topology::example())
}

/// Returns the benchmarks of this machine: the catalogue with every pair of its processors, and of its
/// processors and memory nodes.
///
/// # Panics
/// Panics if a pattern of a row is invalid, which a test excludes.
#[must_use]
pub fn catalogue_here() -> Vec<Benchmark> {
    on(&Topology::here())
}

/// Returns the benchmark with this id, which may differ from the ids of the rows in numbers and modifiers.
/// Its profile is that of [`catalogue()`]: the full one if its numbers are in no row.
#[must_use]
pub fn find(id: &PrimitiveId) -> Option<Benchmark> {
    let plain = MODIFIERS.iter().fold(id.clone(), |id, key| id.without(*key));
    let row = rows().find(|row| covers(row, &plain))?;
    let listed = on_machine(row, &Topology::example()).into_iter().find(|known| known.primitive == plain);
    Some(benchmark(row, listed.map_or(Profile::Full, |known| known.profile), id.clone()))
}

fn rows() -> impl Iterator<Item = &'static Row> {
    FILES.iter().flat_map(|file| file.rows)
}

fn on(topology: &Topology) -> Vec<Benchmark> {
    rows().flat_map(|row| on_machine(row, topology)).collect()
}

fn on_machine(row: &Row, topology: &Topology) -> Vec<Benchmark> {
    let (mut all, mut ids) = (Vec::new(), BTreeSet::new());
    for (profile, patterns) in [(Profile::Quick, row.quick), (Profile::Full, row.full)] {
        for placed in patterns.iter().flat_map(|pattern| topology.placed(pattern)) {
            let profile = if placed.is_typical { profile } else { Profile::Full };
            for id in parsed(&placed.pattern).ids() {
                if ids.insert(id.clone()) {
                    all.push(benchmark(row, profile, id));
                }
            }
        }
    }
    all
}

/// Whether a row measures an id without modifiers.
fn covers(row: &Row, id: &PrimitiveId) -> bool {
    let name = format!("{}.{}", id.family(), id.operation());
    // Parsing the patterns of other operations would take most of the time.
    let named = row.quick.iter().chain(row.full).filter(|pattern| pattern.split('{').next() == Some(&name));
    named.flat_map(|pattern| example(pattern)).any(|pattern| pattern.covers(id))
}

/// Returns a pattern with examples of processors and memory nodes.
fn example(pattern: &str) -> Vec<Pattern> {
    Topology::example().placed(pattern).iter().map(|placed| parsed(&placed.pattern)).collect()
}

#[expect(clippy::expect_used, reason = "the patterns are constants, and a test parses all of them")]
fn parsed(pattern: &str) -> Pattern {
    pattern.parse().expect("a pattern of a row is well formed")
}

fn benchmark(row: &Row, profile: Profile, primitive: PrimitiveId) -> Benchmark {
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
        profile,
        calls: row.calls,
        about: row.about,
        source: row.source,
        prepare: row.prepare,
    }
}

#[cfg(test)]
mod tests {
    use super::topology::Placed;
    use super::*;

    #[test]
    fn what_enters_the_kernel_is_known_with_and_without_system_calls() {
        let enters = |id: &str| find(&id.parse().unwrap()).unwrap().enters_kernel();
        let with_kernel =
            ["call.null", "exception.null", "interrupt.timer", "page_fault.zero", "uring.nop_polled"];
        assert!(with_kernel.into_iter().all(enters));
        assert!(!["atomic.fence", "cpu.cycle", "memory.update{level=l1}"].into_iter().any(enters));
    }

    #[test]
    fn every_id_is_covered_by_exactly_one_row() {
        let all = catalogue();
        for benchmark in &all {
            let id = &benchmark.primitive;
            assert_eq!(rows().filter(|row| covers(row, id)).count(), 1, "{id}");
            assert_eq!(all.iter().filter(|other| other.primitive == *id).count(), 1, "{id}");
        }
    }

    #[test]
    fn every_row_is_explained_and_every_pattern_adds_ids() {
        for row in rows() {
            assert!(!row.about.is_empty() && !row.source.is_empty(), "{row:?}");
            let patterns = [row.quick, row.full].concat();
            assert!(!patterns.is_empty());
            let mut known = BTreeSet::new();
            for pattern in patterns {
                let (ids, before) = (ids(pattern), known.len());
                assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{pattern} repeats an id");
                known.extend(ids);
                assert!(known.len() > before, "{pattern} adds no id");
            }
        }
    }

    fn ids(pattern: &str) -> Vec<PrimitiveId> {
        example(pattern).iter().flat_map(Pattern::ids).collect()
    }

    #[test]
    fn keys_and_values_of_patterns_are_written_as_in_ids() {
        let patterns = rows().flat_map(|row| [row.quick, row.full].concat());
        for Placed { pattern, .. } in patterns.flat_map(|pattern| Topology::example().placed(pattern)) {
            let Some((_, keys)) = pattern.trim_end_matches('}').split_once('{') else { continue };
            let written: Vec<(&str, &str)> =
                keys.split(',').filter_map(|pair| pair.split_once('=')).collect();
            let parsed = parsed(&pattern);
            let names: Vec<&str> = parsed.keys().iter().map(|(key, _)| key.row().name).collect();
            assert_eq!(written.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names, "{pattern}");
            for ((_, written), (_, values)) in written.iter().zip(parsed.keys()) {
                let values: Vec<String> = values.iter().map(ToString::to_string).collect();
                assert!(*written == "*" || *written == values.join("|"), "{pattern}: {written}");
            }
        }
    }

    #[test]
    fn a_benchmark_has_the_profile_that_measures_it() {
        for benchmark in catalogue() {
            let found = find(&benchmark.primitive).unwrap();
            assert_eq!(found.profile, benchmark.profile, "{}", benchmark.primitive);
        }
        let found = |id: &str| find(&id.parse().unwrap()).unwrap().profile;
        assert_eq!(found("call.null{cache=cold,copies=2}"), Profile::Quick);
        assert_eq!(found("tcp.send{size=12345B,buffer=reused}"), Profile::Full);
    }

    #[test]
    fn a_cost_per_byte_has_a_number_of_bytes() {
        for row in rows() {
            let is_per_byte = !matches!(row.cost, Per::Operation);
            for benchmark in on_machine(row, &Topology::example()) {
                assert_eq!(benchmark.bytes.is_some(), is_per_byte, "{}", benchmark.primitive);
            }
        }
    }
}
