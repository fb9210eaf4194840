//! Watches the productivity at one limit for a change (Page's cumulative sums, 1954).

use super::{Sample, Tally};

/// Change of the productivity that is looked for, in its logarithm.
const SHIFT: f64 = 0.15;

/// Logarithm of the mean number of samples between false alarms: a day of them.
const FALSE_ALARMS: f64 = 13.7;

/// Smallest sum that is a change: two samples at 0.8 of the productivity.
const SMALLEST: f64 = 0.3;

/// Most samples of the reference: a minute.
const REFERENCE: u32 = 600;

/// Ratio of the waste of a unit to that of the reference above which a unit costs more.
const COSTLIER: f64 = 1.5;

/// What is normal, and the sums of what is above and below.
#[derive(Debug, Default)]
pub(super) struct Watch {
    productivity: Tally,
    waste_s: Tally,
    above: f64,
    below: f64,
}

/// A change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    /// Whether a unit costs more than before.
    pub is_costlier: bool,
}

impl Watch {
    /// Takes a sample.
    pub fn add(&mut self, sample: &Sample, deviation: f64) -> Option<Change> {
        if self.productivity.samples() >= FEWEST {
            let shift = (sample.productivity / self.productivity.mean()).ln();
            // Half of the shift, and what the reference may be wrong by.
            let allowance = SHIFT / 2.0 + deviation / f64::from(self.productivity.samples()).sqrt();
            self.above = (self.above + shift - allowance).max(0.0);
            self.below = (self.below - shift - allowance).max(0.0);
            // Wald's bound: the sum of a normal variable whose drift is half of the shift.
            let limit = (FALSE_ALARMS * deviation.powi(2) / SHIFT).max(SMALLEST);
            if self.above.max(self.below) > limit {
                let is_costlier = self.waste_s.samples() > 0
                    && sample.waste_s.is_some_and(|waste_s| waste_s > COSTLIER * self.waste_s.mean());
                return Some(Change { is_costlier });
            }
        }
        if self.productivity.samples() < REFERENCE {
            self.productivity.add(sample.productivity);
            if let Some(waste_s) = sample.waste_s {
                self.waste_s.add(waste_s);
            }
        }
        None
    }
}

/// Samples before a change is looked for.
const FEWEST: u32 = 4;
