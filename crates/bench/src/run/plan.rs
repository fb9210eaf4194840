//! Decides the order of the samples and when a primitive has enough of them.
//!
//! Each round takes one sample of every primitive in random order, so that a minute in which the machine is
//! slow widens every interval a little instead of shifting one figure (random interleaving lowers the
//! variance between runs by 40 %, google/benchmark issue 1051). A primitive leaves the rounds when its
//! interval was narrow enough at two consecutive check points; all leave when the time is over. Every sample
//! is reported to the caller as soon as it is taken; this module neither stores nor discards samples.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assay_process::cpus;
use assay_quantity::{PrimitiveId, Sample, Unit, Unmeasured};
use assay_statistics::{cost_ns, sift, trimmed_mean};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tempfile::TempDir;

use crate::benchmark::Benchmark;
use crate::platform::clock::{Calibration, monotonic};
use crate::platform::describe::{self, CacheSizes};
use crate::sample::seed::{self, Purpose};
use crate::sample::{Circumstances, Outcome, Spawner};

/// Extent and settings of a measurement.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Seed of the order and of every sample's seed.
    pub seed: u64,
    /// Minimum number of samples for a primitive to be known at a check point.
    pub processes_min: usize,
    /// Maximum number of samples of a primitive, including rejected ones.
    pub processes_max: usize,
    /// Time for all samples. A sample that would probably not end within it is not started.
    pub budget: Duration,
    /// A primitive is known if its half-width divided by its point estimate is below this value.
    pub relative_half_width: f64,
    /// Time after which a single process is killed.
    pub sample_limit: Duration,
    /// Directory for files; its file system is measured.
    pub directory: PathBuf,
    /// Address of the server on another host ([`crate::serve`]); without it, primitives that need one are
    /// unavailable.
    pub peer: Option<SocketAddr>,
    /// Whether to read the counters of the processor and the kernel.
    pub counters: bool,
    /// The calibrated clock.
    pub clock: Calibration,
    /// Effective sizes of the caches, from a [`mod@crate::sweep`]; if `None`, the reported sizes are used.
    pub effective: Option<CacheSizes>,
}

/// The raw samples of one primitive.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The primitive.
    pub primitive: PrimitiveId,
    /// Unit of its cost.
    pub unit: Unit,
    /// Samples in the order taken; at least one.
    pub samples: Vec<Sample>,
    /// For each process that failed to produce a sample, the reason.
    pub rejected: Vec<String>,
}

/// The result for one primitive.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// The primitive was measured.
    Measured(Measured),
    /// The primitive was not measured, for the contained reason.
    Unmeasured(Unmeasured),
}

/// A plan that cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum NoRun {
    /// The directory for the benchmarks' files cannot be created.
    #[error("cannot create a directory for the benchmarks' files in {0}: {1}; choose another with TMPDIR")]
    Directory(PathBuf, io::Error),
    /// The processors are unknown.
    #[error("cannot read which processors this process may use: {0}")]
    Processors(io::Error),
}

/// Numbers of samples at which the interval of a primitive is checked. Stopping at the first narrow interval
/// stops too often at one that is narrow by chance: even with these few points, intervals of 95 % then
/// contain the true cost in only 88 % of series (16000 simulated for each noise, the noise normal, from a
/// quarter to three times the goal). Therefore the goal must be met at two consecutive points, the first of
/// which also has [`Plan::processes_min`] samples. The intervals then contain the true cost in 92.3 % (noise
/// of one and a half times the goal) to 94.6 % of series, for about 1.6 times the processes. A test repeats
/// the simulation.
const CHECK_POINTS: [usize; 8] = [5, 8, 12, 18, 27, 40, 60, 90];

/// Number of consecutive processes that may fail at the start before a primitive is given up: as many as a
/// figure needs. If half of the processes of a primitive fail, it is given up in one of 32 cases.
const FAILURES_MAX: usize = 5;

/// Measures the benchmarks according to the plan. Each sample is taken in its own process, which `spawner`
/// starts, bound to a processor that the sample's seed chooses, so that the interval includes differences
/// between processors.
///
/// `begun` contains the samples of an earlier part of the same run, which count as if taken now.
///
/// Calls `on_sample` after every process, while nothing is being measured. When `stop` becomes true, kills
/// the running process and returns the findings so far.
///
/// # Errors
/// Returns [`NoRun`] if nothing can be measured.
pub fn measure(
    plan: &Plan,
    benchmarks: &[Benchmark],
    begun: &[Measured],
    spawner: &Spawner,
    stop: &AtomicBool,
    on_sample: &mut dyn FnMut(&PrimitiveId, &Outcome),
) -> Result<Vec<Finding>, NoRun> {
    let place = Place::find(plan)?;
    let mut take = |benchmark: &Benchmark, seed: u64| place.sample(plan, spawner, benchmark, seed, stop);
    let all = benchmarks.iter().map(|benchmark| Series::begun(benchmark, begun)).collect();
    Ok(rounds(plan, benchmarks, all, &mut monotonic::now_ns, stop, &mut take, on_sample))
}

