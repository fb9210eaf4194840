//! Whether a number can be believed: said beside every estimate, so that a worthless one does not look
//! like a good one.

use std::fmt;

use crate::estimate::Estimate;
use crate::sample::{Contamination, Sample};

/// Half-width over point above which an estimate is called noisy: a tenth, the difference that users of
/// lmbench quote as a result.
const NOISY: f64 = 0.1;

/// Stolen share above which a measurement is called contaminated. Timer interrupts and short-lived
/// daemons of an otherwise idle machine take less than this; one competing process takes half.
const CONTAMINATED: f64 = 0.05;

/// The judgement on one primitive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// Nothing speaks against it.
    Clean,
    /// The processes disagree: half-width over point.
    Noisy(f64),
    /// Somebody else had the processor for this share of the timed part.
    Contaminated(f64),
}

impl Verdict {
    /// Judges an estimate by its width and by the evidence in its samples. Contamination is named first:
    /// it is the cause, the width only its sign.
    #[must_use]
    pub fn judge(estimate: &Estimate, samples: &[Sample]) -> Self {
        let mut all = Contamination::default();
        for sample in samples {
            all.wall_ns += sample.contamination.wall_ns;
            all.stolen_ns += sample.contamination.stolen_ns;
        }
        let share = all.stolen_share();
        if share > CONTAMINATED {
            Verdict::Contaminated(share)
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
            Verdict::Contaminated(share) => write!(f, "contaminated: {:.0} % stolen", share * 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::trimmed_mean;
    use crate::unit::Unit;

    fn judge(values: &[f64], stolen_ns: f64) -> String {
        let contamination = Contamination { wall_ns: 100.0, stolen_ns, ..Contamination::default() };
        let samples = vec![Sample { contamination, ..Sample::default() }; values.len()];
        Verdict::judge(&trimmed_mean(values, Unit::Nanoseconds).unwrap(), &samples).to_string()
    }

    #[test]
    fn a_verdict_names_the_cause_before_the_sign() {
        assert_eq!(judge(&[100.0, 101.0, 100.0, 99.0], 0.0), "clean");
        assert_eq!(judge(&[100.0, 200.0, 150.0, 99.0], 0.0), "noisy: ± 56 %");
        assert_eq!(judge(&[100.0, 200.0, 150.0, 99.0], 31.0), "contaminated: 31 % stolen");
    }
}
