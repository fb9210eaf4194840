//! Counts the instructions, loads and stores of one operation with valgrind.
//!
//! A count does not depend on other tasks, on the clock or on the caches, so it is exactly reproducible; the
//! 1992 paper (section 3.1) recommends it in addition to the times. Only work in user mode can be counted in
//! this way. As with times, the fixed work of a batch cancels out in the difference between two lengths.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::benchmark::Benchmark;
use crate::platform::clock::{Calibration, Source};
use crate::sample::{Circumstances, Outcome, Spawner};

/// The counts of one operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counts {
    /// Instructions executed.
    pub instructions: f64,
    /// Instructions that read memory.
    pub loads: f64,
    /// Instructions that write memory.
    pub stores: f64,
}

/// Why the counts could not be obtained, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotCounted(pub String);

/// Time limit of a process: a program in valgrind runs about fifty times slower.
const LIMIT: Duration = Duration::from_secs(120);

/// Counts one operation of a benchmark. `spawner` starts the process as for a timed sample; `directory` is
/// for files.
///
/// # Errors
/// Returns [`NotCounted`] if the kernel does the work of the operation, if valgrind is missing, or if it does
/// not support the benchmark.
pub fn count(
    benchmark: &Benchmark,
    spawner: &Spawner,
    directory: &Path,
    stop: &AtomicBool,
) -> Result<Counts, NotCounted> {
    let refused = |reason: &str| NotCounted(reason.to_owned());
    if !benchmark.calls.is_empty() {
        return Err(refused("the kernel does its work, which valgrind cannot count"));
    }
    let (once, n) = totals(benchmark, spawner, directory, stop, 1)?;
    let (twice, _) = totals(benchmark, spawner, directory, stop, 2)?;
    #[expect(clippy::cast_precision_loss, reason = "a program in valgrind executes far fewer than 2^52")]
    let each = |of: fn(&Totals) -> u64| (of(&twice) as f64 - of(&once) as f64) / n as f64;
    let counts = Counts {
        instructions: each(|totals| totals.instructions),
        loads: each(|totals| totals.loads),
        stores: each(|totals| totals.stores),
    };
    if counts.instructions <= 0.0 {
        return Err(refused("twice as many operations executed no more instructions"));
    }
    Ok(counts)
}

/// The counts of a whole process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Totals {
    instructions: u64,
    loads: u64,
    stores: u64,
}

/// Runs a process with one batch of `lengths` times the fixed length, and returns its totals and the fixed
/// length.
fn totals(
    benchmark: &Benchmark,
    spawner: &Spawner,
    directory: &Path,
    stop: &AtomicBool,
    lengths: u64,
) -> Result<(Totals, u64), NotCounted> {
    let log = directory.join(format!("counts-{lengths}"));
    let option = |text: &str| text.into();
    let mut arguments = vec![
        option("--tool=cachegrind"),
        option("--cache-sim=yes"),
        option("--cachegrind-out-file=/dev/null"),
        option(&format!("--log-file={}", log.display())),
        spawner.program.clone().into(),
    ];
    arguments.extend(spawner.arguments.iter().cloned());
    let valgrind = Spawner { program: "valgrind".into(), arguments };
    let clock =
        Calibration { source: Source::MonotonicRaw, resolution_ns: 1.0, error_ppm: 0.0, refused: None };
    let cpus = crate::platform::describe::usable_cpus();
    let circumstances = Circumstances {
        // The same layout in both processes and in every run.
        seed: 1,
        cpu: cpus.first().copied().unwrap_or(0),
        other_cpu: cpus.get(1).copied(),
        directory,
        shared_directory: directory,
        peer: None,
        clock: &clock,
        limit: LIMIT,
        counted: Some(lengths),
        counters: false,
        effective: None,
    };
    let sample = match valgrind.sample(benchmark, circumstances, stop) {
        Outcome::Sample(sample) => sample,
        Outcome::Rejected(reason) | Outcome::Unavailable(reason) => return Err(NotCounted(reason)),
        Outcome::Stopped => return Err(NotCounted("it was stopped".to_owned())),
    };
    let text = fs::read_to_string(&log)
        .map_err(|error| NotCounted(format!("cannot read valgrind's log {}: {error}", log.display())))?;
    let operations = sample.observations.first().map_or(0, |batch| batch.operations);
    let totals = parse(&text).ok_or_else(|| {
        NotCounted("cannot parse valgrind's summary; check that valgrind is version 3.15 or newer".to_owned())
    })?;
    Ok((totals, operations / lengths))
}

/// Parses cachegrind's summary: `I refs: 1,234` and `D refs: 567 (345 rd + 222 wr)`.
fn parse(log: &str) -> Option<Totals> {
    let line = |name: &str| {
        log.lines().find_map(|line| {
            let rest = line.split_once("== ")?.1.trim_start();
            let (key, value) = rest.split_once(':')?;
            (key.split_ascii_whitespace().eq(name.split(' '))).then_some(value)
        })
    };
    let numbers = |text: &str| -> Vec<u64> {
        text.split(|c: char| !(c.is_ascii_digit() || c == ','))
            .filter_map(|word| word.replace(',', "").parse().ok())
            .collect()
    };
    let instructions = *numbers(line("I refs")?).first()?;
    let data = numbers(line("D refs")?);
    Some(Totals { instructions, loads: *data.get(1)?, stores: *data.get(2)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "==9== Cachegrind, a cache and branch-prediction profiler\n\
                       ==9== \n\
                       ==9== I   refs:      2,162,334\n\
                       ==9== I1  misses:        1,270\n\
                       ==9== D   refs:        702,181  (512,034 rd   + 190,147 wr)\n";

    #[test]
    fn the_summary_is_parsed_and_other_text_is_rejected() {
        let totals = Totals { instructions: 2_162_334, loads: 512_034, stores: 190_147 };
        assert_eq!(parse(LOG), Some(totals));
        assert_eq!(parse("==9== I refs: none\n"), None);
        assert_eq!(parse(&LOG.replace("D   refs", "D1 refs")), None);
        assert_eq!(parse(""), None);
    }
}
