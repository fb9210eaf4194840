//! The run in the store: all raw measurements are stored before results are computed from them.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use assay_bench::sweep::EFFECTIVE_CACHES;
use assay_bench::{Finding, Measured};
use assay_quantity::format::machine_from_json;
use assay_quantity::{Description, Fact, Machine, PrimitiveId, Round, Sample, Unit, Unmeasured};
use assay_statistics::aspect::is_condition;
use assay_store::{Outcome, Run, RunId, RunStart, Store};

use crate::cli::StoreArgs;
use crate::interrupt::Interrupted;
use crate::{again, data, output, past};

/// A run that is being written. Added data is never lost, however the process ends.
#[derive(Debug)]
pub struct Journal {
    store: Store,
    run: RunId,
}

impl Journal {
    /// Begins a run.
    pub fn begin(args: &StoreArgs, description: &Description, seed: u64) -> anyhow::Result<Self> {
        let mut store = open(args)?;
        let start = RunStart {
            started_at: jiff::Timestamp::now().to_string(),
            command: command_line(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: host(),
            description: description.clone(),
            seed,
        };
        let run = store.begin_run(&start)?;
        Ok(Self { store, run })
    }

    /// Resumes an incomplete run. Fails if the machine or its state has changed.
    pub fn resume(args: &StoreArgs, run: &Run, description: &Description) -> anyhow::Result<Self> {
        if let Some(fact) = changed(&run.start.description, description) {
            bail!(
                "run {} was started on another machine or in another state of this machine ({} is now {}); start a new run",
                run.id,
                fact.name,
                fact.value
            );
        }
        let mut store = open(args)?;
        store.resume_run(run.id)?;
        Ok(Self { store, run: run.id })
    }

    /// Returns the number of the run.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// Stores the current description of the machine.
    pub fn describe(&mut self, description: &Description) -> anyhow::Result<()> {
        Ok(self.store.describe_run(self.run, description)?)
    }

    /// Stores one sample.
    pub fn sample(&mut self, primitive: &PrimitiveId, unit: Unit, sample: &Sample) -> anyhow::Result<()> {
        Ok(self.store.add_sample(self.run, primitive, unit, sample)?)
    }

    /// Adds the expected cost in a later run to each cost of this run.
    pub fn add_again(&self, machine: &mut Machine) {
        again::add(&self.store, self.run, machine);
    }

    /// Stores the reason why a process gave no sample.
    pub fn rejected(&mut self, primitive: &PrimitiveId, reason: &str) -> anyhow::Result<()> {
        Ok(self.store.add_rejected(self.run, primitive, reason)?)
    }

    /// Stores the reason why a primitive cannot be measured on this machine.
    pub fn unavailable(&mut self, primitive: &PrimitiveId, reason: &str) -> anyhow::Result<()> {
        Ok(self.store.add_unavailable(self.run, primitive, reason)?)
    }

    /// Stores the rounds of an operation.
    pub fn rounds(&mut self, rounds: &[Round]) -> anyhow::Result<()> {
        for round in rounds {
            self.store.add_round(self.run, round)?;
        }
        Ok(())
    }

    /// Stores the outcome of the run and returns `result`.
    pub fn finish<T>(mut self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        let outcome = match &result {
            Ok(_) => Outcome::Completed,
            Err(error) if error.is::<Interrupted>() => Outcome::Interrupted,
            Err(error) => Outcome::Failed(output::line(error)),
        };
        let noted = self.store.finish_run(self.run, &outcome);
        let value = result?;
        noted?;
        Ok(value)
    }
}

/// Name of the facts about the noise before a run, one for each sampled processor.
pub const NOISE_BEFORE: &str = "noise before";

/// Name of the facts about the noise after a run.
pub const NOISE_AFTER: &str = "noise after";

/// Facts that change from minute to minute on the same machine, in addition to the aspects of its condition.
const PASSING: [&str; 5] = ["load", "batch clock", EFFECTIVE_CACHES, NOISE_BEFORE, NOISE_AFTER];

/// Returns the facts that distinguish machines and their states.
pub fn lasting(description: &Description) -> impl Iterator<Item = &Fact> {
    let passes = |name: &str| PASSING.contains(&name) || is_condition(name);
    description.facts.iter().filter(move |fact| !passes(&fact.name))
}

/// Returns a current fact of the machine that differs from those at the start of the run.
fn changed<'a>(then: &Description, now: &'a Description) -> Option<&'a Fact> {
    lasting(now).find(|fact| !then.facts.contains(fact))
}

