//! `assay bench`: what the primitives of this machine cost.

use std::ffi::OsString;
use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};
use assay_bench::serve::{Served, Server};
use assay_bench::{Benchmark, Counts, Measured, NotCounted, Profile};
use assay_quantity::format::machine_to_json;
use assay_quantity::{Machine, PrimitiveId, Verdict};
use assay_report::{Block, Cell, Column, Report, Table};
use assay_store::{Run, RunId};
use clap::Parser;

use crate::cli::{BenchArgs, Cli, Command};
use crate::interrupt::Interrupt;
use crate::journal::{self, Journal};
use crate::output::{self, Doubtful};
use crate::phase::machine::{Effort, Subject, spawner};
use crate::phase::selection::{Selection, here};
use crate::plan::PlanFile;
use crate::section;

/// Runs the subcommand.
pub fn run(args: &BenchArgs) -> anyhow::Result<()> {
    if args.list {
        return list(args);
    }
    if let Some(address) = args.serve {
        return serve(address);
    }
    let begun = args.resume.as_deref().map(|name| Begun::find(name, args)).transpose()?;
    let whole = match (&begun, &args.plan) {
        (Some(begun), _) => begun.args(args)?,
        (None, Some(path)) => PlanFile::read(path)?.complete(args),
        (None, None) => args.clone(),
    };
    measure(&whole, begun)
}

/// Every benchmark, with what it measures.
fn list(args: &BenchArgs) -> anyhow::Result<()> {
    let profile = Profile::Full;
    let benchmarks = if args.primitives.is_empty() {
        here()
    } else {
        Selection { names: args.primitives.clone(), profile, ..Selection::default() }.benchmarks()?
    };
    let rows = benchmarks.iter().map(|benchmark| {
        [
            Cell::text(benchmark.primitive.to_string()),
            Cell::text(benchmark.unit.symbol()),
            Cell::text(if benchmark.profile == Profile::Quick { "quick" } else { "full" }),
            Cell::text(benchmark.about),
            Cell::text(benchmark.source),
        ]
    });
    let columns = ["primitive", "unit", "profile", "one operation", "source"].map(Column::words);
    let blocks =
        vec![Block::Table(Table::of("Primitives", columns, rows)), Block::Table(section::machine::keys())];
    let title = "What assay bench measures".to_owned();
    output::show(&Report { title, blocks }, args.print.format())
}

/// Answers the benchmarks of other hosts until the user has had enough of it.
fn serve(address: SocketAddr) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let server = Server::bind(address)?;
    output::say(&format!("answering at {}; Ctrl-C ends it", server.address()));
    let Served { connections, granted, refused, broken } = server.serve(interrupt.flag())?;
    output::say(&format!(
        "{connections} connections: {granted} granted, {refused} refused, {broken} ended out of turn"
    ));
    Ok(())
}

fn measure(args: &BenchArgs, begun: Option<Begun>) -> anyhow::Result<()> {
    let profile = if args.full { Profile::Full } else { Profile::Quick };
    let selection = Selection {
        names: args.primitives.clone(),
        profile,
        copies: args.copies.unwrap_or(1),
        free: args.free,
        cold: args.cold,
        remote: args.peer.is_some(),
    };
    let benchmarks = selection.benchmarks()?;
    if let Some(path) = &args.output {
        output::check_writable(path)?;
    }
    let interrupt = Interrupt::listen()?;
    let subject = Subject::new(begun.as_ref().map_or(args.effort.seed, |begun| Some(begun.run.start.seed)));
    let (mut journal, samples) = match begun {
        Some(begun) => (Journal::resume(&args.store, &begun.run, &subject.description)?, begun.samples),
        None => (Journal::begin(&args.store, &subject.description, subject.seed)?, Vec::new()),
    };
    let number = journal.run();
    let effort = Effort { peer: args.peer, counters: args.counters, ..Effort::of(&args.effort, profile) };
    let measured = subject.measure(effort, &benchmarks, &samples, &mut journal, &interrupt);
    let stopped = interrupt.check();
    let machine = match (measured, stopped.clone()) {
        (Ok(machine), Err(interrupted)) => {
            // The run is marked as interrupted, and what it has is shown all the same.
            let _ = journal.finish::<()>(Err(interrupted.into()));
            machine
        }
        (measured, _) => journal.finish(measured)?,
    };
    let counted = if args.count { count(&benchmarks, &interrupt)? } else { Vec::new() };
    let shown = show(args, (number, machine), &counted, stopped.is_ok())?;
    if stopped.is_err() {
        output::say(&format!("go on with 'assay bench --resume {number}'"));
    } else {
        output::say(&format!("the raw samples are run {number} of the store"));
    }
    stopped?;
    if args.strict { believable(&shown) } else { Ok(()) }
}

