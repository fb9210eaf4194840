//! The clock of deadlines and waiting times.

use std::time::{Duration, Instant};

/// Interval between two checks of a process that is about to stop or to end. Of 200 processes that were
/// killed, were stopped or had closed their output, nearly all were done after one or two intervals.
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
