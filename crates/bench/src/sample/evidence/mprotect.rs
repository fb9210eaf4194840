//! Detects whether the processor is slow to change address translations.
//!
//! On a tested virtual machine there are periods of some tenths of a second in which a change of a page's
//! protection takes 3.3 to 3.8 us instead of 2.4 to 2.8 us, and each switch from one address space to another
//! 500 ns more, with no other active hardware thread on the core, the same clock, and the same events in the
//! kernel. In these periods a system call without a switch, a page fault, and loads from every level of the
//! cache have their usual cost (34 processes in such periods, 394 in others). A process that does not idle
//! keeps the state in which it started. The cause cannot be observed inside the virtual machine; its presence
//! can be detected by timing such a change.

use std::hint::black_box;
use std::{io, ptr};

use assay_quantity::Evidence;
use assay_quantity::evidence::MPROTECT_NS;
use rustix::io::Result;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::witness::Witness;
use crate::platform::clock::{Clock, Source};
use crate::platform::layout::PAGE;

/// Times a change before the benchmark is prepared: its threads and mappings would make the change longer.
#[derive(Debug)]
struct Mprotect {
    clock: Source,
    before_ns: Option<f64>,
}

pub(super) fn witness(clock: Source) -> Box<dyn Witness> {
    Box::new(Mprotect { clock, before_ns: None })
}

impl Witness for Mprotect {
    fn before(&mut self) -> io::Result<()> {
        self.before_ns = look(&self.clock);
        Ok(())
    }

    fn after(&mut self, evidence: &mut Evidence) -> io::Result<()> {
        if let Some(ns) = self.before_ns {
            evidence.add(MPROTECT_NS, ns);
        }
        Ok(())
    }
}

/// Number of timings, the shortest of which counts: an interrupt makes one of them long, and the first few
/// are cold.
const TIMINGS: usize = 16;

/// Returns the time to write-protect a page, make it writable again and write to it, ns. Takes about 80 us.
/// `None` if one of the calls fails.
fn look(clock: &impl Clock) -> Option<f64> {
    let page = Page::new().ok()?;
    let mut least_ns = f64::INFINITY;
    for _ in 0..TIMINGS {
        let begin = clock.begin();
        page.change().ok()?;
        least_ns = least_ns.min(clock.elapsed_ns(begin, clock.end()));
    }
    (least_ns > 0.0).then_some(least_ns)
}

/// A page between two inaccessible pages, so that the kernel never splits or merges its mapping.
struct Page {
    mapping: *mut u8,
}

impl Page {
    fn new() -> Result<Self> {
        // SAFETY: a new mapping without references to it.
        let mapping =
            unsafe { mmap_anonymous(ptr::null_mut(), 3 * PAGE, ProtFlags::empty(), MapFlags::PRIVATE) }?;
        Ok(Self { mapping: mapping.cast() })
    }

    fn change(&self) -> Result<()> {
        let page = self.mapping.wrapping_add(PAGE);
        let writable = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the page is ours, and is writable when it is written to.
        unsafe {
            mprotect(page.cast(), PAGE, MprotectFlags::READ)?;
            mprotect(page.cast(), PAGE, writable)?;
            black_box(page).write_volatile(1);
        }
        Ok(())
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no references to it remain.
        let _ = unsafe { munmap(self.mapping.cast(), 3 * PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::clock::{Calibration, calibrate};

    #[test]
    fn a_change_takes_longer_than_a_reading_of_the_clock_and_leaves_no_mapping() {
        let Calibration { source, resolution_ns, .. } = calibrate();
        let untouchable = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().filter(|line| line.contains("---p") && line.trim_end().ends_with(" 0")).count()
        };
        let before = untouchable();
        for _ in 0..20 {
            assert!(look(&source).unwrap() > resolution_ns);
        }
        assert!(untouchable() < before + 20);
    }
}
