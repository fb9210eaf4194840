//! The versioned formats in which vectors and matrices travel: `assay.machine/2`, `assay.demand/1` and
//! `assay.matrix/1`.
//!
//! The types on disk are separate from the types of computations. Reading is strict: an unknown field, a
//! number that is not finite, or an interval that does not contain its point is an error that names the
//! place. `docs/formats.md` documents every field of these formats.

mod demand;
mod machine;
mod matrix;

pub use demand::{demand_from_json, demand_to_json};
pub use machine::{machine_from_json, machine_to_json};
pub use matrix::{is_matrix, matrix_from_json, matrix_to_json};

use serde::{Deserialize, Serialize};

use crate::estimate::{Estimate, Interval, Method};
use crate::machine::Unmeasured;

/// Why a text is not a file of the format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Not JSON, or JSON of another shape: the message of the parser with line and column.
    #[error("{0}")]
    Shape(String),
    /// Another format, or an unknown version.
    #[error("its format is '{found}', but '{expected}' is required; if the file is newer, update assay")]
    Version {
        /// The format in the file.
        found: String,
        /// The expected format.
        expected: &'static str,
    },
    /// An impossible value.
    #[error("{place}: {problem}")]
    Value {
        /// Its place in the file.
        place: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl FormatError {
    fn value(place: impl Into<String>, problem: impl ToString) -> Self {
        Self::Value { place: place.into(), problem: problem.to_string() }
    }
}

/// The format and version of a file, read before its other fields.
#[derive(Deserialize)]
struct Envelope {
    format: String,
}

/// Reads a file in one of these formats, the newest first.
fn parse<T: serde::de::DeserializeOwned>(text: &str, expected: &[&'static str]) -> Result<T, FormatError> {
    let shape = |error: serde_json::Error| FormatError::Shape(error.to_string());
    let envelope: Envelope = serde_json::from_str(text).map_err(shape)?;
    if !expected.contains(&envelope.format.as_str()) {
        return Err(FormatError::Version { found: envelope.format, expected: expected[0] });
    }
    serde_json::from_str(text).map_err(shape)
}

fn render<T: Serialize>(value: &T) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("our own types always serialise");
    text.push('\n');
    text
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EstimateOnDisk {
    point: f64,
    low: f64,
    high: f64,
    confidence: f64,
    unit: String,
    method: String,
    values: usize,
}

impl EstimateOnDisk {
    fn from(estimate: &Estimate) -> Self {
        Self {
            point: estimate.point,
            low: estimate.interval.low,
            high: estimate.interval.high,
            confidence: estimate.interval.confidence,
            unit: estimate.unit.symbol().to_owned(),
            method: estimate.method.name().to_owned(),
            values: estimate.values,
        }
    }

    /// Reads a quantity that is never below 0.
    fn read(self, place: &str) -> Result<Estimate, FormatError> {
        if self.point < 0.0 {
            return Err(FormatError::value(place, format!("point {} is below 0", self.point)));
        }
        self.read_signed(place)
    }

    fn read_signed(self, place: &str) -> Result<Estimate, FormatError> {
        let error = |problem: String| FormatError::Value { place: place.to_owned(), problem };
        let unit = self.unit.parse().map_err(|problem| FormatError::value(place, problem))?;
        let method = Method::NAMES
            .iter()
            .find(|(_, name)| *name == self.method)
            .ok_or_else(|| error(format!("method '{}' is unknown", self.method)))?
            .0;
        if !(self.low <= self.point && self.point <= self.high && self.high.is_finite()) {
            return Err(error(format!("interval {}..{} does not hold {}", self.low, self.high, self.point)));
        }
        if !(self.confidence > 0.0 && self.confidence <= 1.0) {
            return Err(error(format!("confidence {} is not in (0, 1]", self.confidence)));
        }
        let interval = Interval { low: self.low, high: self.high, confidence: self.confidence };
        Ok(Estimate { point: self.point, interval, unit, method, values: self.values })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UnmeasuredOnDisk {
    primitive: String,
    reason: String,
}

impl From<&Unmeasured> for UnmeasuredOnDisk {
    fn from(missing: &Unmeasured) -> Self {
        Self { primitive: missing.primitive.to_string(), reason: missing.reason.clone() }
    }
}

impl UnmeasuredOnDisk {
    fn read(self, place: &str) -> Result<Unmeasured, FormatError> {
        let primitive = self.primitive.parse().map_err(|problem| FormatError::value(place, problem))?;
        Ok(Unmeasured { primitive, reason: self.reason })
    }
}
