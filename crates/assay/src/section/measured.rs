//! Measured throughput from a CSV file, for comparison with predictions.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use assay_model::{Measurement, Validation};
use assay_quantity::{Estimate, Interval, Method, Unit};
use assay_report::{Cell, Column, Table};

/// A file of measurements: columns `machine`, `workload`, `per_second`, and optionally
/// `published_prediction_ms`, a prediction that was published together with them.
#[derive(Debug, Default)]
pub struct Measured {
    /// The measurements, in the order of the file.
    pub rows: Vec<Measurement>,
    published: Vec<(String, Estimate)>,
}

impl Measured {
    /// Reads the file.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is not a valid file of measurements", path.display()))
    }

    /// Parses the file's bytes.
    pub fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(bytes);
        let headers = reader.headers()?.clone();
        let column = |name: &str| headers.iter().position(|header| header == name);
        let needed = |name: &str| column(name).with_context(|| format!("column '{name}' is missing"));
        let (machine, workload) = (needed("machine")?, needed("workload")?);
        let (per_second, published) = (needed("per_second")?, column("published_prediction_ms"));
        let mut measured = Self::default();
        let mut lines = HashMap::new();
        for (number, record) in (2..).zip(reader.records()) {
            let record = record?;
            let positive = |column: usize, name: &str| {
                let text = &record[column];
                let value: f64 =
                    text.parse().with_context(|| format!("line {number}: {name} is '{text}'"))?;
                ensure!(
                    value.is_finite() && value > 0.0,
                    "line {number}: {name} is {value}, but must be above 0"
                );
                Ok(value)
            };
            let machine = record[machine].to_owned();
            let workload = record[workload].to_owned();
            if let Some(first) = lines.insert((machine.clone(), workload.clone()), number) {
                bail!(
                    "line {number}: '{machine}' with workload '{workload}' is already in line {first}; keep one"
                );
            }
            if let Some(column) = published.filter(|column| !record[*column].is_empty()) {
                let value = positive(column, "published_prediction_ms")?;
                let published = printed_ms(value, &record[column]);
                ensure!(
                    measured.published(&machine).is_none_or(|other| other == published),
                    "line {number}: '{machine}' has a different published_prediction_ms in an earlier line; keep one"
                );
                measured.published.push((machine.clone(), published));
            }
            let per_second = positive(per_second, "per_second")?;
            measured.rows.push(Measurement { machine, workload, per_second });
        }
        ensure!(!measured.rows.is_empty(), "it contains no measurements");
        Ok(measured)
    }

    /// Returns the workloads, without duplicates, in the order of the file.
    pub fn workloads(&self) -> Vec<String> {
        let mut seen = HashSet::new();
        let all = self.rows.iter().map(|row| row.workload.clone());
        all.filter(|workload| seen.insert(workload.clone())).collect()
    }

    /// Returns the published prediction for a machine; `None` if there is none.
    pub fn published(&self, machine: &str) -> Option<Estimate> {
        self.published.iter().find(|(name, _)| name == machine).map(|(_, estimate)| *estimate)
    }

    /// Whether the file contains published predictions.
    pub fn has_published(&self) -> bool {
        !self.published.is_empty()
    }
}

/// Returns a printed figure in milliseconds; its interval follows from the rounding of its last digit.
fn printed_ms(value: f64, text: &str) -> Estimate {
    let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let half = 0.5 * 0.1f64.powi(i32::try_from(decimals).unwrap_or(i32::MAX));
    let interval = Interval { low: value - half, high: value + half, confidence: 1.0 };
    let unit = Unit::Nanoseconds;
    Estimate { point: value, interval, unit, method: Method::Printed, values: 0 }.scaled(1e6, unit)
}

/// Returns the measured and predicted throughput of one workload.
pub fn table(validation: &Validation) -> Table {
    let rows = validation.rows.iter().map(|row| {
        [
            Cell::text(&row.machine),
            Cell::Number { value: row.measured_per_second, unit: Unit::PerSecond },
            Cell::Number { value: row.predicted_per_second, unit: Unit::PerSecond },
            Cell::Share(row.error),
        ]
    });
    let columns = [
        Column::words("machine"),
        Column::numbers("measured"),
        Column::numbers("predicted, scaled"),
        Column::numbers("error"),
    ];
    Table::of(&format!("Throughput, workload {}", validation.workload), columns, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_contains_the_line_and_the_column() {
        let complaint = |text: &str| format!("{:#}", Measured::parse(text.as_bytes()).unwrap_err());
        assert_eq!(complaint("machine,workload\n"), "column 'per_second' is missing");
        assert_eq!(complaint("machine,workload,per_second\n"), "it contains no measurements");
        assert_eq!(
            complaint("machine,workload,per_second\na,w,fast\n"),
            "line 2: per_second is 'fast': invalid float literal"
        );
        assert_eq!(
            complaint("machine,workload,per_second\na,w,0\n"),
            "line 2: per_second is 0, but must be above 0"
        );
    }

    #[test]
    fn a_duplicate_row_is_reported_with_both_lines() {
        let complaint = |rows: &str| {
            let text = format!("machine,workload,per_second,published_prediction_ms\n{rows}");
            Measured::parse(text.as_bytes()).unwrap_err().to_string()
        };
        assert_eq!(
            complaint("a,w,5,\nb,w,6,\na,w,7,\n"),
            "line 4: 'a' with workload 'w' is already in line 2; keep one"
        );
        assert_eq!(
            complaint("a,w,5,9.3\na,v,6,9.4\n"),
            "line 3: 'a' has a different published_prediction_ms in an earlier line; keep one"
        );
        let twice = "machine,workload,per_second,published_prediction_ms\na,w,5,9.3\na,v,6,9.3\n";
        assert_eq!(Measured::parse(twice.as_bytes()).unwrap().rows.len(), 2);
    }

    #[test]
    fn published_predictions_are_optional_in_every_row() {
        let text = b"machine,workload,per_second,published_prediction_ms\na,w,5,\nb,w,7,9.33\n";
        let measured = Measured::parse(text).unwrap();
        assert_eq!(measured.published("a"), None);
        let published = measured.published("b").unwrap();
        assert!((published.point - 9.33e6).abs() < 1.0);
        assert!((published.interval.half_width() - 5000.0).abs() < 1.0);
    }
}
