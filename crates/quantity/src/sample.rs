//! Raw measurements: what one fresh process saw of one primitive.
//!
//! `bench` makes samples, `store` keeps them as they are, and everything derived (this module's
//! [`Sample::cost_ns`], the estimates of [`crate::estimate`]) is computed again from them whenever it is
//! asked for. Change the statistic, and the history is re-read.

use crate::condition::Condition;
use crate::estimate::{Estimate, trimmed_mean};
use crate::unit::Unit;

/// One timed batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// Operations in the batch.
    pub operations: u64,
    /// Time between the two clock reads around it, in nanoseconds, clock overhead included.
    pub elapsed_ns: f64,
    /// Time within it that tasks, faults and interrupts took which the operation does not ask for, ns
    /// ([`crate::disturbance`]).
    pub lost_ns: f64,
}

/// Something counted around every batch beside the time, by the processor or by the kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// What: `instructions`, `page faults`.
    pub event: String,
    /// Operations of a batch and what was counted in it, in order; or why nothing was.
    pub batches: Result<Vec<(u64, f64)>, String>,
}

impl Counted {
    /// Events of one operation: the slope of counts over operations, as with times ([`Sample::cost_ns`]).
    ///
    /// # Errors
    /// Why there is none.
    pub fn per_operation(&self) -> Result<f64, String> {
        let batches = self.batches.as_ref().map_err(Clone::clone)?;
        let as_time = |(operations, count): &(u64, f64)| Observation {
            operations: *operations,
            elapsed_ns: *count,
            lost_ns: 0.0,
        };
        let observations: Vec<Observation> = batches.iter().map(as_time).collect();
        slope(&observations).ok_or_else(|| NoCost::OneLength.to_string())
    }
}

/// What one fresh process measured: the unit of replication (Kalibera and Jones, ISMM 2013).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sample {
    /// Seed of the layout and of every other choice that the process made.
    pub seed: u64,
    /// Batches of the primitive, in the order they were timed.
    pub observations: Vec<Observation>,
    /// Batches of the work that comes with the primitive but does not belong to it (the pipe under a
    /// context switch; thesis, section 2.2.4), in order. Empty when there is none.
    pub baseline: Vec<Observation>,
    /// Batches besides these that could not be done as asked, because other tasks kept a participant from running.
    pub refused: usize,
    /// What the machine was like meanwhile.
    pub condition: Condition,
    /// What was counted beside the time; empty unless it was asked for.
    pub counted: Vec<Counted>,
}

/// A sample that gives no cost.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum NoCost {
    /// Fewer than two different batch lengths: the overhead cannot be told from the work.
    #[error("its batches have fewer than two different lengths")]
    OneLength,
    /// The cost came out as zero or less: disturbance was larger than the work.
    #[error("its cost came out as {0} ns, so disturbance hid it")]
    NotPositive(f64),
}

impl Sample {
    /// Time of one operation, ns: the slope of time over operations, so that whatever every batch costs
    /// once (reading the clock, calling the batch) drops out. The slope is Theil and Sen's, the median
    /// over all pairs of batches of different length, so that one interrupted batch does not move it.
    ///
    /// A difference to a baseline may come out below zero by chance, and is a value all the same: without such ones
    /// the mean of small differences would be too high.
    ///
    /// # Errors
    /// [`NoCost`] when the batches do not determine a cost, or without a baseline no positive one.
    pub fn cost_ns(&self) -> Result<f64, NoCost> {
        let cost = slope(&self.observations).ok_or(NoCost::OneLength)?;
        if self.baseline.is_empty() {
            return if cost > 0.0 { Ok(cost) } else { Err(NoCost::NotPositive(cost)) };
        }
        Ok(cost - slope(&self.baseline).ok_or(NoCost::OneLength)?)
    }

    /// Cost of one operation in the longer batches over that in the shorter ones: 1 if time grows with the
    /// number of operations as a straight line does, 2 if it grows with the square. Where it is not 1 the
    /// cost depends on how long the batches happened to be, and is none. Both costs are Theil and Sen's
    /// slopes, of the batches up to the middle length and of those from the middle length on.
    ///
    /// Any two points lie on a line: `None` for fewer than three lengths. The harness should take batches of n,
    /// 2n and 4n, whose two slopes are of n and of 2n operations. `None` as well if either slope is not
    /// positive.
    #[must_use]
    pub fn linearity(&self) -> Option<f64> {
        let mut lengths: Vec<u64> = self.observations.iter().map(|batch| batch.operations).collect();
        lengths.sort_unstable();
        lengths.dedup();
        if lengths.len() < 3 {
            return None;
        }
        let middle = lengths[lengths.len() / 2];
        let (mut shorter, mut longer) = (self.observations.clone(), self.observations.clone());
        shorter.retain(|batch| batch.operations <= middle);
        longer.retain(|batch| batch.operations >= middle);
        let (short, long) = (slope(&shorter)?, slope(&longer)?);
        (short > 0.0 && long > 0.0).then(|| long / short)
    }
}

