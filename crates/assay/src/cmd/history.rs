//! `assay history`: lists the runs in the store, or shows one, re-estimated from its raw samples.

use assay_quantity::format::machine_to_json;
use assay_report::{Block, Cell, Column, Report, Table};
use assay_store::{Outcome, Run, Store};

use crate::cli::HistoryArgs;
use crate::{journal, output, section};

/// Runs the subcommand.
pub fn run(args: &HistoryArgs) -> anyhow::Result<()> {
    let store = journal::open(&args.store)?;
    match &args.run {
        None => list(&store, args),
        Some(name) => show(&store, &journal::find(&store, name)?, args),
    }
}

fn list(store: &Store, args: &HistoryArgs) -> anyhow::Result<()> {
    let runs = store.runs()?;
    let rows = runs.iter().map(|run| {
        [
            Cell::Count(u64::try_from(run.id.0).unwrap_or_default()),
            Cell::text(&run.start.started_at),
            Cell::text(&run.start.machine),
            Cell::text(run.start.command.join(" ")),
            Cell::text(outcome(run)),
        ]
    });
    let columns = [
        Column::numbers("run"),
        Column::words("started"),
        Column::words("machine"),
        Column::words("command"),
        Column::words("outcome"),
    ];
    let title = format!("Runs in {}", store.path().display());
    let blocks = vec![Block::Table(Table::of("Runs", columns, rows))];
    output::show(&Report { title, blocks }, args.print.format())
}

fn show(store: &Store, run: &Run, args: &HistoryArgs) -> anyhow::Result<()> {
    let machine = journal::machine(store, run)?;
    let blocks = section::profile::blocks(&machine)?;
    let title = format!("Run {}, {}, {}", run.id, run.start.started_at, outcome(run));
    if let Some(path) = &args.output {
        output::write_file(path, &machine_to_json(&machine))?;
    }
    output::show(&Report { title, blocks }, args.print.format())
}

fn outcome(run: &Run) -> String {
    match &run.outcome {
        None => "incomplete, or still running".to_owned(),
        Some(Outcome::Completed) => "completed".to_owned(),
        Some(Outcome::Interrupted) => "interrupted".to_owned(),
        Some(Outcome::Failed(reason)) => format!("failed: {reason}"),
    }
}
