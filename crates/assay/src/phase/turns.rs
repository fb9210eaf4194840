//! Two states of this machine, measured alternately: each is a separate run, and the seeds of the samples
//! identify the pairs.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use assay_bench::sweep::{self, sweep};
use assay_bench::{Benchmark, Finding, Measured, Spawner, alternate};
use assay_quantity::{Fact, Machine, Pair, Which};
use assay_store::RunId;
use assay_workload::{Exit, Switch, SwitchError};

use super::machine::{Effort, FULL, Subject, keep, spawner};
use crate::cli::StoreArgs;
use crate::interrupt::Interrupt;
use crate::journal::{Journal, Known};
use crate::output;
use crate::progress::Progress;

/// The two states that are compared.
#[derive(Debug)]
pub enum States {
    /// States of the machine, which these commands enter.
    Commands(Pair<String>),
    /// States of a process, which these wrappers create.
    Wrappers(Pair<String>),
}

/// Results of measuring two states.
#[derive(Debug)]
pub struct Turns {
    /// The machine in each state.
    pub known: Pair<Known>,
    /// The runs in the store.
    pub runs: Pair<RunId>,
    /// Whether state A was restored.
    pub restored: Result<(), SwitchError>,
}

/// Default time for each primitive: enough to detect a change of 2 % on a machine with busy neighbours.
const EACH: Duration = Duration::from_secs(20);

/// Returns the default time for this number of primitives.
pub fn usual_budget(primitives: usize) -> Duration {
    EACH.saturating_mul(u32::try_from(primitives).unwrap_or(u32::MAX)).min(FULL)
}

/// Name of the fact about how the machine entered its state.
const STATE: &str = "state";

/// Name of the fact that two runs share if they were measured alternately with each other.
const TURNS: &str = "measured in turns since";

/// Returns how two machines entered their states; `None` if they were not measured alternately with each
/// other.
pub fn states(machines: Pair<&Machine>) -> Option<Pair<&str>> {
    let (a, b) = (&machines.a.description, &machines.b.description);
    let are_together = a.fact(TURNS)? == b.fact(TURNS)?;
    are_together.then_some(Pair { a: a.fact(STATE)?, b: b.fact(STATE)? })
}

/// Measures the benchmarks in two states until the time is up or the user interrupts it. State A is restored
/// in any case.
pub fn measure(
    states: &States,
    effort: Effort,
    seed: Option<u64>,
    benchmarks: &[Benchmark],
    store: &StoreArgs,
    interrupt: &Interrupt,
) -> anyhow::Result<Turns> {
    let mut switch = states.switch()?;
    let measured = in_both(states, effort, seed, benchmarks, store, &mut switch, interrupt);
    match (measured, switch.map_or(Ok(()), Switch::restore)) {
        (Ok((runs, known)), restored) => Ok(Turns { known, runs, restored }),
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(not_restored)) => bail!("{}; {not_restored}", output::line(&error)),
    }
}

/// Describes the machine in both states, and measures it.
fn in_both(
    states: &States,
    effort: Effort,
    seed: Option<u64>,
    benchmarks: &[Benchmark],
    store: &StoreArgs,
    switch: &mut Option<Switch>,
    interrupt: &Interrupt,
) -> anyhow::Result<(Pair<RunId>, Pair<Known>)> {
    let since = jiff::Timestamp::now().to_string();
    let a = states.subject(Which::A, &since, Subject::new(seed));
    enter(switch, Which::B)?;
    let b = states.subject(Which::B, &since, Subject::new(Some(a.seed)));
    let subjects = Pair { a, b };
    let begin = |subject: &Subject| Journal::begin(store, &subject.description, subject.seed);
    let a = begin(&subjects.a)?;
    let mut journals = match begin(&subjects.b) {
        Ok(b) => Pair { a, b },
        Err(error) => return a.finish(Err(error)),
    };
    let runs = Pair { a: journals.a.run(), b: journals.b.run() };
    let measured =
        take(states, effort, benchmarks, &subjects, switch, &mut journals, interrupt).map_err(|error| {
            anyhow!(
                "{}; the samples so far are stored as runs {} and {}",
                output::line(&error),
                runs.a,
                runs.b
            )
        });
    let end = || match &measured {
        Err(error) => Err(anyhow!(output::line(error))),
        Ok(_) => Ok(interrupt.check()?),
    };
    let is_whole = end().is_ok();
    let noted = journals.map(|journal| journal.finish(end()));
    let known = measured?;
    if is_whole {
        noted.a.and(noted.b)?;
    }
    Ok((runs, known))
}

