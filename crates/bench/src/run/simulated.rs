//! Counts what one operation executes, in a simulated machine: in user mode and in the kernel, with all that
//! the machine does at the same time.
//!
//! One command takes several samples of each benchmark in the guest. Its simulator takes a snapshot of its
//! counts before and after each batch. As with times, the count of a sample is the slope of the counts over
//! the operations, a median, so that the few batches in which the kernel's clock ticks do not move it; and
//! the interval is that of the samples, each of which is a process with a seed of its own.

use std::collections::HashMap;
use std::fmt::Write;
use std::ops::{Range, Sub};

use assay_process::Exit;
use assay_quantity::{Counted, Estimate, Executed, Sample, Unit};
use assay_statistics::slope::events_per_operation;
use assay_statistics::trimmed_mean;

use super::count::NotCounted;
use crate::benchmark::Benchmark;
use crate::sample::snapshot::{BEFORE, numbers, request};
use crate::sample::{Outcome, answer};

/// Samples of each benchmark. The interval of two would extend by six times their difference.
const SAMPLES: usize = 3;

/// Time limit of a sample in s, by the guest's clock: one of each benchmark of the catalogue takes 14 s.
const LIMIT_S: u32 = 20;

/// Status with which busybox's `timeout` ends then, and so does a sample that SIGTERM ends.
const TIMED_OUT: i32 = 143;

/// What precedes the position of a sample and its status in the output of the command.
const ENDED: &str = "ended ";

/// What a machine had executed at some moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Totals {
    /// Instructions in user mode.
    pub user: f64,
    /// Instructions in the kernel.
    pub kernel: f64,
    /// Page faults.
    pub page_faults: f64,
}

impl Sub for Totals {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            user: self.user - other.user,
            kernel: self.kernel - other.kernel,
            page_faults: self.page_faults - other.page_faults,
        }
    }
}

/// Returns a command for the guest's shell that takes the samples of each benchmark, with files below this
/// directory. `program` passes the argument after `sample` to [`sample_main`](crate::sample::sample_main).
/// Neither of them needs quotation marks.
#[must_use]
pub fn command(benchmarks: &[Benchmark], program: &str, directory: &str) -> String {
    let [own, shared] = ["own", "shared"].map(|name| format!("{directory}/{name}"));
    let mut command = String::new();
    // Round after round, so that the samples of a benchmark do not follow each other.
    let rounds = std::iter::repeat_n(benchmarks, SAMPLES).flatten();
    for (position, benchmark) in rounds.enumerate() {
        let request = request(benchmark, position, [&own, &shared]);
        // Ids, and so requests, contain no quotation mark of the shell. An answer may be cut within its line.
        let _ = writeln!(
            command,
            "mkdir {own} {shared}; timeout {LIMIT_S} {program} sample '{request}'; \
             echo; echo {ENDED}{position} $?; rm -r {own} {shared}"
        );
    }
    // The status of the last one means nothing.
    command + "true\n"
}

/// Returns what one operation of each benchmark executes, from the output of the [`command`] and what the
/// machine had executed at the snapshot of a number, if there is one.
#[must_use]
pub fn executed(
    benchmarks: &[Benchmark],
    output: &[u8],
    at: &dyn Fn(u64) -> Option<Totals>,
) -> Vec<Result<Executed, NotCounted>> {
    let mut outcomes = outcomes(output);
    let mut of_benchmark = |benchmark| -> Result<Executed, String> {
        let samples: Vec<Totals> = (0..SAMPLES)
            .map(|round| {
                let position = round * benchmarks.len() + benchmark;
                match outcomes.remove(&position) {
                    Some(Outcome::Sample(sample)) => of_sample(&sample, &numbers(position), at),
                    Some(Outcome::Rejected(reason) | Outcome::Unavailable(reason)) => Err(reason),
                    Some(Outcome::Stopped) | None => Err("the guest took no sample".to_owned()),
                }
            })
            .collect::<Result<_, _>>()?;
        estimates(&samples)
    };
    (0..benchmarks.len()).map(|benchmark| of_benchmark(benchmark).map_err(NotCounted)).collect()
}

/// The outcomes of the samples, by position.
fn outcomes(output: &[u8]) -> HashMap<usize, Outcome> {
    let mut outcomes = HashMap::new();
    let mut answered: &[u8] = b"";
    for line in output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let ended = str::from_utf8(line).ok().and_then(|line| line.strip_prefix(ENDED));
        let Some(ended) = ended else {
            answered = line;
            continue;
        };
        let answered = std::mem::take(&mut answered);
        let numbers = ended.split_once(' ').map(|(position, status)| (position.parse(), status.parse()));
        if let Some((Ok(position), Ok(status))) = numbers {
            outcomes.insert(position, outcome(answered, status));
        }
    }
    outcomes
}

