//! Which samples an estimate is made of: those that nobody disturbed.
//!
//! A sample whose processor was taken away or ran at another clock rate, or whose neighbours were busy, did not measure
//! its primitive. It is rejected and counted, as long as enough others are left; if there are many of them, the verdict
//! says so ([`crate::verdict`]). `bench` calls this before it estimates a cost.
//!
//! Rejecting does not bend the estimate, because only the evidence is looked at, never the time that was measured: of
//! samples that cost more by themselves (an unlucky layout, a slow processor) none is rejected for it, and what is
//! left is a random part of what was taken. A rule that looked at the costs would call a machine better than it is.
//!
//! Involuntary switches are kept with the sample and not looked at. The time that they cost is in the stolen
//! time. Their number depends on how an operation of two processes on one processor happens to run: samples of
//! one round trip that had twice the usual number cost 0.6 of what the others did, undisturbed; a rule on the
//! number would have rejected a mode of the machine.

use crate::sample::{Contamination, Sample};
use crate::verdict::CONTAMINATED_MAX;

/// Stolen share above which a sample is contaminated. Timer interrupts
/// and short-lived daemons of an otherwise idle machine take less than this; one competing process takes
/// half.
const STOLEN_MAX: f64 = 0.05;

/// Runnable tasks beside the sample, for each processor of the machine, above which it is contaminated: one
/// competitor on a machine of up to four processors. It need not have had the sample's own processor to take
/// its share of caches, memory and clock rate.
const NEIGHBOURS_MAX: f64 = 0.2;

/// Waits for a disk that a sample may have beyond twice the number that is usual for its primitive: each
/// disturbs one batch, and two disturbed batches cannot move the median slope of a sample's twelve.
const DISTURBED_BATCHES: u64 = 2;

/// Share of its batches that a sample may have had on a shared core: two of them cannot move the median slope.
const SHARED_MAX: f64 = 0.15;

/// Change of the core's clock from what is usual in the run, above which a sample measured another machine: much more
/// than a look at it varies (0.2 %), and less than the step from one turbo frequency to the next.
const CLOCK_CHANGE_MAX: f64 = 0.02;

/// Narrowest core, as a share of the widest in the run, of a sample that had one alone. What a sample knew of the width
/// when it was taken may have been too little, if the core was shared while the clock was calibrated.
const WIDTH_MIN: f64 = 0.95;

/// Fewest samples that make an estimate without the contaminated ones. Where there are fewer, the contaminated ones
/// are in the estimate, but only where the verdict says contaminated.
const KEPT_MIN: usize = 4;

/// Samples told apart by the evidence.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sifted {
    /// Values of which the estimate is to be made, in the order of their samples.
    pub kept: Vec<f64>,
    /// Samples that have a value and were disturbed. They are not among those kept, unless too few others
    /// are left.
    pub contaminated: usize,
    /// Lowest value of an undisturbed sample. (Disturbance that falls on the shorter batches, or on the
    /// baseline that is subtracted, makes a value too low: such a one is no floor of the machine.)
    pub minimum: Option<f64>,
    /// Share of all samples that were disturbed, with a value or without.
    pub contaminated_share: f64,
}

/// Sifts samples. `value` is what a sample says of its primitive, `None` if it gives none.
pub fn sift(samples: &[Sample], value: impl Fn(&Sample) -> Option<f64>) -> Sifted {
    let usual = Usual::of(samples);
    let mut disturbed = 0_usize;
    let (mut clean, mut all) = (Vec::new(), Vec::new());
    for sample in samples {
        let contaminated = usual.is_exceeded_by(&sample.contamination);
        disturbed += usize::from(contaminated);
        let Some(value) = value(sample) else { continue };
        all.push(value);
        if !contaminated {
            clean.push(value);
        }
    }
    let contaminated_share = share(disturbed, samples.len());
    let all_are_needed = clean.len() < KEPT_MIN && contaminated_share > CONTAMINATED_MAX;
    Sifted {
        contaminated: all.len() - clean.len(),
        minimum: clean.iter().copied().reduce(f64::min),
        contaminated_share,
        kept: if all_are_needed { all } else { clean },
    }
}

