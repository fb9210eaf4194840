//! Laps through memory: a working set that must come from memory is gone through once, because whatever is come to a
//! second time may be in a cache.
//!
//! The chases of this directory and the code of [`code`](super::super::code) go by it. A sample seldom takes more
//! than a lap; one that does, since counters take batches of their own, begins the lap again,
//! with the caches emptied of it again.

use std::ops::Range;

use super::order::Order;
use crate::flush::flush;

/// Elements of a random order through memory that one chain goes through: the shortest latencies, some 60 ns, let a
/// sample make twice 23 batches of a quarter of a millisecond.
pub(in super::super) const LAP: u64 = 1 << 18;

/// A sample is some 23 of its shorter batches (6 pairs of n and 2n, a few of n/2, and the doubling up to 2n before
/// them), so that batches of a lap's twelfth at most make less than a lap unless more are taken for counters.
const BATCHES_PER_LAP: u64 = 12;

/// The elements that the caches are left to while the others of an order are gone through.
#[derive(Debug, Clone)]
pub(in super::super) struct Others {
    /// Positions of the lap, which come first in the order.
    lap: u64,
    positions: Range<u64>,
}

impl Others {
    /// Those that come last in an order behind a lap: as many as the last cache holds, or as there are.
    pub(in super::super) fn behind(lap: u64, order: &Order, fitting: u64) -> Self {
        let length = order.length();
        Self { lap, positions: lap.max(length.saturating_sub(fitting))..length }
    }

    /// The longest batch.
    pub(in super::super) fn longest_batch(&self) -> u64 {
        self.lap / BATCHES_PER_LAP
    }

    /// Whether a batch that ends right before this position would come to elements for the second time.
    pub(in super::super) fn are_due_before(&self, end: u64) -> bool {
        end > self.lap
    }

    /// Takes everything out of the caches, and lets `touch` fill them with these elements. What is found from the
    /// beginning of the lap on is then what is found in a program that goes through far more than the caches hold.
    ///
    /// # Safety
    /// Every address of `lines`, which are those of the whole order, must be mapped.
    pub(in super::super) unsafe fn take_caches(
        &self,
        lines: impl Iterator<Item = *const u8>,
        touch: impl FnOnce(Range<u64>),
    ) {
        // SAFETY: the caller vouches for the addresses.
        unsafe { flush(lines) };
        touch(self.positions.clone());
    }
}
