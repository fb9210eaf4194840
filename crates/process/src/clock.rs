//! The time of deadlines and of what was waited for.

use std::time::Instant;

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