/// Prints the machine, and keeps it where the user wants it if it is whole.
fn show(
    args: &BenchArgs,
    (run, mut machine): (RunId, Machine),
    counted: &[Counted],
    whole: bool,
) -> anyhow::Result<Machine> {
    if let Some(name) = &args.name {
        machine.name.clone_from(name);
    }
    let title = format!("The machine {}", machine.name);
    let mut blocks = section::profile::blocks(&machine)?;
    let samples = journal::measured(&journal::open(&args.store)?, run)?;
    blocks.extend(section::counters::table(&samples).map(Block::Table));
    if !counted.is_empty() {
        blocks.push(Block::Table(section::counts::table(counted)));
    }
    let shown = output::show(&Report { title, blocks }, args.print.format());
    if let Some(path) = args.output.as_ref().filter(|_| whole) {
        output::write_file(path, &machine_to_json(&machine))?;
        output::say(&format!("the machine is in {}", path.display()));
    }
    shown?;
    Ok(machine)
}

/// What was counted of one primitive, or why nothing was.
type Counted = (PrimitiveId, Result<Counts, NotCounted>);

/// Counts what the operations execute.
fn count(benchmarks: &[Benchmark], interrupt: &Interrupt) -> anyhow::Result<Vec<Counted>> {
    let spawner = spawner()?;
    let directory =
        tempfile::tempdir().context("cannot make a directory for valgrind's counts; set TMPDIR")?;
    output::say("counting with valgrind");
    let counted = benchmarks.iter().map(|benchmark| {
        let counts = assay_bench::count(benchmark, &spawner, directory.path(), interrupt.flag());
        (benchmark.primitive.clone(), counts)
    });
    Ok(counted.collect())
}

/// An error if a figure is contaminated.
fn believable(machine: &Machine) -> anyhow::Result<()> {
    let contaminated: Vec<String> = machine
        .costs
        .iter()
        .filter(|(_, cost)| matches!(cost.verdict, Some(Verdict::Contaminated(_))))
        .map(|(primitive, _)| primitive.to_string())
        .collect();
    match contaminated.first() {
        None => Ok(()),
        Some(first) => Err(Doubtful(format!(
            "{} of {} figures are contaminated, {first} among them; measure again when the machine is idle",
            contaminated.len(),
            machine.costs.len()
        ))
        .into()),
    }
}

/// A run that was not completed.
struct Begun {
    run: Run,
    samples: Vec<Measured>,
}

impl Begun {
    fn find(name: &str, args: &BenchArgs) -> anyhow::Result<Self> {
        let store = journal::open(&args.store)?;
        let run = journal::find(&store, name)?;
        ensure!(
            run.start.version == env!("CARGO_PKG_VERSION"),
            "run {} was begun by assay {}; begin a new one",
            run.id,
            run.start.version
        );
        let samples = journal::measured(&store, run.id)?;
        Ok(Self { run, samples })
    }

    /// What that run was asked for, to be shown and kept as this command line says.
    fn args(&self, now: &BenchArgs) -> anyhow::Result<BenchArgs> {
        let words = self.run.start.command.iter().map(OsString::from);
        let Ok(Cli { command: Command::Bench(then) }) = Cli::try_parse_from(words) else {
            bail!("run {} was no 'assay bench', so there is nothing to go on with", self.run.id);
        };
        let then = match &then.plan {
            Some(path) => PlanFile::read(path)?.complete(&then),
            None => then,
        };
        let mut whole = BenchArgs { store: now.store.clone(), print: now.print.clone(), ..then };
        whole.output = now.output.clone().or(whole.output);
        whole.strict |= now.strict;
        whole.effort.budget = now.effort.budget.or(whole.effort.budget);
        whole.effort.precision = now.effort.precision.or(whole.effort.precision);
        Ok(whole)
    }
}
