//! Selects the batches of an estimate: those that lost no time.
//!
//! A batch is disturbed if other tasks, unrelated page faults or interrupts took time from it. Disturbed
//! batches are left out and counted, like those that could not be done as asked ([`Sample::refused`]).
//! `bench` measures the time that a batch lost; this module decides whether it is disturbed.
//!
//! The conditions ([`Condition`]: another busy hardware thread, the clock rate, tasks elsewhere) exclude
//! nothing. They are part of what an operation costs on this machine.
//!
//! Leaving batches out does not bias the estimate, because the rule depends only on the time lost, never on
//! the time taken: a rule that depended on the costs would make a machine look better than it is.

use assay_quantity::{Condition, Observation, Sample};

use crate::estimator::real;

/// Share of its time that a batch may lose. The choice matters little: of 39,956 batches of a run on a
/// virtual machine, 2.4 % lost more than 3 % of their time, 1.8 % more than 5 %, and 1.4 % more than 7 %.
pub const LOST_MAX: f64 = 0.05;

/// Whether a batch lost more than [`LOST_MAX`] of its time.
#[must_use]
pub fn is_disturbed(batch: &Observation) -> bool {
    batch.lost_ns > LOST_MAX * batch.elapsed_ns
}

/// The values of samples without their disturbed batches, and with them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sifted {
    /// Values of the estimate, in the order of their samples. If fewer than two samples have a value without
    /// their disturbed batches, these are the values with them.
    pub kept: Vec<f64>,
    /// The condition of the process of each value.
    pub conditions: Vec<Condition>,
    /// The values with all batches but the refused ones.
    pub all: Vec<f64>,
    /// Whether `kept` includes disturbed batches.
    pub is_disturbed: bool,
    /// Batches of all samples, refused ones included.
    pub batches: usize,
    /// Batches that were disturbed or refused.
    pub disturbed: usize,
}

impl Sifted {
    /// Share of the batches that were disturbed.
    #[must_use]
    pub fn disturbed_share(&self) -> f64 {
        real(self.disturbed) / real(self.batches.max(1))
    }
}

/// Leaves out the disturbed batches of samples. `value` returns the value of a sample, `None` if it has none.
pub fn sift(samples: &[Sample], value: impl Fn(&Sample) -> Option<f64>) -> Sifted {
    let (mut kept, mut all, mut sifted) = (Vec::new(), Vec::new(), Sifted::default());
    for sample in samples {
        let batches = || sample.observations.iter().chain(&sample.baseline);
        let disturbed = batches().filter(|batch| is_disturbed(batch)).count();
        let with_all = value(sample);
        let without =
            if disturbed == 0 { with_all } else { undisturbed(sample).and_then(|left| value(&left)) };
        sifted.batches += batches().count() + sample.refused;
        sifted.disturbed += disturbed + sample.refused;
        all.extend(with_all.map(|value| (value, sample.condition)));
        kept.extend(without.map(|value| (value, sample.condition)));
    }
    sifted.is_disturbed = kept.len() < 2 && kept.len() < all.len();
    sifted.all = all.iter().map(|(value, _)| *value).collect();
    (sifted.kept, sifted.conditions) = if sifted.is_disturbed { all } else { kept }.into_iter().unzip();
    sifted
}

/// The sample without its disturbed batches; `None` if its whole baseline was disturbed.
#[must_use]
pub fn undisturbed(sample: &Sample) -> Option<Sample> {
    let mut left = sample.clone();
    left.observations.retain(|batch| !is_disturbed(batch));
    left.baseline.retain(|batch| !is_disturbed(batch));
    (left.baseline.is_empty() == sample.baseline.is_empty()).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slope::cost_ns;

    /// A sample of two batches whose difference is `value`, and of two others that take 50 ns longer and lost
    /// `lost_ns`.
    fn sample(value: f64, lost_ns: f64) -> Sample {
        let batch = |operations: u64, elapsed_ns, lost_ns| Observation { operations, elapsed_ns, lost_ns };
        let observations = vec![
            batch(1, 100.0, 5.0),
            batch(2, 100.0 + value, 0.0),
            batch(1, 150.0, lost_ns),
            batch(2, 200.0 + value, lost_ns),
        ];
        Sample { observations, ..Sample::default() }
    }

    fn sifted(samples: &[Sample]) -> Sifted {
        sift(samples, |sample| cost_ns(sample).ok())
    }

    #[test]
    fn a_batch_that_lost_more_than_a_twentieth_of_its_time_is_left_out_and_counted() {
        let mut samples = [sample(9.0, 0.0), sample(8.0, 50.0), Sample::default(), sample(7.0, 0.0)];
        for (sample, faults) in samples.iter_mut().zip(0..) {
            sample.condition.major_faults = faults;
        }
        let sifted = sifted(&samples);
        assert_eq!(sifted.kept, [34.0, 8.0, 32.0]);
        assert_eq!(sifted.all, [34.0, 33.0, 32.0]);
        let of_samples: Vec<u64> = sifted.conditions.iter().map(|seen| seen.major_faults).collect();
        assert_eq!(of_samples, [0, 1, 3]);
        assert_eq!((sifted.batches, sifted.disturbed), (12, 2));
        assert!(!sifted.is_disturbed);
    }

    #[test]
    fn disturbed_batches_of_a_baseline_are_left_out_as_well() {
        let mut difference = sample(9.0, 0.0);
        difference.baseline = sample(2.0, 50.0).observations;
        let sifted = sifted(&[difference]);
        assert_eq!((sifted.kept, sifted.disturbed, sifted.batches), (vec![32.0], 2, 8));
    }

    #[test]
    fn a_sample_whose_whole_baseline_was_disturbed_has_no_value_rather_than_one_without_a_baseline() {
        let mut difference = sample(9.0, 0.0);
        difference.baseline = sample(2.0, 0.0).observations;
        difference.baseline.iter_mut().for_each(|batch| batch.lost_ns = 90.0);
        let sifted = sifted(&[difference.clone(), difference, sample(9.0, 0.0), sample(8.0, 0.0)]);
        assert_eq!((sifted.kept, sifted.all), (vec![34.0, 33.0], vec![7.0, 7.0, 34.0, 33.0]));
    }

    #[test]
    fn a_refused_batch_is_counted_and_is_in_no_value() {
        let sifted = sifted(&[Sample { refused: 3, ..sample(9.0, 0.0) }, sample(8.0, 0.0)]);
        assert_eq!((sifted.batches, sifted.disturbed), (11, 3));
        assert_eq!((&sifted.kept, sifted.all.len()), (&sifted.all, 2));
    }

    #[test]
    fn with_fewer_than_two_values_left_all_batches_make_the_estimate() {
        let mut lost = sample(5.0, 0.0);
        lost.observations.iter_mut().for_each(|batch| batch.lost_ns = 90.0);
        let sifted = sifted(&[lost.clone(), sample(8.0, 50.0), lost.clone()]);
        assert!(sifted.is_disturbed);
        assert_eq!(sifted.kept.len(), 3);
        let both = super::sift(&[lost], |sample| cost_ns(sample).ok());
        assert_eq!((both.kept.len(), both.disturbed), (1, 4));
        assert_eq!(super::sift(&[], |_| None), Sifted::default());
    }
}
