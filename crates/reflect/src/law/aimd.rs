//! Additive increase, multiplicative decrease (Chiu and Jain 1989; TCP's congestion avoidance).
//!
//! Stability: for a fixed threshold of latency the law oscillates around it in a sawtooth, whose height is a
//! tenth for each period by which a signal is late: the range of the limit is 1.3, 1.4 and 1.9 for 1, 2 and 4
//! periods on the plant `far`. The threshold follows the lowest latency that was seen. If that was learnt
//! inside a collapse, and nothing fails, the law stays there.

use super::{Controller, Decision, Tuning};
use crate::Signal;

/// Factor of a decrease, as in the limiters that are in use.
const DECREASE: f64 = 0.9;

/// Latency, in units of the lowest one, above which the server is congested: with two units in the place of
/// one, each takes twice as long.
const CONGESTED: f64 = 2.0;

/// Additive increase, multiplicative decrease.
#[derive(Debug)]
pub struct Aimd {
    limit: f64,
    gain: f64,
    /// Lowest mean latency of a period, in seconds.
    lowest_s: f64,
}

impl Aimd {
    /// Begins without a latency.
    pub fn new(tuning: Tuning) -> Self {
        Self { limit: tuning.start.real(), gain: tuning.gain, lowest_s: f64::INFINITY }
    }
}

impl Controller for Aimd {
    fn update(&mut self, signal: &Signal) -> Decision {
        let latency_s = signal.latency.map(|latency| latency.as_secs_f64());
        self.lowest_s = latency_s.map_or(self.lowest_s, |latency_s| self.lowest_s.min(latency_s));
        let congested =
            signal.failed > 0 || latency_s.is_some_and(|latency_s| latency_s > CONGESTED * self.lowest_s);
        let reason = if congested {
            self.limit *= DECREASE.powf(self.gain);
            "failures or high latency"
        } else if signal.waiting > 0.0 {
            self.limit += self.gain;
            "units wait, latency is low"
        } else {
            "nothing waits"
        };
        Decision::nearest(&mut self.limit, reason)
    }
}
