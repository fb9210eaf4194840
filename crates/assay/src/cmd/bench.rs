//! `assay bench`: what the primitives of this machine cost.

use assay_quantity::format::machine_to_json;
use assay_report::{Block, Cell, Column, Report, Table};

use crate::cli::BenchArgs;
use crate::interrupt::Interrupt;
use crate::journal::Journal;
use crate::output;
use crate::phase::machine::{Subject, select};
use crate::section;

/// Runs the subcommand.
pub fn run(args: &BenchArgs) -> anyhow::Result<()> {
    let benchmarks = select(&args.primitives)?;
    if args.list {
        let rows = benchmarks.iter().map(|benchmark| {
            [
                Cell::text(benchmark.primitive.to_string()),
                Cell::text(benchmark.unit.symbol()),
                Cell::text(benchmark.about),
                Cell::text(benchmark.source),
            ]
        });
        let columns = ["primitive", "unit", "one operation", "source"].map(Column::words);
        let blocks = vec![Block::Table(Table::of("Primitives", columns, rows))];
        return output::show(&Report { title: "What assay bench measures".to_owned(), blocks }, args.format);
    }
    if let Some(path) = &args.output {
        output::check_writable(path)?;
    }
    let interrupt = Interrupt::listen()?;
    let subject = Subject::new(&args.plan);
    let mut journal = Journal::begin(&args.store, &subject.description, subject.seed)?;
    let number = journal.run();
    let measured = subject.measure(&args.plan, &benchmarks, &mut journal, &interrupt);
    let mut machine = journal.finish(measured)?;
    if let Some(name) = &args.name {
        machine.name.clone_from(name);
    }
    let mut blocks = section::machine::description(&machine.description);
    blocks.push(Block::Table(section::machine::costs(&machine)));
    let title = format!("The machine {}", machine.name);
    let shown = output::show(&Report { title, blocks }, args.format);
    if let Some(path) = &args.output {
        output::write_file(path, &machine_to_json(&machine))?;
        output::say(&format!("the machine is in {}", path.display()));
    }
    output::say(&format!("the raw samples are run {number} of the store"));
    shown
}