/// The processors and the shared directory of a run.
pub(crate) struct Place {
    cpus: Vec<usize>,
    siblings: Vec<Vec<usize>>,
    shared_directory: TempDir,
}

impl Place {
    pub(crate) fn find(plan: &Plan) -> Result<Self, NoRun> {
        let shared_directory =
            directory(plan).map_err(|error| NoRun::Directory(plan.directory.clone(), error))?;
        let cpus = cpus::allowed().map_err(NoRun::Processors)?;
        let siblings = cpus.iter().map(|cpu| describe::siblings(*cpu)).collect();
        Ok(Self { cpus, siblings, shared_directory })
    }

    /// Takes one sample; the seed determines all of its choices.
    pub(crate) fn sample(
        &self,
        plan: &Plan,
        spawner: &Spawner,
        benchmark: &Benchmark,
        seed: u64,
        stop: &AtomicBool,
    ) -> Outcome {
        let (cpu, other_cpu) = seed::placement(seed, &self.cpus, &self.siblings);
        // The place of a directory in the kernel's memory affects the cost of look-ups in it.
        let own = match directory(plan) {
            Ok(own) => own,
            Err(error) => return Outcome::Rejected(format!("cannot create its directory: {error}")),
        };
        let circumstances = Circumstances {
            seed,
            cpu,
            other_cpu,
            directory: own.path(),
            shared_directory: self.shared_directory.path(),
            peer: plan.peer,
            clock: &plan.clock,
            limit: plan.sample_limit,
            counted: None,
            counters: plan.counters,
            effective: plan.effective,
        };
        spawner.sample(benchmark, circumstances, stop)
    }
}

fn directory(plan: &Plan) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix("assay-").tempdir_in(&plan.directory)
}

/// The state of one primitive during the rounds.
#[derive(Default)]
pub(crate) struct Series {
    samples: Vec<Sample>,
    rejected: Vec<String>,
    unavailable: Option<String>,
    /// Duration of its last process, the estimate for its next one.
    last_ns: u64,
    finished: bool,
}

fn rounds(
    plan: &Plan,
    benchmarks: &[Benchmark],
    mut all: Vec<Series>,
    now_ns: &mut dyn FnMut() -> u64,
    stop: &AtomicBool,
    take: &mut dyn FnMut(&Benchmark, u64) -> Outcome,
    on_sample: &mut dyn FnMut(&PrimitiveId, &Outcome),
) -> Vec<Finding> {
    let mut rng = Pcg64Mcg::seed_from_u64(plan.seed);
    for (benchmark, series) in benchmarks.iter().zip(&mut all) {
        series.finished = series.enough(plan, benchmark.unit);
    }
    let budget_ns = u64::try_from(plan.budget.as_nanos()).unwrap_or(u64::MAX);
    let deadline_ns = now_ns().saturating_add(budget_ns);
    // A separate stream for each, so that a sample's seed does not depend on when other primitives are
    // finished.
    let mut seeds: Vec<Pcg64Mcg> = (0..all.len() as u64)
        .map(|position| seed::stream(plan.seed.wrapping_add(position << 32), Purpose::Sample))
        .collect();
    loop {
        let mut turn: Vec<usize> = (0..all.len()).filter(|position| !all[*position].finished).collect();
        if turn.is_empty() || stop.load(Ordering::Relaxed) {
            break;
        }
        turn.shuffle(&mut rng);
        for position in turn {
            let (benchmark, series) = (&benchmarks[position], &mut all[position]);
            let begun_ns = now_ns();
            if begun_ns.saturating_add(series.last_ns) >= deadline_ns {
                series.finished = true;
                continue;
            }
            let outcome = take(benchmark, sample_seed(&mut seeds[position]));
            if outcome == Outcome::Stopped {
                break;
            }
            series.last_ns = now_ns().saturating_sub(begun_ns);
            on_sample(&benchmark.primitive, &outcome);
            series.add(outcome);
            series.finished = series.enough(plan, benchmark.unit);
        }
    }
    benchmarks.iter().zip(all).map(|(benchmark, series)| series.finding(benchmark)).collect()
}

/// Returns a seed below 2^53, so that every format and database stores it exactly.
pub(crate) fn sample_seed(rng: &mut Pcg64Mcg) -> u64 {
    rng.random_range(0..1 << 53)
}

/// Returns the reason why a primitive has no sample after this number of processes.
#[must_use]
pub fn all_failed(processes: usize, last: &str) -> String {
    format!("all {processes} processes failed, the last one: {last}")
}

