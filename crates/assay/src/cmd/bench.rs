//! `assay bench`: the costs of this machine's primitives.

use std::ffi::OsString;
use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};
use assay_bench::serve::{Served, Server};
use assay_bench::{Benchmark, Counts, Measured, NotCounted, Profile, catalogue_here};
use assay_quantity::format::machine_to_json;
use assay_quantity::{Cost, Machine, PrimitiveId, Unit, Unmeasured, Verdict};
use assay_report::{Block, Cell, Column, Report, Table, scale};
use assay_statistics::verdict;
use assay_store::{Run, RunId};
use clap::Parser;

use crate::cli::{BenchArgs, Cli, Command};
use crate::interrupt::Interrupt;
use crate::journal::{self, Journal};
use crate::output::{self, Alarm};
use crate::phase::machine::{Effort, Subject, spawner};
use crate::phase::selection::Selection;
use crate::plan_file::PlanFile;
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

/// Lists the benchmarks with their descriptions.
fn list(args: &BenchArgs) -> anyhow::Result<()> {
    let profile = Profile::Full;
    let benchmarks = if args.primitives.is_empty() {
        catalogue_here()
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
    let title = "Primitives of assay bench".to_owned();
    output::show(&Report { title, blocks }, args.print.format())
}

/// Serves the benchmarks of other hosts until it is interrupted.
fn serve(address: SocketAddr) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let server = Server::bind(address)?;
    output::say(&format!("serving at {}; press Ctrl-C to stop", server.address()));
    let Served { connections, granted, refused, broken } = server.serve(interrupt.flag())?;
    output::say(&format!("{connections} connections: {granted} granted, {refused} refused, {broken} broken"));
    Ok(())
}

fn measure(args: &BenchArgs, begun: Option<Begun>) -> anyhow::Result<()> {
    let copies = args.copies.unwrap_or(1);
    ensure!(args.strict || args.tolerance.is_none(), "--tolerance requires --strict");
    ensure!(!args.free || copies > 1, "--free requires at least two copies; give their number with -P");
    let profile = if args.full { Profile::Full } else { Profile::Quick };
    let selection = Selection {
        names: args.primitives.clone(),
        profile,
        copies,
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
            // The run is marked as interrupted; its results so far are still shown.
            let _ = journal.finish::<()>(Err(interrupted.into()));
            machine
        }
        (measured, _) => journal.finish(measured)?,
    };
    let counted = if args.count && stopped.is_ok() { count(&benchmarks, &interrupt)? } else { Vec::new() };
    let machine = Machine { name: args.name.clone().unwrap_or(machine.name), ..machine };
    let printed = show(args, (number, &machine), &counted, stopped.is_ok());
    if stopped.is_err() {
        output::say(&format!("resume with 'assay bench --resume {number}'"));
    } else {
        output::say(&format!("the raw samples are stored as run {number}"));
    }
    // The second check is for an interrupt during the counting.
    let whole = stopped.and_then(|()| interrupt.check()).map_err(Into::into);
    let end = whole.and_then(|()| if args.strict { strict(args, number, &machine) } else { Ok(()) });
    output::end(printed, end)
}

/// Prints the machine, and writes it to `--output` if the run is complete.
fn show(
    args: &BenchArgs,
    (run, machine): (RunId, &Machine),
    counted: &[Counted],
    whole: bool,
) -> anyhow::Result<()> {
    let title = format!("Machine {}", machine.name);
    let mut blocks = section::profile::blocks(machine)?;
    let samples = journal::measured(&journal::open(&args.store)?, run)?;
    blocks.extend(section::counters::table(&samples).map(Block::Table));
    if !counted.is_empty() {
        blocks.push(Block::Table(section::counts::table(counted)));
    }
    let shown = output::show(&Report { title, blocks }, args.print.format());
    if let Some(path) = args.output.as_ref().filter(|_| whole) {
        output::write_file(path, &machine_to_json(machine))?;
        output::say(&format!("the machine is written to {}", path.display()));
    }
    shown
}

