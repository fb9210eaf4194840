//! Waiting for a core of one's own: when a batch may begin, and which batch is timed again.

use std::time::Duration;

use assay_quantity::Contamination;

use super::Judgement;
use super::core::{self, Look, Width};
use crate::clock::{Source, monotonic};

/// What is seen of the core between batches.
#[derive(Debug)]
pub(super) struct Core {
    clock: Source,
    alone: Width,
    /// When the batch that is under way was to be made ready, ns.
    settled_ns: u64,
    /// Whether it began on a shared core.
    began_shared: bool,
    /// Time that may be spent on waiting and on batches that do not count, ns.
    patience_ns: u64,
    /// What was spent of it.
    lost_ns: u64,
    /// After the batches that count.
    looks: Vec<Look>,
    /// Of those, how many had a shared core.
    shared: u32,
    repeated: u32,
}

/// Longest time that a sample spends on waiting for a core of its own and on batches that had none. On the machine
/// where this was tried most of a sibling's work took from a fraction of a millisecond to some of them, and so did its
/// pauses; while one is at work all the time, waiting would only cost processes.
pub const PATIENCE: Duration = Duration::from_millis(20);

/// The same where waiting has been given up for this run: a moment's work of the sibling is still waited for.
pub(crate) const SHORT_PATIENCE: Duration = Duration::from_millis(3);

impl Core {
    pub(super) fn new(clock: Source, alone: f64, patience: Duration) -> Self {
        Self {
            clock,
            alone: Width(alone),
            settled_ns: 0,
            began_shared: false,
            patience_ns: u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX),
            lost_ns: 0,
            looks: Vec::new(),
            shared: 0,
            repeated: 0,
        }
    }

    /// Waits until the core is alone, or patience is at its end.
    pub(super) fn await_alone(&mut self) {
        let begun_ns = monotonic::now_ns();
        while self.look().is_some_and(|(_, is_shared)| is_shared) {
            if self.lost_ns + monotonic::now_ns().saturating_sub(begun_ns) > self.patience_ns {
                break;
            }
        }
        self.settled_ns = monotonic::now_ns();
        self.lost_ns += self.settled_ns.saturating_sub(begun_ns);
    }

    pub(super) fn batch_begins(&mut self) {
        self.began_shared = self.look().is_some_and(|(_, is_shared)| is_shared);
    }

    pub(super) fn judge_batch(&mut self) -> Judgement {
        let Some((look, ended_shared)) = self.look() else { return Judgement::Counts };
        let is_shared = self.began_shared || ended_shared;
        if is_shared && self.lost_ns <= self.patience_ns {
            self.lost_ns += monotonic::now_ns().saturating_sub(self.settled_ns);
            self.repeated += 1;
            return Judgement::Again;
        }
        self.looks.push(look);
        self.shared += u32::from(is_shared);
        Judgement::Counts
    }

    fn look(&self) -> Option<(Look, bool)> {
        core::look(&self.clock).map(|look| (look, look.width.is_shared(self.alone)))
    }

    pub(super) fn tell(&self, sum: &mut Contamination) {
        let batches = u32::try_from(self.looks.len()).unwrap_or(u32::MAX).max(1);
        sum.shared = f64::from(self.shared) / f64::from(batches);
        sum.repeated = u64::from(self.repeated);
        sum.core_width = middle(self.looks.iter().map(|look| look.width.0));
        sum.cycle_ns = middle(self.looks.iter().map(|look| look.cycle_ns));
    }
}

/// The (upper) median; 0 of nothing.
fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
