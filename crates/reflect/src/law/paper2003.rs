//! The heuristic of the paper (Fowler et al., section 4.1): once a second, on exponential averages that span
//! the last 60 seconds, more connections if overhead and productivity both rise, fewer if overhead rises and
//! productivity stagnates.
//!
//! The paper measures overhead by the misses of the data TLB and the data caches, which need a counter; here
//! it is the processor time and the lock waits of a unit, the best substitute that needs none. The paper does
//! not say by how much the limit changes; a tenth is as much as its averages can follow.
//!
//! Stability: the averages lag by about 30 s, so that the law reacts to what it did half a minute ago. Steps
//! of a tenth keep that from becoming an oscillation of growing amplitude, at the price of minutes until it
//! has converged. While overhead falls, or without signals of overhead, it holds the limit: from a start
//! inside a collapse it has no way down.

use super::{Controller, Decision, Tuning};
use crate::Signal;

/// Weight of a new value in an average over 60 values: 2 / (n + 1).
const WEIGHT: f64 = 2.0 / 61.0;

/// Change of an average in a second above which it rises: a tenth of the 1.6 % by which it follows a
/// doubling.
const RISES: f64 = 1.002;

/// Relative change of the limit.
const STEP: f64 = 0.1;

/// The paper's controller.
#[derive(Debug)]
pub struct Paper2003 {
    limit: f64,
    step: f64,
    /// Averages of productivity in units per second, and of overhead in seconds per unit; zero at the
    /// beginning, as on an idle server.
    averages: [f64; 2],
}

impl Paper2003 {
    /// Begins on an idle server.
    pub fn new(tuning: Tuning) -> Self {
        Self { limit: tuning.start.real(), step: STEP * tuning.gain, averages: [0.0; 2] }
    }

    fn decide(&mut self, signal: &Signal) -> &'static str {
        let Some(overhead) = signal.waste_s() else { return "overhead is not measured" };
        let now = [signal.productivity(), overhead];
        let before = self.averages;
        let after = [0, 1].map(|which| before[which] + WEIGHT * (now[which] - before[which]));
        self.averages = after;
        let [productivity_rises, overhead_rises] = [0, 1].map(|which| after[which] > RISES * before[which]);
        match (productivity_rises, overhead_rises) {
            (true, true) => {
                self.limit += (self.step * self.limit).max(1.0);
                "productivity and overhead rise"
            }
            (false, true) => {
                self.limit -= (self.step * self.limit).max(1.0);
                "overhead rises, productivity does not"
            }
            (_, false) => "overhead does not rise",
        }
    }
}

impl Controller for Paper2003 {
    fn update(&mut self, signal: &Signal) -> Decision {
        let reason = self.decide(signal);
        Decision::nearest(&mut self.limit, reason)
    }
}
