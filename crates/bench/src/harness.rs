//! How one process times one operation.
//!
//! The length n of a batch is found by doubling, which warms the caches on the way (thesis, section
//! 2.2.2). Then batches of n and of 2n alternate, and which comes first alternates too, so that a drift
//! of the machine favours neither; a few batches of n/2 let the straight line be checked. What every batch costs once
//! (two clock readings, one dynamic call) stands in both and drops out of the slope, which `statistics` computes. A batch
//! that its operation refuses as [`Disturbed`] is left out and counted. Time comes from the [`Clock`] that is passed in;
//! this module makes no system call of its own.

use std::io;

use assay_quantity::Observation;

use crate::benchmark::{Disturbed, Operation, Prepared};
use crate::clock::Clock;
use crate::evidence::Witness;

/// How long a sample is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// Pairs of a batch of n and one of 2n.
    pub pairs: usize,
    /// Time that a batch of n should take at least, ns.
    pub batch_ns: f64,
}

/// Pairs per sample: the slope is the median over all pairs of batches of different length, and with six
/// of each length two wholly disturbed ones cannot reach it.
const PAIRS: usize = 6;

/// Every so many pairs a batch of n/2 follows: a third length, which shows whether time is a straight line over
/// operations at all.
const HALVED: usize = 3;

/// A batch takes at least this many steps of its clock, so that the step is at most 0.1 % of it.
const RESOLUTIONS: f64 = 1000.0;

/// A batch takes at least this long, ns. An interrupt costs a few microseconds, so it moves a batch by
/// 3 %, and the median by less; what the time of longer batches would tell is better spent on more
/// processes, whose differences are larger.
const BATCH_NS: f64 = 1.5e5;

impl Schedule {
    /// The schedule for a clock of this resolution.
    #[must_use]
    pub fn for_resolution(resolution_ns: f64) -> Self {
        Self { pairs: PAIRS, batch_ns: BATCH_NS.max(RESOLUTIONS * resolution_ns) }
    }
}

/// The batches of one sample. What they lost is, until the witness is closed, what the participants did not run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batches {
    /// Of the operation.
    pub observations: Vec<Observation>,
    /// Of the baseline; empty when there is none.
    pub baseline: Vec<Observation>,
    /// Batches of both that the operations refused as [`Disturbed`].
    pub refused: usize,
}

/// The batches of one operation so far.
#[derive(Default)]
struct Series {
    observations: Vec<Observation>,
    refused: usize,
    /// Why the last one was refused.
    reason: Option<io::Error>,
}

