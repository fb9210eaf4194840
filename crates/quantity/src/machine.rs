//! The machine vector: what every primitive costs on a machine (thesis, section 4.1), and the description of
//! the machine.

use std::collections::BTreeMap;

use crate::cost::Cost;
use crate::curve::{CostCurve, NoCurve};
use crate::primitive::{Key, PrimitiveId};
use crate::size::Size;

/// A fact about a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Its name: `cpu`, `kernel`.
    pub name: String,
    /// Its value as read from the machine, or why there is none.
    pub value: String,
}

/// The description of a machine, and what could not be controlled during the measurement.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Description {
    /// Facts, in the order of presentation.
    pub facts: Vec<Fact>,
    /// Uncontrolled sources of error, each as a sentence.
    pub uncontrolled: Vec<String>,
}

impl Description {
    /// The value of the first fact of this name.
    #[must_use]
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|fact| fact.name == name).map(|fact| fact.value.as_str())
    }
}

/// A primitive without a cost on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmeasured {
    /// The primitive.
    pub primitive: PrimitiveId,
    /// The reason, in one line.
    pub reason: String,
}

/// What a machine was like during a whole run, as far as its costs are compared with those of another run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Conditions {
    /// Share of the samples during which another hardware thread of the core was busy; `None` if not
    /// observed.
    pub shared: Option<f64>,
    /// Clock cycle of the core in the median sample, ns; `None` if not observed.
    pub cycle_ns: Option<f64>,
}

/// A measured machine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Origin of its figures: the command and version that measured it, or a citation.
    pub source: String,
    /// Its description.
    pub description: Description,
    /// Its conditions during the measurement.
    pub conditions: Conditions,
    /// Cost of each measured primitive.
    pub costs: BTreeMap<PrimitiveId, Cost>,
    /// Primitives that could not be measured.
    pub unmeasured: Vec<Unmeasured>,
}

/// Why a machine has no cost for a primitive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoCost {
    /// Not measured, at any size.
    #[error("{0} was not measured")]
    Unmeasured(PrimitiveId),
    /// Could not be measured at any size, for this reason.
    #[error("{0} was not measured: {1}")]
    Refused(PrimitiveId, String),
    /// Could not be measured at this size, for this reason, but at others.
    #[error("{0} was not measured: {1}")]
    Partial(PrimitiveId, String),
    /// Measured, but the figures make no curve.
    #[error("{0}: {1}")]
    Curve(PrimitiveId, NoCurve),
}

impl Machine {
    /// The cost curve over `size` of a primitive whose other keys are fixed.
    ///
    /// # Errors
    /// [`NoCost`] if no size of it was measured, or one of its sizes could not be measured.
    pub fn curve(&self, primitive: &PrimitiveId) -> Result<CostCurve, NoCost> {
        let points: Vec<(Size, &Cost)> = self
            .costs
            .iter()
            .filter_map(|(id, cost)| {
                let size = id.size()?;
                (id.without(Key::Size) == *primitive).then_some((size, cost))
            })
            .collect();
        if points.is_empty() {
            return Err(self.unmeasured(primitive));
        }
        // A curve that lacks some of its sizes would price the others by far extrapolation.
        let lacks = |missing: &&Unmeasured| missing.primitive.without(Key::Size) == *primitive;
        if let Some(missing) = self.unmeasured.iter().find(lacks) {
            return Err(NoCost::Partial(missing.primitive.clone(), missing.reason.clone()));
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
        let is_it = |missing: &&Unmeasured| {
            missing.primitive == *primitive || missing.primitive.without(Key::Size) == *primitive
        };
        let primitive = primitive.clone();
        match self.unmeasured.iter().find(is_it) {
            Some(missing) => NoCost::Refused(primitive, missing.reason.clone()),
            None => NoCost::Unmeasured(primitive),
        }
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
        assert_eq!(refused, "tcp.send{size=64KiB} was not measured: the window is small");
        machine.costs.clear();
        assert!(matches!(machine.curve(&primitive), Err(NoCost::Refused(..))));
    }
}
