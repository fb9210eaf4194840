//! The cost of one operation in one process: the slope of time over operations.

use assay_quantity::{Counted, Estimate, Observation, Sample, Unit};

use crate::estimator::{middle, trimmed_mean};

/// Why a sample has no cost.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum NoCost {
    /// Fewer than two different batch lengths: the overhead cannot be separated from the work.
    #[error("its batches have fewer than two different lengths")]
    OneLength,
    /// The cost came out as zero or less: noise was larger than the work.
    #[error("its cost came out as {0} ns: noise is larger than the cost")]
    NotPositive(f64),
}

/// Time of one operation, ns: the slope of time over operations, so that the fixed cost of a batch (reading
/// the clock, calling the batch) drops out. The slope is Theil and Sen's, the median over all pairs of
/// batches of different length, so that one interrupted batch does not move it.
///
/// A difference to a baseline that comes out below zero by chance is a value like any other: without such
/// values the mean of small differences would be too high.
///
/// # Errors
/// [`NoCost`] if the batches do not determine a cost, or the cost without a baseline is not positive.
pub fn cost_ns(sample: &Sample) -> Result<f64, NoCost> {
    let cost = slope(&sample.observations).ok_or(NoCost::OneLength)?;
    if sample.baseline.is_empty() {
        return if cost > 0.0 { Ok(cost) } else { Err(NoCost::NotPositive(cost)) };
    }
    Ok(cost - slope(&sample.baseline).ok_or(NoCost::OneLength)?)
}

/// Events of one operation: the slope of events over operations, as [`cost_ns`] of times.
///
/// # Errors
/// Why there is none.
pub fn events_per_operation(counted: &Counted) -> Result<f64, String> {
    let batches = counted.batches.as_ref().map_err(Clone::clone)?;
    let as_time =
        |(operations, count): &(u64, f64)| Observation { operations: *operations, elapsed_ns: *count };
    let observations: Vec<Observation> = batches.iter().map(as_time).collect();
    slope(&observations).ok_or_else(|| NoCost::OneLength.to_string())
}

/// Linearity of a primitive: the trimmed mean over its samples of the cost of one operation in the longer
/// batches over that in the shorter ones. It is 1 if time is proportional to the number of operations, 2 if
/// it grows with the square. `None` if fewer than two samples have one.
#[must_use]
pub fn linearity(samples: &[Sample]) -> Option<Estimate> {
    let values: Vec<f64> = samples.iter().filter_map(sample_linearity).collect();
    trimmed_mean(&values, Unit::Ratio).ok()
}

/// Linearity of one sample: Theil and Sen's slope of the batches from the middle length on over that of the
/// batches up to the middle length.
///
/// Any two points lie on a line, so it is `None` for fewer than three lengths. The harness takes batches of
/// n, 2n and 4n, whose two slopes are of n and of 2n operations. `None` as well if a slope is not positive.
fn sample_linearity(sample: &Sample) -> Option<f64> {
    let mut lengths: Vec<u64> = sample.observations.iter().map(|batch| batch.operations).collect();
    lengths.sort_unstable();
    lengths.dedup();
    if lengths.len() < 3 {
        return None;
    }
    let middle = lengths[lengths.len() / 2];
    let (mut shorter, mut longer) = (sample.observations.clone(), sample.observations.clone());
    shorter.retain(|batch| batch.operations <= middle);
    longer.retain(|batch| batch.operations >= middle);
    let (short, long) = (slope(&shorter)?, slope(&longer)?);
    (short > 0.0 && long > 0.0).then(|| long / short)
}

/// Distance from 1 beyond which a cost is not linear: half of what makes an estimate noisy.
const LINEAR: f64 = 0.05;

