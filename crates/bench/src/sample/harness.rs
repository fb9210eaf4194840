//! Times one operation in one process.
//!
//! The harness finds the batch length n by doubling, which also warms the caches (thesis, section 2.2.2).
//! Then it alternates batches of n and 2n operations, and also alternates which of the two is first, so that
//! a drift of the machine favours neither length. A few batches of n/2 show whether time is linear in
//! operations. The fixed cost of a batch (two clock readings, one dynamic call) is the same in all batches
//! and cancels out of the slope, which `statistics` computes. A batch that its operation rejects as
//! [`Disturbed`] is omitted and counted. The caller passes the [`Clock`]; only an operation that sleeps is
//! timed by the processor time of this thread instead.

use std::io;

use assay_process::accounting::thread_cpu_ns;
use assay_quantity::{Evidence, Observation};

use super::evidence::{NoWitness, Witness};
use crate::benchmark::{Disturbed, Operation, Prepared, Timing};
use crate::platform::clock::Clock;

/// Number and length of the batches of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// Pairs of a batch of n and a batch of 2n operations.
    pub pairs: usize,
    /// Minimum time of a batch of n operations, ns.
    pub batch_ns: f64,
}

/// Pairs per sample. The slope is the median over all pairs of batches of different length; with six batches
/// of each length, two completely disturbed batches cannot reach it.
const PAIRS: usize = 6;

/// A batch of n/2 follows after this many pairs: a third length, which shows whether time is linear in
/// operations.
const HALVED: usize = 3;

/// Minimum duration of a batch in clock steps, so that a step is at most 0.1 % of the batch.
const RESOLUTIONS: f64 = 1000.0;

/// Minimum duration of a batch, ns. An interrupt costs a few microseconds, which changes the time of a batch
/// by 3 %, and the median by less. The time for longer batches is better spent on more processes, whose
/// differences are larger.
const BATCH_NS: f64 = 1.5e5;

impl Schedule {
    /// Returns the schedule for a clock of this resolution.
    #[must_use]
    pub fn for_resolution(resolution_ns: f64) -> Self {
        Self { pairs: PAIRS, batch_ns: BATCH_NS.max(RESOLUTIONS * resolution_ns) }
    }
}

/// The batches of one sample.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batches {
    /// Batches of the operation.
    pub observations: Vec<Observation>,
    /// Batches of the baseline; empty if there is none.
    pub baseline: Vec<Observation>,
    /// Number of batches of both that the operations rejected as [`Disturbed`].
    pub refused: usize,
    /// The readings around each of the other batches: of the operation, then of the baseline.
    pub evidence: Evidence,
}

/// The batches of one operation so far.
#[derive(Default)]
struct Series {
    observations: Vec<Observation>,
    evidence: Evidence,
    refused: usize,
    /// Why the last rejected batch was rejected.
    reason: Option<io::Error>,
}

