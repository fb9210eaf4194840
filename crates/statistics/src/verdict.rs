//! How far a cost can be believed: shown beside every estimate, so that a worthless one does not look like a
//! good one.

use assay_quantity::{Estimate, Interval, Mode, Verdict};

use crate::disturbance::Sifted;

/// Half-width over point above which an estimate is noisy: a tenth, the difference that users of lmbench
/// quote as a result.
pub const NOISY: f64 = 0.1;

/// Judges an estimate by the batches that were left out, by its modes (empty unless there are several) and by
/// its width, in this order, so that the verdict names the cause: disturbance makes modes, and both widen the
/// interval.
///
/// `with_disturbed` is the estimate with all batches, if there is one. Leaving batches out matters only if
/// that lies outside the interval.
#[must_use]
pub fn judge(
    estimate: &Estimate,
    with_disturbed: Option<&Estimate>,
    modes: &[Mode],
    sifted: &Sifted<'_>,
) -> Verdict {
    let Interval { low, high, .. } = estimate.interval;
    let stays = with_disturbed.is_some_and(|estimate| (low..=high).contains(&estimate.point));
    let moved = sifted.disturbed > 0 && !stays;
    if sifted.is_disturbed || moved {
        Verdict::Disturbed(sifted.disturbed_share())
    } else if modes.len() > 1 {
        Verdict::Modes(modes.len())
    } else if estimate.relative_half_width() > NOISY {
        Verdict::Noisy(estimate.relative_half_width())
    } else {
        Verdict::Steady
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimator::trimmed_mean;
    use assay_quantity::Unit;

    /// The verdict on values with this number of modes, if a fifth of the batches was left out and the
    /// estimate would be `with_disturbed` with them.
    fn judge(values: &[f64], modes: usize, with_disturbed: f64) -> String {
        let estimate = trimmed_mean(values, Unit::Nanoseconds).unwrap();
        let sifted = Sifted { batches: 20, disturbed: 4, ..Sifted::default() };
        let with_disturbed = Estimate { point: with_disturbed, ..estimate };
        let modes = vec![Mode { weight: 0.5, estimate }; modes];
        super::judge(&estimate, Some(&with_disturbed), &modes, &sifted).to_string()
    }

    const NARROW: [f64; 4] = [100.0, 101.0, 100.0, 99.0];
    const WIDE: [f64; 4] = [100.0, 200.0, 150.0, 99.0];

    #[test]
    fn a_verdict_names_the_cause_before_the_sign() {
        assert_eq!(judge(&NARROW, 0, 100.0), "steady");
        assert_eq!(judge(&WIDE, 0, 125.0), "noisy: ± 56 %");
        assert_eq!(judge(&WIDE, 2, 125.0), "2 modes");
        assert_eq!(judge(&WIDE, 2, 500.0), "disturbed: 20 % of batches");
    }

    #[test]
    fn batches_that_were_left_out_matter_only_where_they_move_the_estimate_beyond_its_interval() {
        assert_eq!(judge(&NARROW, 0, 101.0), "steady");
        assert_eq!(judge(&NARROW, 0, 104.0), "disturbed: 20 % of batches");
        let estimate = trimmed_mean(&NARROW, Unit::Nanoseconds).unwrap();
        let elsewhere = Estimate { point: 104.0, ..estimate };
        let none = Sifted { batches: 20, ..Sifted::default() };
        assert_eq!(super::judge(&estimate, Some(&elsewhere), &[], &none), Verdict::Steady);
        let all = Sifted { batches: 20, disturbed: 20, is_disturbed: true, ..Sifted::default() };
        assert_eq!(super::judge(&estimate, Some(&estimate), &[], &all), Verdict::Disturbed(1.0));
        let half = Sifted { batches: 20, disturbed: 10, ..Sifted::default() };
        assert_eq!(super::judge(&estimate, None, &[], &half), Verdict::Disturbed(0.5));
    }
}
