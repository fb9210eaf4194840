//! The kernel's raw monotonic clock: the truth that the counter is calibrated against, the fallback where
//! there is no trustworthy counter, and the watch of a run's time budget.

/// Nanoseconds of `CLOCK_MONOTONIC_RAW`, which no daemon slews.
///
/// Through the C library, because rustix looks for the vDSO by itself, and dies in valgrind, which hides it.
#[must_use]
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec. It cannot fail: every Linux since 2.6.28 has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut now) };
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}
