//! `assay.demand/1`: what an application asks of the operating system, one vector for each operation.

use serde::{Deserialize, Serialize};

use super::{EstimateOnDisk, FormatError, parse, render};
use crate::demand::{CallCount, Coefficient, Demand, Mapping, OperationDemand, Use};
use crate::primitive::{Key, PrimitiveId};

const FORMAT: &str = "assay.demand/1";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DemandOnDisk {
    format: String,
    name: String,
    source: String,
    operations: Vec<OperationOnDisk>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OperationOnDisk {
    name: String,
    unit_of_work: String,
    units: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<EstimateOnDisk>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    system: Option<EstimateOnDisk>,
    #[serde(default)]
    lost_records: u64,
    coefficients: Vec<CoefficientOnDisk>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CoefficientOnDisk {
    primitive: String,
    mapping: MappingOnDisk,
    uses: Vec<UseOnDisk>,
    #[serde(default)]
    kernel_ns: f64,
    #[serde(default)]
    calls: Vec<CallOnDisk>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MappingOnDisk {
    Own,
    LowerBound,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UseOnDisk {
    calls: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallOnDisk {
    call: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    descriptor: String,
    calls: f64,
}

/// Writes a demand as a file's text.
#[must_use]
pub fn demand_to_json(demand: &Demand) -> String {
    render(&DemandOnDisk {
        format: FORMAT.to_owned(),
        name: demand.name.clone(),
        source: demand.source.clone(),
        operations: demand.operations.iter().map(write_operation).collect(),
    })
}

/// Reads a demand from a file's text.
///
/// # Errors
/// [`FormatError`] for anything but a whole and consistent demand.
pub fn demand_from_json(text: &str) -> Result<Demand, FormatError> {
    let disk: DemandOnDisk = parse(text, &[FORMAT])?;
    let operations = disk.operations.into_iter().map(read_operation).collect::<Result<Vec<_>, _>>()?;
    if operations.is_empty() {
        return Err(FormatError::value("operations", "there is none"));
    }
    for (position, operation) in operations.iter().enumerate() {
        if operations[..position].iter().any(|earlier| earlier.name == operation.name) {
            return Err(FormatError::value(format!("operation '{}'", operation.name), "it occurs twice"));
        }
    }
    Ok(Demand { name: disk.name, source: disk.source, operations })
}

fn write_operation(operation: &OperationDemand) -> OperationOnDisk {
    OperationOnDisk {
        name: operation.name.clone(),
        unit_of_work: operation.unit_of_work.clone(),
        units: operation.units,
        user: operation.user.as_ref().map(EstimateOnDisk::from),
        system: operation.system.as_ref().map(EstimateOnDisk::from),
        lost_records: operation.lost_records,
        coefficients: operation.coefficients.iter().map(write_coefficient).collect(),
    }
}

fn write_coefficient(coefficient: &Coefficient) -> CoefficientOnDisk {
    CoefficientOnDisk {
        primitive: coefficient.primitive.to_string(),
        mapping: match coefficient.mapping {
            Mapping::Own => MappingOnDisk::Own,
            Mapping::LowerBound => MappingOnDisk::LowerBound,
        },
        uses: coefficient
            .uses
            .iter()
            .map(|entry| UseOnDisk { calls: entry.calls, bytes: entry.bytes })
            .collect(),
        kernel_ns: coefficient.kernel_ns,
        calls: coefficient
            .calls
            .iter()
            .map(|count| CallOnDisk {
                call: count.call.clone(),
                descriptor: count.descriptor.clone(),
                calls: count.calls,
            })
            .collect(),
    }
}

fn read_operation(disk: OperationOnDisk) -> Result<OperationDemand, FormatError> {
    let place = format!("operation '{}'", disk.name);
    if !(disk.units.is_finite() && disk.units > 0.0) {
        return Err(FormatError::value(place, format!("{} units of work make no demand", disk.units)));
    }
    Ok(OperationDemand {
        unit_of_work: disk.unit_of_work,
        units: disk.units,
        user: disk.user.map(|estimate| estimate.read(&place)).transpose()?,
        system: disk.system.map(|estimate| estimate.read(&place)).transpose()?,
        lost_records: disk.lost_records,
        coefficients: disk
            .coefficients
            .into_iter()
            .map(|coefficient| read_coefficient(coefficient, &place))
            .collect::<Result<_, _>>()?,
        name: disk.name,
    })
}

fn read_coefficient(disk: CoefficientOnDisk, operation: &str) -> Result<Coefficient, FormatError> {
    let place = format!("{operation}, primitive '{}'", disk.primitive);
    let primitive: PrimitiveId =
        disk.primitive.parse().map_err(|problem| FormatError::value(operation, problem))?;
    if primitive.keys().contains_key(&Key::Size) {
        return Err(FormatError::value(place, "a demand leaves the key size free and gives bytes in 'uses'"));
    }
    let amount = |name: &str, value: f64| {
        if value.is_finite() && value >= 0.0 {
            Ok(value)
        } else {
            Err(FormatError::value(
                place.clone(),
                format!("{name} {value} is not a finite number of at least 0"),
            ))
        }
    };
    let mut uses = Vec::new();
    for entry in disk.uses {
        let calls = amount("calls", entry.calls)?;
        uses.push(Use { calls, bytes: entry.bytes.map(|bytes| amount("bytes", bytes)).transpose()? });
    }
    let mut calls = Vec::new();
    for count in disk.calls {
        let number = amount("calls", count.calls)?;
        calls.push(CallCount { call: count.call, descriptor: count.descriptor, calls: number });
    }
    let mapping = match disk.mapping {
        MappingOnDisk::Own => Mapping::Own,
        MappingOnDisk::LowerBound => Mapping::LowerBound,
    };
    let kernel_ns = amount("kernel_ns", disk.kernel_ns)?;
    Ok(Coefficient { primitive, mapping, uses, kernel_ns, calls })
}
