//! The application phase: measures the costs of one unit of work, untraced.

use std::num::NonZeroU32;

use anyhow::Context;
use assay_quantity::{Estimate, Latency, Round, Unit};
use assay_statistics::trimmed_mean;
use assay_workload::{CommandOutput, CommandProgram, Operation, Plan, Server, measure};

use crate::interrupt::Interrupt;
use crate::progress::Progress;

/// Rounds of an operation: the trimmed mean removes one at either end and keeps six.
const ROUNDS: NonZeroU32 = NonZeroU32::new(8).expect("eight is not zero");

/// A measured operation. All estimates are over independent rounds.
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
    /// The part of it in user mode; `None` if user and kernel time cannot be distinguished.
    pub user: Option<Estimate>,
    /// The part of it in the kernel.
    pub system: Option<Estimate>,
    /// Share of the time in which the processors that it may use did not run it.
    pub idle: Estimate,
    /// Share of the time in which it was runnable and another task had its processor.
    pub displaced: Estimate,
    /// Median and 99th percentile of the latency; `None` if no client measured it.
    pub latency: Option<[Estimate; 2]>,
    /// The rounds, for the store.
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
    estimates(&operation.name, "request", rounds?)
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
        // The first run warms the caches and is not counted.
        if round > 0 {
            rounds.push(run.round(&name));
        }
    }
    progress.clear();
    estimates(&name, "run", rounds)
}

/// Estimates an operation from its rounds, new or from the store.
pub fn estimates(
    name: &str,
    unit_of_work: &'static str,
    rounds: Vec<Round>,
) -> anyhow::Result<MeasuredOperation> {
    let over = |unit: Unit, value: fn(&Round) -> f64| {
        let values: Vec<f64> = rounds.iter().map(value).collect();
        trimmed_mean(&values, unit).with_context(|| format!("operation '{name}'"))
    };
    // `None` unless the value is known for every round.
    let known = |value: &dyn Fn(&Round) -> Option<f64>| {
        let values: Option<Vec<f64>> = rounds.iter().map(value).collect();
        let estimate = values.map(|values| trimmed_mean(&values, Unit::Nanoseconds));
        estimate.transpose().with_context(|| format!("operation '{name}'"))
    };
    let percentile = |pick: fn(&Latency) -> u64| {
        known(&move |round| round.client.as_ref().map(|client| real(pick(&client.latency))))
    };
    let (p50, p99) = (percentile(|latency| latency.p50_ns)?, percentile(|latency| latency.p99_ns)?);
    Ok(MeasuredOperation {
        name: name.to_owned(),
        unit_of_work,
        per_second: over(Unit::PerSecond, Round::per_second)?,
        cpu: over(Unit::Nanoseconds, Round::cpu_ns_per_unit)?,
        user: known(&Round::user_ns_per_unit)?,
        system: known(&Round::system_ns_per_unit)?,
        idle: over(Unit::Ratio, Round::idle_share)?,
        displaced: over(Unit::Ratio, Round::displaced_share)?,
        latency: p50.zip(p99).map(|(p50, p99)| [p50, p99]),
        rounds,
    })
}

#[expect(clippy::cast_precision_loss, reason = "latencies stay far below 2^52 ns")]
fn real(ns: u64) -> f64 {
    ns as f64
}
