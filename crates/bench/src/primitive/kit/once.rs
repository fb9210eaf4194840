//! Laps through memory: a working set that must come from memory is traversed once, because an element that
//! is visited a second time may be in a cache.
//!
//! Chases through data and through code use it. A sample seldom takes more than a lap. If it does, because
//! counters require additional batches, it evicts the lap from the caches and starts it again.

use std::ops::Range;

use super::order::Order;
use crate::platform::flush::flush;

/// Elements of a random order through memory that one chain visits: with the shortest latencies, about 60 ns,
/// a sample makes twice 23 batches of a quarter of a millisecond.
pub(crate) const LAP: u64 = 1 << 18;

/// A sample takes about 23 of its shorter batches (6 pairs of n and 2n, a few of n/2, and the doubling up to
/// 2n before them). Batches of at most a twelfth of a lap therefore take less than a lap, unless counters
/// require more batches.
const BATCHES_PER_LAP: u64 = 12;

/// The elements that fill the caches before the others of an order are visited.
#[derive(Debug, Clone)]
pub(crate) struct Others {
    /// Number of positions of the lap, which come first in the order.
    lap: u64,
    positions: Range<u64>,
}

impl Others {
    /// Returns the last elements of an order that are not part of the lap: at most `fitting`, the number that
    /// the last cache holds.
    pub(crate) fn behind(lap: u64, order: &Order, fitting: u64) -> Self {
        let length = order.length();
        Self { lap, positions: lap.max(length.saturating_sub(fitting))..length }
    }

    /// The longest batch.
    pub(crate) fn longest_batch(&self) -> u64 {
        self.lap / BATCHES_PER_LAP
    }

    /// Returns whether a batch that ends right before this position would visit elements for the second time.
    pub(crate) fn are_due_before(&self, end: u64) -> bool {
        end > self.lap
    }

    /// Evicts all lines from the caches, and calls `touch` to fill them with these elements. From the
    /// beginning of the lap, the caches are then in the state that a program finds if it traverses far more
    /// than they hold.
    ///
    /// # Safety
    /// Every address of `lines`, which are those of the whole order, must be mapped.
    pub(crate) unsafe fn take_caches(
        &self,
        lines: impl Iterator<Item = *const u8>,
        touch: impl FnOnce(Range<u64>),
    ) {
        // SAFETY: the caller guarantees that the addresses are mapped.
        unsafe { flush(lines) };
        touch(self.positions.clone());
    }
}
