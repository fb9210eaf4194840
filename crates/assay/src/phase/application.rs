//! The application phase: measures the costs of one unit of work, untraced.

use std::num::{NonZeroU32, NonZeroU64};

use anyhow::Context;
use assay_process::clock::{elapsed_ns, now};
use assay_quantity::{Estimate, Latency, Round, Unit};
use assay_statistics::trimmed_mean;
use assay_workload::{CommandProgram, CommandRuns, Operation, Plan, Server, measure};

use crate::interrupt::Interrupt;
use crate::output;
use crate::progress::Progress;

/// Rounds of an operation: the trimmed mean removes one at either end and keeps six.
const ROUNDS: NonZeroU32 = NonZeroU32::new(8).expect("eight is not zero");

/// CPU time of a round of a command: twice the 20 clock ticks of 10 ms that the kernel must have counted to
/// divide it, so that a faster round is divided, too.
const ROUND_CPU_NS: u64 = 400_000_000;

/// Maximum duration of a round of a command that is run several times, with the preparation of each run. A
/// run of `true` uses 0.6 ms of CPU time and takes 4 ms with its preparation: [`ROUND_CPU_NS`] take 2.8 s.
/// Twice as slow a warm-up must not leave a round undivided.
const ROUND_ELAPSED_MAX_NS: u64 = 4_000_000_000;

/// Minimum duration of the last part of the warm-up of a command: ten ticks of the slowest usual clock, from
/// which the CPU time of the runs of a round can be derived.
const WARM_UP_NS: u64 = 100_000_000;

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
    /// Why the CPU time is the sum over the processes in `/proc`; `None` if a control group counted it.
    pub not_counted: Option<String>,
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
    let not_counted = server.not_counted().map(ToString::to_string);
    estimates(&operation.name, "request", rounds?, not_counted)
}

/// Measures a command: one unit of work is one run of it. A round repeats a short command.
pub fn command(program: &CommandProgram, interrupt: &Interrupt) -> anyhow::Result<MeasuredOperation> {
    let name = program.command.join(" ");
    let progress = Progress::rounds(&name, ROUNDS);
    let run = |runs| -> anyhow::Result<CommandRuns> {
        let runs = program.run(runs, interrupt.flag());
        interrupt.check()?;
        Ok(runs?)
    };
    progress.round(0);
    let (warm_up, took_ns) = warm_up(&run)?;
    let runs = runs_of_a_round(&warm_up, took_ns);
    let mut rounds = Vec::new();
    let (mut left_behind, mut not_counted) = (warm_up.left_behind, warm_up.not_counted);
    for round in 1..=ROUNDS.get() {
        progress.round(round);
        let runs = run(runs)?;
        left_behind += runs.left_behind;
        not_counted = not_counted.or_else(|| runs.not_counted.clone());
        rounds.push(runs.round(&name));
    }
    progress.clear();
    if left_behind > 0 {
        output::say(&format!("{left_behind} processes that '{name}' left behind were killed"));
    }
    estimates(&name, "run", rounds, not_counted)
}

/// Runs a command until its caches are warm: twice as often each time, until that takes [`WARM_UP_NS`].
/// Returns the last runs, and the time that they took with the preparation of each.
fn warm_up(run: &dyn Fn(NonZeroU64) -> anyhow::Result<CommandRuns>) -> anyhow::Result<(CommandRuns, u64)> {
    let mut number = NonZeroU64::MIN;
    loop {
        let start = now();
        let runs = run(number)?;
        let took_ns = elapsed_ns(start, now());
        if took_ns >= WARM_UP_NS {
            return Ok((runs, took_ns));
        }
        number = number.saturating_add(number.get());
    }
}

/// Returns the number of runs of a command in a round, given those of the warm-up and the time that they
/// took. It is one if `/proc` counts, because that rounds the times of each run down to clock ticks.
fn runs_of_a_round(warm_up: &CommandRuns, took_ns: u64) -> NonZeroU64 {
    if warm_up.not_counted.is_some() {
        return NonZeroU64::MIN;
    }
    let number = warm_up.runs.get();
    let enough = number.saturating_mul(ROUND_CPU_NS).div_ceil(warm_up.cpu.total_ns.max(1));
    let affordable = number.saturating_mul(ROUND_ELAPSED_MAX_NS) / took_ns.max(1);
    NonZeroU64::new(enough.min(affordable)).unwrap_or(NonZeroU64::MIN)
}

/// Estimates an operation from its rounds.
fn estimates(
    name: &str,
    unit_of_work: &'static str,
    rounds: Vec<Round>,
    not_counted: Option<String>,
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
        not_counted,
    })
}

#[expect(clippy::cast_precision_loss, reason = "latencies stay far below 2^52 ns")]
fn real(ns: u64) -> f64 {
    ns as f64
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::thread;
    use std::time::Duration;

    use assay_quantity::CpuTime;

    use super::*;

    #[test]
    fn a_short_command_is_repeated_and_a_long_one_is_not() {
        let warm_up = |number: u64, cpu_ms: u64| CommandRuns {
            runs: number.try_into().unwrap(),
            elapsed_ns: 0,
            cpu: CpuTime { total_ns: cpu_ms * 1_000_000, ..CpuTime::default() },
            left_behind: 0,
            not_counted: None,
        };
        let runs = |number: u64, cpu_ms: u64, took_ms: u64| {
            runs_of_a_round(&warm_up(number, cpu_ms), took_ms * 1_000_000).get()
        };
        assert_eq!(runs(64, 64, 192), 400);
        assert_eq!(runs(1, 150, 100), 3);
        assert_eq!(runs(1, 400, 400), 1);
        // Commands that wait: until the time is over, and never less than once.
        assert_eq!(runs(2, 2, 200), 40);
        assert_eq!(runs(1, 0, 5000), 1);
        let not_counted = CommandRuns { not_counted: Some("no group".to_owned()), ..warm_up(64, 64) };
        assert_eq!(runs_of_a_round(&not_counted, 192_000_000).get(), 1);
    }

    #[test]
    fn a_warm_up_ends_when_it_has_taken_long_enough_to_derive_the_runs_of_a_round() {
        let numbers = RefCell::new(Vec::new());
        let run = |runs: NonZeroU64| {
            numbers.borrow_mut().push(runs.get());
            assert!(numbers.borrow().len() < 10, "it does not end: {numbers:?}");
            thread::sleep(Duration::from_nanos(WARM_UP_NS * runs.get() / 4));
            let cpu = CpuTime::default();
            Ok(CommandRuns { runs, elapsed_ns: 0, cpu, left_behind: 0, not_counted: None })
        };
        let (last, took_ns) = warm_up(&run).unwrap();
        let numbers = numbers.into_inner();
        assert!([1, 2, 4].starts_with(&numbers), "{numbers:?}");
        assert_eq!(Some(&last.runs.get()), numbers.last());
        assert!(took_ns >= WARM_UP_NS);
    }
}
