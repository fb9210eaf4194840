//! Watches the productivity at one limit for a change (Page's cumulative sums, 1954).

use super::{Noise, Sample, Tally};

/// Change of the productivity that is looked for, in its logarithm.
const SHIFT: f64 = 0.15;

/// Logarithm of the mean number of samples between false alarms: a day of them.
const FALSE_ALARMS: f64 = 13.7;

/// Largest part of the sum that a sample adds, so that at least three show a change: if the machine stops for
/// a moment, one period or two finish next to nothing, and the next can be as before.
const PART: f64 = 0.4;

/// Smallest sum that is a change: three samples at 0.8 of the productivity.
const SMALLEST: f64 = 0.3;

/// Samples of the reference before a change is looked for: more than those of a stall.
const FEWEST: u32 = 16;

/// Most samples of the reference: a minute.
const REFERENCE: u32 = 600;

/// What is usual, and the sums of what is above and below.
#[derive(Debug, Default)]
pub(super) struct Watch {
    usual: Level,
    above: f64,
    below: f64,
    /// Since the productivity has been lower.
    lately: Level,
    /// What was usual before the present stall.
    before_stall: Level,
}

/// The productivity and what is in flight.
#[derive(Debug, Clone, Copy, Default)]
struct Level {
    productivity: Tally,
    in_flight: Tally,
}

impl Level {
    fn add(&mut self, sample: &Sample) {
        self.productivity.add(sample.productivity);
        self.in_flight.add(sample.in_flight);
    }

    fn samples(&self) -> u32 {
        self.productivity.samples()
    }
}

/// A change of the productivity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It is higher.
    Rose,
    /// It is lower, and what is in flight is lower by at least half as much, in the logarithm.
    Fell,
    /// It is lower, and what is in flight is not, or by less than that.
    Thrashes,
}

impl Watch {
    /// Discards the present stall, and looks for a change from here on.
    pub fn forget_stall(&mut self) {
        *self = Self { usual: self.before_stall, before_stall: self.before_stall, ..Self::default() };
    }

    /// Takes a sample.
    pub fn add(&mut self, sample: &Sample, noise: &Noise) -> Option<Change> {
        if self.usual.samples() >= FEWEST {
            let deviation = noise.deviation();
            // An empty sample is part of a stall, and counts for what it adds to the noise.
            let logarithm = (sample.productivity / self.usual.productivity.mean()).ln();
            let shift = if sample.is_empty { -1.0 } else { logarithm };
            // Half of the shift, and what the reference may be wrong by.
            let allowance = SHIFT / 2.0 + deviation / f64::from(self.usual.samples()).sqrt();
            // Wald's bound: the sum of a normal variable whose drift is half of the shift.
            let limit = (FALSE_ALARMS * deviation.powi(2) / SHIFT).max(SMALLEST);
            let most = PART * limit;
            self.above = (self.above + (shift - allowance).min(most)).max(0.0);
            self.below = (self.below + (-shift - allowance).min(most)).max(0.0);
            if self.below <= 0.0 {
                self.lately = Level::default();
            } else {
                self.lately.add(sample);
            }
            // A stall may be over with the next sample.
            let is_change = |sum| sum > limit && !noise.is_stalled();
            if is_change(self.above) {
                return Some(Change::Rose);
            }
            if is_change(self.below) {
                return Some(self.fall());
            }
        }
        if self.usual.samples() < REFERENCE {
            self.usual.add(sample);
        }
        if !sample.is_empty {
            self.before_stall = self.usual;
        }
        None
    }

    /// What kind of change it is that the productivity is lower.
    fn fall(&self) -> Change {
        let fall = |of: fn(&Level) -> f64| (of(&self.usual) / of(&self.lately)).ln();
        let in_flight = fall(|level| level.in_flight.mean());
        let productivity = fall(|level| level.productivity.mean());
        if in_flight >= productivity / 2.0 { Change::Fell } else { Change::Thrashes }
    }
}
