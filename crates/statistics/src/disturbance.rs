//! Selects the batches of an estimate: those that lost no time.
//!
//! A batch is disturbed if other tasks, unrelated page faults or interrupts took time from it. Disturbed
//! batches are left out and counted, like those that could not be done as asked ([`Sample::refused`]).
//!
//! The conditions ([`crate::conditions`]: another busy hardware thread, the clock rate, tasks elsewhere)
//! exclude nothing. They are part of what an operation costs on this machine.
//!
//! Leaving batches out does not bias the estimate, because the rule depends only on the time lost, never on
//! the time taken: a rule that depended on the costs would make a machine look better than it is.

use assay_quantity::evidence::{LOST, NOT_RUN, QUEUED, STOLEN};
use assay_quantity::{Evidence, Observation, Sample};

use crate::aspect::value;
use crate::estimator::real;

/// Share of its time that a batch may lose. The choice matters little: of 39,956 batches of a run on a
/// virtual machine, 2.4 % lost more than 3 % of their time, 1.8 % more than 5 %, and 1.4 % more than 7 %.
pub const LOST_MAX: f64 = 0.05;

/// Whether each batch lost more than [`LOST_MAX`] of its time: of the observations, and of the baseline. A
/// batch whose loss was not observed did not.
#[must_use]
pub fn disturbed(sample: &Sample) -> [Vec<bool>; 2] {
    let is_disturbed = |lost: &Vec<f64>, batch| lost.get(batch).is_some_and(|lost| *lost > LOST_MAX);
    let lost = lost(sample);
    [0, 1].map(|which| (0..lengths(sample)[which]).map(|batch| is_disturbed(&lost[which], batch)).collect())
}

/// Numbers of observations and of batches of the baseline.
fn lengths(sample: &Sample) -> [usize; 2] {
    [sample.observations.len(), sample.baseline.len()]
}

/// The share of its time that each batch lost: of the observations, and of the baseline.
fn lost(sample: &Sample) -> [Vec<f64>; 2] {
    let series = |kind: &str| -> [&[f64]; 2] {
        let readings = sample.evidence.of(kind);
        readings.split_at(sample.observations.len().min(readings.len())).into()
    };
    let is_observed = |kind: &str| !sample.evidence.of(kind).is_empty();
    if is_observed(LOST) {
        return series(LOST).map(<[f64]>::to_vec);
    }
    let (idle, stolen) = if is_observed(NOT_RUN) {
        // This includes the time that the hypervisor took.
        (series(NOT_RUN), 0.0)
    } else {
        (series(QUEUED), value(&sample.evidence, STOLEN).unwrap_or(0.0))
    };
    [0, 1].map(|which| beyond_calmest(idle[which], lengths(sample)[which], stolen))
}

/// The time that batches of one operation were idle beyond the calmest of them, and the time that the
/// hypervisor took from them, as shares.
///
/// The idle time of the calmest batch is attributed to the operation: a wake-up takes some time in the run
/// queue even of an idle processor, and some kernels do not charge a task with the interrupts that it causes.
fn beyond_calmest(idle: &[f64], batches: usize, stolen: f64) -> Vec<f64> {
    // A share lies outside if processor time was charged to another batch than that in which it passed.
    let idle: Vec<f64> =
        (0..batches).map(|batch| idle.get(batch).map_or(0.0, |idle| idle.clamp(0.0, 1.0))).collect();
    let own = idle.iter().copied().reduce(f64::min).unwrap_or(0.0);
    idle.into_iter().map(|idle| idle - own + stolen).collect()
}

/// The values of samples without their disturbed batches, and with them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sifted<'a> {
    /// Values of the estimate, in the order of their samples. If fewer than two samples have a value without
    /// their disturbed batches, these are the values with them.
    pub kept: Vec<f64>,
    /// The evidence of the process of each value.
    pub evidence: Vec<&'a Evidence>,
    /// The values with all batches but the refused ones.
    pub all: Vec<f64>,
    /// Whether `kept` includes disturbed batches.
    pub is_disturbed: bool,
    /// Batches of all samples, refused ones included.
    pub batches: usize,
    /// Batches that were disturbed or refused.
    pub disturbed: usize,
}

impl Sifted<'_> {
    /// Share of the batches that were disturbed.
    #[must_use]
    pub fn disturbed_share(&self) -> f64 {
        real(self.disturbed) / real(self.batches.max(1))
    }
}

