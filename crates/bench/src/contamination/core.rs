//! Whether another hardware thread is at work on this processor's core.
//!
//! Two hardware threads share the execution units of a core, and a busy sibling makes everything take up to one and a
//! half times as long. Inside a virtual machine nobody tells: the sibling belongs to another guest, no time is
//! stolen, and the guest's own topology shows a core for each processor. But independent additions tell. A core
//! that is alone does as many of them in the time of one dependent addition as it has units for; beside a busy
//! sibling it does about half. The ratio does not depend on the clock rate, and asking takes a few microseconds.

use std::hint::black_box;

use assay_quantity::Contamination;

use crate::clock::{Clock, Source};

/// Independent additions that are done in the time of one that waits for another: the width of the core as one
/// thread sees it.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Width(pub(crate) f64);

/// A width below this share of what the core has alone is a shared core. On a virtual machine where this was tried, of
/// 40,000 looks from an idle guest a fifth lay between 3.9 and 4.0 additions and the others all the way down to 2.0; a
/// system call took 92 to 94 ns in processes that saw no other width than the first, and up to 150 ns in the others.
const ALONE: f64 = 0.97;

impl Width {
    /// Whether a core that is so wide when it is alone was shared.
    pub(crate) fn is_shared(self, alone: Width) -> bool {
        self.0 < ALONE * alone.0
    }
}

/// Readings of which the best counts: an interrupt makes one of them long.
const READINGS: usize = 3;

/// The core at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Look {
    pub(crate) width: Width,
    /// One cycle of the core's clock, ns: a dependent addition.
    pub(crate) cycle_ns: f64,
}

/// Looks at the core for some 3 us; `None` where the additions have not been written for the architecture.
pub(crate) fn look(clock: &impl Clock) -> Option<Look> {
    let (mut nothing_ns, mut dependent_ns, mut independent_ns) =
        (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    let least = |least: &mut f64, work: &dyn Fn()| {
        let begin = clock.begin();
        work();
        *least = least.min(clock.elapsed_ns(begin, clock.end()));
    };
    for _ in 0..READINGS {
        least(&mut nothing_ns, &|| ());
        least(&mut dependent_ns, &dependent);
        least(&mut independent_ns, &independent);
    }
    let (dependent_ns, independent_ns) = (dependent_ns - nothing_ns, independent_ns - nothing_ns);
    let is_written = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
    (is_written && independent_ns > 0.0).then(|| Look {
        width: Width(TIMES * dependent_ns / independent_ns),
        cycle_ns: dependent_ns / DEPENDENT,
    })
}

/// The width of a core that is alone, as far as the moments of one stretch of time tell: the widest but for one in a
/// hundred, because a look that the clock changed in may come out wider than the core is. 0 where nothing was seen.
pub(crate) fn alone(mut widths: Vec<f64>) -> f64 {
    widths.sort_by(f64::total_cmp);
    widths.get((widths.len() * 99 / 100).min(widths.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// Independent additions for each dependent one.
const TIMES: f64 = 4.0;

/// The looks of one sample.
#[derive(Debug)]
pub(super) struct Looks {
    clock: Source,
    alone: Width,
    /// Whether the batch that is under way began on a shared core.
    began_shared: bool,
    /// One after each batch.
    after: Vec<Look>,
    /// Batches that began or ended on a shared core.
    shared: u32,
}

impl Looks {
    pub(super) fn new(clock: Source, alone: f64) -> Self {
        Self { clock, alone: Width(alone), began_shared: false, after: Vec::new(), shared: 0 }
    }

    pub(super) fn batch_begins(&mut self) {
        self.began_shared = look(&self.clock).is_some_and(|look| look.width.is_shared(self.alone));
    }

    pub(super) fn batch_ended(&mut self) {
        let Some(look) = look(&self.clock) else { return };
        self.after.push(look);
        self.shared += u32::from(self.began_shared || look.width.is_shared(self.alone));
    }

    pub(super) fn tell(&self, sum: &mut Contamination) {
        let batches = u32::try_from(self.after.len()).unwrap_or(u32::MAX).max(1);
        sum.shared = f64::from(self.shared) / f64::from(batches);
        sum.core_width = middle(self.after.iter().map(|look| look.width.0));
        sum.cycle_ns = middle(self.after.iter().map(|look| look.cycle_ns));
    }
}

/// The (upper) median; 0 of nothing.
fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Rounds of 64 dependent or 256 independent additions. The compiler must not unroll them: decoded from more code than
/// the cache of decoded instructions holds, they would measure the decoder.
const ROUNDS: usize = 16;

/// Dependent additions of a reading.
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
    use crate::clock::{Calibration, calibrate};

    #[test]
    fn a_core_does_more_independent_additions_than_dependent_ones() {
        let Calibration { source, .. } = calibrate();
        // Of many moments: some of them alone, whoever else is there.
        let looks: Vec<Look> = (0..2000).filter_map(|_| look(&source)).collect();
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            let width = alone(looks.iter().map(|look| look.width.0).collect());
            assert!(width > 1.2, "{width}");
            // No processor runs at more than 10 GHz.
            assert!(looks.iter().all(|look| look.cycle_ns > 0.1));
        }
    }

    #[test]
    fn one_look_that_came_out_too_wide_does_not_make_every_other_one_a_shared_core() {
        let mut widths = vec![3.97; 150];
        widths.push(4.4);
        assert_eq!(format!("{} {} {}", alone(widths), alone(vec![2.5]), alone(Vec::new())), "3.97 2.5 0");
    }

    #[test]
    fn a_batch_on_a_core_narrower_than_alone_is_shared_and_every_batch_is_looked_at() {
        let Calibration { source, .. } = calibrate();
        // No core is that wide, and none is narrower than nothing.
        for (alone, shared) in [(1000.0, 1.0), (0.0, 0.0)] {
            let mut looks = Looks::new(source, alone);
            for _ in 0..3 {
                looks.batch_begins();
                looks.batch_ended();
            }
            let mut seen = Contamination::default();
            looks.tell(&mut seen);
            if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
                assert!((seen.shared - shared).abs() < 1e-12 && seen.core_width > 0.0, "{seen:?}");
            }
        }
    }

    #[test]
    fn half_of_its_width_is_a_shared_core_and_its_own_width_is_not() {
        let alone = Width(4.0);
        assert!(Width(2.2).is_shared(alone) && Width(3.7).is_shared(alone));
        assert!(!Width(3.9).is_shared(alone) && !Width(4.1).is_shared(alone));
    }
}