impl Series {
    fn add(&mut self, batch: io::Result<Observation>) -> io::Result<()> {
        match batch {
            Ok(observation) => self.observations.push(observation),
            Err(error) if Disturbed::is(&error) => {
                self.refused += 1;
                self.reason = Some(error);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// An error if no more than half of the batches are left: fewer may all have one length.
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

/// The batches of an operation and of its baseline, if most of either could be done.
fn batches(operation: Series, baseline: Series) -> io::Result<Batches> {
    operation.check()?;
    baseline.check()?;
    let refused = operation.refused + baseline.refused;
    Ok(Batches { observations: operation.observations, baseline: baseline.observations, refused })
}

/// Times an operation, and its baseline in between if it has one.
///
/// # Errors
/// The first call that failed; no batch survives it.
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

/// Times single operations, before each of which the caches are emptied, in turn with no operation at all.
///
/// What the two clock readings and the dynamic call cost with empty caches stands in both and drops out; the
/// emptying itself is outside of the time (1992 paper, section 3.1). A baseline is timed in the same way.
///
/// # Errors
/// The first call that failed, of the operation or of the emptying.
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

/// Does batch after batch until the process is killed: a copy that runs beside the one that is measured.
///
/// # Errors
/// The first call that failed.
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

/// A moment that [`around_batches`] tells of.
pub(crate) enum Around {
    /// Right before a batch.
    Before,
    /// Right after a batch of so many operations.
    After(u64),
}

/// Does batches of n and of 2n in turn for whoever counts something around each of them.
///
/// # Errors
/// The first call that failed, of the operation or of `tell`.
pub(crate) fn around_batches(
    clock: &impl Clock,
    schedule: Schedule,
    operation: &mut dyn Operation,
    tell: &mut dyn FnMut(Around) -> io::Result<()>,
) -> io::Result<()> {
    let length = batch_length(clock, schedule, operation)?;
    for pair in 0..schedule.pairs {
        for operations in in_turn(pair, length) {
            operation.arm(operations)?;
            tell(Around::Before)?;
            operation.run(operations)?;
            tell(Around::After(operations))?;
            operation.disarm(operations)?;
        }
    }
    Ok(())
}

/// Operations of a batch that is counted: enough that what a process does besides is small beside them, and few
/// enough for a program that runs fifty times slower.
const COUNTED: u64 = 1000;

/// One batch, of so many times a fixed length.
///
/// # Errors
/// The first call that failed.
pub(crate) fn one_batch(
    clock: &impl Clock,
    operation: &mut dyn Operation,
    lengths: u64,
) -> io::Result<Observation> {
    let granule = operation.granule();
    let length = COUNTED.min(operation.max_batch() / lengths.max(2)) / granule * granule;
    batch(clock, operation, length.max(granule) * lengths)
}

/// No operation: what it costs is the harness's own.
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

/// The two lengths of a pair, the shorter one first in even pairs.
fn in_turn(pair: usize, length: u64) -> [u64; 2] {
    if pair.is_multiple_of(2) { [length, 2 * length] } else { [2 * length, length] }
}

/// A sample fails when this many batches were refused as [`Disturbed`] before their length is known, and a copy when more
/// were in a row. Beside two busy loops on each processor one batch in eight of `interrupt.ipi` was refused, and fewer of
/// the others.
const REFUSED_MAX: usize = 64;

/// The length n: doubled until batches of n and of 2n both fill the time, because a single long batch may
/// be one that was interrupted; and no more than lets a batch of 2n be armed.
fn batch_length(clock: &impl Clock, schedule: Schedule, operation: &mut dyn Operation) -> io::Result<u64> {
    let mut length = operation.granule();
    let longest = operation.max_batch();
    if longest / 2 < length {
        return Err(io::Error::other(format!(
            "at most {longest} operations fit into one batch, which is too few for a difference"
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

/// Times one batch. `begin` is the last that is done before it.
fn timed(
    clock: &impl Clock,
    witness: &mut impl Witness,
    begin: &mut dyn FnMut() -> io::Result<()>,
    operation: &mut dyn Operation,
    operations: u64,
) -> io::Result<Observation> {
    operation.arm(operations)?;
    // Before the emptying of caches, not after it: asking the kernel would warm its part of them.
    witness.before()?;
    begin()?;
    let observation = bare(clock, operation, operations)?;
    let lost_ns = witness.after(observation.elapsed_ns)?;
    operation.disarm(operations)?;
    Ok(Observation { lost_ns, ..observation })
}

/// Nothing has to be done before a batch.
fn at_once() -> io::Result<()> {
    Ok(())
}

/// The timed part alone.
fn bare(clock: &impl Clock, operation: &mut dyn Operation, operations: u64) -> io::Result<Observation> {
    let begin = clock.begin();
    let result = operation.run(operations);
    let end = clock.end();
    result?;
    Ok(Observation { operations, elapsed_ns: clock.elapsed_ns(begin, end), lost_ns: 0.0 })
}

/// A batch that is not watched.
fn batch(clock: &impl Clock, operation: &mut dyn Operation, operations: u64) -> io::Result<Observation> {
    timed(clock, &mut NoWitness, &mut at_once, operation, operations)
}

/// Nothing is looked at.
pub(crate) struct NoWitness;

impl Witness for NoWitness {
    fn before(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn after(&mut self, _: f64) -> io::Result<f64> {
        Ok(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Sharing;
    use assay_quantity::Sample;
    use assay_statistics::cost_ns;
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    /// Time that passes only when somebody lets it pass.
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

    /// An operation of a known cost that counts what is asked of it.
    struct Known {
        clock: FakeClock,
        cost_ns: u64,
        granule: u64,
        max_batch: u64,
        fails_at: Option<u64>,
        /// Length of a batch that is interrupted, once.
        interrupted: Option<u64>,
        /// Which batches, counted from one, were disturbed.
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

    #[derive(Default)]
    struct Sum(f64);

    impl Witness for Sum {
        fn before(&mut self) -> io::Result<()> {
            Ok(())
        }
        fn after(&mut self, elapsed_ns: f64) -> io::Result<f64> {
            self.0 += elapsed_ns;
            Ok(elapsed_ns / 4.0)
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
        let batches = sample(&clock, &mut Sum::default(), SCHEDULE, &mut prepared(operation, None)).unwrap();
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
                sample(&clock, &mut Sum::default(), SCHEDULE, &mut prepared(operation, None)).unwrap();
            let shortest = lengths(&batches.observations)[0];
            // Right before the end it cannot be told from the end, and costs half of the length.
            assert_eq!(shortest, if interrupted == 8 { 8 } else { 16 }, "{interrupted}");
        }
    }

    #[test]
    fn the_slope_of_the_batches_is_the_cost_without_clock_and_call() {
        let clock = FakeClock::default();
        let mut witness = Sum::default();
        let (mut operation, baseline) = (prepared(known(&clock, 70), Some(known(&clock, 30))), 40.0);
        let Batches { observations, baseline: below, refused } =
            sample(&clock, &mut witness, SCHEDULE, &mut operation).unwrap();
        assert_eq!(refused, 0);
        let all = observations.iter().chain(&below).map(|batch| batch.elapsed_ns).sum::<f64>();
        assert!((witness.0 - all).abs() < 1e-9, "the witness sees every timed batch and nothing else");
        let sample = Sample { observations, baseline: below, ..Sample::default() };
        assert!((cost_ns(&sample).unwrap() - baseline).abs() < 1e-9);
    }

    #[test]
    fn a_batch_is_never_longer_than_can_be_armed_and_always_a_multiple_of_the_granule() {
        for (max_batch, granule, expected) in [(100, 1, 32), (64, 1, 32), (63, 1, 16), (100, 6, 48)] {
            let clock = FakeClock::default();
            let operation = Known { max_batch, granule, ..known(&clock, 1) };
            let batches =
                sample(&clock, &mut Sum::default(), SCHEDULE, &mut prepared(operation, None)).unwrap();
            assert_eq!(lengths(&batches.observations)[0], expected, "{max_batch} {granule}");
        }
        let clock = FakeClock::default();
        let operation = Known { max_batch: 1, ..known(&clock, 1) };
        assert!(sample(&clock, &mut Sum::default(), SCHEDULE, &mut prepared(operation, None)).is_err());
    }

    #[test]
    fn a_call_that_fails_in_any_batch_leaves_no_number() {
        for fails_at in [1, 20, 60, 150] {
            let clock = FakeClock::default();
            let operation = Known { fails_at: Some(fails_at), ..known(&clock, 1000) };
            let result = sample(&clock, &mut Sum::default(), SCHEDULE, &mut prepared(operation, None));
            assert_eq!(result.unwrap_err().to_string(), "the kernel refused", "{fails_at}");
        }
    }

    /// The sample of an operation of which these batches were disturbed, as the baseline of another if it says so.
    fn disturbed(disturbed: fn(usize) -> bool, is_baseline: bool) -> io::Result<Batches> {
        let clock = FakeClock::default();
        let refused = Known { disturbed, ..known(&clock, 1000) };
        let mut prepared =
            if is_baseline { prepared(known(&clock, 3000), Some(refused)) } else { prepared(refused, None) };
        sample(&clock, &mut Sum::default(), SCHEDULE, &mut prepared)
    }

    #[test]
    fn a_disturbed_batch_is_left_out_and_counted_and_the_sample_goes_on() {
        // The lengths 1 to 32 take six batches; refused are the first and the fourth after them.
        let batches = disturbed(|batch| batch == 7 || batch == 10, false).unwrap();
        assert_eq!(lengths(&batches.observations), [32, 32, 16, 32, 8]);
        assert_eq!(batches.refused, 2);
        let below = disturbed(|batch| batch == 12, true).unwrap();
        assert_eq!((below.observations.len(), below.baseline.len(), below.refused), (7, 5, 1));
    }

    #[test]
    fn a_sample_of_which_half_of_the_batches_were_disturbed_fails_with_the_last_reason() {
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
    fn a_copy_all_of_whose_batches_are_disturbed_ends() {
        let clock = FakeClock::default();
        let mut refused = Known { disturbed: |batch| batch > 10, ..known(&clock, 1000) };
        let ended = go_on(&clock, SCHEDULE, &mut refused, &mut || Ok(())).unwrap_err();
        assert_eq!(ended.to_string(), format!("batch {} was late", 10 + REFUSED_MAX + 1));
    }
}