/// Leaves out the disturbed batches of samples. `value` returns the value of a sample, `None` if it has none.
pub fn sift(samples: &[Sample], value: impl Fn(&Sample) -> Option<f64>) -> Sifted<'_> {
    let (mut kept, mut all, mut sifted) = (Vec::new(), Vec::new(), Sifted::default());
    for sample in samples {
        let are_disturbed = disturbed(sample);
        let disturbed = are_disturbed.iter().flatten().filter(|is_disturbed| **is_disturbed).count();
        let with_all = value(sample);
        let without = if disturbed == 0 {
            with_all
        } else {
            without(sample, &are_disturbed).and_then(|left| value(&left))
        };
        sifted.batches += lengths(sample).iter().sum::<usize>() + sample.refused;
        sifted.disturbed += disturbed + sample.refused;
        all.extend(with_all.map(|value| (value, &sample.evidence)));
        kept.extend(without.map(|value| (value, &sample.evidence)));
    }
    sifted.is_disturbed = kept.len() < 2 && kept.len() < all.len();
    sifted.all = all.iter().map(|(value, _)| *value).collect();
    (sifted.kept, sifted.evidence) = if sifted.is_disturbed { all } else { kept }.into_iter().unzip();
    sifted
}

/// The undisturbed batches of a sample, without its other contents; `None` if its whole baseline was
/// disturbed.
#[must_use]
pub fn undisturbed(sample: &Sample) -> Option<Sample> {
    without(sample, &disturbed(sample))
}

