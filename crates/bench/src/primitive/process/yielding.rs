//! `sched_yield` between two processes: the shortest path from one to the other, without communication and
//! sleep.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use assay_quantity::{Key, PrimitiveId};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::check;
use crate::platform::partner::Partner;
use crate::primitive::kit::limit;
use crate::primitive::kit::placement::{partner_cpu, sharing};
use crate::primitive::kit::shared::Shared;
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    quick: &["process.yield{processes=2,cpus=same}"],
    full: &[],
    cost: Per::Operation,
    calls: &["sched_yield"],
    about: "`sched_yield` to another process that yields back, until this process runs again: two switches",
    source: "own: the shortest path from one process to another",
    prepare: yield_to_another,
}];

/// Prepares `sched_yield` on the processor of a partner that does nothing else.
fn yield_to_another(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    limit::count(id, Key::Processes, 2..=2)?;
    let yields = Shared::new(AtomicU64::new(0))?;
    let cpu = partner_cpu(id, setting)?;
    let partner = Partner::fork(cpu, || {
        loop {
            yields.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the call takes no arguments.
            unsafe { libc::sched_yield() };
        }
    })?;
    let sharing = sharing(setting, cpu, &partner);
    let operation = Steps::of(Yield { yields, before: 0, _partner: partner });
    Ok(Prepared { operation: Box::new(operation), baseline: None, sharing })
}

struct Yield {
    yields: Shared<AtomicU64>,
    before: u64,
    _partner: Partner,
}

impl Step for Yield {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.before = self.yields.load(Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        // SAFETY: the call takes no arguments.
        check("sched_yield", unsafe { libc::sched_yield() }).map(drop)
    }

    /// A scheduler does not have to switch at every yield. If it skipped some, the figure would be too low.
    /// One turn may still be in progress when the batch ends.
    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let answered = self.yields.load(Ordering::Relaxed) - self.before;
        if answered + 1 + operations / 100 >= operations {
            return Ok(());
        }
        Err(io::Error::other(format!("after {operations} yields the other process has run {answered} times")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::Operation;

    #[test]
    fn a_scheduler_that_does_not_switch_is_an_error() {
        let yields = Shared::new(AtomicU64::new(7)).unwrap();
        let partner = Partner::fork(assay_process::cpus::allowed().unwrap()[0], || 0).unwrap();
        let mut alone = Steps::of(Yield { yields, before: 0, _partner: partner });
        alone.arm(500).unwrap();
        alone.run(500).unwrap();
        let error = alone.disarm(500).unwrap_err().to_string();
        assert!(error.contains("after 500 yields the other process has run 0 times"), "{error}");
    }
}
