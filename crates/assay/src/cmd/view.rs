//! `assay view`: a recorded trace as a summary, in the order of time, or as a demand.

use anyhow::{bail, ensure};
use assay_quantity::Demand;
use assay_quantity::format::demand_to_json;
use assay_report::{Block, Report};
use assay_trace::Reader;
use assay_trace::view::demand::{Demanding, Named};
use assay_trace::view::sequence::{Sequence, SequenceRow};
use assay_trace::view::summary::Summarise;
use assay_trace::view::{Filter, look};

use crate::cli::ViewArgs;
use crate::{output, section};

/// One unit of work, when the user does not say what the trace is made of.
const UNIT_OF_WORK: &str = "unit of work";

/// Runs the subcommand.
pub fn run(args: &ViewArgs) -> anyhow::Result<()> {
    ensure!(args.output.is_none() || args.view == "demand", "--output goes with the view demand");
    let reader = Reader::open(&args.trace)?;
    if !reader.is_complete() {
        output::say("the recording was cut off: what came after its last whole block is missing");
    }
    let untracked = reader.manifest().untracked_threads;
    if untracked > 0 {
        output::say(&format!("{untracked} threads could not be followed: what they did is missing"));
    }
    let blocks = match args.view.as_str() {
        "summary" => section::trace::summary(&look(reader, Summarise::default())?, args.units, UNIT_OF_WORK),
        "sequence" => return sequence(reader),
        "demand" => demand(reader, args)?,
        other => bail!("the view '{other}' has no page yet"),
    };
    let title = format!("{}, {}", args.trace.display(), args.view);
    output::show(&Report { title, blocks }, args.print.format())
}

/// Rows are printed as they come: a trace may be longer than memory.
fn sequence(reader: Reader) -> anyhow::Result<()> {
    let start_ns = reader.manifest().start_monotonic_ns;
    let mut printed = Ok(());
    let print = |row: SequenceRow| {
        if printed.is_ok() {
            printed = output::print(&line(&row, start_ns));
        }
    };
    look(reader, Sequence::new(Filter::default(), print))?;
    printed
}

fn line(row: &SequenceRow, start_ns: u64) -> String {
    let since = row.begin_ns.saturating_sub(start_ns);
    let (seconds, rest) = (since / 1_000_000_000, since % 1_000_000_000);
    let elapsed = row.elapsed_ns.map_or(String::new(), |ns| format!(" <{ns} ns>"));
    format!("{seconds:>5}.{rest:09} {:>7} {}{elapsed}\n", row.thread, row.text)
}

fn demand(reader: Reader, args: &ViewArgs) -> anyhow::Result<Vec<Block>> {
    let command = reader.manifest().command.join(" ");
    let name = if command.is_empty() { args.trace.display().to_string() } else { command };
    let named = Named { operation: name.clone(), unit_of_work: UNIT_OF_WORK.to_owned() };
    let operation = look(reader, Demanding::default())?.into_operation(named, args.units);
    let blocks = section::demand::vector(&operation);
    if let Some(path) = &args.output {
        let source = format!("assay {}: {}", env!("CARGO_PKG_VERSION"), args.trace.display());
        let demand = Demand { name, source, operations: vec![operation] };
        output::write_file(path, &demand_to_json(&demand))?;
    }
    Ok(blocks)
}
