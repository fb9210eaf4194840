//! Two states of this machine, measured in turns: each is a run of its own, and the seeds of the samples say which
//! belong together.

use std::time::Duration;

use anyhow::anyhow;
use assay_bench::{Benchmark, Finding, Measured, Spawner, alternate};
use assay_quantity::comparison::{Pair, Which};
use assay_quantity::{Fact, Machine};
use assay_store::RunId;
use assay_workload::{Switch, SwitchError};

use super::machine::{Effort, FULL, Subject, keep, spawner};
use crate::cli::StoreArgs;
use crate::interrupt::Interrupt;
use crate::journal::{Journal, Known};
use crate::output;
use crate::progress::Progress;

/// What a machine or its processes are put into.
#[derive(Debug)]
pub enum States {
    /// States of the machine, entered by these commands.
    Commands(Pair<String>),
    /// States of a process, made by these wrappers.
    Wrappers(Pair<String>),
}

/// What was measured in two states.
#[derive(Debug)]
pub struct Turns {
    /// The machine in either.
    pub known: Pair<Known>,
    /// The runs in the store.
    pub runs: Pair<RunId>,
    /// Whether the machine is in state A again.
    pub restored: Result<(), SwitchError>,
}

/// Time for each primitive by default: with it a change of 2 % is found on a machine with busy neighbours.
const EACH: Duration = Duration::from_secs(20);

/// The default time for so many primitives.
pub fn usual_budget(primitives: usize) -> Duration {
    EACH.saturating_mul(u32::try_from(primitives).unwrap_or(u32::MAX)).min(FULL)
}

/// The fact that names the state that a machine was measured in.
const STATE: &str = "state";

/// The state that a machine was measured in, by turns with another one.
pub fn state(machine: &Machine) -> Option<&str> {
    let fact = machine.description.facts.iter().find(|fact| fact.name == STATE)?;
    Some(&fact.value)
}

/// Measures the benchmarks in two states until the time is up or the user stops it. However that ends, state A is
/// restored.
pub fn measure(
    states: &States,
    effort: Effort,
    seed: Option<u64>,
    benchmarks: &[Benchmark],
    store: &StoreArgs,
    interrupt: &Interrupt,
) -> anyhow::Result<Turns> {
    let mut switch = states.switch()?;
    let subject = Subject::new(seed);
    let subjects = Pair { a: states.subject(&subject, Which::A), b: states.subject(&subject, Which::B) };
    let begin = |subject: &Subject| Journal::begin(store, &subject.description, subject.seed);
    let mut journals = Pair { a: begin(&subjects.a)?, b: begin(&subjects.b)? };
    let runs = Pair { a: journals.a.run(), b: journals.b.run() };
    let measured = take(states, effort, benchmarks, &subjects, &mut switch, &mut journals, interrupt);
    let restored = switch.map_or(Ok(()), Switch::restore);
    let end = || match &measured {
        Err(error) => Err(anyhow!(output::line(error))),
        Ok(_) => Ok(interrupt.check()?),
    };
    let is_whole = end().is_ok();
    let noted = journals.map(|journal| journal.finish(end()));
    match (measured, restored) {
        (Ok(known), restored) => {
            if is_whole {
                noted.a.and(noted.b)?;
            }
            Ok(Turns { known, runs, restored })
        }
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(not_restored)) => Err(error.context(not_restored)),
    }
}

/// Takes the turns.
fn take(
    states: &States,
    effort: Effort,
    benchmarks: &[Benchmark],
    subjects: &Pair<Subject>,
    switch: &mut Option<Switch>,
    journals: &mut Pair<Journal>,
    interrupt: &Interrupt,
) -> anyhow::Result<Pair<Known>> {
    let spawners = Pair { a: states.spawner(Which::A)?, b: states.spawner(Which::B)? };
    let what = format!("measuring {} primitives in two states", benchmarks.len());
    let progress = Progress::seconds(&what, effort.budget);
    let (mut entered, mut kept) = (Ok(()), Ok(()));
    let findings = alternate(
        &subjects.a.plan(effort, 0),
        benchmarks,
        Pair { a: &spawners.a, b: &spawners.b },
        interrupt.flag(),
        &mut |which| {
            entered = switch.as_mut().map_or(Ok(()), |switch| switch.enter(which));
            if entered.is_err() {
                interrupt.raise();
            }
        },
        &mut |which, primitive, outcome| {
            progress.spent();
            if kept.is_ok() {
                kept = keep(journals.get_mut(which), benchmarks, primitive, outcome);
                if kept.is_err() {
                    interrupt.raise();
                }
            }
        },
    )?;
    progress.clear();
    entered?;
    kept?;
    let mut known = |which, findings: Vec<Finding>| {
        let machine = subjects.get(which).machine(&findings, journals.get_mut(which))?;
        anyhow::Ok(Known { machine, samples: findings.into_iter().filter_map(samples).collect() })
    };
    Ok(Pair { a: known(Which::A, findings.a)?, b: known(Which::B, findings.b)? })
}

fn samples(finding: Finding) -> Option<Measured> {
    match finding {
        Finding::Measured(measured) => Some(measured),
        Finding::Unmeasured(_) => None,
    }
}

impl States {
    fn switch(&self) -> Result<Option<Switch>, SwitchError> {
        match self {
            States::Commands(commands) => Switch::new(commands.clone()).map(Some),
            States::Wrappers(_) => Ok(None),
        }
    }

    /// The machine in one of the states.
    fn subject(&self, machine: &Subject, which: Which) -> Subject {
        let mut subject = machine.clone();
        let value = match self {
            States::Commands(commands) => format!("{which}, entered by '{}'", commands.get(which)),
            States::Wrappers(wrappers) => {
                format!("{which}, each process started by '{}'", wrappers.get(which))
            }
        };
        subject.description.facts.push(Fact { name: STATE.to_owned(), value });
        subject
    }

    /// What starts a sample's process in one of the states.
    fn spawner(&self, which: Which) -> anyhow::Result<Spawner> {
        let usual = spawner()?;
        let States::Wrappers(wrappers) = self else { return Ok(usual) };
        let line = format!("{} \"$@\"", wrappers.get(which));
        let mut arguments = vec!["-c".into(), line.into(), "assay".into(), usual.program.into()];
        arguments.extend(usual.arguments);
        Ok(Spawner { program: "/bin/sh".into(), arguments })
    }
}