/// The counts of one primitive, or the reason why there are none.
type Counted = (PrimitiveId, Result<Counts, NotCounted>);

/// Counts the instructions, loads and stores of the operations, until it is interrupted.
fn count(benchmarks: &[Benchmark], interrupt: &Interrupt) -> anyhow::Result<Vec<Counted>> {
    let spawner = spawner()?;
    let directory = tempfile::tempdir()
        .context("cannot create a directory for valgrind's counts; set TMPDIR to a writable directory")?;
    output::say("counting with valgrind");
    let wanted = benchmarks.iter().take_while(|_| interrupt.check().is_ok());
    let counted = wanted.map(|benchmark| {
        let counts = assay_bench::count(benchmark, &spawner, directory.path(), interrupt.flag());
        (benchmark.primitive.clone(), counts)
    });
    Ok(counted.collect())
}

/// Fails if the figures are unreliable.
fn strict(args: &BenchArgs, run: RunId, machine: &Machine) -> anyhow::Result<()> {
    let unavailable = journal::open(&args.store)?.unavailable(run)?;
    let missing: Vec<&Unmeasured> =
        machine.unmeasured.iter().filter(|unmeasured| !unavailable.contains(unmeasured)).collect();
    Ok(reliable(machine, &missing, args.tolerance.unwrap_or(verdict::NOISY))?)
}

/// Fails if a figure is disturbed, its interval is wider than `tolerance`, or it is missing. Primitives that
/// are unavailable on the machine do not count as missing, but a machine without any figure fails.
fn reliable(machine: &Machine, missing: &[&Unmeasured], tolerance: f64) -> Result<(), Alarm> {
    let mut doubts = Vec::new();
    if let Some(Unmeasured { primitive, reason }) = missing.first() {
        let (number, all) = (missing.len(), machine.costs.len() + machine.unmeasured.len());
        doubts.push(format!("{number} of {all} primitives have no figure, such as {primitive}: {reason}"));
    } else if machine.costs.is_empty() {
        doubts.push("nothing was measured; see the table for the reasons".to_owned());
    }
    let figures = |is_doubtful: &dyn Fn(&Cost) -> bool, what: &str| {
        let doubtful: Vec<&PrimitiveId> = machine
            .costs
            .iter()
            .filter(|(_, cost)| is_doubtful(cost))
            .map(|(primitive, _)| primitive)
            .collect();
        let first = doubtful.first()?;
        Some(format!("{} of {} figures {what}, such as {first}", doubtful.len(), machine.costs.len()))
    };
    doubts.extend(figures(&|cost| matches!(cost.verdict, Some(Verdict::Disturbed(_))), "are disturbed"));
    let wide = format!("have intervals wider than ± {}", scale::number(tolerance, Unit::Ratio));
    doubts.extend(figures(&|cost| cost.typical.relative_half_width() > tolerance, &wide));
    if doubts.is_empty() { Ok(()) } else { Err(Alarm::Doubtful(doubts.join("; "))) }
}