/// Whether the cost of one operation certainly depends on the length of the batch: the whole interval of its
/// linearity is more than 5 % from 1. Such an operation is not a primitive.
#[must_use]
pub fn depends_on_batch(linearity: &Estimate) -> bool {
    linearity.interval.low > 1.0 + LINEAR || linearity.interval.high < 1.0 - LINEAR
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
    Some(middle(&slopes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_quantity::{Interval, Method};

    fn batches(cost_ns: f64, overhead_ns: f64) -> Vec<Observation> {
        (0..10)
            .map(|turn| {
                let operations = if turn % 2 == 0 { 100 } else { 200 };
                Observation {
                    operations,
                    elapsed_ns: overhead_ns + cost_ns * f64::from(if turn % 2 == 0 { 100 } else { 200 }),
                }
            })
            .collect()
    }

    #[test]
    fn the_overhead_of_a_batch_drops_out() {
        let sample = Sample { observations: batches(7.5, 3000.0), ..Sample::default() };
        assert!((cost_ns(&sample).unwrap() - 7.5).abs() < 1e-9);
    }

    #[test]
    fn one_interrupted_batch_does_not_move_the_cost() {
        let mut observations = batches(7.5, 20.0);
        observations[3].elapsed_ns += 1e7;
        let sample = Sample { observations, ..Sample::default() };
        assert!((cost_ns(&sample).unwrap() - 7.5).abs() < 1e-9);
    }

    #[test]
    fn the_baseline_is_subtracted_and_a_difference_below_zero_is_one() {
        let mut sample =
            Sample { observations: batches(9.0, 20.0), baseline: batches(4.0, 50.0), ..Sample::default() };
        assert!((cost_ns(&sample).unwrap() - 5.0).abs() < 1e-9);
        sample.baseline = batches(10.0, 50.0);
        assert!((cost_ns(&sample).unwrap() + 1.0).abs() < 1e-9);
        let impossible = Sample { observations: batches(-1.0, 500.0), ..Sample::default() };
        assert!(matches!(cost_ns(&impossible), Err(NoCost::NotPositive(_))));
    }

    /// Six batches each of 100, 200 and 400 operations whose time is this function of their number.
    fn three_lengths(time_ns: impl Fn(f64) -> f64) -> Sample {
        let length = |turn: u32| [100_u32, 200, 400][turn as usize % 3];
        let batch = |turn| Observation {
            operations: u64::from(length(turn)),
            elapsed_ns: time_ns(f64::from(length(turn))),
        };
        Sample { observations: (0..18).map(batch).collect(), ..Sample::default() }
    }

    #[test]
    fn a_line_is_linear_with_any_overhead_and_one_disturbed_batch() {
        let mut sample = three_lengths(|n| 3000.0 + 7.5 * n);
        sample.observations[4].elapsed_ns += 1e7;
        assert!((sample_linearity(&sample).unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_cost_that_grows_with_the_batch_shows_by_how_much() {
        assert!((sample_linearity(&three_lengths(|n| n * n)).unwrap() - 2.0).abs() < 1e-9);
        assert!(sample_linearity(&three_lengths(f64::sqrt)).unwrap() < 0.75);
        let all = [three_lengths(|n| n * n), three_lengths(|n| n * n), three_lengths(|n| n * n)];
        assert!((linearity(&all).unwrap().point - 2.0).abs() < 1e-9);
    }

    #[test]
    fn two_lengths_or_a_falling_time_have_no_linearity() {
        let two = Sample { observations: batches(7.5, 20.0), ..Sample::default() };
        assert_eq!((sample_linearity(&two), linearity(&[two.clone(), two])), (None, None));
        assert_eq!(sample_linearity(&three_lengths(|n| 1000.0 - n)), None);
    }

    #[test]
    fn batches_of_one_length_give_no_cost() {
        let observations = vec![Observation { operations: 5, elapsed_ns: 10.0 }; 4];
        let sample = Sample { observations, ..Sample::default() };
        assert_eq!(cost_ns(&sample), Err(NoCost::OneLength));
    }

    #[test]
    fn only_a_linearity_that_is_certainly_off_makes_a_cost_depend_on_the_batch() {
        let depends = |low: f64, high: f64| {
            let interval = Interval { low, high, confidence: 0.95 };
            let linearity = Estimate {
                point: f64::midpoint(low, high),
                interval,
                unit: Unit::Ratio,
                method: Method::TrimmedMean,
                values: 12,
            };
            depends_on_batch(&linearity)
        };
        assert_eq!([depends(1.06, 1.2), depends(0.6, 0.94)], [true, true]);
        assert_eq!([depends(1.04, 1.2), depends(0.6, 0.96), depends(0.99, 1.01)], [false; 3]);
    }
}
