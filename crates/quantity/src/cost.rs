//! What one primitive costs on one machine, and how far that can be believed.

use std::fmt;

use crate::estimate::Estimate;

/// The cost of one primitive on one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// Time per operation (ns) or per byte (ns/B) on this machine as it is: over all processes, under all
    /// conditions.
    pub typical: Estimate,
    /// The same at quiet moments: over the processes that had their core to themselves. `None` if there are
    /// too few of them, or if sharing was not observed.
    pub calm: Option<Estimate>,
    /// The typical cost that a later run would give, predicted from this run and earlier ones of the machine.
    /// `None` if there are too few of those.
    pub again: Option<Estimate>,
    /// Samples that gave no cost. No estimate includes them.
    pub rejected: usize,
    /// Batches of all samples; 0 if unknown.
    pub batches: usize,
    /// Batches that were disturbed or refused. No estimate includes them, with one exception: the typical
    /// cost includes the disturbed ones if fewer than two samples have a value without them. Its verdict is
    /// then [`Verdict::Disturbed`].
    pub disturbed: usize,
    /// Values of the typical cost that lie outside Tukey's fences.
    pub outliers: usize,
    /// Modes of the values of the typical cost, the lowest first; empty unless there are several.
    pub modes: Vec<Mode>,
    /// The condition of the machine that goes with the mode of a process: `core sharing`.
    pub depends_on: Option<String>,
    /// Cost in longer batches over cost in shorter ones. `None` if the batches have fewer than three lengths.
    pub linearity: Option<Estimate>,
    /// How far it can be believed. `None` if unknown, as for published figures.
    pub verdict: Option<Verdict>,
}

/// Why a typical cost does not say what one operation costs, however narrow its interval is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// It depends on whether disturbed batches are left out.
    Disturbed,
    /// It has several modes: no operation costs their mean.
    SeveralModes,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Doubt::Disturbed => "disturbed",
            Doubt::SeveralModes => "several modes",
        })
    }
}

impl Cost {
    /// Why the typical cost is doubtful, if it is. A noisy one is not: its interval says how noisy it is.
    #[must_use]
    pub fn doubt(&self) -> Option<Doubt> {
        match self.verdict {
            Some(Verdict::Disturbed(_)) => Some(Doubt::Disturbed),
            Some(Verdict::Modes(_)) => Some(Doubt::SeveralModes),
            _ if self.modes.len() > 1 => Some(Doubt::SeveralModes),
            Some(Verdict::Steady | Verdict::Noisy(_)) | None => None,
        }
    }
}

impl From<Estimate> for Cost {
    /// A cost of which only this estimate is known.
    fn from(typical: Estimate) -> Self {
        Self {
            typical,
            calm: None,
            again: None,
            rejected: 0,
            batches: 0,
            disturbed: 0,
            outliers: 0,
            modes: Vec::new(),
            depends_on: None,
            linearity: None,
            verdict: None,
        }
    }
}

/// One of several modes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mode {
    /// Share of the values that belong to it; those of all modes add up to 1.
    pub weight: f64,
    /// Trimmed mean of its values.
    pub estimate: Estimate,
}

/// How far the cost of a primitive can be believed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// None of the others.
    Steady,
    /// The interval is wide: half-width over point.
    Noisy(f64),
    /// The values gather around this number of figures: one figure does not describe them.
    Modes(usize),
    /// This share of the batches was disturbed, and the estimate depends on whether they are left out.
    Disturbed(f64),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Steady => f.write_str("steady"),
            Verdict::Noisy(width) => write!(f, "noisy: ± {:.0} %", width * 100.0),
            Verdict::Modes(number) => write!(f, "{number} modes"),
            Verdict::Disturbed(share) => write!(f, "disturbed: {:.0} % of batches", share * 100.0),
        }
    }
}