/// The outcome of a sample that ended with this status of the shell.
fn outcome(answered: &[u8], status: i32) -> Outcome {
    match status {
        TIMED_OUT => Outcome::Rejected(format!("it did not end within {LIMIT_S} s of the guest")),
        129.. => answer(answered, Exit::Signal(status - 128), 1),
        _ => answer(answered, Exit::Status(status), 1),
    }
}

/// What one operation executes in a sample with snapshots of these numbers, without the baseline.
fn of_sample(
    sample: &Sample,
    own: &Range<u64>,
    at: &dyn Fn(u64) -> Option<Totals>,
) -> Result<Totals, String> {
    if sample.refused > 0 {
        return Err(format!("{} of its batches were disturbed", sample.refused));
    }
    let at = |number: u64| own.contains(&number).then(|| at(number))?;
    let numbers = sample.evidence.of(BEFORE);
    let batches: Vec<_> = sample.observations.iter().chain(&sample.baseline).collect();
    if numbers.len() != batches.len() {
        return Err(format!("{} batches have {} snapshots", batches.len(), numbers.len()));
    }
    let counted = batches.iter().zip(numbers).map(|(batch, number)| {
        let is_whole = *number >= 0.0 && number.fract() == 0.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number")]
        let before = is_whole.then_some(*number as u64)?;
        let after = before.checked_add(1)?;
        Some((batch.operations, at(after)? - at(before)?))
    });
    let counted: Option<Vec<(u64, Totals)>> = counted.collect();
    let counted = counted.ok_or("the simulator has no snapshot of a batch")?;
    let (operation, baseline) = counted.split_at(sample.observations.len());
    let one = slope(operation)?;
    if baseline.is_empty() { Ok(one) } else { Ok(one - slope(baseline)?) }
}

/// What one more operation executes.
fn slope(batches: &[(u64, Totals)]) -> Result<Totals, String> {
    let each = |of: fn(&Totals) -> f64| {
        let batches = batches.iter().map(|(operations, totals)| (*operations, of(totals)));
        events_per_operation(&Counted { event: String::new(), batches: Ok(batches.collect()) })
    };
    Ok(Totals {
        user: each(|totals| totals.user)?,
        kernel: each(|totals| totals.kernel)?,
        page_faults: each(|totals| totals.page_faults)?,
    })
}

