//! The report of `assay run`: the answer, the application, and the machine.

use assay_report::{Block, Report};
use assay_trace::container::Origin;
use assay_workload::Workload;

use super::{answer, application, demand, explained, facts, machine, trace};
use crate::phase::application::MeasuredOperation;
use crate::phase::tracing::Traced;
use crate::phase::{Found, FoundOperation};

/// Returns the report.
pub fn report(workload: &Workload, found: &Found) -> anyhow::Result<Report> {
    let heading = |text: &str| Block::Heading(text.to_owned());
    let mut blocks = Vec::new();
    for operation in &found.operations {
        let measured = &operation.measured;
        blocks.push(Block::Heading(format!("Costs of one {}: '{}'", measured.unit_of_work, measured.name)));
        blocks.extend(answer::blocks(operation));
    }
    blocks.push(heading(&format!("The application: {}", workload.about)));
    let measured: Vec<MeasuredOperation> =
        found.operations.iter().map(|operation| operation.measured.clone()).collect();
    blocks.push(Block::Table(application::dependence(&measured)));
    blocks.push(Block::Table(application::load(&measured)));
    for operation in &found.operations {
        blocks.extend(of_operation(operation)?);
    }
    blocks.push(heading("The machine"));
    blocks.extend(facts::blocks(&found.machine.description));
    blocks.push(heading("What its primitives cost"));
    blocks.push(Block::Table(machine::costs(&found.machine)));
    blocks.extend(machine::unmeasured(&found.machine).map(Block::Table));
    let title = format!("{} on {}", workload.name, found.machine.name);
    Ok(Report { title, blocks })
}

/// Returns the demand of an operation and its prediction; empty without a trace.
fn of_operation(operation: &FoundOperation) -> anyhow::Result<Vec<Block>> {
    let Ok(traced) = &operation.traced else { return Ok(Vec::new()) };
    let mut blocks = vec![
        Block::Heading(format!("Demand: '{}'", operation.measured.name)),
        Block::Text(recording(operation, traced)),
    ];
    #[expect(clippy::cast_precision_loss, reason = "a trace contains fewer than 2^52 requests")]
    let units = traced.units as f64;
    blocks.extend(trace::summary(&traced.summary, Origin::Probe, units, operation.measured.unit_of_work));
    blocks.extend(demand::vector(&traced.demand, Origin::Probe));
    if let Some(Ok(prediction)) = &operation.prediction {
        blocks.extend(explained::terms(&traced.demand, prediction, &operation.measured)?);
    }
    Ok(blocks)
}

/// Describes the recording.
fn recording(operation: &FoundOperation, traced: &Traced) -> String {
    #[expect(clippy::cast_precision_loss, reason = "times and counts stay below 2^52")]
    let (elapsed_ns, units) = (traced.elapsed_ns as f64, traced.units as f64);
    let slower = elapsed_ns / units * operation.measured.per_second.point / 1e9;
    let mut text = format!(
        "{} {}s were traced: {} records kept, {} lost; they took {:.2} times the untraced time.",
        traced.units, operation.measured.unit_of_work, traced.recorded.records, traced.recorded.lost, slower
    );
    for gap in &traced.missing {
        text.push(' ');
        text.push_str(gap);
    }
    text
}
