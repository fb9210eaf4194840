//! What a machine was like during a run, from the evidence of its samples; and whether two runs differ in it.

use assay_quantity::evidence::{CORE_WIDTH, CYCLE_NS};
use assay_quantity::{Conditions, Evidence};

use crate::aspect::{ascending, value, values};
use crate::comparison::family::SAME_WITHIN;
use crate::estimator::{middle, real};

/// The conditions of a run, from the evidence of all its samples.
#[must_use]
pub fn of(seen: &[&Evidence]) -> Conditions {
    let shared = width_alone(seen).and_then(|alone| {
        let samples: Vec<bool> = seen.iter().filter_map(|seen| is_shared(seen, alone)).collect();
        let shared = samples.iter().filter(|shared| **shared).count();
        (!samples.is_empty()).then(|| real(shared) / real(samples.len()))
    });
    let cycles = values(seen, CYCLE_NS);
    Conditions { shared, cycle_ns: (!cycles.is_empty()).then(|| middle(&cycles)) }
}

/// A core narrower than this share of its width alone is shared. On a virtual machine whose cores were shared
/// with other guests, the width was 99 to 101 % of that in 61 % of samples, 50 to 97 % in the others, and 97
/// to 99 % in none.
const ALONE: f64 = 0.97;

/// Share of the widest readings of all samples that are no wider than the core is alone. A reading during
/// which the clock changes comes out too wide, as it did in 1 % of the samples there.
const NOT_TOO_WIDE: f64 = 0.9;

/// Width of a core while no other hardware thread of it is busy, from all samples of a run. `None` if not
/// observed.
#[must_use]
pub fn width_alone(seen: &[&Evidence]) -> Option<f64> {
    let widest =
        ascending(seen.iter().filter_map(|seen| seen.of(CORE_WIDTH).iter().copied().reduce(f64::max)));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
    widest.get((NOT_TOO_WIDE * real(widest.len())) as usize).copied()
}

/// Whether another hardware thread was busy on a core whose width is `alone` otherwise ([`width_alone`]).
/// `None` if not observed.
#[must_use]
pub fn is_shared(seen: &Evidence, alone: f64) -> Option<bool> {
    value(seen, CORE_WIDTH).map(|width| width < ALONE * alone)
}

/// Difference between the shares of shared samples of two runs above which typical costs differ. In 25 runs
/// of twelve primitives on a virtual machine whose cores were shared, the share was 52 to 90 %, and the
/// trimmed mean of all samples rose by 0.3 % (median primitive) for each per cent of it: 3 % make the 1 %
/// within which costs count as the same.
const SHARED_APART: f64 = 0.03;

/// The shares of shared samples of two runs, if they differ so much that typical costs differ with them.
#[must_use]
pub fn shared_apart(a: &Conditions, b: &Conditions) -> Option<[f64; 2]> {
    let shared = [a.shared?, b.shared?];
    ((shared[0] - shared[1]).abs() > SHARED_APART).then_some(shared)
}

/// The clock cycles of two runs, ns, if they differ by more than costs that count as the same
/// ([`SAME_WITHIN`]).
#[must_use]
pub fn cycle_apart(a: &Conditions, b: &Conditions) -> Option<[f64; 2]> {
    let cycles = [a.cycle_ns?, b.cycle_ns?];
    ((cycles[0] / cycles[1]).ln().abs() > SAME_WITHIN).then_some(cycles)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(width: f64, cycle_ns: f64) -> Evidence {
        Evidence::from_iter([(CORE_WIDTH, vec![width]), (CYCLE_NS, vec![cycle_ns])])
    }

    #[test]
    fn a_core_is_shared_if_it_is_narrower_than_alone_and_one_too_wide_reading_does_not_say_how_wide_that_is()
    {
        let mut all: Vec<Evidence> =
            [4.0, 2.4, 3.95, 3.8, 4.0, 2.2, 4.0, 3.9, 4.0, 4.0, 2.5].map(|w| seen(w, 0.25)).into();
        all.extend([seen(7.5, 0.5), Evidence::default()]);
        let all: Vec<&Evidence> = all.iter().collect();
        assert_eq!(width_alone(&all), Some(4.0));
        let shared: Vec<Option<bool>> = all[..4].iter().map(|seen| is_shared(seen, 4.0)).collect();
        assert_eq!(shared, [false, true, false, true].map(Some));
        assert_eq!(is_shared(&Evidence::default(), 4.0), None);
        assert_eq!(of(&all), Conditions { shared: Some(4.0 / 12.0), cycle_ns: Some(0.25) });
        assert_eq!(of(&[&Evidence::default()]), Conditions::default());
        assert_eq!(of(&[]), Conditions::default());
    }

    #[test]
    fn conditions_differ_from_three_per_cent_of_the_samples_or_one_of_the_clock_on() {
        let base = Conditions { shared: Some(0.5), cycle_ns: Some(0.25) };
        let apart = |shared, cycle_ns| {
            let other = Conditions { shared, cycle_ns };
            (shared_apart(&base, &other), cycle_apart(&base, &other))
        };
        assert_eq!(apart(Some(0.52), Some(0.252)), (None, None));
        assert_eq!(apart(Some(0.46), Some(0.25)), (Some([0.5, 0.46]), None));
        assert_eq!(apart(Some(0.54), Some(0.247)), (Some([0.5, 0.54]), Some([0.25, 0.247])));
        assert_eq!(apart(None, None), (None, None));
    }
}
