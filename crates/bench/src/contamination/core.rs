//! Whether another hardware thread is at work on this processor's core.
//!
//! Two hardware threads share the execution units of a core, and a busy sibling makes everything take up to one and a
//! half times as long. Inside a virtual machine nobody tells: the sibling belongs to another guest, no time is
//! stolen, and the guest's own topology shows a core for each processor. But independent additions tell. A core
//! that is alone does as many of them in the time of one dependent addition as it has units for; beside a busy
//! sibling it does about half. The ratio does not depend on the clock rate, and asking takes a few microseconds.

use crate::clock::Clock;

/// Independent additions that are done in the time of one that waits for another: the width of the core as one
/// thread sees it.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Width(pub(crate) f64);

/// A width below this share of what the core has alone is a shared core. On a virtual machine where this was tried, the
/// median of 400 looks at each processor was below 0.6 of the widest (2.3 of 3.98 additions) while its guest was idle,
/// and a system call took 93 ns at best and 126 ns in the median.
const ALONE: f64 = 0.93;

impl Width {
    /// Whether a core that is so wide when it is alone was shared.
    pub(crate) fn is_shared(self, alone: Width) -> bool {
        self.0 < ALONE * alone.0
    }
}

/// Readings of which the best counts: an interrupt makes one of them long.
const READINGS: usize = 3;

/// The width at this moment, seen in some 3 us; `None` where the additions have not been written for the
/// architecture.
pub(crate) fn width(clock: &impl Clock) -> Option<Width> {
    let (mut dependent_ns, mut independent_ns) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..READINGS {
        let begin = clock.begin();
        dependent();
        let between = clock.end();
        independent();
        let end = clock.end();
        dependent_ns = dependent_ns.min(clock.elapsed_ns(begin, between));
        independent_ns = independent_ns.min(clock.elapsed_ns(between, end));
    }
    let is_written = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
    // Four times as many additions, so that both stretches are about as long, and the clock's own cost drops out of
    // the ratio.
    (is_written && independent_ns > 0.0).then_some(Width(TIMES * dependent_ns / independent_ns))
}

/// Independent additions for each dependent one.
const TIMES: f64 = 4.0;

/// Rounds of 64 dependent or 256 independent additions.
const ROUNDS: usize = 16;

#[inline(never)]
fn dependent() {
    let mut value = 0_u64;
    for _ in 0..ROUNDS {
        // SAFETY: adds to one register.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(".rept 64", "add {v}, 1", ".endr", v = inout(reg) value, options(nomem, nostack));
        }
        // SAFETY: adds to one register.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!(".rept 64", "add {v}, {v}, #1", ".endr", v = inout(reg) value, options(nomem, nostack));
        }
    }
    std::hint::black_box(value);
}

#[inline(never)]
fn independent() {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = [0_u64; 8];
    for _ in 0..ROUNDS {
        // SAFETY: adds to eight registers.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(
                ".rept 32",
                "add {a}, 1", "add {b}, 1", "add {c}, 1", "add {d}, 1",
                "add {e}, 1", "add {f}, 1", "add {g}, 1", "add {h}, 1",
                ".endr",
                a = inout(reg) a, b = inout(reg) b, c = inout(reg) c, d = inout(reg) d,
                e = inout(reg) e, f = inout(reg) f, g = inout(reg) g, h = inout(reg) h,
                options(nomem, nostack)
            );
        }
        // SAFETY: adds to eight registers.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!(
                ".rept 32",
                "add {a}, {a}, #1", "add {b}, {b}, #1", "add {c}, {c}, #1", "add {d}, {d}, #1",
                "add {e}, {e}, #1", "add {f}, {f}, #1", "add {g}, {g}, #1", "add {h}, {h}, #1",
                ".endr",
                a = inout(reg) a, b = inout(reg) b, c = inout(reg) c, d = inout(reg) d,
                e = inout(reg) e, f = inout(reg) f, g = inout(reg) g, h = inout(reg) h,
                options(nomem, nostack)
            );
        }
    }
    std::hint::black_box([a, b, c, d, e, f, g, h]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Calibration, calibrate};

    #[test]
    fn a_core_does_more_independent_additions_than_dependent_ones() {
        let Calibration { source, .. } = calibrate();
        // The best of many moments: some of them alone, whoever else is there.
        let best = (0..2000).filter_map(|_| width(&source)).map(|width| width.0).fold(0.0, f64::max);
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert!(best > 1.2, "{best}");
        }
    }

    #[test]
    fn half_of_its_width_is_a_shared_core_and_its_own_width_is_not() {
        let alone = Width(4.0);
        assert!(Width(2.2).is_shared(alone));
        assert!(!Width(3.9).is_shared(alone) && !Width(4.1).is_shared(alone));
    }
}
