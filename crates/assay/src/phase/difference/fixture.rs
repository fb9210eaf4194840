//! Traces for tests.

use assay_trace::record::{Call, Event, Record};
use assay_trace::syscall;
use assay_trace::view::View;
use assay_trace::view::outcomes::{CountOutcomes, Outcomes};

/// Calls of one name: their number, their result, and the time of each, with its part off the CPU.
pub type Made = (&'static str, u64, i64, u64, u64);

/// Returns a trace of these calls.
pub fn trace(calls: &[Made]) -> Outcomes {
    let mut view = CountOutcomes::default();
    for (name, number_of_calls, result, elapsed_ns, blocked_ns) in calls {
        let number = syscall::number(name).unwrap();
        let call = Call {
            number,
            result: *result,
            elapsed_ns: *elapsed_ns,
            blocked_ns: *blocked_ns,
            ..Call::default()
        };
        let event = Event::Call(call);
        let record = Record { begin_ns: 0, process: 1, thread: 1, cpu: 0, lost_before: 0, event };
        (0..*number_of_calls).for_each(|_| view.record(&record));
    }
    view.finish()
}

/// Six kinds of calls that all take this many times a microsecond.
pub fn usual(slowness: u64) -> Vec<Made> {
    ["read", "write", "openat", "close", "mmap", "brk"]
        .map(|name| (name, 10, 7, 1_000 * slowness, 0))
        .to_vec()
}
