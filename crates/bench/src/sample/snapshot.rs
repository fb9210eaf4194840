//! Samples in a simulated machine, whose simulator counts what is executed: each batch is between two
//! snapshots of its counts.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use assay_quantity::Evidence;

use super::evidence::Witness;
use super::wire::Request;
use crate::benchmark::Benchmark;

/// The instruction that asks the simulator for a snapshot, whose number is in `rdi`: a `nop` otherwise.
pub const SNAPSHOT: [u8; 8] = *b"\x0f\x1f\x84\x00asy\x03";

/// Kind of evidence: the number of the snapshot before a batch. The one after it has the next number.
pub(crate) const BEFORE: &str = "snapshot before";

/// Numbers of snapshots that belong to one sample, more than it takes.
const PER_SAMPLE: u64 = 1 << 16;

/// The numbers of the snapshots of the sample at this position of the run.
pub(crate) fn numbers(position: usize) -> Range<u64> {
    let first = position as u64 * PER_SAMPLE;
    first..first + PER_SAMPLE
}

/// Asks for a snapshot before and after each batch.
#[derive(Debug)]
pub(super) struct Snapshots {
    next: u64,
}

impl Snapshots {
    /// Begins with this number.
    pub(super) fn from(first: u64) -> Self {
        Self { next: first }
    }

    fn take(&mut self) -> u64 {
        let number = self.next;
        // Simulated machines are x86-64.
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction does nothing; the assembler writes its eight bytes as a number.
        unsafe {
            std::arch::asm!(
                ".quad {}",
                const i64::from_le_bytes(SNAPSHOT),
                in("rdi") number,
                options(nostack, preserves_flags)
            );
        }
        self.next += 1;
        number
    }
}

impl Witness for Snapshots {
    fn before(&mut self) -> io::Result<()> {
        self.take();
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers of snapshots are far below 2^52")]
    fn after(&mut self, evidence: &mut Evidence) -> io::Result<()> {
        evidence.add(BEFORE, (self.take() - 1) as f64);
        Ok(())
    }
}

/// Returns the request for a sample of a benchmark in a machine with one processor, with a directory for this
/// sample and one for all. `position` is that of the sample in the run: no two have the same seed, or
/// snapshots of one number.
pub(crate) fn request(benchmark: &Benchmark, position: usize, directories: [&str; 2]) -> String {
    let [directory, shared_directory] = directories.map(PathBuf::from);
    let request = Request {
        primitive: benchmark.primitive.to_string(),
        seed: position as u64 + 1,
        cpu: 0,
        other_cpu: None,
        directory,
        shared_directory,
        peer: None,
        counted: None,
        snapshots: Some(numbers(position).start),
        counters: false,
        effective: None,
        ticks_per_ns: None,
        resolution_ns: 1.0,
    };
    serde_json::to_string(&request).expect("a request has a form in JSON")
}
