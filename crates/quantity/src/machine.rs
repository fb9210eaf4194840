//! The machine vector: what every primitive costs here (thesis, section 4.1), and what the machine is.

use std::collections::BTreeMap;
use std::fmt;

use crate::condition::{Aspect, Conditions};
use crate::curve::{CostCurve, NoCurve};
use crate::estimate::Estimate;
use crate::modes::Mode;
use crate::primitive::{Key, PrimitiveId};
use crate::size::Size;
use crate::verdict::Verdict;

/// Something known of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// What is asked: `cpu`, `kernel`.
    pub name: String,
    /// The answer, as the machine gives it, or why there is none.
    pub value: String,
}

/// What a machine is, and what of it could not be held still while it was measured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Description {
    /// Facts, in the order to be read.
    pub facts: Vec<Fact>,
    /// Each a sentence: a source of error that the measurement had to live with.
    pub uncontrolled: Vec<String>,
}

impl Description {
    /// The value of the first fact of this name.
    #[must_use]
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|fact| fact.name == name).map(|fact| fact.value.as_str())
    }
}

/// The cost of one primitive on one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// Time per operation (ns) or per byte (ns/B) on this machine as it is: over all processes, whatever the machine
    /// was like meanwhile.
    pub typical: Estimate,
    /// The same at quiet moments: over the processes that had their core to themselves ([`mod@crate::calm`]). `None` if
    /// there are too few of them, or nothing looked.
    pub calm: Option<Estimate>,
    /// What a later run would give as the typical cost, from this run and earlier ones of the machine
    /// ([`mod@crate::again`]). `None` if these are too few, or none are known.
    pub again: Option<Estimate>,
    /// Samples that gave no cost, and are in neither estimate.
    pub rejected: usize,
    /// Batches of all samples; 0 where that is not known.
    pub batches: usize,
    /// Batches that were disturbed or refused and are in neither estimate ([`crate::disturbance`]).
    pub disturbed: usize,
    /// Values in the typical cost that lie outside Tukey's fences ([`crate::outlier`]).
    pub outliers: usize,
    /// The modes of the values in the typical cost, the lowest first; empty if there are not several.
    pub modes: Vec<Mode>,
    /// What of the machine's condition goes with the mode that a process is in ([`crate::modes::dependence`]).
    pub depends_on: Option<Aspect>,
    /// Cost in longer batches over cost in shorter ones ([`crate::Sample::linearity`]). `None` where batches
    /// of two lengths cannot tell.
    pub linearity: Option<Estimate>,
    /// Whether it can be believed. `None` where nothing is known of how it was measured.
    pub verdict: Option<Verdict>,
}

/// Why a typical cost does not say what one operation costs, whatever its interval is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// It was disturbed while it was measured, and depends on what is left out for that.
    Disturbed,
    /// It has several modes: their mean is what no operation costs.
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

/// Distance from 1 beyond which a cost is not linear: half of what makes an estimate noisy.
const LINEAR: f64 = 0.05;

impl Cost {
    /// Whether the typical cost is doubtful. A noisy one is not: its interval says how wide it is.
    #[must_use]
    pub fn doubt(&self) -> Option<Doubt> {
        match self.verdict {
            Some(Verdict::Disturbed(_)) => Some(Doubt::Disturbed),
            Some(Verdict::Modes(_)) => Some(Doubt::SeveralModes),
            _ if self.modes.len() > 1 => Some(Doubt::SeveralModes),
            Some(Verdict::Steady | Verdict::Noisy(_)) | None => None,
        }
    }

    /// Whether the cost of one operation certainly depends on how many of them a batch holds: the whole
    /// interval of its linearity is more than 5 % from 1. Such an operation is no primitive.
    #[must_use]
    pub fn depends_on_batch(&self) -> bool {
        self.linearity.is_some_and(|linearity| {
            linearity.interval.low > 1.0 + LINEAR || linearity.interval.high < 1.0 - LINEAR
        })
    }
}

