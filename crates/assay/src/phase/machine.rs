//! The machine phase: what this machine is, and what its primitives cost.

use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use assay_bench::sweep::{self, sweep};
use assay_bench::{
    Benchmark, Calibration, Finding, Measured, Outcome, Plan, Profile, Spawner, calibrate, conditions,
    describe, noise, usable_cpus,
};
use assay_quantity::{Description, Fact, Machine};

use crate::cli::EffortArgs;
use crate::interrupt::Interrupt;
use crate::journal::{Journal, NOISE_AFTER, NOISE_BEFORE, command_line, host};
use crate::progress::Progress;

/// Processes per primitive at the least: fewer leave nothing of an interval.
const PROCESSES_MIN: usize = 5;

/// Processes per primitive at the most; what is not known then is noisy, and said to be.
const PROCESSES_MAX: usize = 90;

/// A process that takes longer hangs: the slowest benchmark takes a tenth of this.
const SAMPLE_LIMIT: Duration = Duration::from_secs(10);

/// How much is spent on a machine, and with whom.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Time for everything.
    pub budget: Duration,
    /// Half-width over point below which a primitive is known.
    pub precision: f64,
    /// Where another host answers.
    pub peer: Option<SocketAddr>,
    /// Whether the counters of processor and kernel are read as well.
    pub counters: bool,
}

/// Time for the quick profile: with start and report, under a minute.
const QUICK: Duration = Duration::from_secs(54);

/// Time for the full profile: with start and report, under ten minutes.
pub const FULL: Duration = Duration::from_secs(540);

/// Half-width over point that is good enough by default.
const PRECISION: f64 = 0.01;

impl Effort {
    /// What the command line says, completed for this profile.
    pub fn of(args: &EffortArgs, profile: Profile) -> Self {
        let usual = if profile == Profile::Full { FULL } else { QUICK };
        let precision = args.precision.unwrap_or(PRECISION);
        Self { budget: args.budget.unwrap_or(usual), precision, peer: None, counters: false }
    }
}

/// This machine, ready to be measured.
#[derive(Debug, Clone)]
pub struct Subject {
    /// What it is.
    pub description: Description,
    /// Seed of everything random.
    pub seed: u64,
    clock: Calibration,
    directory: PathBuf,
}

impl Subject {
    /// Looks at this machine. Without a seed, one is drawn.
    pub fn new(seed: Option<u64>) -> Self {
        let (clock, directory) = (calibrate(), env::temp_dir());
        let mut description = describe(&clock, &directory);
        description.facts.extend(noise(&clock, NOISE_BEFORE));
        // Below 2^53, so that every reader of JSON keeps it exactly.
        let seed = seed.unwrap_or_else(|| rand::random_range(0..1 << 53));
        Self { description, seed, clock, directory }
    }

    /// Measures the benchmarks, each sample kept as soon as it is taken, and makes the machine vector of what was
    /// measured until the time was up or the user stopped it.
    pub fn measure(
        &self,
        effort: Effort,
        benchmarks: &[Benchmark],
        begun: &[Measured],
        journal: &mut Journal,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Machine> {
        let taken: usize = begun.iter().map(|measured| measured.samples.len()).sum();
        let mut plan = self.plan(effort, taken as u64);
        let spawner = spawner()?;
        let mut since = Vec::new();
        if sweep::is_due(benchmarks) {
            let sweep = sweep(&plan, &spawner, interrupt.flag())?;
            plan.effective = Some(sweep.effective());
            since.push(sweep.fact());
        }
        let what = format!("measuring {} primitives", benchmarks.len());
        let progress = Progress::seconds(&what, effort.budget);
        let mut kept = Ok(());
        let findings = assay_bench::measure(
            &plan,
            benchmarks,
            begun,
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
        since.extend(noise(&self.clock, NOISE_AFTER));
        let mut machine = self.machine(since, &findings, journal)?;
        journal.add_again(&mut machine);
        Ok(machine)
    }

    /// The plan for measuring this machine; `taken` is the number of samples that the run has already.
    pub(super) fn plan(&self, effort: Effort, taken: u64) -> Plan {
        let Effort { budget, precision, peer, counters } = effort;
        Plan {
            // A run that goes on shall not repeat the layouts that it has had.
            seed: self.seed.wrapping_add(taken),
            processes_min: PROCESSES_MIN,
            processes_max: PROCESSES_MAX,
            budget,
            relative_half_width: precision,
            sample_limit: SAMPLE_LIMIT,
            directory: self.directory.clone(),
            peer,
            counters,
            effective: None,
            clock: self.clock.clone(),
        }
    }

    /// The machine vector of what was measured. What the machine was like meanwhile, with the facts that were found
    /// since, is kept with the run.
    pub(super) fn machine(
        &self,
        since: Vec<Fact>,
        findings: &[Finding],
        journal: &mut Journal,
    ) -> anyhow::Result<Machine> {
        let mut description = self.description.clone();
        description.facts.extend(since);
        description.facts.extend(conditions(findings));
        journal.describe(&description)?;
        let source = format!("assay {}: {}", env!("CARGO_PKG_VERSION"), command_line().join(" "));
        Ok(assay_bench::machine(host(), source, description, findings))
    }
}

/// Time that the noise of one processor is watched: at the usual 250 to 1000 interrupts of its timer per second,
/// enough to see some of them.
const NOISE: Duration = Duration::from_millis(100);

/// Processors whose noise is watched; more would take more time than they tell.
const NOISY_CPUS: usize = 4;

/// The noise floor as facts, one for each processor.
fn noise(clock: &Calibration, name: &str) -> Vec<Fact> {
    let cpus = usable_cpus().into_iter().take(NOISY_CPUS);
    let fact = |cpu| {
        let floor = noise::probe(&clock.source, cpu, NOISE);
        let value = floor.map_or_else(|error| format!("unknown: {error}"), |floor| floor.to_string());
        Fact { name: name.to_owned(), value }
    };
    cpus.map(fact).collect()
}

/// Starts this very program for a sample.
pub fn spawner() -> anyhow::Result<Spawner> {
    let program = env::current_exe().context("cannot find this program to start it again")?;
    Ok(Spawner { program, arguments: vec!["sample".into()] })
}

/// Stores the outcome of a process.
pub(super) fn keep(
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
