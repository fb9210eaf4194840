//! `assay run`: measures a machine and an application, and predicts and explains the application's time.

use std::collections::HashSet;
use std::{env, io};

use anyhow::{Context, anyhow, bail};
use assay_bench::{Benchmark, Profile, catalogue_here};
use assay_model::predict;
use assay_quantity::format::{demand_to_json, machine_to_json};
use assay_quantity::{Demand, Key, PrimitiveId};
use assay_report::Format;
use assay_workload::{Operation, Program, Server, StartError, Workload};

use crate::cli::RunArgs;
use crate::interrupt::Interrupt;
use crate::journal::{Journal, named_machine};
use crate::phase::machine::{Effort, Subject};
use crate::phase::tracing::{Traced, Traces};
use crate::phase::{Found, FoundOperation, application, tracing};
use crate::{output, section};

/// Runs the subcommand.
pub fn run(args: &RunArgs) -> anyhow::Result<()> {
    let workload = match &args.workload {
        Some(path) => Workload::read(path)?,
        None => {
            Workload::command(args.command.clone()).context("give a workload file, or `--` and a command")?
        }
    };
    let operations = operations(&workload, &args.operation)?;
    let files = [Some(&args.report), args.save_machine.as_ref(), args.save_demand.as_ref()];
    files.into_iter().flatten().try_for_each(|path| output::check_writable(path))?;
    let given = args.machine.as_deref().map(|name| named_machine(name, &args.store)).transpose()?;
    let interrupt = Interrupt::listen()?;
    let subject = Subject::new(args.effort.seed);
    let mut journal = Journal::begin(&args.store, &subject.description, subject.seed)?;
    let found = phases(args, &workload, &operations, (given, &subject), &mut journal, &interrupt);
    let found = journal.finish(found)?;
    conclude(args, &workload, &found)
}

/// Returns the selected operations: by default the first of the workload, which is its main one.
fn operations(workload: &Workload, names: &[String]) -> anyhow::Result<Vec<Operation>> {
    if names.is_empty() {
        return Ok(workload.operations().iter().take(1).cloned().collect());
    }
    let known = || workload.operations().iter().map(|operation| operation.name.as_str()).collect::<Vec<_>>();
    let find = |name: &String| match workload.operation(name) {
        Some(operation) => Ok(operation.clone()),
        None => {
            bail!(
                "workload '{}' has no operation '{name}'; its operations are: {}",
                workload.name,
                known().join("; ")
            )
        }
    };
    names.iter().map(find).collect()
}

fn phases(
    args: &RunArgs,
    workload: &Workload,
    operations: &[Operation],
    (given, subject): (Option<assay_quantity::Machine>, &Subject),
    journal: &mut Journal,
    interrupt: &Interrupt,
) -> anyhow::Result<Found> {
    let traces = Traces::new(args.save_traces.as_deref())?;
    let names: Vec<&str> = operations.iter().map(|operation| operation.name.as_str()).collect();
    traces.check(&names)?;
    // Start with the application: if it cannot run, fail before measuring the machine.
    let operations = match &workload.program {
        Program::Command(program) => {
            let measured = application::command(program, interrupt)?;
            journal.rounds(&measured.rounds)?;
            vec![joined(measured, tracing::command(program, &traces, interrupt), interrupt)?]
        }
        Program::Server(_) => {
            output::say(&format!("starting {}", workload.name));
            let server = Server::start(workload, args.port, interrupt.flag());
            interrupt.check()?;
            let server = server.map_err(without_room)?;
            let mut found = Vec::new();
            for operation in operations {
                let measured = application::server(&server, operation, interrupt)?;
                journal.rounds(&measured.rounds)?;
                let traced = tracing::server(&server, operation, &traces, interrupt);
                found.push(joined(measured, traced, interrupt)?);
            }
            server.stop()?;
            found
        }
    };
    let machine = match given {
        Some(machine) => machine,
        None => {
            let benchmarks = wanted(&operations);
            let effort = Effort::of(&args.effort, Profile::Quick);
            let machine = subject.measure(effort, &benchmarks, &[], journal, interrupt)?;
            interrupt.check()?;
            machine
        }
    };
    let predicted = |mut operation: FoundOperation| {
        if let Ok(traced) = &operation.traced {
            operation.prediction = Some(predict(&traced.demand, &machine));
        }
        operation
    };
    let operations = operations.into_iter().map(predicted).collect();
    Ok(Found { machine, operations })
}

/// Returns the benchmarks for these operations: the primitives of their demands, at all sizes, and those of
/// the summary.
fn wanted(operations: &[FoundOperation]) -> Vec<Benchmark> {
    let traced = operations.iter().filter_map(|operation| operation.traced.as_ref().ok());
    let asked: HashSet<&PrimitiveId> = traced
        .flat_map(|traced| &traced.demand.coefficients)
        .map(|coefficient| &coefficient.primitive)
        .collect();
    let known = section::summary::primitives();
    let is_wanted = |benchmark: &Benchmark| {
        let id = &benchmark.primitive;
        asked.contains(id) || asked.contains(&id.without(Key::Size)) || known.contains(id)
    };
    catalogue_here().into_iter().filter(is_wanted).collect()
}

/// Adds the directory to an error about a full disk: the command line does not contain the location of the
/// server's files.
fn without_room(error: StartError) -> anyhow::Error {
    let full = matches!(&error, StartError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull);
    let error = anyhow::Error::new(error);
    if !full {
        return error;
    }
    let directory = env::temp_dir();
    error.context(format!(
        "{} is full; free some space, or set TMPDIR to another directory",
        directory.display()
    ))
}

/// Joins the measurement and the trace of an operation. A failed trace is reported as missing; an interrupt
/// is an error.
fn joined(
    measured: application::MeasuredOperation,
    traced: anyhow::Result<Traced>,
    interrupt: &Interrupt,
) -> anyhow::Result<FoundOperation> {
    interrupt.check()?;
    let traced = traced
        .map(|mut traced| {
            (traced.demand.user, traced.demand.system) = (measured.user, measured.system);
            traced
        })
        .map_err(|error| output::line(&error));
    Ok(FoundOperation { measured, traced, prediction: None })
}

fn conclude(args: &RunArgs, workload: &Workload, found: &Found) -> anyhow::Result<()> {
    let report = section::whole::report(workload, found)?;
    let html = Format::named("html").context("the report crate lacks HTML")?;
    output::write_file(&args.report, &(html.render)(&report, &output::style()))?;
    if let Some(path) = &args.save_machine {
        output::write_file(path, &machine_to_json(&found.machine))?;
    }
    let traced = found.operations.iter().filter_map(|operation| operation.traced.as_ref().ok());
    let demands: Vec<_> = traced.map(|traced| traced.demand.clone()).collect();
    if let Some(path) = args.save_demand.as_ref().filter(|_| !demands.is_empty()) {
        let source = format!("assay {} on {}", env!("CARGO_PKG_VERSION"), found.machine.name);
        let demand = Demand { name: workload.name.clone(), source, operations: demands };
        output::write_file(path, &demand_to_json(&demand))?;
    }
    let shown = output::show(&report, args.print.format());
    output::say(&format!("the report is written to {}", args.report.display()));
    let left_out = found.left_out();
    let whole = if left_out.is_empty() {
        Ok(())
    } else {
        Err(anyhow!("the report is incomplete: {}", left_out.join("; ")))
    };
    output::end(shown, whole)
}
