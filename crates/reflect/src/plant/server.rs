//! A plant at work: closed clients in front of a gate, and the server behind it, in steps of 10 ms.
//!
//! Units are a fluid, so that a run without noise has no randomness. Those that run are served at the plant's
//! capacity; those in a deadlock come back after a second, a few at a time, and keep their place meanwhile. A
//! lower limit ends no unit: what was admitted drains at the rate at which the server finishes it.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Capacity, PROCESSORS, Phase, Wait};
use crate::law::Limit;
use crate::signal::{Overhead, Signal};

/// Length of a step: a tenth of the shortest period of a law.
pub(crate) const STEP: Duration = Duration::from_millis(10);

/// PostgreSQL's `deadlock_timeout`, in steps.
const DEADLOCK_STEPS: u32 = 100;

/// A server under load.
#[derive(Debug, Default)]
pub(crate) struct Server {
    /// Admitted units that are not in a deadlock.
    running: f64,
    /// Units in a deadlock: the step from which they may leave it, and how many.
    parked: VecDeque<(u32, f64)>,
    /// Their sum.
    stopped: f64,
    /// Steps so far.
    steps: u32,
    /// Sums since the last signal.
    sums: Sums,
}

/// What was counted since the last signal: sums over steps, times in seconds.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    steps: u32,
    finished: f64,
    failed: f64,
    in_flight: f64,
    waiting: f64,
    cpu_s: f64,
    run_queue_s: f64,
    lock_s: f64,
}

impl Server {
    /// Advances one step in which `clients` have a unit each, and the capacity is multiplied by `noise`.
    pub fn step(&mut self, phase: &Phase, clients: u32, limit: Limit, noise: f64) {
        let step_s = STEP.as_secs_f64();
        let places = f64::from(clients).min(f64::from(limit.units()));
        self.running += (places - self.in_flight()).max(0.0);
        // A step may serve more units than are in flight: each place is taken again within it.
        let served = phase.capacity.served_per_s(self.running) * phase.processors * noise * step_s;
        let (served, parked, released) = match phase.capacity {
            Capacity::Deadlock { every, exponent, released_per_s, .. } => {
                let probability = (self.in_flight() / every).powf(exponent).min(1.0);
                let (served, parked) = self.park(served, probability);
                (served, parked, self.release(released_per_s * step_s))
            }
            Capacity::Universal { .. } | Capacity::Measured { .. } => (served, 0.0, 0.0),
        };
        let in_flight = self.in_flight() + released;
        let ended = served - parked + released;
        let failed = match phase.capacity {
            Capacity::Deadlock { victims, .. } => victims * released,
            capacity => capacity.failed_per_s(self.running) * phase.processors * noise * step_s,
        };
        if parked > 0.0 {
            self.parked.push_back((self.steps + DEADLOCK_STEPS, parked));
        }
        self.stopped += parked;
        let kept = if places < in_flight { (in_flight - ended).max(places) } else { places };
        let busy = self.busy(phase);
        let (stopped, runnable) = (self.stopped, self.running - busy);
        let (run_queue, lock) = match phase.capacity {
            Capacity::Measured { wait: Wait::Lock, .. } => (0.0, runnable),
            _ => (runnable, 0.0),
        };
        self.running = (kept - self.stopped).max(0.0);
        self.sums.steps += 1;
        // What was measured of a server without deadlocks is what has not failed.
        self.sums.finished += match phase.capacity {
            Capacity::Deadlock { .. } => ended - failed,
            _ => ended,
        };
        self.sums.failed += failed;
        self.sums.in_flight += in_flight;
        self.sums.waiting += (f64::from(clients) - in_flight).max(0.0);
        self.sums.cpu_s += busy * step_s;
        self.sums.run_queue_s += run_queue * step_s;
        self.sums.lock_s += (lock + stopped) * step_s;
        self.steps += 1;
    }

    /// Returns the signal of the steps since the last one. Of the units that finished, the fraction below one
    /// is left for the next signal.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a sum of a few seconds' units"
    )]
    pub fn signal(&mut self) -> Signal {
        let sums = std::mem::take(&mut self.sums);
        let [finished, failed] = [sums.finished, sums.failed].map(f64::floor);
        self.sums.finished = sums.finished - finished;
        self.sums.failed = sums.failed - failed;
        let steps = f64::from(sums.steps.max(1));
        let period_s = f64::from(sums.steps) * STEP.as_secs_f64();
        let in_flight = sums.in_flight / steps;
        // Little's law.
        let latency = (finished >= 1.0).then(|| Duration::from_secs_f64(in_flight * period_s / finished));
        let parked = self.parked.front().map(|(ready, _)| STEP * (self.steps + DEADLOCK_STEPS - ready));
        Signal {
            period: Duration::from_secs_f64(period_s),
            finished: finished as u64,
            failed: failed as u64,
            in_flight,
            waiting: sums.waiting / steps,
            latency,
            oldest: latency.max(parked),
            overhead: Overhead {
                cpu: Some(Duration::from_secs_f64(sums.cpu_s)),
                run_queue_wait: Some(Duration::from_secs_f64(sums.run_queue_s)),
                lock_wait: Some(Duration::from_secs_f64(sums.lock_s)),
            },
        }
    }

    /// Units that were admitted and have not ended.
    fn in_flight(&self) -> f64 {
        self.running + self.stopped
    }

    /// Processors in use.
    fn busy(&self, phase: &Phase) -> f64 {
        let processors = match phase.capacity {
            Capacity::Measured { wait: Wait::Lock, .. } => 1.0,
            _ => PROCESSORS,
        };
        self.running.min(processors * phase.processors)
    }

    /// Returns how many of the units that could be served in a step are, and how many then are in a deadlock,
    /// if each runs into one with this probability: the place of a unit in a deadlock is not taken again.
    fn park(&self, served: f64, probability: f64) -> (f64, f64) {
        if self.running <= 0.0 || probability <= 0.0 {
            return (served, 0.0);
        }
        let parked = self.running * (1.0 - (1.0 - probability).powf(served / self.running));
        (parked / probability, parked)
    }

    /// Takes up to `most` units out of the deadlocks whose time is over, and returns how many.
    fn release(&mut self, most: f64) -> f64 {
        let mut released = 0.0;
        while let Some((ready, units)) = self.parked.front_mut()
            && *ready <= self.steps
            && released < most
        {
            let taken = units.min(most - released);
            *units -= taken;
            released += taken;
            if *units <= 0.0 {
                self.parked.pop_front();
            }
        }
        // Rounding must not leave a unit behind that is in no deadlock.
        self.stopped = if self.parked.is_empty() { 0.0 } else { self.stopped - released };
        released
    }
}
