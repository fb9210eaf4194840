//! How good runs are, by the best fixed limit.

use std::time::Duration;

use super::{Moment, Run, Scenario, phases, run};
use crate::law::{Law, Limit};
use crate::plant::server::Server;
use crate::plant::{Phase, Plant};
use crate::signal::count;

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

/// Returns the productivity in units per second with the best fixed limit, without noise, of each phase.
#[must_use]
pub fn best(plant: &Plant, scenario: &Scenario) -> Vec<f64> {
    phases(plant, scenario).iter().map(|(phase, clients)| best_per_s(phase, *clients)).collect()
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
    /// Returns the periods of each second.
    pub fn seconds(&self) -> impl Iterator<Item = &[Moment]> {
        self.moments.chunks(self.moments.first().map_or(1, in_second))
    }

    /// Judges the run by the productivity with the best fixed limit, of each phase.
    #[must_use]
    pub fn score(&self, best_per_s: &[f64]) -> Score {
        let mut score = Score { settled: f64::INFINITY, rise: Some(Duration::ZERO), spread: 1.0, bound: 0.0 };
        let (mut halves, mut bound) = (0.0, 0.0);
        let phases = self.moments.chunk_by(|before, moment| before.phase == moment.phase);
        for (moments, best_per_s) in phases.zip(best_per_s) {
            let half = &moments[moments.len() / 2..];
            score.settled = score.settled.min(mean_per_s(half) / best_per_s);
            score.rise = score.rise.zip(rise(moments, *best_per_s)).map(|(a, b)| a.max(b));
            let binding: Vec<&Moment> = half.iter().filter(|moment| moment.signal.waiting > 0.5).collect();
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

/// Returns the mean productivity of some periods of one length, in units per second.
#[must_use]
pub fn mean_per_s(moments: &[Moment]) -> f64 {
    let sum: f64 = moments.iter().map(|moment| moment.signal.productivity()).sum();
    sum / count(moments.len() as u64)
}

/// The time at the end of the first second in which the productivity was 0.9 of the best.
fn rise(moments: &[Moment], best_per_s: f64) -> Option<Duration> {
    let first = moments.first()?;
    let begin = first.end - first.signal.period;
    let mut seconds = moments.windows(in_second(first));
    let risen = seconds.find(|second| mean_per_s(second) >= 0.9 * best_per_s)?;
    Some(risen.last()?.end - begin)
}

/// Number of periods in a second.
fn in_second(moment: &Moment) -> usize {
    let number = Duration::from_secs(1).as_nanos() / moment.signal.period.as_nanos().max(1);
    usize::try_from(number).unwrap_or(usize::MAX).max(1)
}
