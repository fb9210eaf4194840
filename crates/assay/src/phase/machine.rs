//! The machine phase: describes this machine and measures the costs of its primitives.

use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use assay_bench::sweep::{self, sweep};
use assay_bench::{
    Benchmark, Calibration, Finding, Measured, Outcome, Plan, Profile, Spawner, calibrate, describe, noise,
    usable_cpus,
};
use assay_quantity::{Description, Fact, Machine};

use crate::cli::EffortArgs;
use crate::interrupt::Interrupt;
use crate::journal::{Journal, NOISE_AFTER, NOISE_BEFORE, command_line, host};
use crate::output;
use crate::progress::Progress;

/// Minimum processes per primitive: fewer are too few for an interval.
const PROCESSES_MIN: usize = 5;

/// Maximum processes per primitive; a cost that is still imprecise is reported as noisy.
const PROCESSES_MAX: usize = 90;

/// Timeout of a process: the slowest benchmark takes a tenth of this.
const SAMPLE_LIMIT: Duration = Duration::from_secs(10);

/// Effort spent on measuring a machine.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Total time.
    pub budget: Duration,
    /// Half-width over point below which a primitive is precise enough.
    pub precision: f64,
    /// Address of another host that serves benchmarks.
    pub peer: Option<SocketAddr>,
    /// Whether the performance counters of processor and kernel are also read.
    pub counters: bool,
}

/// Time for the quick profile: under a minute, including start and report.
const QUICK: Duration = Duration::from_secs(54);

/// Time for the full profile: under ten minutes, including start and report.
pub const FULL: Duration = Duration::from_secs(540);

/// Default precision: half-width over point.
const PRECISION: f64 = 0.01;

impl Effort {
    /// Returns the effort from the command line, with the defaults of this profile.
    pub fn of(args: &EffortArgs, profile: Profile) -> Self {
        let usual = if profile == Profile::Full { FULL } else { QUICK };
        let precision = args.precision.unwrap_or(PRECISION);
        Self { budget: args.budget.unwrap_or(usual), precision, peer: None, counters: false }
    }
}

/// This machine, ready to be measured.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Description of the machine.
    pub description: Description,
    /// Seed of everything random.
    pub seed: u64,
    clock: Calibration,
    directory: PathBuf,
}

impl Subject {
    /// Describes this machine. Without a seed, draws one.
    pub fn new(seed: Option<u64>) -> Self {
        let (clock, directory) = (calibrate(), env::temp_dir());
        let mut description = describe(&clock, &directory);
        description.facts.extend(noise(&clock, NOISE_BEFORE));
        // Below 2^53, so that every JSON parser represents it exactly.
        let seed = seed.unwrap_or_else(|| rand::random_range(0..1 << 53));
        Self { description, seed, clock, directory }
    }

    /// Measures the benchmarks until the time is up or the user interrupts it, and returns the machine
    /// vector. Each sample is stored immediately.
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
            // It takes seconds for each pass where the last cache is large.
            output::say("finding the sizes of the caches");
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

    /// Returns the plan for measuring this machine; `taken` is the number of samples that the run already
    /// has.
    pub(super) fn plan(&self, effort: Effort, taken: u64) -> Plan {
        let Effort { budget, precision, peer, counters } = effort;
        Plan {
            // A resumed run must not repeat its earlier layouts.
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

    /// Returns the machine vector of the findings. Stores the facts found since the start with the run.
    pub(super) fn machine(
        &self,
        since: Vec<Fact>,
        findings: &[Finding],
        journal: &mut Journal,
    ) -> anyhow::Result<Machine> {
        let mut description = self.description.clone();
        description.facts.extend(since);
        journal.describe(&description)?;
        let source = format!("assay {}: {}", env!("CARGO_PKG_VERSION"), command_line().join(" "));
        Ok(assay_bench::machine(host(), source, description, findings))
    }
}

/// Duration of the noise measurement on one processor: long enough for several of its timer interrupts, of
/// which there are usually 250 to 1000 per second.
const NOISE: Duration = Duration::from_millis(100);

/// Number of processors whose noise is measured; more are not worth the time.
const NOISY_CPUS: usize = 4;

/// Returns the noise floor as facts, one for each processor.
fn noise(clock: &Calibration, name: &str) -> Vec<Fact> {
    let cpus = usable_cpus().into_iter().take(NOISY_CPUS);
    let fact = |cpu| {
        let floor = noise::probe(&clock.source, cpu, NOISE);
        let value = floor.map_or_else(|error| format!("unknown: {error}"), |floor| floor.to_string());
        Fact { name: name.to_owned(), value }
    };
    cpus.map(fact).collect()
}

/// Returns the spawner that starts this program for a sample.
pub fn spawner() -> anyhow::Result<Spawner> {
    let program =
        env::current_exe().context("cannot find the path of this program to start it for a sample")?;
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
            let benchmark = benchmark.context("received a sample of a primitive that was not selected")?;
            journal.sample(primitive, benchmark.unit, sample)
        }
        Outcome::Rejected(reason) => journal.rejected(primitive, reason),
        Outcome::Unavailable(reason) => journal.unavailable(primitive, reason),
        Outcome::Stopped => Ok(()),
    }
}