/// Returns the raw samples of a run.
pub fn measured(store: &Store, run: RunId) -> anyhow::Result<Vec<Measured>> {
    let rejected = store.rejected(run)?;
    let reasons = |primitive: &PrimitiveId| {
        let own = rejected.iter().filter(|rejected| rejected.primitive == *primitive);
        own.map(|rejected| rejected.reason.clone()).collect()
    };
    let series = store.samples(run)?.into_iter().map(|series| Measured {
        rejected: reasons(&series.primitive),
        primitive: series.primitive,
        unit: series.unit,
        samples: series.samples,
    });
    Ok(series.collect())
}

/// Returns the primitives that every process of a run failed to measure, with the last of the reasons.
/// Primitives that have a sample or are unavailable on this machine are excluded.
fn failed(store: &Store, run: RunId) -> anyhow::Result<Vec<Unmeasured>> {
    let mut excluded: Vec<PrimitiveId> = Vec::new();
    excluded.extend(store.samples(run)?.into_iter().map(|series| series.primitive));
    excluded.extend(store.unavailable(run)?.into_iter().map(|missing| missing.primitive));
    let mut failures: BTreeMap<PrimitiveId, (usize, String)> = BTreeMap::new();
    for rejected in store.rejected(run)?.into_iter().filter(|one| !excluded.contains(&one.primitive)) {
        let (processes, last) = failures.entry(rejected.primitive).or_default();
        (*processes, *last) = (*processes + 1, rejected.reason);
    }
    let failures = failures.into_iter();
    let reason = |(processes, last): (usize, String)| assay_bench::all_failed(processes, &last);
    Ok(failures.map(|(primitive, all)| Unmeasured { primitive, reason: reason(all) }).collect())
}

/// Opens the store given on the command line, or the default one.
pub fn open(args: &StoreArgs) -> anyhow::Result<Store> {
    let usual = || data::directory().map(|directory| directory.join("assay.db"));
    let path = args.store.clone().or_else(usual);
    let path = path.context("no home directory for the store; give a file with --store")?;
    Ok(Store::open(&path)?)
}

/// Finds a run by its name: its number, `latest`, or `latest~1` for the run before the latest.
pub fn find(store: &Store, name: &str) -> anyhow::Result<Run> {
    match RunName::parse(name) {
        Some(RunName::Number(run)) => Ok(store.run(run)?),
        Some(RunName::Latest { back }) => store.latest(back)?.with_context(|| match back {
            0 => "the store contains no runs; run 'assay bench' first".to_owned(),
            _ => format!("{} has no run '{name}'; 'assay history' lists all runs", store.path().display()),
        }),
        None => bail!("'{name}' is not a run; give a number from 'assay history', latest or latest~1"),
    }
}

/// Name of a run on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunName {
    Number(RunId),
    /// This many runs before the latest.
    Latest {
        back: u32,
    },
}

impl RunName {
    fn parse(name: &str) -> Option<Self> {
        match name.strip_prefix("latest") {
            Some("") => Some(Self::Latest { back: 0 }),
            Some(rest) => Some(Self::Latest { back: rest.strip_prefix('~')?.parse().ok()? }),
            None => Some(Self::Number(RunId(name.parse().ok()?))),
        }
    }
}

/// Returns the machine of a run, re-estimated from its raw samples.
pub fn machine(store: &Store, run: &Run) -> anyhow::Result<Machine> {
    let measured = measured(store, run.id)?;
    let mut unmeasured = store.unavailable(run.id)?;
    // A primitive with samples is available; only a process failed.
    unmeasured.retain(|missing| measured.iter().all(|measured| measured.primitive != missing.primitive));
    unmeasured.extend(failed(store, run.id)?);
    let measured = measured.into_iter().map(Finding::Measured);
    let findings: Vec<Finding> = measured.chain(unmeasured.into_iter().map(Finding::Unmeasured)).collect();
    let start = &run.start;
    let source = format!("assay {}: {}", start.version, start.command.join(" "));
    let mut machine =
        assay_bench::machine(start.machine.clone(), source, start.description.clone(), &findings);
    again::add(store, run.id, &mut machine);
    Ok(machine)
}

/// A machine with the samples of its costs.
#[derive(Debug)]
pub struct Known {
    /// The machine.
    pub machine: Machine,
    /// The raw samples of its costs; empty if only the costs are known.
    pub samples: Vec<Measured>,
}

/// Loads a machine by its name: a file, a run in the store, or a historical machine.
pub fn known(name: &Path, args: &StoreArgs) -> anyhow::Result<Known> {
    let text = name.to_str().filter(|_| !name.exists());
    if let Some(machine) = text.and_then(past::machine) {
        return Ok(Known { machine: machine?, samples: Vec::new() });
    }
    if let Some(run) = text.filter(|name| RunName::parse(name).is_some()) {
        let store = open(args)?;
        let run = find(&store, run)?;
        let machine = machine(&store, &run)?;
        ensure!(
            !machine.costs.is_empty(),
            "run {} contains no measured primitive; give a run of 'assay bench'",
            run.id
        );
        return Ok(Known { machine, samples: measured(&store, run.id)? });
    }
    let machine = machine_from_json(&read(name)?)
        .map_err(Into::into)
        .and_then(with_known_units)
        .with_context(|| format!("{} is not a machine", name.display()))?;
    Ok(Known { machine, samples: Vec::new() })
}

