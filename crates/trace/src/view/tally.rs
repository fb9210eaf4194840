//! Calls and their cost together.

use crate::record::Call;

/// Calls and their cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls that returned.
    pub calls: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Their elapsed times together, ns.
    pub elapsed_ns: u64,
    /// Part of `elapsed_ns`: the kernel worked for them.
    pub kernel_ns: u64,
    /// Part of `elapsed_ns`: their threads were off the CPU.
    pub off_cpu_ns: u64,
}

impl Tally {
    pub(super) fn add(&mut self, call: &Call) {
        self.merge(&Self {
            calls: 1,
            bytes: call.bytes().unwrap_or(0),
            elapsed_ns: call.elapsed_ns,
            kernel_ns: call.kernel_ns(),
            off_cpu_ns: call.off_cpu_ns(),
        });
    }

    /// Adds the calls of another tally.
    pub fn merge(&mut self, other: &Self) {
        let Self { calls, bytes, elapsed_ns, kernel_ns, off_cpu_ns } = other;
        self.calls = self.calls.saturating_add(*calls);
        self.bytes = self.bytes.saturating_add(*bytes);
        self.elapsed_ns = self.elapsed_ns.saturating_add(*elapsed_ns);
        self.kernel_ns = self.kernel_ns.saturating_add(*kernel_ns);
        self.off_cpu_ns = self.off_cpu_ns.saturating_add(*off_cpu_ns);
    }

    /// Returns the rest of the elapsed time, ns: interrupts, except network softirqs.
    #[must_use]
    pub fn irq_ns(&self) -> u64 {
        self.elapsed_ns.saturating_sub(self.kernel_ns).saturating_sub(self.off_cpu_ns)
    }
}
