//! The application phase: what one unit of work really costs when nobody traces it.

use std::num::NonZeroU32;

use anyhow::Context;
use assay_quantity::{Estimate, Unit, estimate};
use assay_store::{Client, Cpu, Latency, Round};
use assay_workload::{CommandOutput, CommandProgram, CommandRun, CpuTime, Operation, Plan, Server, measure};

use crate::interrupt::Interrupt;
use crate::progress::Progress;

/// Rounds of an operation: enough that the trimmed mean loses one at either end and keeps six.
const ROUNDS: NonZeroU32 = NonZeroU32::new(8).expect("eight is not zero");

/// An operation as it was measured. All estimates are of independent rounds.
#[derive(Debug, Clone)]
pub struct MeasuredOperation {
    /// Its name.
    pub name: String,
    /// One unit of its work, `request` or `run`.
    pub unit_of_work: &'static str,
    /// Units of work per second.
    pub per_second: Estimate,
    /// Processor time of the application for one unit of work.
    pub cpu: Estimate,
    /// The part of it in user mode; `None` where it could not be told.
    pub user: Option<Estimate>,
    /// The part of it in the kernel.
    pub system: Option<Estimate>,
    /// Share of the time in which the processors that it may use did not run it.
    pub idle: Estimate,
    /// Median and 99th percentile of the latency, where a client saw it.
    pub latency: Option<[Estimate; 2]>,
    /// The rounds themselves, for the store.
    pub rounds: Vec<Round>,
}

/// Measures one operation of a running server.
pub fn server(
    server: &Server,
    operation: &Operation,
    interrupt: &Interrupt,
) -> anyhow::Result<MeasuredOperation> {
    let progress = Progress::rounds(&operation.name, ROUNDS);
    let plan = Plan { warm_up_requests: None, requests: None, rounds: ROUNDS };
    let rounds = measure(server, operation, &plan, interrupt.flag(), &mut |round, _| progress.round(round));
    progress.clear();
    interrupt.check()?;
    let rounds = rounds?.iter().map(|round| of_server(&operation.name, round)).collect();
    estimates(&operation.name, "request", rounds)
}

/// Measures a command: one unit of work is one run of it.
pub fn command(program: &CommandProgram, interrupt: &Interrupt) -> anyhow::Result<MeasuredOperation> {
    let name = program.command.join(" ");
    let progress = Progress::rounds(&name, ROUNDS);
    let mut rounds = Vec::new();
    for round in 0..=ROUNDS.get() {
        progress.round(round);
        let run = program.run(CommandOutput::Discard, interrupt.flag(), &mut |_| {});
        interrupt.check()?;
        let run = run?;
        // The first run warms the caches, and is not counted.
        if round > 0 {
            rounds.push(of_command(&name, &run));
        }
    }
    progress.clear();
    estimates(&name, "run", rounds)
}

fn of_server(operation: &str, round: &assay_workload::Round) -> Round {
    let (load, latency) = (&round.load, &round.load.latency);
    Round {
        operation: operation.to_owned(),
        units: load.requests,
        elapsed_ns: load.elapsed_ns,
        cpu: cpu(&round.server),
        usable_cpus: round.usable_cpus.get(),
        client: Some(Client {
            latency: Latency {
                p50_ns: latency.p50_ns,
                p90_ns: latency.p90_ns,
                p99_ns: latency.p99_ns,
                p999_ns: latency.p999_ns,
                max_ns: latency.max_ns,
            },
            received_bytes: load.received_bytes,
            connections: load.connections,
            cpu_ns: load.client_cpu_ns,
        }),
    }
}

/// A command may use every processor, but one that runs by itself on one of them is never idle: so one is
/// what its idle share is a share of.
fn of_command(operation: &str, run: &CommandRun) -> Round {
    Round {
        operation: operation.to_owned(),
        units: 1,
        elapsed_ns: run.elapsed_ns,
        cpu: cpu(&run.cpu),
        usable_cpus: 1,
        client: None,
    }
}

fn cpu(time: &CpuTime) -> Cpu {
    let CpuTime { total_ns, queued_ns, user_ticks, system_ticks } = *time;
    Cpu { total_ns, queued_ns, user_ticks, system_ticks }
}

/// What rounds of one operation, fresh or from the store, say together.
pub fn estimates(
    name: &str,
    unit_of_work: &'static str,
    rounds: Vec<Round>,
) -> anyhow::Result<MeasuredOperation> {
    let over = |unit: Unit, value: &dyn Fn(&Round) -> f64| {
        let values: Vec<f64> = rounds.iter().map(value).collect();
        estimate::trimmed_mean(&values, unit).with_context(|| format!("operation '{name}'"))
    };
    let each = |pick: &dyn Fn(&Round) -> Option<u64>| {
        if rounds.iter().any(|round| pick(round).is_none()) {
            return Ok(None);
        }
        over(Unit::Nanoseconds, &|round| real(pick(round).unwrap_or_default())).map(Some)
    };
    let per_unit = |ns: Option<u64>, round: &Round| ns.map(|ns| ns / round.units.max(1));
    let percentile = |pick: fn(&Latency) -> u64| {
        each(&move |round| round.client.as_ref().map(|client| pick(&client.latency)))
    };
    let (p50, p99) = (percentile(|latency| latency.p50_ns)?, percentile(|latency| latency.p99_ns)?);
    Ok(MeasuredOperation {
        name: name.to_owned(),
        unit_of_work,
        per_second: over(Unit::PerSecond, &|round| real(round.units) * 1e9 / real(round.elapsed_ns.max(1)))?,
        cpu: over(Unit::Nanoseconds, &|round| real(round.cpu.total_ns) / real(round.units.max(1)))?,
        user: each(&|round| per_unit(time(round).user_ns(), round))?,
        system: each(&|round| per_unit(time(round).system_ns(), round))?,
        idle: over(Unit::Ratio, &|round| {
            1.0 - real(round.cpu.total_ns) / (real(round.elapsed_ns.max(1)) * f64::from(round.usable_cpus))
        })?,
        latency: p50.zip(p99).map(|(p50, p99)| [p50, p99]),
        rounds,
    })
}

fn time(round: &Round) -> CpuTime {
    let Cpu { total_ns, queued_ns, user_ticks, system_ticks } = round.cpu;
    CpuTime { total_ns, queued_ns, user_ticks, system_ticks }
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a round stay far below 2^52")]
fn real(count: u64) -> f64 {
    count as f64
}