/// The medians over the samples of a primitive: what its operation causes by itself, and what the machine is like
/// at the time, is not held against a sample.
struct Usual {
    major_faults: u64,
    /// `None` where nobody looked.
    cycle_ns: Option<f64>,
    /// The widest, not the median: 0 where nobody looked.
    core_width: f64,
    /// The least, for the same reason.
    translation_ns: Option<f64>,
}

impl Usual {
    fn of(samples: &[Sample]) -> Self {
        let seen = || samples.iter().map(|sample| sample.contamination);
        let mut faults: Vec<u64> = seen().map(|seen| seen.major_faults).collect();
        faults.sort_unstable();
        let mut cycles: Vec<f64> = seen().map(|seen| seen.cycle_ns).filter(|ns| *ns > 0.0).collect();
        cycles.sort_by(f64::total_cmp);
        Self {
            major_faults: faults.get(faults.len() / 2).copied().unwrap_or(0),
            cycle_ns: cycles.get(cycles.len() / 2).copied(),
            core_width: seen().map(|seen| seen.core_width).fold(0.0, f64::max),
            translation_ns: seen().map(|seen| seen.translation_ns).filter(|ns| *ns > 0.0).reduce(f64::min),
        }
    }

    fn is_exceeded_by(&self, evidence: &Contamination) -> bool {
        let bearable = self.major_faults.saturating_mul(2).saturating_add(DISTURBED_BATCHES);
        let is_slow = |least: f64| evidence.translation_ns > Contamination::SLOW_TRANSLATION * least;
        let changed = |usual: f64| (evidence.cycle_ns / usual - 1.0).abs() > CLOCK_CHANGE_MAX;
        evidence.stolen_share() > STOLEN_MAX
            || evidence.neighbours > NEIGHBOURS_MAX
            || evidence.shared > SHARED_MAX
            || (evidence.core_width > 0.0 && evidence.core_width < WIDTH_MIN * self.core_width)
            || evidence.major_faults > bearable
            || self.translation_ns.is_some_and(is_slow)
            || (evidence.cycle_ns > 0.0 && self.cycle_ns.is_some_and(changed))
    }
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { crate::estimate::real(part) / crate::estimate::real(whole) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample of 100 ns that saw this.
    fn seeing(seed: u64, seen: Contamination) -> Sample {
        Sample { seed, contamination: Contamination { wall_ns: 100.0, ..seen }, ..Sample::default() }
    }

    #[test]
    fn a_sample_of_which_more_than_two_batches_had_a_shared_core_is_rejected_and_counted() {
        let shared = |seed, shared| seeing(seed, Contamination { shared, ..Contamination::default() });
        let samples = [shared(1, 0.0), shared(2, 0.14), shared(3, 0.0), shared(4, 0.1), shared(5, 0.22)];
        let sifted = sifted(&samples);
        assert_eq!(sifted.kept, [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(sifted.contaminated, 1);
    }

    #[test]
    fn a_sample_that_was_slow_to_change_what_it_translates_is_rejected() {
        let at =
            |seed, translation_ns| seeing(seed, Contamination { translation_ns, ..Contamination::default() });
        let samples = [at(1, 4600.0), at(2, 6600.0), at(3, 4550.0), at(4, 5400.0), at(5, 0.0), at(6, 4700.0)];
        assert_eq!(sifted(&samples).kept, [1.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn a_sample_of_a_core_that_others_showed_to_be_wider_is_rejected() {
        let on = |seed, core_width| seeing(seed, Contamination { core_width, ..Contamination::default() });
        let samples = [on(1, 2.6), on(2, 3.95), on(3, 3.93), on(4, 3.96), on(5, 0.0)];
        assert_eq!(sifted(&samples).kept, [2.0, 3.0, 4.0, 5.0]);
    }

    #[test]
    fn a_contaminated_sample_is_in_no_estimate_that_is_not_called_so() {
        let mut samples: Vec<Sample> = (1..=12).map(|seed| sample(seed, 0.0, 0)).collect();
        samples[0].contamination.stolen_ns = 50.0;
        let few = sift(&samples, |sample| (sample.seed <= 4).then_some(1.0));
        assert_eq!((few.kept.len(), few.contaminated), (3, 1));
    }

    #[test]
    fn a_sample_at_another_clock_rate_than_the_others_is_rejected_and_one_without_a_clock_is_not() {
        let at = |seed, cycle_ns| seeing(seed, Contamination { cycle_ns, ..Contamination::default() });
        let samples = [at(1, 0.342), at(2, 0.343), at(3, 0.379), at(4, 0.342), at(5, 0.0), at(6, 0.323)];
        assert_eq!(sifted(&samples).kept, [1.0, 2.0, 4.0, 5.0]);
    }

    /// A sample whose value is its seed.
    fn sample(seed: u64, stolen_ns: f64, major_faults: u64) -> Sample {
        let contamination =
            Contamination { wall_ns: 100.0, stolen_ns, major_faults, ..Contamination::default() };
        Sample { seed, contamination, ..Sample::default() }
    }

    fn sifted(samples: &[Sample]) -> Sifted {
        sift(samples, |sample| u32::try_from(sample.seed).ok().map(f64::from))
    }

    #[test]
    fn a_sample_that_lost_more_than_a_twentieth_of_its_time_is_rejected_and_counted() {
        let mut samples: Vec<Sample> = (1..=9).map(|seed| sample(seed, 5.0, 0)).collect();
        samples.insert(3, sample(700, 5.1, 0));
        let sifted = sifted(&samples);
        assert_eq!(sifted.kept, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        assert_eq!((sifted.contaminated, sifted.minimum), (1, Some(1.0)));
        assert!((sifted.contaminated_share - 0.1).abs() < 1e-12);
    }

    #[test]
    fn waits_for_a_disk_count_against_a_sample_only_beyond_what_its_primitive_causes() {
        let with = |faults: u64, usual: u64| {
            let mut samples = vec![sample(1, 0.0, usual); 7];
            samples.push(sample(2, 0.0, faults));
            sifted(&samples).contaminated
        };
        assert_eq!((with(2, 0), with(3, 0)), (0, 1));
        assert_eq!((with(202, 100), with(203, 100)), (0, 1));
        assert_eq!((with(1_000_000, 1_000_000), with(0, 500), with(u64::MAX, u64::MAX / 2)), (0, 0, 0));
    }

    #[test]
    fn a_competitor_on_another_processor_contaminates_a_small_machine_and_not_a_large_one() {
        let beside = |neighbours: f64| {
            let mut samples = vec![sample(1, 0.0, 0); 7];
            samples[3].contamination.neighbours = neighbours;
            sifted(&samples).contaminated
        };
        assert_eq!((beside(1.0 / 4.0), beside(1.0 / 8.0)), (1, 0));
    }

    #[test]
    fn switches_that_took_no_time_are_the_operations_own() {
        let mut samples = vec![sample(1, 0.0, 0); 7];
        samples[3].contamination.involuntary_switches = 4432;
        assert_eq!(sifted(&samples).contaminated, 0);
    }

    #[test]
    fn too_few_undisturbed_samples_leave_all_in_but_none_of_the_disturbed_is_the_minimum() {
        let samples: Vec<Sample> =
            (1..=6).map(|seed| sample(seed, if seed <= 3 { 50.0 } else { 0.0 }, 0)).collect();
        let three = sifted(&samples);
        assert_eq!((three.kept.len(), three.contaminated, three.minimum), (6, 3, Some(4.0)));
        let four = sifted(&samples[1..]);
        assert_eq!((four.kept.len(), four.contaminated), (5, 2));
        let enough = sifted(&[&samples[2..], &samples[3..4]].concat());
        assert_eq!((enough.kept.len(), enough.contaminated), (4, 1));
        assert_eq!(sifted(&samples[..3]).minimum, None);
        assert_eq!(sifted(&[]), Sifted::default());
    }

    #[test]
    fn a_disturbed_sample_without_a_value_is_evidence_all_the_same() {
        let mut samples = vec![sample(1, 0.0, 0); 4];
        samples.push(sample(u64::MAX, 90.0, 0));
        let sifted = sifted(&samples);
        assert_eq!((sifted.kept.len(), sifted.contaminated), (4, 0));
        assert!((sifted.contaminated_share - 0.2).abs() < 1e-12);
    }
}