/// The linearity of a primitive over its processes: the trimmed mean of [`Sample::linearity`]. `None` if fewer
/// than two samples tell.
#[must_use]
pub fn linearity(samples: &[Sample]) -> Option<Estimate> {
    let values: Vec<f64> = samples.iter().filter_map(Sample::linearity).collect();
    trimmed_mean(&values, Unit::Ratio).ok()
}

/// Theil-Sen slope in ns per operation.
#[expect(clippy::cast_precision_loss, reason = "batches hold far fewer than 2^52 operations")]
fn slope(observations: &[Observation]) -> Option<f64> {
    let mut slopes = Vec::new();
    for (position, a) in observations.iter().enumerate() {
        for b in &observations[position + 1..] {
            if a.operations != b.operations {
                let operations = b.operations as f64 - a.operations as f64;
                slopes.push((b.elapsed_ns - a.elapsed_ns) / operations);
            }
        }
    }
    if slopes.is_empty() {
        return None;
    }
    slopes.sort_by(f64::total_cmp);
    Some(crate::estimate::middle(&slopes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(cost_ns: f64, overhead_ns: f64) -> Vec<Observation> {
        (0..10)
            .map(|turn| {
                let operations = if turn % 2 == 0 { 100 } else { 200 };
                Observation {
                    operations,
                    elapsed_ns: overhead_ns + cost_ns * f64::from(if turn % 2 == 0 { 100 } else { 200 }),
                    lost_ns: 0.0,
                }
            })
            .collect()
    }

    #[test]
    fn the_overhead_of_a_batch_drops_out() {
        let sample = Sample { observations: batches(7.5, 3000.0), ..Sample::default() };
        assert!((sample.cost_ns().unwrap() - 7.5).abs() < 1e-9);
    }

    #[test]
    fn one_interrupted_batch_does_not_move_the_cost() {
        let mut observations = batches(7.5, 20.0);
        observations[3].elapsed_ns += 1e7;
        let sample = Sample { observations, ..Sample::default() };
        assert!((sample.cost_ns().unwrap() - 7.5).abs() < 1e-9);
    }

    #[test]
    fn the_baseline_is_subtracted_and_a_difference_below_zero_is_one() {
        let mut sample =
            Sample { observations: batches(9.0, 20.0), baseline: batches(4.0, 50.0), ..Sample::default() };
        assert!((sample.cost_ns().unwrap() - 5.0).abs() < 1e-9);
        sample.baseline = batches(10.0, 50.0);
        assert!((sample.cost_ns().unwrap() + 1.0).abs() < 1e-9);
        let impossible = Sample { observations: batches(-1.0, 500.0), ..Sample::default() };
        assert!(matches!(impossible.cost_ns(), Err(NoCost::NotPositive(_))));
    }

    /// Six batches each of 100, 200 and 400 operations whose time is this function of their number.
    fn three_lengths(time_ns: impl Fn(f64) -> f64) -> Sample {
        let length = |turn: u32| [100_u32, 200, 400][turn as usize % 3];
        let batch = |turn| Observation {
            operations: u64::from(length(turn)),
            elapsed_ns: time_ns(f64::from(length(turn))),
            lost_ns: 0.0,
        };
        Sample { observations: (0..18).map(batch).collect(), ..Sample::default() }
    }

    #[test]
    fn a_line_is_linear_whatever_its_overhead_and_one_disturbed_batch() {
        let mut sample = three_lengths(|n| 3000.0 + 7.5 * n);
        sample.observations[4].elapsed_ns += 1e7;
        assert!((sample.linearity().unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_cost_that_grows_with_the_batch_shows_by_how_much() {
        assert!((three_lengths(|n| n * n).linearity().unwrap() - 2.0).abs() < 1e-9);
        assert!(three_lengths(f64::sqrt).linearity().unwrap() < 0.75);
        let all = [three_lengths(|n| n * n), three_lengths(|n| n * n), three_lengths(|n| n * n)];
        assert!((linearity(&all).unwrap().point - 2.0).abs() < 1e-9);
    }

    #[test]
    fn two_lengths_or_a_falling_time_tell_nothing_about_linearity() {
        let two = Sample { observations: batches(7.5, 20.0), ..Sample::default() };
        assert_eq!((two.linearity(), linearity(&[two.clone(), two])), (None, None));
        assert_eq!(three_lengths(|n| 1000.0 - n).linearity(), None);
    }

    #[test]
    fn batches_of_one_length_give_no_cost() {
        let observations = vec![Observation { operations: 5, elapsed_ns: 10.0, lost_ns: 0.0 }; 4];
        let sample = Sample { observations, ..Sample::default() };
        assert_eq!(sample.cost_ns(), Err(NoCost::OneLength));
    }
}
