//! Sources that are dear because they read thread by thread: they are read as rarely as [`SHARE`] demands.

use std::io;
use std::time::{Duration, Instant};

use assay_process::accounting::thread_cpu_ns;
use assay_process::clock::now;

use super::Source;

/// Largest share of a processor that the readings of such a source take. The `schedstat` of ten threads is
/// then read in each period of 100 ms, that of a hundred every 0.4 s, and that of a thousand every 2.4 s.
const SHARE: f64 = 0.001;

/// A dear source of one measure.
#[derive(Debug)]
pub struct Rarely<S> {
    source: S,
    last: Instant,
    /// Processor time of the last reading.
    cost: Duration,
}

impl<S> Rarely<S> {
    /// Reads a source rarely, but soon for the first time.
    pub fn new(source: S) -> Self {
        Self { source, last: now(), cost: Duration::ZERO }
    }
}

impl<S: Source> Source for Rarely<S> {
    fn read(&mut self, totals: &mut Vec<Option<u64>>) -> io::Result<()> {
        if now().saturating_duration_since(self.last).mul_f64(SHARE) < self.cost {
            totals.push(None);
            return Ok(());
        }
        let begin_ns = thread_cpu_ns()?;
        self.source.read(totals)?;
        self.cost = Duration::from_nanos(thread_cpu_ns()?.saturating_sub(begin_ns));
        self.last = now();
        Ok(())
    }
}