impl From<Estimate> for Cost {
    /// A cost of which nothing but this estimate is known.
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

/// A primitive that exists but has no cost here, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmeasured {
    /// The primitive.
    pub primitive: PrimitiveId,
    /// Why, in one line.
    pub reason: String,
}

/// A machine measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Machine {
    /// How people call it.
    pub name: String,
    /// Where its figures come from: the command and version that measured it, or a citation.
    pub source: String,
    /// What it is.
    pub description: Description,
    /// What it was like while it was measured.
    pub conditions: Conditions,
    /// Cost of each measured primitive.
    pub costs: BTreeMap<PrimitiveId, Cost>,
    /// Primitives that could not be measured.
    pub unmeasured: Vec<Unmeasured>,
}

/// A cost that the machine does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoCost {
    /// Not measured, whatever the size.
    #[error("{0} was not measured{1}")]
    Unmeasured(PrimitiveId, String),
    /// Measured, but the figures make no curve.
    #[error("{0}: {1}")]
    Curve(PrimitiveId, NoCurve),
}

impl Machine {
    /// The cost curve over `size` of a primitive whose other keys are fixed.
    ///
    /// # Errors
    /// [`NoCost`] if no size of it was measured, or one that should have been could not be.
    pub fn curve(&self, primitive: &PrimitiveId) -> Result<CostCurve, NoCost> {
        let points: Vec<(Size, &Cost)> = self
            .costs
            .iter()
            .filter_map(|(id, cost)| {
                let size = id.size()?;
                (id.without(Key::Size) == *primitive).then_some((size, cost))
            })
            .collect();
        // A curve that lacks some of its sizes would price the others by far extrapolation.
        let lacks = |missing: &Unmeasured| missing.primitive.without(Key::Size) == *primitive;
        if points.is_empty() || self.unmeasured.iter().any(lacks) {
            return Err(self.unmeasured(primitive));
        }
        CostCurve::through(&points).map_err(|error| NoCost::Curve(primitive.clone(), error))
    }

    /// The cost of a primitive that has no size.
    ///
    /// # Errors
    /// [`NoCost`] if it was not measured.
    pub fn cost(&self, primitive: &PrimitiveId) -> Result<&Cost, NoCost> {
        self.costs.get(primitive).ok_or_else(|| self.unmeasured(primitive))
    }

    fn unmeasured(&self, primitive: &PrimitiveId) -> NoCost {
        let reason = self
            .unmeasured
            .iter()
            .find(|missing| missing.primitive.without(Key::Size) == *primitive)
            .map_or(String::new(), |missing| format!(": {}", missing.reason));
        NoCost::Unmeasured(primitive.clone(), reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::{Interval, Method};
    use crate::unit::Unit;

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
            Cost { linearity: Some(linearity), ..Cost::from(linearity) }.depends_on_batch()
        };
        assert_eq!([depends(1.06, 1.2), depends(0.6, 0.94)], [true, true]);
        assert_eq!([depends(1.04, 1.2), depends(0.6, 0.96), depends(0.99, 1.01)], [false; 3]);
    }

    #[test]
    fn a_curve_that_lacks_a_size_is_no_curve() {
        let interval = Interval { low: 1.0, high: 1.0, confidence: 1.0 };
        let estimate = Estimate {
            point: 1.0,
            interval,
            unit: Unit::NanosecondsPerByte,
            method: Method::Printed,
            values: 0,
        };
        let mut machine = Machine::default();
        machine.costs.insert("tcp.send{size=64B}".parse().unwrap(), Cost::from(estimate));
        let primitive = "tcp.send".parse().unwrap();
        assert!(machine.curve(&primitive).is_ok());
        let missing = "tcp.send{size=64KiB}".parse().unwrap();
        machine.unmeasured.push(Unmeasured { primitive: missing, reason: "the window is small".to_owned() });
        let refused = machine.curve(&primitive).unwrap_err().to_string();
        assert_eq!(refused, "tcp.send was not measured: the window is small");
    }
}