/// What one operation executes, from several samples.
fn estimates(samples: &[Totals]) -> Result<Executed, String> {
    let each = |of: fn(&Totals) -> f64| -> Result<Estimate, String> {
        let values: Vec<f64> = samples.iter().map(of).collect();
        trimmed_mean(&values, Unit::Count).map_err(|error| error.to_string())
    };
    let executed = Executed {
        user: each(|totals| totals.user)?,
        kernel: each(|totals| totals.kernel)?,
        page_faults: each(|totals| totals.page_faults)?,
    };
    if executed.instructions().point < 0.0 {
        return Err(
            "what is subtracted from its cost executes more instructions than the operation".to_owned()
        );
    }
    Ok(executed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{catalogue_here, find};

    fn benchmarks(ids: [&str; 2]) -> Vec<Benchmark> {
        ids.iter().map(|id| find(&id.parse().unwrap()).unwrap()).collect()
    }

    /// Batches of the sample: of the operation, then of the baseline.
    const BATCHES: [u64; 8] = [10, 20, 20, 10, 10, 20, 10, 20];

    /// Totals of a machine that executes 100 instructions for each batch, 5 and a page fault for each
    /// operation, 2 for each one of the baseline, and 9000 when the kernel's clock ticks, in the first batch.
    fn at(number: u64) -> Option<Totals> {
        let number = number % numbers(0).end;
        let ended = usize::try_from(number.div_ceil(2)).ok()?;
        let mut totals = Totals { user: 0.0, kernel: 0.0, page_faults: 0.0 };
        for (position, operations) in BATCHES.get(..ended)?.iter().enumerate() {
            let operations = f64::from(u32::try_from(*operations).unwrap());
            let is_baseline = position >= 6;
            totals.user += 100.0 + operations * if is_baseline { 2.0 } else { 5.0 };
            totals.kernel += if position == 0 { 9000.0 } else { 0.0 };
            totals.page_faults += if is_baseline { 0.0 } else { operations };
        }
        Some(totals)
    }

    /// The snapshots before the batches.
    const BEFORE_BATCHES: [f64; 8] = [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0];

    /// The answer with the sample at this position.
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn sample(position: usize, before: &[f64], refused: usize) -> String {
        let first = numbers(position).start as f64;
        let snapshots: Vec<String> = before.iter().map(|number| (first + number).to_string()).collect();
        let snapshots = snapshots.join(",");
        let batches = BATCHES.map(|operations| format!("[{operations},1.0]"));
        let (observations, baseline) = (batches[..6].join(","), batches[6..].join(","));
        format!(r#"{{"sample":{{"observations":[{observations}],"baseline":[{baseline}],"#)
            + &format!(r#""refused":{refused},"evidence":{{"{BEFORE}":[{snapshots}]}},"counted":[]}}}}"#)
    }

    /// What two benchmarks execute, by an output that contains these samples.
    fn counted(samples: &[(usize, String, i32)]) -> [Result<Executed, String>; 2] {
        let benchmarks = benchmarks(["call.null", "file.rename"]);
        let line =
            |(position, said, status): &(usize, String, i32)| format!("{said}\n{ENDED}{position} {status}\n");
        let output: String = samples.iter().map(line).collect();
        let executed = executed(&benchmarks, output.as_bytes(), &at);
        let executed = executed.into_iter().map(|one| one.map_err(|NotCounted(reason)| reason));
        executed.collect::<Vec<_>>().try_into().unwrap()
    }

    #[test]
    fn an_operation_executes_what_the_batches_do_without_their_fixed_part_and_the_baseline() {
        let samples: Vec<_> =
            (0..2 * SAMPLES).map(|position| (position, sample(position, &BEFORE_BATCHES, 0), 0)).collect();
        let [first, second] = counted(&samples);
        let Executed { user, kernel, page_faults } = first.clone().unwrap();
        let counts =
            [user, kernel, page_faults].map(|count| (count.point, count.interval.half_width(), count.values));
        assert_eq!(counts, [(3.0, 0.0, 3), (0.0, 0.0, 3), (1.0, 0.0, 3)]);
        assert_eq!(first, second);
    }

    #[test]
    fn what_was_not_counted_has_the_reason_of_its_own_sample() {
        let whole = |position| (position, sample(position, &BEFORE_BATCHES, 0), 0);
        // The samples of the first benchmark are 0, 2 and 4.
        let reasons = |said: &str, status| {
            let samples = [0, 1, 2, 3, 4, 5].map(|position| match position {
                2 => (position, said.to_owned(), status),
                _ => whole(position),
            });
            let [first, second] = counted(&samples);
            assert!(second.is_ok(), "{second:?}");
            first.unwrap_err()
        };
        assert_eq!(reasons("{\"unavailable\":\"one processor\"}", 0), "one processor");
        assert_eq!(reasons("", TIMED_OUT), "it did not end within 20 s of the guest");
        assert_eq!(reasons("{\"sample\":", 139), "its process was killed by signal 11");
        assert_eq!(reasons("", 127), "its process ended with status 127");
        assert_eq!(reasons(&sample(2, &BEFORE_BATCHES, 2), 0), "2 of its batches were disturbed");
        assert_eq!(reasons(&sample(2, &BEFORE_BATCHES[..3], 0), 0), "8 batches have 3 snapshots");
        let none = "the simulator has no snapshot of a batch";
        for number in [100.0, -1.0, 1e30] {
            let mut before = BEFORE_BATCHES;
            before[7] = number;
            assert_eq!(reasons(&sample(2, &before, 0), 0), none, "{number}");
        }
        assert_eq!(reasons(&sample(3, &BEFORE_BATCHES, 0), 0), none);
        let mut before = BEFORE_BATCHES;
        before[0] = -1.0;
        let [first, _] = counted(&[(0, sample(0, &before, 0), 0), whole(2), whole(4)]);
        assert_eq!(first.unwrap_err(), none);
        let [first, _] = counted(&[whole(0), whole(2)]);
        assert_eq!(first.unwrap_err(), "the guest took no sample");
    }

    #[test]
    fn no_request_ends_its_quotation() {
        let benchmarks = catalogue_here();
        let command = command(&benchmarks, "assay", "/dev/shm");
        assert_eq!(command.matches('\'').count(), 2 * SAMPLES * benchmarks.len());
    }
}