fn enter(switch: &mut Option<Switch>, which: Which) -> Result<(), SwitchError> {
    switch.as_mut().map_or(Ok(()), |switch| switch.enter(which))
}

/// Measures the states alternately.
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
    let mut plan = subjects.a.plan(effort, 0);
    let mut caches = Pair { a: Vec::new(), b: Vec::new() };
    if sweep::is_due(benchmarks) {
        output::say("finding the sizes of the caches in both states");
        // The same working sets in both states: they fit in the caches of each.
        for which in [Which::B, Which::A] {
            enter(switch, which)?;
            let sweep = sweep(&plan, spawners.get(which), interrupt.flag())?;
            let effective = sweep.effective();
            plan.effective = Some(plan.effective.map_or(effective, |other| other.smaller(effective)));
            caches.get_mut(which).push(sweep.fact());
        }
    }
    let what = format!("measuring {} primitives in two states", benchmarks.len());
    let progress = Progress::seconds(&what, effort.budget);
    let (mut entered, mut kept) = (Ok(()), Ok(()));
    let findings = alternate(
        &plan,
        benchmarks,
        Pair { a: &spawners.a, b: &spawners.b },
        interrupt.flag(),
        &mut |which| {
            entered = enter(switch, which);
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
        let machine =
            subjects.get(which).machine(caches.get(which).clone(), &findings, journals.get_mut(which))?;
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

    /// Adds the facts that identify the state and the comparison to the machine.
    fn subject(&self, which: Which, since: &str, mut subject: Subject) -> Subject {
        let state = match self {
            States::Commands(commands) => format!("entered by '{}'", commands.get(which)),
            States::Wrappers(wrappers) => format!("processes started by '{}'", wrappers.get(which)),
        };
        let facts = [(STATE, state), (TURNS, since.to_owned())];
        subject.description.facts.extend(facts.map(|(name, value)| Fact { name: name.to_owned(), value }));
        subject
    }

    /// Runs `true` in each wrapper and returns its output on stderr: a missing preloaded library, for
    /// example, is only reported as a warning there, and the two states would not differ.
    pub fn try_wrappers(&self) -> anyhow::Result<Vec<String>> {
        let States::Wrappers(wrappers) = self else { return Ok(Vec::new()) };
        let mut remarks = Vec::new();
        for wrapper in [&wrappers.a, &wrappers.b] {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &wrapped(wrapper), "assay", "true"]);
            command.env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
            let output = command.output().with_context(|| format!("cannot run the wrapper '{wrapper}'"))?;
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().map_or_else(String::new, |line| format!(": {line}"));
            let exit = Exit::from(output.status);
            ensure!(exit.is_success(), "'true' in the wrapper '{wrapper}' {exit}{last}");
            if !last.is_empty() {
                remarks.push(format!("'true' in the wrapper '{wrapper}' writes to stderr{last}"));
            }
        }
        Ok(remarks)
    }

    /// Returns the spawner of a sample's process in one of the states.
    fn spawner(&self, which: Which) -> anyhow::Result<Spawner> {
        let usual = spawner()?;
        let States::Wrappers(wrappers) = self else { return Ok(usual) };
        let line = wrapped(wrappers.get(which));
        let mut arguments = vec!["-c".into(), line.into(), "assay".into(), usual.program.into()];
        arguments.extend(usual.arguments);
        Ok(Spawner { program: "/bin/sh".into(), arguments })
    }
}

/// Returns the shell command that starts the program in its arguments through a wrapper.
fn wrapped(wrapper: &str) -> String {
    format!("{wrapper} \"$@\"")
}
