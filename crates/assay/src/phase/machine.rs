//! The machine phase: what this machine is, and what its primitives cost.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use assay_bench::{Benchmark, Calibration, Outcome, Plan, Spawner, calibrate, catalogue, describe};
use assay_quantity::{Description, Machine, Statistic};

use crate::cli::PlanArgs;
use crate::interrupt::Interrupt;
use crate::journal::{Journal, command_line, host};
use crate::progress::Progress;

/// Processes per primitive at the least: fewer leave nothing of an interval.
const PROCESSES_MIN: usize = 5;

/// Processes per primitive at the most; what is not known then is noisy, and said to be.
const PROCESSES_MAX: usize = 90;

/// A process that takes longer hangs: the slowest benchmark takes a tenth of this.
const SAMPLE_LIMIT: Duration = Duration::from_secs(10);

/// This machine, ready to be measured.
#[derive(Debug)]
pub struct Subject {
    /// What it is.
    pub description: Description,
    /// Seed of everything random.
    pub seed: u64,
    clock: Calibration,
    directory: PathBuf,
}

impl Subject {
    /// Looks at this machine.
    pub fn new(plan: &PlanArgs) -> Self {
        let (clock, directory) = (calibrate(), env::temp_dir());
        let description = describe(&clock, &directory);
        // Below 2^53, so that every reader of JSON keeps it exactly.
        let seed = plan.seed.unwrap_or_else(|| rand::random_range(0..1 << 53));
        Self { description, seed, clock, directory }
    }

    /// Measures the benchmarks, each sample kept as soon as it is taken, and makes the machine vector.
    pub fn measure(
        &self,
        args: &PlanArgs,
        benchmarks: &[Benchmark],
        journal: &mut Journal,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Machine> {
        let budget = Duration::from_secs(args.budget);
        let plan = Plan {
            seed: self.seed,
            processes_min: PROCESSES_MIN,
            processes_max: PROCESSES_MAX,
            budget,
            relative_half_width: args.goal,
            sample_limit: SAMPLE_LIMIT,
            directory: self.directory.clone(),
            peer: None,
            clock: self.clock.clone(),
        };
        let program = env::current_exe().context("cannot find this program to start it again")?;
        let spawner = Spawner { program, arguments: vec!["sample".into()] };
        let what = format!("measuring {} primitives", benchmarks.len());
        let progress = Progress::seconds(&what, budget);
        let mut kept = Ok(());
        let findings = assay_bench::measure(
            &plan,
            benchmarks,
            &spawner,
            interrupt.flag(),
            &mut |primitive, outcome| {
                progress.spent();
                if kept.is_ok() {
                    kept = keep(journal, benchmarks, primitive, outcome);
                    if kept.is_err() {
                        interrupt.raise();
                    }
                }
            },
        )?;
        progress.clear();
        kept?;
        interrupt.check()?;
        let source = format!("assay {}: {}", env!("CARGO_PKG_VERSION"), command_line().join(" "));
        Ok(assay_bench::machine(host(), source, self.description.clone(), &findings, Statistic::default()))
    }
}

fn keep(
    journal: &mut Journal,
    benchmarks: &[Benchmark],
    primitive: &assay_quantity::PrimitiveId,
    outcome: &Outcome,
) -> anyhow::Result<()> {
    match outcome {
        Outcome::Sample(sample) => {
            let benchmark = benchmarks.iter().find(|benchmark| benchmark.primitive == *primitive);
            let benchmark = benchmark.context("a sample of a primitive that nobody asked for")?;
            journal.sample(primitive, benchmark.unit, sample)
        }
        Outcome::Rejected(reason) => journal.rejected(primitive, reason),
        Outcome::Unavailable(reason) => journal.unavailable(primitive, reason),
        Outcome::Stopped => Ok(()),
    }
}

/// The benchmarks whose ids are, or begin with, one of the names; all of them for no name.
pub fn select(names: &[String]) -> anyhow::Result<Vec<Benchmark>> {
    let all = catalogue();
    for name in names {
        anyhow::ensure!(
            all.iter().any(|benchmark| is_named(benchmark, name)),
            "no primitive is called '{name}', nor begins so; 'assay bench --list' prints them all"
        );
    }
    let wanted =
        |benchmark: &Benchmark| names.is_empty() || names.iter().any(|name| is_named(benchmark, name));
    Ok(all.into_iter().filter(wanted).collect())
}

/// `tcp` names every `tcp.…`, `file.read` every `file.read{…}`, and a whole id itself.
fn is_named(benchmark: &Benchmark, name: &str) -> bool {
    let id = benchmark.primitive.to_string();
    id.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '{']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(wanted: &[&str]) -> Vec<String> {
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        select(&wanted).unwrap().iter().map(|benchmark| benchmark.primitive.to_string()).collect()
    }

    #[test]
    fn a_family_an_operation_and_a_whole_id_select_what_they_name() {
        assert!(names(&["signal"]).iter().all(|id| id.starts_with("signal.")));
        assert_eq!(names(&["call.null"]), ["call.null"]);
        assert!(names(&["file.read"]).iter().all(|id| id.starts_with("file.read{")));
        assert_eq!(names(&[]).len(), catalogue().len());
    }

    #[test]
    fn a_name_that_selects_nothing_is_refused() {
        let refused = select(&["tc".to_owned()]).unwrap_err().to_string();
        assert!(refused.contains("'tc'") && refused.contains("--list"), "{refused}");
    }
}
