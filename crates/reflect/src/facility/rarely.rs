//! Sources that are dear because they read thread by thread. They are read together, so that their counts are
//! of the same periods, and as rarely as [`SHARE`] demands.

use std::io;
use std::time::{Duration, Instant};

use assay_process::accounting::thread_cpu_ns;

use super::Source;

/// Largest share of a processor that the readings of these sources take. Three of them, of a process with ten
/// threads, are then read in each period of 100 ms, with a hundred threads every 0.3 s, with a thousand every
/// 2.3 s.
const SHARE: f64 = 0.002;

/// When they are read.
#[derive(Debug, Default)]
pub struct Rarely {
    /// Begin of the last reading; `None` before the first one.
    last: Option<Instant>,
    /// Processor time of the last reading.
    cost: Duration,
}

impl Rarely {
    /// Whether a reading begins now, at which each of them is read.
    pub fn is_due(&mut self, at: Instant) -> bool {
        let is_due =
            self.last.is_none_or(|last| at.saturating_duration_since(last).mul_f64(SHARE) >= self.cost);
        if is_due {
            *self = Self { last: Some(at), cost: Duration::ZERO };
        }
        is_due
    }

    /// Reads one of them.
    pub fn read(&mut self, source: &mut dyn Source, totals: &mut Vec<Option<u64>>) -> io::Result<()> {
        let begin_ns = thread_cpu_ns()?;
        source.read(totals)?;
        self.cost += Duration::from_nanos(thread_cpu_ns()?.saturating_sub(begin_ns));
        Ok(())
    }
}