impl Series {
    fn add(&mut self, batch: io::Result<(Observation, Evidence)>) -> io::Result<()> {
        match batch {
            Ok((observation, evidence)) => {
                self.observations.push(observation);
                self.evidence.append(evidence);
            }
            Err(error) if Disturbed::is(&error) => {
                self.refused += 1;
                self.reason = Some(error);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Fails unless more than half of the batches remain: fewer may all have the same length.
    fn check(&self) -> io::Result<()> {
        match &self.reason {
            Some(reason) if self.refused >= self.observations.len() => {
                let all = self.refused + self.observations.len();
                Err(too_many_refused(&format!("{} of {all}", self.refused), reason))
            }
            _ => Ok(()),
        }
    }
}

#[cold]
fn too_many_refused(number: &str, last: &io::Error) -> io::Error {
    io::Error::other(format!("{number} batches were disturbed, the last one: {last}"))
}

/// Returns the batches of an operation and of its baseline. Fails unless more than half of each remain.
fn batches(mut operation: Series, baseline: Series) -> io::Result<Batches> {
    operation.check()?;
    baseline.check()?;
    operation.evidence.append(baseline.evidence);
    Ok(Batches {
        observations: operation.observations,
        baseline: baseline.observations,
        refused: operation.refused + baseline.refused,
        evidence: operation.evidence,
    })
}

/// Times an operation, alternating with its baseline if it has one.
///
/// # Errors
/// Returns the error of the first call that fails, and no batches.
pub fn sample(
    clock: &impl Clock,
    witness: &mut impl Witness,
    schedule: Schedule,
    prepared: &mut Prepared,
) -> io::Result<Batches> {
    let (mut observations, mut below) = (Series::default(), Series::default());
    let operation = prepared.operation.as_mut();
    let length = batch_length(clock, schedule, operation)?;
    let mut baseline = match prepared.baseline.as_deref_mut() {
        Some(baseline) => Some((batch_length(clock, schedule, baseline)?, baseline)),
        None => None,
    };
    let half =
        (length / 2).is_multiple_of(operation.granule()).then_some(length / 2).filter(|half| *half > 0);
    for pair in 0..schedule.pairs {
        let half = half.filter(|_| pair % HALVED == HALVED - 1);
        for length in in_turn(pair, length).into_iter().chain(half) {
            observations.add(timed(clock, witness, &mut at_once, operation, length))?;
        }
        if let Some((length, baseline)) = &mut baseline {
            for length in in_turn(pair, *length) {
                below.add(timed(clock, witness, &mut at_once, *baseline, length))?;
            }
        }
    }
    batches(observations, below)
}

/// Times single operations alternately with empty batches, and empties the caches before each.
///
/// The cost of the two clock readings and of the dynamic call with empty caches is the same in both and
/// cancels out. Emptying the caches is not timed (1992 paper, section 3.1). A baseline is timed in the same
/// way.
///
/// # Errors
/// Returns the error of the first call that fails, of the operation or of `empty_caches`.
pub fn cold_sample(
    clock: &impl Clock,
    witness: &mut impl Witness,
    empty_caches: &mut dyn FnMut() -> io::Result<()>,
    prepared: &mut Prepared,
) -> io::Result<Batches> {
    let mut cold = |operation: &mut dyn Operation, operations: u64| {
        timed(clock, witness, empty_caches, operation, operations)
    };
    let (mut observations, mut below) = (Series::default(), Series::default());
    for _ in 0..PAIRS {
        let operation = prepared.operation.as_mut();
        let one = operation.granule();
        observations.add(cold(&mut Nothing(operation.timing()), 0))?;
        observations.add(cold(operation, one))?;
        if let Some(baseline) = prepared.baseline.as_deref_mut() {
            let one = baseline.granule();
            below.add(cold(&mut Nothing(baseline.timing()), 0))?;
            below.add(cold(baseline, one))?;
        }
    }
    batches(observations, below)
}

/// Repeats batches until the process is killed: for a copy that runs during the measurement of another.
///
/// # Errors
/// Returns the error of the first call that fails.
pub(crate) fn go_on(
    clock: &impl Clock,
    schedule: Schedule,
    operation: &mut dyn Operation,
    at_work: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<std::convert::Infallible> {
    let length = batch_length(clock, schedule, operation)?;
    at_work()?;
    let mut refused = 0;
    loop {
        refused = match batch(clock, operation, length) {
            Ok(_) => 0,
            Err(error) if Disturbed::is(&error) && refused < REFUSED_MAX => refused + 1,
            Err(error) => return Err(error),
        };
    }
}

/// A point in time that [`around_batches`] reports.
pub(crate) enum Around {
    /// Immediately before a batch.
    Before,
    /// Immediately after a batch of this number of operations.
    After(u64),
}

/// Runs batches of n and 2n operations alternately, and calls `observe` before and after each of them.
///
/// # Errors
/// Returns the error of the first call that fails, of the operation or of `observe`.
pub(crate) fn around_batches(
    clock: &impl Clock,
    schedule: Schedule,
    operation: &mut dyn Operation,
    observe: &mut dyn FnMut(Around) -> io::Result<()>,
) -> io::Result<()> {
    let length = batch_length(clock, schedule, operation)?;
    for pair in 0..schedule.pairs {
        for operations in in_turn(pair, length) {
            operation.arm(operations)?;
            observe(Around::Before)?;
            operation.run(operations)?;
            observe(Around::After(operations))?;
            operation.disarm(operations)?;
        }
    }
    Ok(())
}

/// Operations of a counted batch: enough that the other work of the process is small in comparison, and few
/// enough for a program that runs fifty times slower.
const COUNTED: u64 = 1000;

/// Runs one batch of `lengths` times a fixed length.
///
/// # Errors
/// Returns the error of the first call that fails.
pub(crate) fn one_batch(
    clock: &impl Clock,
    operation: &mut dyn Operation,
    lengths: u64,
) -> io::Result<Observation> {
    let granule = operation.granule();
    let length = COUNTED.min(operation.max_batch() / lengths.max(2)) / granule * granule;
    batch(clock, operation, length.max(granule) * lengths)
}

/// An empty operation, of which this time is measured: its cost is that of the harness.
#[derive(Debug)]
pub struct Nothing(pub Timing);

impl Operation for Nothing {
    fn timing(&self) -> Timing {
        self.0
    }

    fn run(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the two lengths of a pair, the shorter one first in even pairs.
fn in_turn(pair: usize, length: u64) -> [u64; 2] {
    if pair.is_multiple_of(2) { [length, 2 * length] } else { [2 * length, length] }
}

/// A sample fails if this many batches are rejected as [`Disturbed`] before the batch length is known; a copy
/// fails if more are rejected in a row. With two busy loops on each processor, one in eight batches of
/// `interrupt.ipi` was rejected, and fewer of the other primitives.
const REFUSED_MAX: usize = 64;

/// Finds the length n: doubles it until batches of n and 2n both take the minimum time, because a single long
/// batch may have been interrupted. A batch of 2n must not exceed the longest batch that can be armed.
fn batch_length(clock: &impl Clock, schedule: Schedule, operation: &mut dyn Operation) -> io::Result<u64> {
    let mut length = operation.granule();
    let longest = operation.max_batch();
    if longest / 2 < length {
        return Err(io::Error::other(format!(
            "at most {longest} operations fit into one batch, too few to compare two batch lengths"
        )));
    }
    let (mut half_fills, mut refused) = (false, 0);
    loop {
        let fills = match batch(clock, operation, length) {
            Ok(batch) => batch.elapsed_ns >= schedule.batch_ns,
            Err(error) if Disturbed::is(&error) => {
                refused += 1;
                if refused == REFUSED_MAX {
                    return Err(too_many_refused(&format!("{refused} of the first"), &error));
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        if (half_fills && fills) || length > longest / 2 {
            return Ok(length / 2);
        }
        half_fills = fills;
        length *= 2;
    }
}

/// Times one batch. Calls `begin` immediately before it.
fn timed(
    clock: &impl Clock,
    witness: &mut impl Witness,
    begin: &mut dyn FnMut() -> io::Result<()>,
    operation: &mut dyn Operation,
    operations: u64,
) -> io::Result<(Observation, Evidence)> {
    operation.arm(operations)?;
    // Before the caches are emptied, not after: these system calls would load the kernel's data into them.
    witness.before()?;
    begin()?;
    let observation = bare(clock, operation, operations)?;
    let mut evidence = Evidence::default();
    witness.after(&mut evidence)?;
    operation.disarm(operations)?;
    Ok((observation, evidence))
}

/// Does nothing before a batch.
fn at_once() -> io::Result<()> {
    Ok(())
}

/// Runs the timed part only.
fn bare(clock: &impl Clock, operation: &mut dyn Operation, operations: u64) -> io::Result<Observation> {
    let elapsed_ns = match operation.timing() {
        Timing::Elapsed => {
            let begin = clock.begin();
            let result = operation.run(operations);
            let end = clock.end();
            result?;
            clock.elapsed_ns(begin, end)
        }
        Timing::Processor => {
            let begin_ns = thread_cpu_ns()?;
            operation.run(operations)?;
            cpu_ns_since(begin_ns)?
        }
    };
    Ok(Observation { operations, elapsed_ns })
}

#[expect(clippy::cast_precision_loss, reason = "a batch is far shorter than 2^52 ns")]
fn cpu_ns_since(begin_ns: u64) -> io::Result<f64> {
    Ok((thread_cpu_ns()? - begin_ns) as f64)
}

/// Times one batch without a witness.
fn batch(clock: &impl Clock, operation: &mut dyn Operation, operations: u64) -> io::Result<Observation> {
    Ok(timed(clock, &mut NoWitness, &mut at_once, operation, operations)?.0)
}

#[cfg(test)]
mod tests;
