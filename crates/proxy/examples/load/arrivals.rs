//! The transactions of an open loop, which arrive whatever becomes of those before.

use std::time::{Duration, Instant};

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// A Poisson process.
pub struct Arrivals {
    /// Per second.
    rate: f64,
    /// When the next transaction arrives.
    next: Instant,
}

impl Arrivals {
    /// The first transaction arrives now.
    pub fn new(rate: f64, now: Instant) -> Self {
        Self { rate, next: now }
    }

    /// Returns when the next transaction arrives.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Returns when a transaction arrived, if one has.
    pub fn take(&mut self, at: Instant, random: &mut Pcg64Mcg) -> Option<Instant> {
        let arrived = self.next;
        if arrived > at {
            return None;
        }
        // The times between arrivals are distributed exponentially.
        let between_s = -(1.0 - random.random::<f64>()).ln() / self.rate;
        self.next += Duration::from_secs_f64(between_s);
        Some(arrived)
    }
}