/// An incomplete run.
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
            "run {} was started by assay {} and cannot be resumed by this version; start a new run",
            run.id,
            run.start.version
        );
        let samples = journal::measured(&store, run.id)?;
        Ok(Self { run, samples })
    }

    /// Returns the options of that run, with the output options of this command line.
    fn args(&self, now: &BenchArgs) -> anyhow::Result<BenchArgs> {
        let words = self.run.start.command.iter().map(OsString::from);
        let Ok(Cli { command: Command::Bench(then) }) = Cli::try_parse_from(words) else {
            bail!("run {} is not a bench run and cannot be resumed", self.run.id);
        };
        let then = match &then.plan {
            Some(path) => {
                let plan = PlanFile::read(path).with_context(|| {
                    let run = self.run.id;
                    format!(
                        "run {run} was started with a plan file that can no longer be read; start a new run"
                    )
                })?;
                plan.complete(&then)
            }
            None => then,
        };
        let mut whole = BenchArgs { store: now.store.clone(), print: now.print.clone(), ..then };
        whole.output = now.output.clone().or(whole.output);
        whole.name = now.name.clone().or(whole.name);
        whole.peer = now.peer.or(whole.peer);
        whole.count |= now.count;
        whole.strict |= now.strict;
        whole.tolerance = now.tolerance.or(whole.tolerance);
        whole.effort.budget = now.effort.budget.or(whole.effort.budget);
        whole.effort.precision = now.effort.precision.or(whole.effort.precision);
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_quantity::{Cost, Description, Unit};
    use assay_statistics::trimmed_mean;
    use assay_store::RunStart;

    #[test]
    fn missing_disturbed_and_too_wide_figures_are_reported_with_all_reasons() {
        let doubt = |machine: &Machine, missing: &[&Unmeasured], tolerance| {
            reliable(machine, missing, tolerance).map_err(|alarm| alarm.to_string())
        };
        let stat = Unmeasured { primitive: "file.stat".parse().unwrap(), reason: "no file".to_owned() };
        let mut machine = Machine { unmeasured: vec![stat.clone()], ..Machine::default() };
        let nothing = "nothing was measured; see the table for the reasons".to_owned();
        assert_eq!(doubt(&machine, &[], 0.1), Err(nothing));
        let failed = "1 of 1 primitives have no figure, such as file.stat: no file";
        assert_eq!(doubt(&machine, &[&stat], 0.1), Err(failed.to_owned()));
        let estimate = trimmed_mean(&[100.0, 101.0, 102.0, 103.0, 104.0], Unit::Nanoseconds).unwrap();
        machine.costs.insert("call.null".parse().unwrap(), Cost::from(estimate));
        assert_eq!(doubt(&machine, &[], 0.1), Ok(()));
        let wide = "1 of 1 figures have intervals wider than ± 1.50 %, such as call.null";
        assert_eq!(doubt(&machine, &[], 0.015), Err(wide.to_owned()));
        let verdict = Some(Verdict::Disturbed(0.31));
        machine.costs.insert("file.fstat".parse().unwrap(), Cost { verdict, ..Cost::from(estimate) });
        let all = "1 of 3 primitives have no figure, such as file.stat: no file; 1 of 2 figures are disturbed, such as \
                   file.fstat; 2 of 2 figures have intervals wider than ± 1.50 %, such as call.null";
        assert_eq!(doubt(&machine, &[&stat], 0.015), Err(all.to_owned()));
    }

    fn begun(words: &str) -> Begun {
        let start = RunStart {
            started_at: String::new(),
            command: words.split(' ').map(str::to_owned).collect(),
            version: String::new(),
            machine: String::new(),
            description: Description::default(),
            seed: 1,
        };
        Begun { run: Run { id: RunId(1), start, outcome: None }, samples: Vec::new() }
    }

    fn bench(words: &str) -> BenchArgs {
        match Cli::try_parse_from(words.split(' ')).unwrap().command {
            Command::Bench(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_resumed_run_keeps_its_primitives_and_takes_the_new_output_options() {
        let then = begun("assay bench call --cold --name old");
        let now = then.args(&bench("assay bench --resume --count --name new --peer 10.0.0.1:1")).unwrap();
        assert_eq!((now.primitives, now.cold), (vec!["call".to_owned()], true));
        assert_eq!(
            (now.count, now.name.as_deref(), now.peer),
            (true, Some("new"), "10.0.0.1:1".parse().ok())
        );
        let now = then.args(&bench("assay bench --resume")).unwrap();
        assert_eq!((now.count, now.name.as_deref(), now.peer), (false, Some("old"), None));
    }

    #[test]
    fn a_run_whose_plan_file_is_missing_cannot_be_resumed() {
        let then = begun("assay bench --plan /nowhere/plan.toml");
        let refused = output::line(&then.args(&bench("assay bench --resume")).unwrap_err());
        assert!(
            refused.starts_with("run 1 was started with a plan file that can no longer be read"),
            "{refused}"
        );
        assert!(refused.contains("/nowhere/plan.toml"), "{refused}");
    }
}
