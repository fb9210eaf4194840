//! The report of `assay run`, in the order in which its questions arise.

use assay_report::{Block, Report};
use assay_workload::Workload;

use super::{application, demand, explained, machine, trace};
use crate::phase::application::MeasuredOperation;
use crate::phase::tracing::Traced;
use crate::phase::{Found, FoundOperation};

/// The whole report.
pub fn report(workload: &Workload, found: &Found) -> anyhow::Result<Report> {
    let heading = |text: &str| Block::Heading(text.to_owned());
    let mut blocks = vec![heading("1. The machine")];
    blocks.extend(machine::description(&found.machine.description));
    blocks.push(heading("2. What its primitives cost"));
    blocks.push(Block::Table(machine::costs(&found.machine)));
    blocks.push(heading(&format!("3. The application: {}", workload.about)));
    let measured: Vec<MeasuredOperation> =
        found.operations.iter().map(|operation| operation.measured.clone()).collect();
    blocks.push(Block::Table(application::dependence(&measured)));
    blocks.push(Block::Table(application::load(&measured)));
    for operation in &found.operations {
        blocks.extend(of_operation(operation)?);
    }
    let title = format!("{} on {}", workload.name, found.machine.name);
    Ok(Report { title, blocks })
}

fn of_operation(operation: &FoundOperation) -> anyhow::Result<Vec<Block>> {
    let name = &operation.measured.name;
    let heading = |text: &str| Block::Heading(format!("{text} '{name}'"));
    let traced = match &operation.traced {
        Ok(traced) => traced,
        Err(reason) => {
            let text = format!("Left out, because the trace could not be made: {reason}");
            return Ok(vec![heading("4. What it asks for:"), Block::Text(text)]);
        }
    };
    let mut blocks = vec![heading("4. What it asks for:"), Block::Text(recording(operation, traced))];
    #[expect(clippy::cast_precision_loss, reason = "nobody traces 2^52 requests")]
    let units = traced.units as f64;
    blocks.extend(trace::summary(&traced.summary, units, operation.measured.unit_of_work));
    blocks.extend(demand::vector(&traced.demand));
    blocks.push(heading("5. What it costs, predicted and measured:"));
    match &operation.prediction {
        Some(Ok(prediction)) => {
            blocks.extend(explained::blocks(&traced.demand, prediction, &operation.measured)?);
        }
        Some(Err(reason)) => blocks.push(Block::Text(format!("No prediction: {reason}"))),
        None => {}
    }
    Ok(blocks)
}

/// What the recording itself was like.
fn recording(operation: &FoundOperation, traced: &Traced) -> String {
    #[expect(clippy::cast_precision_loss, reason = "times and counts stay below 2^52")]
    let (elapsed_ns, units) = (traced.elapsed_ns as f64, traced.units as f64);
    let slower = elapsed_ns / units * operation.measured.per_second.point / 1e9;
    let mut text = format!(
        "{} {}s were traced: {} records kept, {} lost; they took {:.2} of the untraced time.",
        traced.units, operation.measured.unit_of_work, traced.recorded.records, traced.recorded.lost, slower
    );
    for gap in &traced.missing {
        text.push(' ');
        text.push_str(gap);
    }
    text
}
