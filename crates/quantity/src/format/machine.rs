//! `assay.machine/2`: one machine measured. Version 1 is still read: it has one estimate of a cost, which is
//! the typical one, and its verdicts have other names. Its minima and its numbers of disturbed samples are
//! left out here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{EstimateOnDisk, FormatError, UnmeasuredOnDisk, parse, render};
use crate::cost::{Cost, Mode, Verdict};
use crate::estimate::Estimate;
use crate::machine::{Conditions, Description, Fact, Machine};
use crate::primitive::PrimitiveId;
use crate::unit::Unit;

const FORMAT: &str = "assay.machine/2";
const FORMAT_1: &str = "assay.machine/1";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineOnDisk {
    format: String,
    name: String,
    source: String,
    facts: Vec<FactOnDisk>,
    uncontrolled: Vec<String>,
    #[serde(default)]
    conditions: ConditionsOnDisk,
    costs: Vec<CostOnDisk>,
    unmeasured: Vec<UnmeasuredOnDisk>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FactOnDisk {
    name: String,
    value: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConditionsOnDisk {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shared: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cycle_ns: Option<f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CostOnDisk {
    primitive: String,
    #[serde(alias = "estimate")]
    typical: EstimateOnDisk,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calm: Option<EstimateOnDisk>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    again: Option<EstimateOnDisk>,
    /// Of version 1.
    #[serde(default, rename = "minimum", skip_serializing)]
    _minimum: Option<f64>,
    #[serde(default)]
    rejected: usize,
    #[serde(default, skip_serializing_if = "is_zero")]
    batches: usize,
    #[serde(default, skip_serializing_if = "is_zero")]
    disturbed: usize,
    /// Of version 1.
    #[serde(default, rename = "contaminated", skip_serializing)]
    _contaminated: usize,
    #[serde(default, skip_serializing_if = "is_zero")]
    outliers: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    modes: Vec<ModeOnDisk>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    depends_on: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    linearity: Option<EstimateOnDisk>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verdict: Option<VerdictOnDisk>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModeOnDisk {
    weight: f64,
    estimate: EstimateOnDisk,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum VerdictOnDisk {
    #[serde(alias = "clean")]
    Steady,
    Noisy(f64),
    Modes(usize),
    #[serde(alias = "contaminated")]
    Disturbed(f64),
}

/// Whether to omit a count, so that older readers can read the file.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Writes a machine as a file's text.
#[must_use]
pub fn machine_to_json(machine: &Machine) -> String {
    let facts = &machine.description.facts;
    render(&MachineOnDisk {
        format: FORMAT.to_owned(),
        name: machine.name.clone(),
        source: machine.source.clone(),
        facts: facts
            .iter()
            .map(|fact| FactOnDisk { name: fact.name.clone(), value: fact.value.clone() })
            .collect(),
        uncontrolled: machine.description.uncontrolled.clone(),
        conditions: ConditionsOnDisk {
            shared: machine.conditions.shared,
            cycle_ns: machine.conditions.cycle_ns,
        },
        costs: machine.costs.iter().map(write_cost).collect(),
        unmeasured: machine.unmeasured.iter().map(UnmeasuredOnDisk::from).collect(),
    })
}

/// Reads a machine from a file's text.
///
/// # Errors
/// [`FormatError`] for anything but a whole and consistent machine.
pub fn machine_from_json(text: &str) -> Result<Machine, FormatError> {
    let disk: MachineOnDisk = parse(text, &[FORMAT, FORMAT_1])?;
    let facts = disk.facts.into_iter().map(|fact| Fact { name: fact.name, value: fact.value }).collect();
    let mut costs = BTreeMap::new();
    for cost in disk.costs {
        let (primitive, cost) = read_cost(cost)?;
        let place = format!("primitive '{primitive}'");
        if costs.insert(primitive, cost).is_some() {
            return Err(FormatError::value(place, "it occurs twice"));
        }
    }
    let unmeasured = disk.unmeasured.into_iter().map(|missing| missing.read("unmeasured"));
    let unmeasured = unmeasured.collect::<Result<_, _>>()?;
    let description = Description { facts, uncontrolled: disk.uncontrolled };
    let conditions = read_conditions(&disk.conditions)?;
    Ok(Machine { name: disk.name, source: disk.source, description, conditions, costs, unmeasured })
}

fn write_cost((primitive, cost): (&PrimitiveId, &Cost)) -> CostOnDisk {
    CostOnDisk {
        primitive: primitive.to_string(),
        typical: EstimateOnDisk::from(&cost.typical),
        calm: cost.calm.as_ref().map(EstimateOnDisk::from),
        again: cost.again.as_ref().map(EstimateOnDisk::from),
        _minimum: None,
        rejected: cost.rejected,
        batches: cost.batches,
        disturbed: cost.disturbed,
        _contaminated: 0,
        outliers: cost.outliers,
        modes: cost
            .modes
            .iter()
            .map(|mode| ModeOnDisk { weight: mode.weight, estimate: EstimateOnDisk::from(&mode.estimate) })
            .collect(),
        depends_on: cost.depends_on.clone(),
        linearity: cost.linearity.as_ref().map(EstimateOnDisk::from),
        verdict: cost.verdict.map(|verdict| match verdict {
            Verdict::Steady => VerdictOnDisk::Steady,
            Verdict::Noisy(width) => VerdictOnDisk::Noisy(width),
            Verdict::Modes(number) => VerdictOnDisk::Modes(number),
            Verdict::Disturbed(share) => VerdictOnDisk::Disturbed(share),
        }),
    }
}

fn read_cost(disk: CostOnDisk) -> Result<(PrimitiveId, Cost), FormatError> {
    let place = format!("primitive '{}'", disk.primitive);
    let primitive: PrimitiveId =
        disk.primitive.parse().map_err(|problem| FormatError::value("costs", problem))?;
    let typical = disk.typical.read(&place)?;
    if !matches!(typical.unit, Unit::Nanoseconds | Unit::NanosecondsPerByte) {
        return Err(FormatError::value(place, format!("a cost is in ns or ns/B, not in {}", typical.unit)));
    }
    if primitive.size().is_some_and(|size| size.bytes() == 0) {
        return Err(FormatError::value(place, "a size of 0 bytes has no cost"));
    }
    let cost = Cost {
        typical,
        calm: disk.calm.map(|calm| read_like(typical.unit, "calm cost", calm, &place)).transpose()?,
        again: disk
            .again
            .map(|again| read_like(typical.unit, "cost of a later run", again, &place))
            .transpose()?,
        rejected: disk.rejected,
        batches: disk.batches,
        disturbed: disk.disturbed,
        outliers: disk.outliers,
        modes: read_modes(disk.modes, typical.unit, &place)?,
        depends_on: disk.depends_on,
        linearity: disk.linearity.map(|linearity| read_linearity(linearity, &place)).transpose()?,
        verdict: disk.verdict.map(|verdict| match verdict {
            VerdictOnDisk::Steady => Verdict::Steady,
            VerdictOnDisk::Noisy(width) => Verdict::Noisy(width),
            VerdictOnDisk::Modes(number) => Verdict::Modes(number),
            VerdictOnDisk::Disturbed(share) => Verdict::Disturbed(share),
        }),
    };
    Ok((primitive, cost))
}

fn read_conditions(disk: &ConditionsOnDisk) -> Result<Conditions, FormatError> {
    let ConditionsOnDisk { shared, cycle_ns } = *disk;
    if let Some(shared) = shared.filter(|shared| !(0.0..=1.0).contains(shared)) {
        return Err(FormatError::value("conditions", format!("shared {shared} is not a share from 0 to 1")));
    }
    if let Some(cycle) = cycle_ns.filter(|cycle| !(cycle.is_finite() && *cycle > 0.0)) {
        return Err(FormatError::value("conditions", format!("cycle_ns {cycle} is not above 0")));
    }
    Ok(Conditions { shared, cycle_ns })
}

/// An optional estimate in the unit of the cost.
fn read_like(unit: Unit, what: &str, disk: EstimateOnDisk, place: &str) -> Result<Estimate, FormatError> {
    let other = disk.read(place)?;
    if other.unit == unit {
        return Ok(other);
    }
    Err(FormatError::value(place, format!("its {what} is in {}, its typical cost in {unit}", other.unit)))
}

fn read_linearity(disk: EstimateOnDisk, place: &str) -> Result<Estimate, FormatError> {
    let linearity = disk.read(place)?;
    if linearity.unit == Unit::Ratio {
        return Ok(linearity);
    }
    Err(FormatError::value(place, format!("a linearity is a ratio, not in {}", linearity.unit)))
}

fn read_modes(disk: Vec<ModeOnDisk>, unit: Unit, place: &str) -> Result<Vec<Mode>, FormatError> {
    let mut modes = Vec::with_capacity(disk.len());
    for mode in disk {
        let estimate = mode.estimate.read(place)?;
        if estimate.unit != unit {
            let problem = format!("a mode is in {}, its cost in {unit}", estimate.unit);
            return Err(FormatError::value(place, problem));
        }
        modes.push(Mode { weight: mode.weight, estimate });
    }
    let sum: f64 = modes.iter().map(|mode| mode.weight).sum();
    if !modes.is_empty() && ((sum - 1.0).abs() > 1e-6 || modes.iter().any(|mode| mode.weight <= 0.0)) {
        let problem = format!("the weights of its modes are not shares of a whole: they add up to {sum}");
        return Err(FormatError::value(place, problem));
    }
    Ok(modes)
}
