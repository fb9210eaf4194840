//! Whether a number can be believed: said beside every estimate, so that a worthless one does not look
//! like a good one.

use std::fmt;

use crate::estimate::Estimate;
use crate::modes::Mode;
use crate::sift::Sifted;

/// Half-width over point above which an estimate is called noisy: a tenth, the difference that users of
/// lmbench quote as a result.
const NOISY: f64 = 0.1;

/// Share of contaminated samples above which the whole is. Up to here the estimate stands on at least four
/// fifths of the samples, which nobody disturbed; a machine that disturbs more of them was not idle, and what
/// the evidence did not catch is then likely to be much as well.
pub(crate) const CONTAMINATED_MAX: f64 = 0.2;

/// The judgement on one primitive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// Nothing speaks against it.
    Clean,
    /// The processes disagree: half-width over point.
    Noisy(f64),
    /// The processes gather around so many figures: one number does not describe them.
    Modes(usize),
    /// This share of the samples was disturbed.
    Contaminated(f64),
}

impl Verdict {
    /// Judges an estimate by the evidence in its samples, by its modes (none or one: empty) and by its
    /// width, in this order: the cause is named, not its sign. Disturbance makes modes and widens, modes widen.
    #[must_use]
    pub fn judge(estimate: &Estimate, modes: &[Mode], sifted: &Sifted) -> Self {
        if sifted.contaminated_share > CONTAMINATED_MAX {
            Verdict::Contaminated(sifted.contaminated_share)
        } else if modes.len() > 1 {
            Verdict::Modes(modes.len())
        } else if estimate.relative_half_width() > NOISY {
            Verdict::Noisy(estimate.relative_half_width())
        } else {
            Verdict::Clean
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Clean => f.write_str("clean"),
            Verdict::Noisy(width) => write!(f, "noisy: ± {:.0} %", width * 100.0),
            Verdict::Modes(number) => write!(f, "{number} modes"),
            Verdict::Contaminated(share) => write!(f, "contaminated: {:.0} % of samples", share * 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::trimmed_mean;
    use crate::unit::Unit;

    /// The verdict on wide or narrow values with so many modes and contaminated samples.
    fn judge(values: &[f64], modes: usize, contaminated_share: f64) -> String {
        let estimate = trimmed_mean(values, Unit::Nanoseconds).unwrap();
        let sifted = Sifted { contaminated_share, ..Sifted::default() };
        Verdict::judge(&estimate, &vec![Mode { weight: 0.5, estimate }; modes], &sifted).to_string()
    }

    #[test]
    fn a_verdict_names_the_cause_before_the_sign() {
        let (narrow, wide) = ([100.0, 101.0, 100.0, 99.0], [100.0, 200.0, 150.0, 99.0]);
        assert_eq!(judge(&narrow, 0, 0.2), "clean");
        assert_eq!(judge(&wide, 0, 0.2), "noisy: ± 56 %");
        assert_eq!(judge(&wide, 2, 0.2), "2 modes");
        assert_eq!(judge(&wide, 2, 0.25), "contaminated: 25 % of samples");
    }
}
