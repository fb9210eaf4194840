//! The states of threads: how long they are in each.

use crate::record::Call;

/// Time of threads, by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateTimes {
    /// The kernel worked for a call, ns: with network softirqs.
    pub working_ns: u64,
    /// Off the CPU and not runnable, ns.
    pub blocked_ns: u64,
    /// Runnable, but another task had the CPU, ns.
    pub waiting_ns: u64,
    /// Interrupts during a call, ns: except network softirqs.
    pub interrupts_ns: u64,
}

impl StateTimes {
    /// Returns the parts of the elapsed time of a call. Of one from strace, everything is `working_ns`.
    pub(super) fn of(call: &Call) -> Self {
        let blocked_ns = call.blocked_ns.min(call.elapsed_ns);
        Self {
            working_ns: call.kernel_ns(),
            blocked_ns,
            waiting_ns: call.off_cpu_ns() - blocked_ns,
            interrupts_ns: call.irq_ns.min(call.on_cpu_ns()),
        }
    }

    /// Returns the times of a thread off the CPU outside calls.
    pub(super) fn off_cpu(blocked_ns: u64, waiting_ns: u64) -> Self {
        Self { blocked_ns, waiting_ns, ..Self::default() }
    }

    /// Adds other times.
    pub(super) fn add(&mut self, other: &Self) {
        let Self { working_ns, blocked_ns, waiting_ns, interrupts_ns } = other;
        self.working_ns = self.working_ns.saturating_add(*working_ns);
        self.blocked_ns = self.blocked_ns.saturating_add(*blocked_ns);
        self.waiting_ns = self.waiting_ns.saturating_add(*waiting_ns);
        self.interrupts_ns = self.interrupts_ns.saturating_add(*interrupts_ns);
    }

    /// Returns the times with `part` applied to each.
    pub(super) fn map(&self, part: impl Fn(u64) -> u64) -> Self {
        let Self { working_ns, blocked_ns, waiting_ns, interrupts_ns } = *self;
        Self {
            working_ns: part(working_ns),
            blocked_ns: part(blocked_ns),
            waiting_ns: part(waiting_ns),
            interrupts_ns: part(interrupts_ns),
        }
    }

    /// Returns the times less others, none of which is longer.
    pub(super) fn less(&self, others: &Self) -> Self {
        Self {
            working_ns: self.working_ns - others.working_ns,
            blocked_ns: self.blocked_ns - others.blocked_ns,
            waiting_ns: self.waiting_ns - others.waiting_ns,
            interrupts_ns: self.interrupts_ns - others.interrupts_ns,
        }
    }
}
