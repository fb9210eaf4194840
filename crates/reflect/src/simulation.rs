//! Runs a law on a plant, and says how good it was. The only time is the plant's own, and the only randomness
//! is the seeded noise, so that a run can be repeated.

use std::collections::VecDeque;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::law::{Decision, Law, Limit, Tuning};
use crate::plant::server::{STEP, Server};
use crate::plant::{Phase, Plant};
use crate::signal::{Signal, count};

/// Time that each phase of a plant lasts: its half is six times the longest time that a law has to find its
/// peak.
pub const PHASE: Duration = Duration::from_secs(120);

/// How a run begins, and what disturbs it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What it is, one sentence.
    pub about: &'static str,
    /// The first limit.
    pub start: Start,
    /// Standard deviation of the logarithm of the capacity, drawn anew for each tenth of a second.
    pub noise: f64,
    /// Periods of the law by which a signal is late.
    pub delay: usize,
    /// Factor of the law's steps.
    pub gain: f64,
}

/// The first limit of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// One unit.
    Below,
    /// All clients: inside the collapse, if there is one.
    Inside,
    /// One unit, and 8 clients for the time of a phase, before the plant's clients come in one step.
    Surge,
}

/// Clients before a surge.
const BEFORE_SURGE: u32 = 8;

/// Time in which the noise is the same.
const NOISE_STEPS: u32 = 10;

const CALM: Scenario = Scenario {
    name: "below",
    about: "from a limit of 1",
    start: Start::Below,
    noise: 0.0,
    delay: 1,
    gain: 1.0,
};

/// Every scenario.
pub static SCENARIOS: [Scenario; 7] = [
    CALM,
    Scenario { name: "inside", about: "from a limit of all clients", start: Start::Inside, ..CALM },
    Scenario {
        name: "surge",
        about: "8 clients for the time of a phase, then all in one step",
        start: Start::Surge,
        ..CALM
    },
    Scenario { name: "noise", about: "from a limit of 1, with noise of 20 %", noise: 0.2, ..CALM },
    Scenario {
        name: "noise-inside",
        about: "from a limit of all clients, with noise of 20 %",
        start: Start::Inside,
        noise: 0.2,
        ..CALM
    },
    Scenario {
        name: "gain",
        about: "from a limit of all clients, with steps of twice the size",
        start: Start::Inside,
        gain: 2.0,
        ..CALM
    },
    Scenario {
        name: "delay",
        about: "from a limit of all clients, with signals that are two periods late in the place of one",
        start: Start::Inside,
        delay: 2,
        ..CALM
    },
];

/// What happened in one period of a run.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// When the period ended.
    pub end: Duration,
    /// The phase of the plant that it belongs to.
    pub phase: usize,
    /// The limit in it.
    pub limit: Limit,
    /// What the server did.
    pub signal: Signal,
    /// Why the limit after it is what it is.
    pub reason: &'static str,
}

/// A run of a law on a plant.
#[derive(Debug, Clone)]
pub struct Run {
    /// Its periods.
    pub moments: Vec<Moment>,
}

/// How good a run was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Productivity in the second half of each phase, in units of that with the best fixed limit; of the
    /// phase where it was the lowest.
    pub settled: f64,
    /// Time from the beginning of a phase to the end of the first second in which the productivity was 0.9 of
    /// the best; of the phase where it was the longest. `None` if there is none in one of them.
    pub rise: Option<Duration>,
    /// Largest ratio of a limit and the median limit, in the second half of each phase, where units wait.
    pub spread: f64,
    /// Share of the second halves in which units wait.
    pub bound: f64,
}

impl Scenario {
    /// Finds a scenario by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Scenario> {
        SCENARIOS.iter().find(|scenario| scenario.name == name)
    }
}

/// Runs of a scenario with noise, each with a seed of its own.
pub const RUNS: u64 = 20;

/// How good several runs were.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scores {
    /// The median of each figure.
    pub median: Score,
    /// The worst of each figure.
    pub worst: Score,
}

/// Runs a law on a plant once, or, if there is noise, [`RUNS`] times, and judges the runs.
#[must_use]
pub fn scores(law: &Law, plant: &Plant, scenario: &Scenario, seed: u64) -> Scores {
    let best_per_s = best(plant, scenario);
    let runs = if scenario.noise > 0.0 { RUNS } else { 1 };
    let seeds = (0..runs).map(|number| seed.wrapping_add(number));
    let scores: Vec<Score> = seeds.map(|seed| run(law, plant, scenario, seed).score(&best_per_s)).collect();
    // From the best to the worst; what never rose is the worst.
    let sorted = |figure: fn(&Score) -> f64| {
        let mut figures: Vec<f64> = scores.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures
    };
    let settled = sorted(|score| -score.settled);
    let rise = sorted(|score| score.rise.map_or(f64::INFINITY, |rise| rise.as_secs_f64()));
    let spread = sorted(|score| score.spread);
    let bound = sorted(|score| score.bound);
    let at = |place: usize| Score {
        settled: -settled[place],
        rise: Duration::try_from_secs_f64(rise[place]).ok(),
        spread: spread[place],
        bound: bound[place],
    };
    Scores { median: at(scores.len() / 2), worst: at(scores.len() - 1) }
}

