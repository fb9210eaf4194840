//! Tests of the harness, with operations of known costs and a clock that only the test advances.

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
fn an_operation_that_sleeps_is_timed_by_the_processor_time_of_its_thread() {
    struct Sleeps(FakeClock);
    impl Operation for Sleeps {
        fn run(&mut self, operations: u64) -> io::Result<()> {
            self.0.pass(operations * 1_000_000_000_000);
            Ok(())
        }
        fn disarm(&mut self, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn timing(&self) -> Timing {
            Timing::Processor
        }
    }
    let clock = FakeClock::default();
    let batch = batch(&clock, &mut Sleeps(clock.clone()), 1000).unwrap();
    assert!(batch.elapsed_ns > 0.0 && batch.elapsed_ns < 1e12, "{batch:?}");
}

#[test]
fn batches_double_until_they_fill_the_time_and_then_alternate() {
    let clock = FakeClock::default();
    let operation = known(&clock, 1000);
    let log = operation.log.clone();
    let batches = sample(&clock, &mut Numbers::default(), SCHEDULE, &mut prepared(operation, None)).unwrap();
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
