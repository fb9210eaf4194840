//! The versioned formats in which vectors travel: `assay.machine/2` and `assay.demand/1`.
//!
//! The types written to disk live here and nowhere else; they are not the types computed with. Reading is
//! strict: an unknown field, a number that is not finite, an interval that does not hold its point is an
//! error that names the place. Both formats are documented, with every field, in `docs/formats.md`.

mod demand;
mod machine;

pub use demand::{demand_from_json, demand_to_json};
pub use machine::{machine_from_json, machine_to_json};

use serde::{Deserialize, Serialize};

use crate::estimate::{Estimate, Interval, Method};

/// Text that is not a file of the format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Not JSON, or JSON of another shape: the parser's words with line and column.
    #[error("{0}")]
    Shape(String),
    /// Another format, or a version that this program does not know.
    #[error("its format is '{found}', but '{expected}' is needed; if the file is newer, update assay")]
    Version {
        /// What the file says.
        found: String,
        /// What was asked for.
        expected: &'static str,
    },
    /// A value that cannot be.
    #[error("{place}: {problem}")]
    Value {
        /// Where in the file.
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

/// The first line of defence: which format and version a file claims, read before its shape is.
#[derive(Deserialize)]
struct Envelope {
    format: String,
}

/// Reads a file that claims to be one of these formats, the newest first.
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

    fn read(self, place: &str) -> Result<Estimate, FormatError> {
        let error = |problem: String| FormatError::Value { place: place.to_owned(), problem };
        let unit = self.unit.parse().map_err(|problem| FormatError::value(place, problem))?;
        let method = Method::NAMES
            .iter()
            .find(|(_, name)| *name == self.method)
            .ok_or_else(|| error(format!("method '{}' is unknown", self.method)))?
            .0;
        if !(self.point.is_finite() && self.point >= 0.0) {
            return Err(error(format!("point {} is not a finite number of at least 0", self.point)));
        }
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