fn without(sample: &Sample, are_disturbed: &[Vec<bool>; 2]) -> Option<Sample> {
    let [observations, baseline] = [0, 1].map(|which| {
        let batches = [&sample.observations, &sample.baseline][which];
        let all = batches.iter().zip(&are_disturbed[which]);
        all.filter(|(_, is_disturbed)| !**is_disturbed).map(|(batch, _)| *batch).collect::<Vec<Observation>>()
    });
    (baseline.is_empty() == sample.baseline.is_empty()).then(|| Sample {
        seed: sample.seed,
        observations,
        baseline,
        ..Sample::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slope::cost_ns;
    use assay_quantity::evidence::MAJOR_FAULTS;

    /// A sample of two batches whose difference is `value`, and of two others that take 50 ns longer, during
    /// which its task did not run for this share of the time.
    fn sample(value: f64, not_run: f64) -> Sample {
        let batch = |operations: u64, elapsed_ns| Observation { operations, elapsed_ns };
        let observations =
            vec![batch(1, 100.0), batch(2, 100.0 + value), batch(1, 150.0), batch(2, 200.0 + value)];
        let evidence = Evidence::from_iter([(NOT_RUN, vec![0.01, 0.0, not_run, not_run])]);
        Sample { observations, evidence, ..Sample::default() }
    }

    /// The difference of two samples.
    fn difference(operation: Sample, baseline: Sample) -> Sample {
        let mut difference = Sample { baseline: baseline.observations, ..operation };
        difference.evidence.append(baseline.evidence);
        difference
    }

    fn sifted(samples: &[Sample]) -> Sifted<'_> {
        sift(samples, |sample| cost_ns(sample).ok())
    }

    #[test]
    fn a_batch_that_lost_more_than_a_twentieth_of_its_time_is_left_out_and_counted() {
        let mut samples = [sample(9.0, 0.0), sample(8.0, 0.3), Sample::default(), sample(7.0, 0.0)];
        for (sample, faults) in samples.iter_mut().zip([0.0, 1.0, 2.0, 3.0]) {
            sample.evidence.add(MAJOR_FAULTS, faults);
        }
        let sifted = sifted(&samples);
        assert_eq!(sifted.kept, [34.0, 8.0, 32.0]);
        assert_eq!(sifted.all, [34.0, 33.0, 32.0]);
        let of_samples: Vec<&[f64]> = sifted.evidence.iter().map(|seen| seen.of(MAJOR_FAULTS)).collect();
        assert_eq!(of_samples, [[0.0], [1.0], [3.0]]);
        assert_eq!((sifted.batches, sifted.disturbed), (12, 2));
        assert!(!sifted.is_disturbed);
    }

    /// Returns the lost shares, in per cent, of batches with these readings in per cent.
    fn lost_of(kind: &'static str, readings: &[f64], stolen: f64) -> Vec<f64> {
        let readings: Vec<f64> = readings.iter().map(|percent| percent / 100.0).collect();
        let evidence = Evidence::from_iter([(kind, readings), (STOLEN, vec![stolen / 100.0])]);
        let observations = vec![Observation { operations: 1, elapsed_ns: 1e5 }; 3];
        let [lost, _] = lost(&Sample { observations, evidence, ..Sample::default() });
        lost.iter().map(|lost| (100.0 * lost).round()).collect()
    }

    #[test]
    fn the_idle_time_of_the_calmest_batch_is_not_lost() {
        assert_eq!(lost_of(NOT_RUN, &[0.0, 7.0, 0.0], 0.0), [0.0, 7.0, 0.0]);
        assert_eq!(lost_of(QUEUED, &[30.0, 33.0, 90.0], 0.0), [0.0, 3.0, 60.0]);
        // The processor time of children that ended may be that of an earlier batch.
        assert_eq!(lost_of(NOT_RUN, &[-300.0, 7.0, 0.0], 0.0), [0.0, 7.0, 0.0]);
    }

    #[test]
    fn the_calmest_batches_of_an_operation_and_of_its_baseline_differ() {
        let with = |not_run: f64| Evidence::from_iter([(NOT_RUN, vec![not_run; 4])]);
        let asleep = Sample { evidence: with(0.3), ..sample(9.0, 0.0) };
        let awake = Sample { evidence: with(0.0), ..sample(2.0, 0.0) };
        let all = [difference(asleep.clone(), awake.clone()), difference(awake, asleep)];
        let sifted = sifted(&all);
        assert_eq!((sifted.disturbed, sifted.kept, sifted.all), (0, vec![7.0, -7.0], vec![7.0, -7.0]));
    }

    #[test]
    fn stolen_time_counts_only_if_the_idle_time_does_not_include_it() {
        assert_eq!(lost_of(NOT_RUN, &[0.0, 7.0, 0.0], 50.0), [0.0, 7.0, 0.0]);
        assert_eq!(lost_of(QUEUED, &[10.0, 17.0, 10.0], 50.0), [50.0, 57.0, 50.0]);
        assert_eq!(lost_of(MAJOR_FAULTS, &[9.0], 50.0), [50.0, 50.0, 50.0]);
        assert_eq!(lost_of(LOST, &[5.0, 6.0, 7.0], 50.0), [5.0, 6.0, 7.0]);
    }

    #[test]
    fn disturbed_batches_of_a_baseline_are_left_out_as_well() {
        let sifted = [difference(sample(9.0, 0.0), sample(2.0, 0.3))];
        let sifted = super::sift(&sifted, |sample| cost_ns(sample).ok());
        assert_eq!((sifted.kept, sifted.disturbed, sifted.batches), (vec![32.0], 2, 8));
    }

    #[test]
    fn a_sample_whose_whole_baseline_was_disturbed_has_no_value_rather_than_one_without_a_baseline() {
        let lost = |sample: Sample, share| Sample {
            evidence: Evidence::from_iter([(LOST, vec![share; 4])]),
            ..sample
        };
        let difference = difference(lost(sample(9.0, 0.0), 0.0), lost(sample(2.0, 0.0), 0.6));
        let all = [difference.clone(), difference, sample(9.0, 0.0), sample(8.0, 0.0)];
        let sifted = sifted(&all);
        assert_eq!((sifted.kept, sifted.all), (vec![34.0, 33.0], vec![7.0, 7.0, 34.0, 33.0]));
    }

    #[test]
    fn a_refused_batch_is_counted_and_is_in_no_value() {
        let all = [Sample { refused: 3, ..sample(9.0, 0.0) }, sample(8.0, 0.0)];
        let sifted = sifted(&all);
        assert_eq!((sifted.batches, sifted.disturbed), (11, 3));
        assert_eq!((&sifted.kept, sifted.all.len()), (&sifted.all, 2));
    }

    #[test]
    fn with_fewer_than_two_values_left_all_batches_make_the_estimate() {
        let lost = Sample { evidence: Evidence::from_iter([(LOST, vec![0.6; 4])]), ..sample(5.0, 0.0) };
        let all = [lost.clone(), sample(8.0, 0.3), lost.clone()];
        let sifted = sifted(&all);
        assert!(sifted.is_disturbed);
        assert_eq!(sifted.kept.len(), 3);
        let both = [lost];
        let both = super::sift(&both, |sample| cost_ns(sample).ok());
        assert_eq!((both.kept.len(), both.disturbed), (1, 4));
        assert_eq!(super::sift(&[], |_| None), Sifted::default());
    }
}
