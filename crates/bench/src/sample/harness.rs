//! Times one operation in one process.
//!
//! The harness finds the batch length n by doubling, which also warms the caches (thesis, section 2.2.2).
//! Then it alternates batches of n and 2n operations, and also alternates which of the two is first, so that
//! a drift of the machine favours neither length. A few batches of n/2 show whether time is linear in
//! operations. The fixed cost of a batch (two clock readings, one dynamic call) is the same in all batches
//! and cancels out of the slope, which `statistics` computes. A batch that its operation rejects as
//! [`Disturbed`] is omitted and counted. The caller passes the [`Clock`]; this module makes no system call of
//! its own.

use std::io;

use assay_quantity::{Evidence, Observation};

use super::evidence::{NoWitness, Witness};
use crate::benchmark::{Disturbed, Operation, Prepared};
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
        observations.add(cold(&mut Nothing, 0))?;
        observations.add(cold(operation, one))?;
        if let Some(baseline) = prepared.baseline.as_deref_mut() {
            let one = baseline.granule();
            below.add(cold(&mut Nothing, 0))?;
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

/// An empty operation: its cost is that of the harness.
#[derive(Debug)]
pub struct Nothing;

impl Operation for Nothing {
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
    let begin = clock.begin();
    let result = operation.run(operations);
    let end = clock.end();
    result?;
    Ok(Observation { operations, elapsed_ns: clock.elapsed_ns(begin, end) })
}

/// Times one batch without a witness.
fn batch(clock: &impl Clock, operation: &mut dyn Operation, operations: u64) -> io::Result<Observation> {
    Ok(timed(clock, &mut NoWitness, &mut at_once, operation, operations)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::Sharing;
    use assay_quantity::Sample;
    use assay_statistics::cost_ns;
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    /// A clock that advances only when the test advances it.
    #[derive(Clone, Default)]
    struct FakeClock(Rc<Cell<u64>>);

    impl FakeClock {
        fn pass(&self, ns: u64) {
            self.0.set(self.0.get() + ns);
        }
    }

    impl Clock for FakeClock {
        fn begin(&self) -> u64 {
            self.pass(300);
            self.0.get()
        }
        fn end(&self) -> u64 {
            self.pass(200);
            self.0.get()
        }
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        fn elapsed_ns(&self, begin: u64, end: u64) -> f64 {
            (end - begin) as f64
        }
    }

    /// An operation of a known cost that logs its calls.
    struct Known {
        clock: FakeClock,
        cost_ns: u64,
        granule: u64,
        max_batch: u64,
        fails_at: Option<u64>,
        /// Length of the batch that is interrupted once.
        interrupted: Option<u64>,
        /// Whether a batch, counted from one, is disturbed.
        disturbed: fn(usize) -> bool,
        batches: usize,
        log: Rc<RefCell<Vec<String>>>,
        done: u64,
    }

    impl Operation for Known {
        fn arm(&mut self, operations: u64) -> io::Result<()> {
            self.clock.pass(1_000_000);
            self.log.borrow_mut().push(format!("arm {operations}"));
            Ok(())
        }
        fn run(&mut self, operations: u64) -> io::Result<()> {
            self.log.borrow_mut().push(format!("run {operations}"));
            self.done += operations;
            if self.fails_at.is_some_and(|at| self.done >= at) {
                return Err(io::Error::other("the kernel refused"));
            }
            if self.interrupted.take_if(|length| *length == operations).is_some() {
                self.clock.pass(4_000_000);
            }
            self.clock.pass(self.cost_ns * operations + 77);
            Ok(())
        }
        fn disarm(&mut self, operations: u64) -> io::Result<()> {
            self.clock.pass(5_000_000);
            self.log.borrow_mut().push(format!("disarm {operations}"));
            self.batches += 1;
            if (self.disturbed)(self.batches) {
                return Err(Disturbed::error(format!("batch {} was late", self.batches)));
            }
            Ok(())
        }
        fn granule(&self) -> u64 {
            self.granule
        }
        fn max_batch(&self) -> u64 {
            self.max_batch
        }
    }

    /// Reads the number of the batch since the last one that was timed.
    #[derive(Debug, Default)]
    struct Numbers {
        before: usize,
        after: usize,
    }

    impl Witness for Numbers {
        fn before(&mut self) -> io::Result<()> {
            self.before += 1;
            Ok(())
        }
        fn after(&mut self, evidence: &mut Evidence) -> io::Result<()> {
            self.after += 1;
            assert_eq!(self.before, self.after);
            evidence.add("batch", self.after as f64);
            Ok(())
        }
    }

    fn known(clock: &FakeClock, cost_ns: u64) -> Known {
        Known {
            clock: clock.clone(),
            cost_ns,
            granule: 1,
            max_batch: u64::MAX,
            fails_at: None,
            interrupted: None,
            disturbed: |_| false,
            batches: 0,
            log: Rc::default(),
            done: 0,
        }
    }

    const SCHEDULE: Schedule = Schedule { pairs: 3, batch_ns: 10_000.0 };

    fn prepared(operation: Known, baseline: Option<Known>) -> Prepared {
        let baseline = baseline.map(|known| Box::new(known) as Box<dyn Operation>);
        Prepared { operation: Box::new(operation), baseline, sharing: Sharing::Alone }
    }

    fn lengths(observations: &[Observation]) -> Vec<u64> {
        observations.iter().map(|observation| observation.operations).collect()
    }

    #[test]
    fn batches_double_until_they_fill_the_time_and_then_alternate() {
        let clock = FakeClock::default();
        let operation = known(&clock, 1000);
        let log = operation.log.clone();
        let batches =
            sample(&clock, &mut Numbers::default(), SCHEDULE, &mut prepared(operation, None)).unwrap();
        assert_eq!(lengths(&batches.observations), [16, 32, 32, 16, 16, 32, 8]);
        assert_eq!(batches.baseline, []);
        let log = log.borrow();
        assert_eq!(log[..6], ["arm 1", "run 1", "disarm 1", "arm 2", "run 2", "disarm 2"]);
        assert_eq!(log.len(), 3 * (6 + 7));
    }

    #[test]
    fn a_batch_that_was_interrupted_does_not_end_the_doubling() {
        for interrupted in [1, 2, 8, 16] {
            let clock = FakeClock::default();
            let operation = Known { interrupted: Some(interrupted), ..known(&clock, 1000) };
            let batches =
                sample(&clock, &mut Numbers::default(), SCHEDULE, &mut prepared(operation, None)).unwrap();
            let shortest = lengths(&batches.observations)[0];
            // Immediately before the end it cannot be distinguished from the end, and halves the length.
            assert_eq!(shortest, if interrupted == 8 { 8 } else { 16 }, "{interrupted}");
        }
    }

    #[test]
    fn the_slope_of_the_batches_is_the_cost_without_clock_and_call() {
        let clock = FakeClock::default();
        let mut witness = Numbers::default();
        let (mut operation, baseline) = (prepared(known(&clock, 70), Some(known(&clock, 30))), 40.0);
        let Batches { observations, baseline: below, refused, evidence } =
            sample(&clock, &mut witness, SCHEDULE, &mut operation).unwrap();
        assert_eq!(refused, 0);
        let all = observations.len() + below.len();
        assert_eq!(witness.after, all, "the witness is around every timed batch and nothing else");
        let (of_operation, of_baseline) =
            ([1.0, 2.0, 5.0, 6.0, 9.0, 10.0, 11.0], [3.0, 4.0, 7.0, 8.0, 12.0, 13.0]);
        assert_eq!(evidence.of("batch"), [&of_operation[..], &of_baseline].concat());
        let sample = Sample { observations, baseline: below, ..Sample::default() };
        assert!((cost_ns(&sample).unwrap() - baseline).abs() < 1e-9);
    }

    #[test]
    fn a_batch_is_never_longer_than_can_be_armed_and_always_a_multiple_of_the_granule() {
        for (max_batch, granule, expected) in [(100, 1, 32), (64, 1, 32), (63, 1, 16), (100, 6, 48)] {
            let clock = FakeClock::default();
            let operation = Known { max_batch, granule, ..known(&clock, 1) };
            let batches =
                sample(&clock, &mut Numbers::default(), SCHEDULE, &mut prepared(operation, None)).unwrap();
            assert_eq!(lengths(&batches.observations)[0], expected, "{max_batch} {granule}");
        }
        let clock = FakeClock::default();
        let operation = Known { max_batch: 1, ..known(&clock, 1) };
        assert!(sample(&clock, &mut Numbers::default(), SCHEDULE, &mut prepared(operation, None)).is_err());
    }

    #[test]
    fn a_call_that_fails_in_any_batch_leaves_no_number() {
        for fails_at in [1, 20, 60, 150] {
            let clock = FakeClock::default();
            let operation = Known { fails_at: Some(fails_at), ..known(&clock, 1000) };
            let result = sample(&clock, &mut Numbers::default(), SCHEDULE, &mut prepared(operation, None));
            assert_eq!(result.unwrap_err().to_string(), "the kernel refused", "{fails_at}");
        }
    }

    /// Samples an operation with these disturbed batches, as the baseline of another operation if
    /// `is_baseline`.
    fn disturbed(disturbed: fn(usize) -> bool, is_baseline: bool) -> io::Result<Batches> {
        let clock = FakeClock::default();
        let refused = Known { disturbed, ..known(&clock, 1000) };
        let mut prepared =
            if is_baseline { prepared(known(&clock, 3000), Some(refused)) } else { prepared(refused, None) };
        sample(&clock, &mut Numbers::default(), SCHEDULE, &mut prepared)
    }

    #[test]
    fn a_disturbed_batch_is_omitted_and_counted_and_the_sample_continues() {
        // The lengths 1 to 32 take six batches; the first and the fourth batch after them are rejected.
        let batches = disturbed(|batch| batch == 7 || batch == 10, false).unwrap();
        assert_eq!(lengths(&batches.observations), [32, 32, 16, 32, 8]);
        assert_eq!(batches.refused, 2);
        assert_eq!(batches.evidence.of("batch"), [2.0, 3.0, 5.0, 6.0, 7.0], "the readings of the others");
        let below = disturbed(|batch| batch == 12, true).unwrap();
        assert_eq!((below.observations.len(), below.baseline.len(), below.refused), (7, 5, 1));
    }

    #[test]
    fn a_sample_fails_with_the_last_reason_if_half_of_its_batches_were_disturbed() {
        let three_of_seven = disturbed(|batch| batch > 6 + 4, false).unwrap();
        assert_eq!((three_of_seven.observations.len(), three_of_seven.refused), (4, 3));
        let four_of_seven = disturbed(|batch| batch > 6 + 3, false).unwrap_err().to_string();
        assert_eq!(four_of_seven, "4 of 7 batches were disturbed, the last one: batch 13 was late");
        let of_baseline = disturbed(|batch| batch > 6 + 3, true).unwrap_err().to_string();
        assert_eq!(of_baseline, "3 of 6 batches were disturbed, the last one: batch 12 was late");
    }

    #[test]
    fn a_disturbed_batch_does_not_lengthen_the_batches_and_only_disturbed_ones_end_the_sample() {
        let batches = disturbed(|batch| batch < REFUSED_MAX, false).unwrap();
        assert_eq!(lengths(&batches.observations)[0], 16);
        let none = disturbed(|_| true, false).unwrap_err();
        let reason = "64 of the first batches were disturbed, the last one: batch 64 was late";
        assert_eq!(none.to_string(), reason);
    }

    #[test]
    fn a_copy_ends_if_all_of_its_batches_are_disturbed() {
        let clock = FakeClock::default();
        let mut refused = Known { disturbed: |batch| batch > 10, ..known(&clock, 1000) };
        let ended = go_on(&clock, SCHEDULE, &mut refused, &mut || Ok(())).unwrap_err();
        assert_eq!(ended.to_string(), format!("batch {} was late", 10 + REFUSED_MAX + 1));
    }
}
