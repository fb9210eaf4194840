//! The one place of this crate that reads a clock. Deadlines, elapsed times and latencies all come from here;
//! the thread's own CPU time is read here too.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// Now, on the monotonic clock.
#[expect(
    clippy::disallowed_methods,
    reason = "loading a server is about real time; this is the crate's only reading of it"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// CPU time that the calling thread has used, in ns.
pub(crate) fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Nanoseconds from `start` to `end`; zero if `end` is not after `start`.
pub(crate) fn elapsed_ns(start: Instant, end: Instant) -> u64 {
    u64::try_from(end.saturating_duration_since(start).as_nanos()).unwrap_or(u64::MAX)
}
