//! Detects whether another hardware thread is active on this processor's core.
//!
//! Two hardware threads share the execution units of a core, and with a busy sibling everything takes up to
//! one and a half times as long. A virtual machine has no direct indication of this: the sibling belongs to
//! another guest, no time is stolen, and the guest's topology shows a core for each processor. Independent
//! additions reveal it. In the time of one dependent addition, a core without an active sibling executes as
//! many independent additions as it has units for; with a busy sibling it executes about half. The ratio does
//! not depend on the clock rate, and measuring it takes a few microseconds.

use std::hint::black_box;
use std::io;

use assay_quantity::Evidence;
use assay_quantity::evidence::{CORE_WIDTH, CYCLE_NS};

use super::witness::{Opened, Witness};
use crate::benchmark::Participants;
use crate::platform::clock::{Clock, Source};

/// Times the additions after each batch.
#[derive(Debug)]
struct CoreWidth {
    clock: Source,
}

/// There is none if the participants run on several processors: they may run on the core's other hardware
/// thread.
pub(super) fn witness(clock: Source, participants: &Participants) -> Opened {
    Ok(participants.are_on_one_cpu().then(|| Box::new(CoreWidth { clock }) as Box<dyn Witness>))
}

impl Witness for CoreWidth {
    fn before(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn after(&mut self, evidence: &mut Evidence) -> io::Result<()> {
        if let Some(Look { width, cycle_ns }) = look(&self.clock) {
            evidence.add(CORE_WIDTH, width);
            evidence.add(CYCLE_NS, cycle_ns);
        }
        Ok(())
    }
}

/// The state of the core at one point in time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Look {
    /// Independent additions executed in the time of one dependent addition: the width of the core available
    /// to one thread.
    width: f64,
    /// One cycle of the core's clock, ns: a dependent addition.
    cycle_ns: f64,
}

/// Number of timings, the shortest of which counts: an interrupt makes one of them long.
const TIMINGS: usize = 3;

/// Measures the core for about 3 us; `None` if the additions are not implemented for the architecture.
fn look(clock: &impl Clock) -> Option<Look> {
    let (mut nothing_ns, mut dependent_ns, mut independent_ns) =
        (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    let least = |least: &mut f64, work: &dyn Fn()| {
        let begin = clock.begin();
        work();
        *least = least.min(clock.elapsed_ns(begin, clock.end()));
    };
    for _ in 0..TIMINGS {
        least(&mut nothing_ns, &|| ());
        least(&mut dependent_ns, &dependent);
        least(&mut independent_ns, &independent);
    }
    let (dependent_ns, independent_ns) = (dependent_ns - nothing_ns, independent_ns - nothing_ns);
    let is_written = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
    (is_written && independent_ns > 0.0)
        .then(|| Look { width: TIMES * dependent_ns / independent_ns, cycle_ns: dependent_ns / DEPENDENT })
}

/// Independent additions for each dependent one.
const TIMES: f64 = 4.0;

/// Rounds of 64 dependent or 256 independent additions. The compiler must not unroll them: if the code
/// exceeds the cache of decoded instructions, they measure the decoder.
const ROUNDS: usize = 16;

/// Dependent additions of a timing.
const DEPENDENT: f64 = 1024.0;

/// The addend is in a register, because newer processors add small constants without an execution unit.
#[inline(never)]
fn dependent() {
    let mut value = 0_u64;
    for _ in 0..black_box(ROUNDS) {
        // SAFETY: adds to one register.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(
                ".rept 64", "add {v}, {one}", ".endr",
                v = inout(reg) value, one = in(reg) 1_u64,
                options(nomem, nostack)
            );
        }
        // SAFETY: adds to one register.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!(".rept 64", "add {v}, {v}, #1", ".endr", v = inout(reg) value, options(nomem, nostack));
        }
    }
    black_box(value);
}

#[inline(never)]
fn independent() {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = [0_u64; 8];
    for _ in 0..black_box(ROUNDS) {
        // SAFETY: adds to eight registers.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(
                ".rept 32",
                "add {a}, {one}", "add {b}, {one}", "add {c}, {one}", "add {d}, {one}",
                "add {e}, {one}", "add {f}, {one}", "add {g}, {one}", "add {h}, {one}",
                ".endr",
                a = inout(reg) a, b = inout(reg) b, c = inout(reg) c, d = inout(reg) d,
                e = inout(reg) e, f = inout(reg) f, g = inout(reg) g, h = inout(reg) h,
                one = in(reg) 1_u64,
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
    black_box([a, b, c, d, e, f, g, h]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::clock::{Calibration, calibrate};

    #[test]
    fn a_core_does_more_independent_additions_than_dependent_ones() {
        let Calibration { source, .. } = calibrate();
        let mut witness = CoreWidth { clock: source };
        let mut evidence = Evidence::default();
        // Many readings, so that no other hardware thread is active during some of them.
        (0..2000).for_each(|_| witness.after(&mut evidence).unwrap());
        let widths = evidence.of(CORE_WIDTH);
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert!(widths.iter().any(|width| *width > 1.2), "{widths:?}");
            // No processor runs at more than 10 GHz.
            let cycles = evidence.of(CYCLE_NS);
            assert!(cycles.len() == 2000 && cycles.iter().all(|cycle_ns| *cycle_ns > 0.1));
        } else {
            assert_eq!(widths, [0.0; 0]);
        }
    }
}
