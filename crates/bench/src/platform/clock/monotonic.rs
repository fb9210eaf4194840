//! The kernel's raw monotonic clock: the reference for the calibration of the counter, the fallback if there
//! is no usable counter, and the clock of a run's time budget.

/// Returns the nanoseconds of `CLOCK_MONOTONIC_RAW`, which no daemon slews.
///
/// Calls the C library, because rustix searches for the vDSO itself and crashes under valgrind, which hides
/// it.
#[must_use]
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec. It cannot fail: every Linux since 2.6.28 has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut now) };
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}
