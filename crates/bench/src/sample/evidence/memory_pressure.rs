//! The share of the time in which some task of the machine waited for memory.

use std::io;

use assay_process::accounting::memory_stalled_ns;
use assay_quantity::Evidence;
use assay_quantity::evidence::MEMORY_PRESSURE;

use super::witness::{Reading, Witness};
use crate::benchmark::Participants;

#[derive(Debug)]
struct MemoryPressure {
    /// `None` if the kernel does not count it.
    before: Option<Reading>,
}

pub(super) fn witness(_: &Participants) -> Box<dyn Witness> {
    Box::new(MemoryPressure { before: None })
}

impl Witness for MemoryPressure {
    fn before(&mut self) -> io::Result<()> {
        self.before = memory_stalled_ns().map(Reading::now);
        Ok(())
    }

    fn after(&mut self, evidence: &mut Evidence) -> io::Result<()> {
        if let (Some(before), Some(stalled_ns)) = (self.before, memory_stalled_ns()) {
            evidence.add(MEMORY_PRESSURE, Reading::now(stalled_ns).share_since(before));
        }
        Ok(())
    }
}
