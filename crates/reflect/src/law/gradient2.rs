//! Gradient of latency: the limit is scaled by the ratio of a long average of the latency to the present one,
//! and a small queue is added (the law that Netflix's concurrency-limits calls Gradient2).
//!
//! Stability: the factor is between 0.5 and 1 and a fifth of the change is made, so that the limit falls by
//! at most a tenth in a period; the fixed point is where the queue's four units are what the factor takes
//! away. The long average follows the latency, so that a latency that stays bad becomes the normal one: the
//! limit then rises until something else ends it.

use super::{Controller, Decision, Tuning};
use crate::Signal;

/// Weight of a new value in the long average over 600 values: 2 / (n + 1).
const WEIGHT: f64 = 2.0 / 601.0;

/// Units added for a queue, the share of a change that is made, and the tolerance of the latency's rise: the
/// values in use.
const QUEUE: f64 = 4.0;
const SMOOTHING: f64 = 0.2;
const TOLERANCE: f64 = 1.5;

/// Gradient of latency.
#[derive(Debug)]
pub struct Gradient2 {
    limit: f64,
    gain: f64,
    /// Long average of the latency, in seconds.
    long_s: Option<f64>,
}

impl Gradient2 {
    /// Begins without a latency.
    pub fn new(tuning: Tuning) -> Self {
        Self { limit: tuning.start.real(), gain: tuning.gain, long_s: None }
    }

    fn decide(&mut self, signal: &Signal) -> &'static str {
        let Some(latency) = signal.latency else { return "nothing ended" };
        let latency_s = latency.as_secs_f64().max(f64::MIN_POSITIVE);
        let long_s = self.long_s.map_or(latency_s, |long_s| long_s + WEIGHT * (latency_s - long_s));
        // A long average that is far above the present latency is of another load, and is forgotten faster.
        let long_s = if long_s > 2.0 * latency_s { 0.95 * long_s } else { long_s };
        self.long_s = Some(long_s);
        if signal.in_flight * 2.0 < self.limit {
            return "the limit does not bind";
        }
        let gradient = (TOLERANCE * long_s / latency_s).clamp(0.5, 1.0);
        let target = self.limit * gradient + QUEUE;
        self.limit += (SMOOTHING * self.gain).min(1.0) * (target - self.limit);
        if gradient < 1.0 { "latency above its long average" } else { "latency near its long average" }
    }
}

impl Controller for Gradient2 {
    fn update(&mut self, signal: &Signal) -> Decision {
        let reason = self.decide(signal);
        Decision::nearest(&mut self.limit, reason)
    }
}