/// Returns the machine if its costs are in the units of the catalogue: a cost in another unit would be wrong
/// by orders of magnitude. Primitives that are not in the catalogue are not checked.
fn with_known_units(machine: Machine) -> anyhow::Result<Machine> {
    for (primitive, cost) in &machine.costs {
        if let Some(benchmark) = assay_bench::find(primitive) {
            ensure!(
                cost.typical.unit == benchmark.unit,
                "the cost of '{primitive}' is in {}, but it is measured in {}; correct the file",
                cost.typical.unit,
                benchmark.unit
            );
        }
    }
    Ok(machine)
}

/// Loads a machine without its samples.
pub fn named_machine(name: &Path, args: &StoreArgs) -> anyhow::Result<Machine> {
    Ok(known(name, args)?.machine)
}

/// Reads a file given on the command line.
pub fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns the words of this command line; invalid UTF-8 is replaced.
pub fn command_line() -> Vec<String> {
    env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Returns the name of this machine.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_quantity::Observation;

    fn description(facts: &[(&str, &str)]) -> Description {
        let fact = |(name, value): &(&str, &str)| Fact { name: (*name).into(), value: (*value).into() };
        Description { facts: facts.iter().map(fact).collect(), ..Description::default() }
    }

    #[test]
    fn only_lasting_facts_that_are_known_now_show_whether_the_machine_has_changed() {
        let then =
            [("cpu", "X"), ("load", "0.1"), ("noise after", "none"), ("core clock", "3 GHz in the median")];
        let then = description(
            &[&then[..], &[("core sharing", "another hardware thread was active during 0 % of samples")]]
                .concat(),
        );
        let now = |cpu| {
            description(&[
                ("cpu", cpu),
                ("load", "2.5"),
                ("noise before", "some"),
                ("effective caches", "L3 4 MiB"),
            ])
        };
        assert_eq!(changed(&then, &now("X")), None);
        assert_eq!(changed(&then, &now("Y")).map(|fact| fact.value.as_str()), Some("Y"));
    }

    #[test]
    fn a_run_is_named_by_its_number_or_by_how_far_it_is_from_the_latest() {
        let latest = |back| Some(RunName::Latest { back });
        assert_eq!(RunName::parse("12"), Some(RunName::Number(RunId(12))));
        assert_eq!([RunName::parse("latest"), RunName::parse("latest~0")], [latest(0); 2]);
        assert_eq!(RunName::parse("latest~3"), latest(3));
        for other in ["", "later", "latest~", "latest~-1", "latest~x", "latest3", "x.machine.json"] {
            assert_eq!(RunName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_primitive_of_a_run_is_either_measured_or_has_a_reason() {
        let directory = tempfile::tempdir().unwrap();
        let args = StoreArgs { store: Some(directory.path().join("store.db")) };
        let mut journal = Journal::begin(&args, &Description::default(), 1).unwrap();
        let id = |name: &str| name.parse::<PrimitiveId>().unwrap();
        let observation = |operations, elapsed_ns| Observation { operations, elapsed_ns };
        let observations = vec![observation(10, 1005.0), observation(20, 2005.0)];
        let sample = Sample { observations, ..Sample::default() };
        for _ in 0..5 {
            journal.sample(&id("call.null"), Unit::Nanoseconds, &sample).unwrap();
        }
        journal.unavailable(&id("call.null"), "it was gone for a moment").unwrap();
        journal.rejected(&id("file.stat"), "no space").unwrap();
        journal.rejected(&id("file.stat"), "no file").unwrap();
        journal.rejected(&id("tcp.connect"), "no port").unwrap();
        journal.unavailable(&id("tcp.connect"), "no network").unwrap();
        let number = journal.run();
        journal.finish(Ok(())).unwrap();
        let store = open(&args).unwrap();
        let machine = machine(&store, &store.run(number).unwrap()).unwrap();
        assert_eq!(machine.costs.keys().map(ToString::to_string).collect::<Vec<_>>(), ["call.null"]);
        let mut unmeasured: Vec<String> = machine
            .unmeasured
            .iter()
            .map(|missing| format!("{}: {}", missing.primitive, missing.reason))
            .collect();
        unmeasured.sort();
        assert_eq!(
            unmeasured,
            ["file.stat: all 2 processes failed, the last one: no file", "tcp.connect: no network"]
        );
    }
}
