//! The kernel's raw monotonic clock: the truth that the counter is calibrated against, the fallback where
//! there is no trustworthy counter, and the watch of a run's time budget.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC_RAW`, which no daemon slews.
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::MonotonicRaw);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}
