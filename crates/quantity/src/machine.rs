//! The machine vector: what every primitive costs here (thesis, section 4.1), and what the machine is.

use std::collections::BTreeMap;

use crate::condition::Conditions;
use crate::cost::Cost;
use crate::curve::{CostCurve, NoCurve};
use crate::primitive::{Key, PrimitiveId};
use crate::size::Size;

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
    use crate::estimate::{Estimate, Interval, Method};
    use crate::unit::Unit;

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
