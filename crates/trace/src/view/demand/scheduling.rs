//! Which primitives the sleeps and wake-ups of a call count as.
//!
//! They count in addition to the call: the primitives of calls neither sleep nor wake a thread, except those
//! of processes and threads. Sleeper and waker count separately, each with its own processor time, because
//! either may be outside the trace.

use super::rules::On;
use crate::record::{Call, Wakeups};

/// One row of the mapping of sleeps and wake-ups.
#[derive(Debug, Clone, Copy)]
pub struct SchedulingRule {
    /// The sleep or wake-up.
    pub event: Scheduling,
    /// Kind of descriptor that the call used.
    pub on: On,
    /// The primitive.
    pub primitive: &'static str,
}

/// A sleep or a wake-up, by the state of the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduling {
    /// The thread slept, and continued on a CPU that had run another thread.
    Sleep,
    /// The thread slept, and continued on an idle CPU.
    IdleSleep,
    /// The thread slept, and continued on a CPU that had been idle for [`DEEP_IDLE_NS`].
    DeepSleep,
    /// The call woke a thread on its own CPU.
    Wakeup,
    /// The call woke a thread on another CPU.
    WakeupElsewhere,
    /// The call woke a thread on another CPU that had been idle for [`DEEP_IDLE_NS`].
    DeepWakeup,
}

/// Time after which an idle CPU is in a deeper state, ns. On x86, guests that poll before they stop a CPU do
/// so for this long by default (`guest_halt_poll_ns`), and so does the hypervisor KVM (`halt_poll_ns`).
pub const DEEP_IDLE_NS: u64 = 200_000;

const fn row(event: Scheduling, on: On, primitive: &'static str) -> SchedulingRule {
    SchedulingRule { event, on, primitive }
}

/// The mapping of sleeps and wake-ups. The first matching row applies.
pub const SCHEDULING: &[SchedulingRule] = &[
    row(Scheduling::Sleep, On::Any, "process.sleep{cpus=same}"),
    row(Scheduling::IdleSleep, On::Any, "process.sleep{cpus=different}"),
    row(Scheduling::DeepSleep, On::Any, "process.sleep_deep{cpus=different}"),
    row(Scheduling::Wakeup, On::Any, "process.wakeup{cpus=same}"),
    row(Scheduling::WakeupElsewhere, On::Tcp, "tcp.wakeup{cpus=different}"),
    row(Scheduling::WakeupElsewhere, On::Any, "process.wakeup{cpus=different}"),
    row(Scheduling::DeepWakeup, On::Tcp, "tcp.wakeup_deep{cpus=different}"),
    row(Scheduling::DeepWakeup, On::Any, "process.wakeup_deep{cpus=different}"),
];

/// The primitive of a voluntary context switch in a trace without [`Wakeups`], which does not contain what
/// the CPU did.
pub const CONTEXT_SWITCH: &str = "process.context_switch{processes=2,cpus=same}";

/// Counts the primitives of the sleeps and wake-ups of a call.
pub(super) fn scheduling(call: &Call, mut count: impl FnMut(&'static str, u64)) {
    let Some(wakeups) = call.wakeups else {
        if call.voluntary > 0 {
            count(CONTEXT_SWITCH, call.voluntary.into());
        }
        return;
    };
    for (event, times) in events(call, wakeups) {
        if times > 0 {
            count(primitive(event, call), times.into());
        }
    }
}

fn events(call: &Call, wakeups: Wakeups) -> [(Scheduling, u32); 5] {
    let deep = |total_ns: u64, count: u32| {
        total_ns.checked_div(count.into()).is_some_and(|mean_ns| mean_ns >= DEEP_IDLE_NS)
    };
    let Wakeups { idle_sleeps, idle_ns, woken_same, woken_busy, woken_idle, woken_idle_ns } = wakeups;
    let slept = if deep(idle_ns, idle_sleeps) { Scheduling::DeepSleep } else { Scheduling::IdleSleep };
    let woke =
        if deep(woken_idle_ns, woken_idle) { Scheduling::DeepWakeup } else { Scheduling::WakeupElsewhere };
    [
        (Scheduling::Sleep, call.voluntary.saturating_sub(idle_sleeps)),
        (slept, idle_sleeps),
        (Scheduling::Wakeup, woken_same),
        (Scheduling::WakeupElsewhere, woken_busy),
        (woke, woken_idle),
    ]
}

fn primitive(event: Scheduling, call: &Call) -> &'static str {
    let rule = SCHEDULING.iter().find(|rule| rule.event == event && rule.on.fits(call));
    rule.expect("a row of each event is on any descriptor").primitive
}
