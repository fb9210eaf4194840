//! Runs laws on plants. The only time is the plant's own, and the only randomness is the seeded noise, so
//! that a run can be repeated.

mod scenario;
mod score;

use std::collections::VecDeque;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::Signal;
use crate::law::{Decision, Law, Limit, Tuning};
use crate::plant::server::{STEP, Server};
use crate::plant::{Phase, Plant};

pub use scenario::{SCENARIOS, Scenario, Start};
pub use score::{RUNS, Score, Scores, best, mean_per_s, scores};

/// Time that each phase of a plant lasts: its half is six times the longest time that a law has to find its
/// peak.
pub const PHASE: Duration = Duration::from_secs(120);

/// Clients before a surge.
const BEFORE_SURGE: u32 = 8;

/// Time in which the noise is the same.
const NOISE_STEPS: u32 = 10;

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
    let steps_in_period = steps(law.period);
    let mut end = Duration::ZERO;
    for (number, (phase, clients)) in phases.iter().enumerate() {
        for _ in 0..steps(PHASE) / steps_in_period {
            for _ in 0..steps_in_period {
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

/// The phases of a run, and the clients of each.
fn phases(plant: &Plant, scenario: &Scenario) -> Vec<(Phase, u32)> {
    let before = (scenario.start == Start::Surge).then_some((plant.phases[0], BEFORE_SURGE));
    before.into_iter().chain(plant.phases.iter().map(|phase| (*phase, plant.clients))).collect()
}

fn steps(time: Duration) -> u128 {
    time.as_nanos() / STEP.as_nanos()
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
