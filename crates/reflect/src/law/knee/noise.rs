//! The noise of the samples of all levels, and stalls. It gets each sample before the present stage does, and
//! decides nothing.

use std::mem;

use super::Sample;

/// Weight of the assumption about the noise before the first sample, in samples.
const ASSUMED: f64 = 2.0;

/// Memory of the estimate, in samples.
const MEMORY: f64 = 50.0;

/// Longest stall, in samples: with periods of 100 ms, one and a half times the default of PostgreSQL's
/// `deadlock_timeout`. A server that finishes nothing for longer hangs.
const LONGEST_STALL: u32 = 15;

/// Length of a hang from which other limits are tried, in runs of [`LONGEST_STALL`] + 1 samples: about ten
/// seconds. All sessions can wait that long for the lock of a table.
const LONGEST_HANG: u32 = 6;

/// Samples after a hang from which another one is as rare as the first: a minute.
const RARE: u32 = 600;

/// Standard deviation of samples at one level, from the differences between successive ones: a change of
/// the level is in one difference only.
///
/// A server in which all units wait for those of a deadlock finishes nothing for a second. Such a stall is
/// part of what its level costs, in samples that are alike: it is noise if the server then goes on, and
/// until then, nothing is decided.
#[derive(Debug)]
pub(super) struct Noise {
    variance: f64,
    weight: f64,
    last: Option<f64>,
    /// Samples of the present stall.
    stalled: u32,
    /// Runs of [`LONGEST_STALL`] + 1 empty samples in the present hang.
    hung: u32,
    /// Samples since the last hang ended.
    since_hang: u32,
}

impl Default for Noise {
    fn default() -> Self {
        Self { variance: 0.1 * 0.1, weight: ASSUMED, last: None, stalled: 0, hung: 0, since_hang: RARE }
    }
}

impl Noise {
    /// Takes a sample.
    pub fn add(&mut self, sample: &Sample) {
        self.since_hang = self.since_hang.saturating_add(1);
        if sample.is_empty {
            if self.stalled < LONGEST_STALL {
                self.stalled += 1;
            } else {
                self.interrupt();
                self.hung += 1;
            }
            return;
        }
        if mem::take(&mut self.hung) > 0 {
            self.since_hang = 0;
        }
        // The relative deviation of an empty sample is 1.
        let stalled = mem::take(&mut self.stalled);
        self.learn(f64::from(stalled), stalled);
        let productivity = sample.productivity.ln();
        if let Some(last) = self.last.replace(productivity) {
            // A change of the server is no noise.
            let squared = ((productivity - last).powi(2) / 2.0).min(9.0 * self.variance);
            self.learn(squared, 1);
        }
    }

    /// The next sample is of another level.
    pub fn interrupt(&mut self) {
        (self.last, self.stalled) = (None, 0);
    }

    /// Ends a stall or hang for lack of load, and returns whether there was one: its units may have been
    /// cancelled.
    pub fn pause(&mut self) -> bool {
        let has_hung = mem::take(&mut self.hung) > 0;
        if has_hung {
            self.since_hang = 0;
        }
        mem::take(&mut self.stalled) > 0 || has_hung
    }

    /// Whether the server finishes nothing at the moment.
    pub fn is_stalled(&self) -> bool {
        self.stalled > 0
    }

    /// Whether the server has finished nothing for longer than a stall.
    pub fn hangs(&self) -> bool {
        self.hung > 0
    }

    /// Whether it hangs, a minute or more after the last hang.
    pub fn hangs_rarely(&self) -> bool {
        self.hangs() && self.since_hang >= RARE
    }

    /// Whether the hang has, with the last sample, lasted for [`LONGEST_HANG`], or for a multiple of it.
    pub fn is_long_hang(&self) -> bool {
        self.hangs() && self.hung.is_multiple_of(LONGEST_HANG) && self.stalled == 0
    }

    /// Whether a hang ended with the last sample.
    pub fn has_hung(&self) -> bool {
        self.since_hang == 0
    }

    /// Samples of the present stall.
    pub fn stalled(&self) -> u32 {
        self.stalled
    }

    /// The standard deviation; at least what whole units and a clock add.
    pub fn deviation(&self) -> f64 {
        self.variance.sqrt().max(0.005)
    }

    /// Takes the sum of the squared deviations of some samples.
    fn learn(&mut self, squares: f64, samples: u32) {
        let samples = f64::from(samples);
        self.weight = (self.weight + samples).min(MEMORY);
        self.variance += (squares - samples * self.variance) / self.weight;
    }
}
