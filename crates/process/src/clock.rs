//! The time of deadlines and of what was waited for.

use std::time::{Duration, Instant};

/// How long to wait before looking again at a process that is about to stop or to end. Of 200 processes that were
/// killed, stopped or had closed their output nearly all had done so after one or two of these.
pub const BRIEFLY: Duration = Duration::from_micros(50);

/// Now, on the monotonic clock.
#[expect(clippy::disallowed_methods, reason = "waiting for other processes is about real time")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// Nanoseconds from `start` to `end`; zero if `end` is not after `start`.
#[must_use]
pub fn elapsed_ns(start: Instant, end: Instant) -> u64 {
    u64::try_from(end.saturating_duration_since(start).as_nanos()).unwrap_or(u64::MAX)
}