impl Series {
    /// Creates a series with the existing samples of the benchmark.
    fn begun(benchmark: &Benchmark, begun: &[Measured]) -> Self {
        let own = begun.iter().find(|measured| measured.primitive == benchmark.primitive);
        let (samples, rejected) =
            own.map_or_else(Default::default, |own| (own.samples.clone(), own.rejected.clone()));
        Self { samples, rejected, ..Self::default() }
    }

    pub(crate) fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Sample(sample) => self.samples.push(sample),
            Outcome::Rejected(reason) => self.rejected.push(reason),
            // The primitive was available before, so this process failed.
            Outcome::Unavailable(reason) if !self.samples.is_empty() => self.rejected.push(reason),
            Outcome::Unavailable(reason) => self.unavailable = Some(reason),
            Outcome::Stopped => {}
        }
    }

    /// Whether the primitive is unavailable, or its first [`FAILURES_MAX`] processes all failed.
    pub(crate) fn is_given_up(&self) -> bool {
        self.unavailable.is_some() || (self.samples.is_empty() && self.rejected.len() >= FAILURES_MAX)
    }

    fn enough(&self, plan: &Plan, unit: Unit) -> bool {
        let taken = self.samples.len();
        if self.is_given_up() || taken + self.rejected.len() >= plan.processes_max {
            return true;
        }
        let Some(look) = CHECK_POINTS.iter().position(|point| *point == taken) else { return false };
        let Some(before) = look.checked_sub(1) else { return false };
        [taken, CHECK_POINTS[before]].into_iter().all(|point| self.known(point, plan, unit))
    }

    /// Whether the interval of the first `taken` samples is narrow enough.
    fn known(&self, taken: usize, plan: &Plan, unit: Unit) -> bool {
        let kept = sift(&self.samples[..taken], |sample| cost_ns(sample).ok()).kept;
        taken >= plan.processes_min
            && trimmed_mean(&kept, unit)
                .is_ok_and(|estimate| estimate.relative_half_width() < plan.relative_half_width)
    }

    pub(crate) fn finding(self, benchmark: &Benchmark) -> Finding {
        let primitive = benchmark.primitive.clone();
        if !self.samples.is_empty() {
            let (samples, rejected) = (self.samples, self.rejected);
            return Finding::Measured(Measured { primitive, unit: benchmark.unit, samples, rejected });
        }
        let reason = self.unavailable.unwrap_or_else(|| match self.rejected.last() {
            Some(reason) => all_failed(self.rejected.len(), reason),
            None => "the run ended before it was measured; give it more time".to_owned(),
        });
        Finding::Unmeasured(Unmeasured { primitive, reason })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::platform::clock::Source;
    use assay_quantity::Observation;
    use std::collections::BTreeMap;

    pub(crate) fn plan() -> Plan {
        Plan {
            seed: 1,
            processes_min: 5,
            processes_max: 30,
            budget: Duration::from_secs(3600),
            relative_half_width: 0.01,
            sample_limit: Duration::from_secs(1),
            directory: PathBuf::new(),
            peer: None,
            counters: false,
            effective: None,
            clock: Calibration {
                source: Source::MonotonicRaw,
                resolution_ns: 1.0,
                error_ppm: 0.0,
                refused: None,
            },
        }
    }

    fn costing(cost_ns: f64) -> Outcome {
        let observations = [1, 2].map(|operations| Observation {
            operations,
            elapsed_ns: if operations == 1 { 10.0 + cost_ns } else { 10.0 + 2.0 * cost_ns },
        });
        Outcome::Sample(Sample { observations: observations.to_vec(), ..Sample::default() })
    }

    pub(crate) fn benchmarks(ids: &[&str]) -> Vec<Benchmark> {
        ids.iter().map(|id| crate::catalogue::find(&id.parse().unwrap()).unwrap()).collect()
    }

    /// Runs the rounds with one second per sample, and returns the findings and the order of the samples.
    fn run(
        plan: &Plan,
        ids: &[&str],
        mut cost: impl FnMut(&str, usize) -> Outcome,
    ) -> (Vec<Finding>, Vec<String>) {
        let mut order = Vec::new();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let clock = std::cell::Cell::new(0);
        let findings = rounds(
            plan,
            &benchmarks(ids),
            ids.iter().map(|_| Series::default()).collect(),
            &mut || clock.get(),
            &AtomicBool::new(false),
            &mut |benchmark, _| {
                clock.set(clock.get() + 1_000_000_000);
                let count = counts.entry(benchmark.primitive.to_string()).or_default();
                *count += 1;
                cost(&benchmark.primitive.to_string(), *count)
            },
            &mut |id, _| order.push(id.to_string()),
        );
        (findings, order)
    }

    fn count(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|f| if let Finding::Measured(m) = f { m.samples.len() } else { 0 }).collect()
    }

    #[test]
    fn a_primitive_stops_when_known_and_a_noisy_one_at_the_limit() {
        let (findings, _) = run(&plan(), &["call.null", "file.stat"], |id, count| {
            let odd = if count.is_multiple_of(2) { 0.0 } else { 40.0 };
            costing(if id == "call.null" { 100.0 } else { 100.0 + odd })
        });
        assert_eq!(count(&findings), [8, 30]);
    }

    #[test]
    fn primitives_take_turns_in_rounds_whose_order_differs() {
        let ids = ["call.null", "file.stat", "file.fstat", "clock.gettime"];
        let (_, order) = run(&plan(), &ids, |_, _| costing(100.0));
        let rounds: Vec<&[String]> = order.chunks(4).collect();
        for round in &rounds {
            assert_eq!(round.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
        }
        assert!(rounds.windows(2).any(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn no_sample_starts_that_would_exceed_the_budget_and_an_unstarted_primitive_has_a_reason() {
        let plan = Plan { budget: Duration::from_millis(5500), ..plan() };
        let (findings, order) = run(&plan, &["call.null", "file.stat"], |_, _| costing(100.0));
        assert_eq!(order.len(), 5);
        assert_eq!(count(&findings).iter().sum::<usize>(), 5);
        let none = Plan { budget: Duration::ZERO, ..plan };
        let (findings, _) = run(&none, &["call.null"], |_, _| costing(100.0));
        assert!(matches!(&findings[0], Finding::Unmeasured(u) if u.reason.contains("give it more time")));
    }

    #[test]
    fn failures_are_kept_with_their_reasons_and_only_failures_end_a_primitive() {
        let (findings, _) = run(&plan(), &["call.null", "file.stat", "file.fstat"], |id, count| match id {
            "call.null" => Outcome::Rejected("EMFILE".to_owned()),
            "file.stat" => Outcome::Unavailable("one processor".to_owned()),
            _ if count < 3 => Outcome::Rejected("EINTR".to_owned()),
            _ => costing(100.0),
        });
        let text = format!("{findings:?}");
        assert!(text.contains("all 5 processes failed, the last one: EMFILE"), "{text}");
        assert!(text.contains("\"one processor\""), "{text}");
        let Finding::Measured(measured) = &findings[2] else { panic!("{text}") };
        assert_eq!((measured.samples.len(), measured.rejected.len()), (8, 2));
    }

    #[test]
    fn an_unavailable_primitive_that_has_samples_is_a_failed_process() {
        let (findings, _) = run(&plan(), &["call.null", "file.stat"], |id, count| match (id, count) {
            ("call.null", 2) | ("file.stat", 1) => Outcome::Unavailable("no memory left".to_owned()),
            _ => costing(100.0),
        });
        let Finding::Measured(measured) = &findings[0] else { panic!("{findings:?}") };
        assert_eq!((measured.samples.len(), &measured.rejected[..]), (8, &["no memory left".to_owned()][..]));
        assert!(matches!(&findings[1], Finding::Unmeasured(u) if u.reason == "no memory left"));
    }

    /// Returns the share of 4000 series whose final interval contains the true cost, and the mean number of
    /// processes, with normal noise of this percentage of the cost.
    fn coverage(plan: &Plan, noise_percent: f64) -> (f64, f64) {
        let mut rng = Pcg64Mcg::seed_from_u64(11);
        let trials = 4000_u32;
        let (mut covered, mut taken) = (0_u32, 0_u32);
        for _ in 0..trials {
            let mut series = Series::default();
            while !series.enough(plan, Unit::Nanoseconds) {
                // The sum of twelve uniform numbers is approximately normal, with standard deviation 1.
                let noise = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
                series.add(costing(100.0 + noise_percent * noise));
                taken += 1;
            }
            let values: Vec<f64> = series.samples.iter().map(|sample| cost_ns(sample).unwrap()).collect();
            let interval = trimmed_mean(&values, Unit::Nanoseconds).unwrap().interval;
            covered += u32::from(interval.low <= 100.0 && 100.0 <= interval.high);
        }
        (f64::from(covered) / f64::from(trials), f64::from(taken) / f64::from(trials))
    }

    #[test]
    fn repeated_checks_of_the_interval_reduce_its_coverage_little_and_cost_few_processes() {
        let plan = Plan { processes_max: 90, ..plan() };
        // The goal is 1 %.
        for (noise_percent, processes) in [(0.5, 10.0), (1.0, 15.0), (1.5, 25.0), (2.0, 40.0), (3.0, 80.0)] {
            let (covered, taken) = coverage(&plan, noise_percent);
            assert!(covered >= 0.92, "{covered} at noise of {noise_percent} %");
            assert!(taken <= processes, "{taken} processes at noise of {noise_percent} %");
        }
    }
}