/// Runs a law on a plant.
#[must_use]
pub fn run(law: &Law, plant: &Plant, scenario: &Scenario, seed: u64) -> Run {
    let start = match scenario.start {
        Start::Below | Start::Surge => Limit::nearest(1.0),
        Start::Inside => Limit::nearest(f64::from(plant.clients)),
    };
    let mut controller = (law.new)(Tuning { start, gain: scenario.gain });
    let phases = phases(plant, scenario);
    let mut noise = Noise::new(scenario.noise, seed);
    let mut server = Server::default();
    let mut late: VecDeque<Signal> = VecDeque::new();
    let mut limit = start;
    let mut moments = Vec::new();
    let steps = steps(law.period);
    let mut end = Duration::ZERO;
    for (number, (phase, clients)) in phases.iter().enumerate() {
        for _ in 0..steps_in_phase() / steps {
            for _ in 0..steps {
                server.step(phase, *clients, limit, noise.next());
            }
            end += law.period;
            let signal = server.signal();
            late.push_back(signal);
            let decision = if late.len() > scenario.delay {
                late.pop_front().map(|signal| controller.update(&signal))
            } else {
                None
            };
            let Decision { limit: next, reason } =
                decision.unwrap_or(Decision { limit, reason: "no signal yet" });
            moments.push(Moment { end, phase: number, limit, signal, reason });
            limit = next;
        }
    }
    Run { moments }
}

/// Returns the productivity in units per second with the best fixed limit, without noise, of each phase.
#[must_use]
pub fn best(plant: &Plant, scenario: &Scenario) -> Vec<f64> {
    phases(plant, scenario).iter().map(|(phase, clients)| best_per_s(phase, *clients)).collect()
}

/// The phases of a run, and the clients of each.
fn phases(plant: &Plant, scenario: &Scenario) -> Vec<(Phase, u32)> {
    let before = (scenario.start == Start::Surge).then_some((plant.phases[0], BEFORE_SURGE));
    before.into_iter().chain(plant.phases.iter().map(|phase| (*phase, plant.clients))).collect()
}

/// Steps after which a server with a fixed limit near its peak has settled: five times the dead time of a
/// deadlock.
const SETTLED_STEPS: u32 = 500;

/// Returns the highest productivity of a phase with a fixed limit, without noise.
fn best_per_s(phase: &Phase, clients: u32) -> f64 {
    // Steps of an eighth find every peak to within a fraction of a per cent.
    let limits = (0..).map(|n| Limit::nearest(1.125f64.powi(n))).take_while(|limit| limit.units() < clients);
    let settled = |limit| {
        let mut server = Server::default();
        (0..SETTLED_STEPS).for_each(|_| server.step(phase, clients, limit, 1.0));
        server.signal();
        (0..SETTLED_STEPS).for_each(|_| server.step(phase, clients, limit, 1.0));
        server.signal().productivity()
    };
    limits.chain([Limit::nearest(f64::from(clients))]).map(settled).fold(0.0, f64::max)
}

impl Run {
    /// Judges the run by the productivity with the best fixed limit, of each phase.
    #[must_use]
    pub fn score(&self, best_per_s: &[f64]) -> Score {
        let mut score = Score { settled: f64::INFINITY, rise: Some(Duration::ZERO), spread: 1.0, bound: 0.0 };
        let (mut halves, mut bound) = (0.0, 0.0);
        for (phase, best_per_s) in best_per_s.iter().enumerate() {
            let moments: Vec<&Moment> = self.moments.iter().filter(|moment| moment.phase == phase).collect();
            let half = &moments[moments.len() / 2..];
            score.settled = score.settled.min(mean_per_s(half) / best_per_s);
            score.rise = score.rise.zip(rise(&moments, *best_per_s)).map(|(a, b)| a.max(b));
            let binding: Vec<&&Moment> = half.iter().filter(|moment| moment.signal.waiting > 0.5).collect();
            let mut limits: Vec<f64> = binding.iter().map(|moment| moment.limit.real()).collect();
            limits.sort_by(f64::total_cmp);
            if let Some(median) = limits.get(limits.len() / 2) {
                let ratios = [limits[limits.len() - 1] / median, median / limits[0]];
                score.spread = ratios.into_iter().fold(score.spread, f64::max);
            }
            halves += count(half.len() as u64);
            bound += count(binding.len() as u64);
        }
        score.bound = bound / halves;
        score
    }
}

/// The mean productivity of some periods of one length.
fn mean_per_s(moments: &[&Moment]) -> f64 {
    let sum: f64 = moments.iter().map(|moment| moment.signal.productivity()).sum();
    sum / count(moments.len() as u64)
}

/// The time at the end of the first second in which the productivity was 0.9 of the best.
fn rise(moments: &[&Moment], best_per_s: f64) -> Option<Duration> {
    let first = moments.first()?;
    let begin = first.end - first.signal.period;
    let in_second = Duration::from_secs(1).as_nanos() / first.signal.period.as_nanos().max(1);
    let mut seconds = moments.windows(usize::try_from(in_second).ok()?.max(1));
    let risen = seconds.find(|second| mean_per_s(second) >= 0.9 * best_per_s)?;
    Some(risen.last()?.end - begin)
}

fn steps(time: Duration) -> u128 {
    time.as_nanos() / STEP.as_nanos()
}

fn steps_in_phase() -> u128 {
    steps(PHASE)
}

/// Noise of the capacity.
struct Noise {
    deviation: f64,
    generator: Pcg64Mcg,
    steps: u32,
    factor: f64,
}

impl Noise {
    fn new(deviation: f64, seed: u64) -> Self {
        Self { deviation, generator: Pcg64Mcg::seed_from_u64(seed), steps: 0, factor: 1.0 }
    }

    /// The factor of the next step.
    fn next(&mut self) -> f64 {
        if self.deviation > 0.0 && self.steps.is_multiple_of(NOISE_STEPS) {
            // The sum of twelve uniform numbers has the variance of the normal distribution.
            let normal = (0..12).map(|_| self.generator.random::<f64>()).sum::<f64>() - 6.0;
            self.factor = (self.deviation * normal - self.deviation.powi(2) / 2.0).exp();
        }
        self.steps += 1;
        self.factor
    }
}
