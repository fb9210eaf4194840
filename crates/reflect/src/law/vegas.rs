//! TCP Vegas for concurrency (Brakmo and Peterson 1995): the queue inside the server is what the limit holds
//! beyond the lowest latency, `limit x (1 - lowest / latency)`, and is held between two bounds.
//!
//! Stability: the limit changes by log10 of itself in a period, so that the queue that it causes is seen
//! before the bounds, three and six times as far apart, are crossed; dead times of a few periods do no harm.
//! The lowest latency is never forgotten. If it was learnt inside a collapse, the law sees no queue.

use super::{Controller, Decision, Tuning};
use crate::Signal;

/// Bounds of the queue, in units of log10 of the limit: those of the limiters that are in use.
const SHORT: f64 = 3.0;
const LONG: f64 = 6.0;

/// Vegas.
#[derive(Debug)]
pub struct Vegas {
    limit: f64,
    gain: f64,
    /// Lowest mean latency of a period, in seconds.
    lowest_s: f64,
}

impl Vegas {
    /// Begins without a latency.
    pub fn new(tuning: Tuning) -> Self {
        Self { limit: tuning.start.real(), gain: tuning.gain, lowest_s: f64::INFINITY }
    }

    fn decide(&mut self, signal: &Signal) -> &'static str {
        let Some(latency) = signal.latency else { return "nothing ended" };
        let latency_s = latency.as_secs_f64();
        self.lowest_s = self.lowest_s.min(latency_s);
        if signal.in_flight * 2.0 < self.limit {
            return "the limit does not bind";
        }
        let unit = self.limit.log10().max(1.0);
        let queue = self.limit * (1.0 - self.lowest_s / latency_s.max(self.lowest_s));
        if signal.failed > 0 || queue > LONG * unit {
            self.limit -= self.gain * unit;
            "long queue inside the server"
        } else if queue < SHORT * unit {
            self.limit += self.gain * unit;
            "short queue inside the server"
        } else {
            "queue between its bounds"
        }
    }
}

impl Controller for Vegas {
    fn update(&mut self, signal: &Signal) -> Decision {
        let reason = self.decide(signal);
        Decision::nearest(&mut self.limit, reason)
    }
}
