//! `assay predict`: demand times machine costs, term by term, compared with measurements if there are any.

use anyhow::{Context, bail, ensure};
use assay_model::{Prediction, Validation, predict, validate};
use assay_quantity::OperationDemand;
use assay_quantity::format::demand_from_json;
use assay_report::{Block, Report};

use crate::cli::PredictArgs;
use crate::journal::{named_machine, read};
use crate::output;
use crate::section::measured::Measured;
use crate::section::{measured, prediction};

/// Runs the subcommand.
pub fn run(args: &PredictArgs) -> anyhow::Result<()> {
    let demand = demand_from_json(&read(&args.demand)?)
        .with_context(|| format!("{} is not a demand", args.demand.display()))?;
    let machines = args
        .machines
        .iter()
        .map(|name| named_machine(name, &args.store))
        .collect::<anyhow::Result<Vec<_>>>()?;
    for (position, machine) in machines.iter().enumerate() {
        let twice = machines[..position].iter().any(|earlier| earlier.name == machine.name);
        ensure!(!twice, "two machines are named '{}'; rename one", machine.name);
    }
    let measured = args.measured.as_deref().map(Measured::read).transpose()?.unwrap_or_default();
    let mut blocks = Vec::new();
    for operation in &demand.operations {
        let predictions =
            machines.iter().map(|machine| predict(operation, machine)).collect::<Result<Vec<_>, _>>()?;
        blocks.push(Block::Heading(format!("{}, {}", demand.name, operation.name)));
        blocks.extend(blocks_of(operation, &predictions, &measured)?);
    }
    let title = format!("{} on {} machine(s)", demand.name, machines.len());
    output::show(&Report { title, blocks }, args.print.format())
}

fn blocks_of(
    operation: &OperationDemand,
    predictions: &[Prediction],
    measured: &Measured,
) -> anyhow::Result<Vec<Block>> {
    let times: Vec<(String, f64)> =
        predictions.iter().map(|prediction| (prediction.machine.clone(), prediction.total.point)).collect();
    let mut blocks = vec![Block::Table(prediction::totals(operation, predictions, measured))];
    if let [only] = predictions {
        blocks.push(Block::Table(prediction::terms(operation, only)));
    } else {
        blocks.push(Block::Table(prediction::shares_by_machine(predictions)?));
    }
    for workload in measured.workloads() {
        let validation = validate(&workload, &times, &measured.rows);
        let Some(validation) = validation else {
            bail!(
                "workload '{workload}' of the measured file contains fewer than two of these machines: {}; \
                 its column 'machine' must contain their names",
                names(predictions)
            );
        };
        blocks.push(Block::Table(measured::table(&validation)));
        blocks.push(Block::Text(judgement(&validation)));
    }
    Ok(blocks)
}

fn judgement(validation: &Validation) -> String {
    let ranking = if validation.rank_correlation > 1.0 - 1e-9 {
        "The predicted and the measured ranking are the same.".to_owned()
    } else {
        format!(
            "The predicted and the measured ranking differ (Spearman {:.2}).",
            validation.rank_correlation
        )
    };
    format!(
        "{ranking} Largest error with one scale factor ({:.3}): ±{:.0} %.",
        validation.scale,
        validation.largest_error * 100.0
    )
}

fn names(predictions: &[Prediction]) -> String {
    predictions.iter().map(|prediction| prediction.machine.as_str()).collect::<Vec<_>>().join(", ")
}
