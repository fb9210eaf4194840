//! `assay.matrix/1`: what the primitives of an operating system demand of the hardware.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{EstimateOnDisk, FormatError, UnmeasuredOnDisk, parse, render};
use crate::estimate::Estimate;
use crate::matrix::{Executed, Matrix};
use crate::primitive::PrimitiveId;
use crate::unit::Unit;

const FORMAT: &str = "assay.matrix/1";

/// Largest count: below it, differences and sums of counts are exact to one.
const LARGEST: f64 = 1e15;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MatrixOnDisk {
    format: String,
    kernel: String,
    memory_mib: u32,
    source: String,
    rows: Vec<RowOnDisk>,
    uncounted: Vec<UnmeasuredOnDisk>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowOnDisk {
    primitive: String,
    user: EstimateOnDisk,
    kernel: EstimateOnDisk,
    page_faults: EstimateOnDisk,
}

/// Writes a matrix as a file's text.
#[must_use]
pub fn matrix_to_json(matrix: &Matrix) -> String {
    let row = |(primitive, executed): (&PrimitiveId, &Executed)| RowOnDisk {
        primitive: primitive.to_string(),
        user: EstimateOnDisk::from(&executed.user),
        kernel: EstimateOnDisk::from(&executed.kernel),
        page_faults: EstimateOnDisk::from(&executed.page_faults),
    };
    render(&MatrixOnDisk {
        format: FORMAT.to_owned(),
        kernel: matrix.kernel.clone(),
        memory_mib: matrix.memory_mib,
        source: matrix.source.clone(),
        rows: matrix.rows.iter().map(row).collect(),
        uncounted: matrix.uncounted.iter().map(UnmeasuredOnDisk::from).collect(),
    })
}

/// Whether a text is meant to be a matrix, of any version.
#[must_use]
pub fn is_matrix(text: &str) -> bool {
    let envelope = serde_json::from_str::<super::Envelope>(text);
    envelope.is_ok_and(|envelope| envelope.format.starts_with("assay.matrix/"))
}

/// Reads a matrix from a file's text.
///
/// # Errors
/// [`FormatError`] for anything but a whole and consistent matrix.
pub fn matrix_from_json(text: &str) -> Result<Matrix, FormatError> {
    let disk: MatrixOnDisk = parse(text, &[FORMAT])?;
    let mut rows = BTreeMap::new();
    for row in disk.rows {
        let place = format!("primitive '{}'", row.primitive);
        let primitive: PrimitiveId =
            row.primitive.parse().map_err(|problem| FormatError::value("rows", problem))?;
        let executed = Executed {
            user: read_count(row.user, &place)?,
            kernel: read_count(row.kernel, &place)?,
            page_faults: read_count(row.page_faults, &place)?,
        };
        if executed.instructions().point < 0.0 {
            return Err(FormatError::value(place, "its number of instructions is below 0"));
        }
        if rows.insert(primitive, executed).is_some() {
            return Err(FormatError::value(place, "it occurs twice"));
        }
    }
    let (mut uncounted, mut known) = (Vec::new(), BTreeSet::new());
    for missing in disk.uncounted {
        let missing = missing.read("uncounted")?;
        if rows.contains_key(&missing.primitive) || !known.insert(missing.primitive.clone()) {
            return Err(FormatError::value(format!("primitive '{}'", missing.primitive), "it occurs twice"));
        }
        uncounted.push(missing);
    }
    let MatrixOnDisk { kernel, memory_mib, source, .. } = disk;
    Ok(Matrix { kernel, memory_mib, source, rows, uncounted })
}

fn read_count(count: EstimateOnDisk, place: &str) -> Result<Estimate, FormatError> {
    let count = count.read_signed(place)?;
    if count.unit != Unit::Count {
        return Err(FormatError::value(place, format!("what is executed is a count, not in {}", count.unit)));
    }
    let interval = count.interval;
    if interval.low < -LARGEST || interval.high > LARGEST {
        return Err(FormatError::value(place, "a count is beyond 1e15"));
    }
    Ok(count)
}
