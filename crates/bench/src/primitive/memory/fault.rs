//! Page faults of anonymous memory: the first write to a page, the first read, a huge page, and the first
//! write after a fork, which copies the page if the child still shares it.
//!
//! lmbench's own page-fault figure divides by pages, although one fault maps many pages. Here an operation is
//! one touch that must be one fault: the kernel's count of minor faults is compared with the touches after
//! each batch.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use assay_process::accounting::{Who, usage};
use assay_quantity::PrimitiveId;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::check;
use crate::platform::layout::PAGE;
use crate::platform::partner::Partner;
use crate::primitive::kit::region::Region;
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["page_fault.anonymous"],
        full: &[],
        cost: Per::Operation,
        calls: &[],
        about: "first write to a page of anonymous memory, without huge pages; its frame was freed recently \
                and is still in the second-level cache",
        source: "lmbench 3, lat_pagefault, with the faults counted",
        prepare: anonymous,
    },
    Row {
        quick: &["page_fault.anonymous{pages=huge}"],
        full: &[],
        cost: Per::Operation,
        calls: &[],
        about: "first write to a huge page of anonymous memory; `smaps_rollup` must show the huge page",
        source: "own: the cost to large heaps with huge pages enabled",
        prepare: huge,
    },
    Row {
        quick: &["page_fault.zero"],
        full: &[],
        cost: Per::Operation,
        calls: &[],
        about: "first read of a page of anonymous memory, which maps the page of zeroes",
        source: "own: sparse arrays",
        prepare: zero,
    },
    Row {
        quick: &["page_fault.copy_on_write"],
        full: &[],
        cost: Per::Operation,
        calls: &[],
        about: "first write after a `fork` to a page that the sleeping child shares, which copies the page; \
                the child's page must keep its contents",
        source: "own: the cost to servers that save their memory with a fork",
        prepare: copy_on_write,
    },
    Row {
        quick: &["page_fault.reuse"],
        full: &[],
        cost: Per::Operation,
        calls: &[],
        about: "first write after a `fork` to a page that is no longer shared, because the child has ended: it \
                is made writable, not copied",
        source: "own: the cost to a parent of a fork after its child has ended",
        prepare: reuse,
    },
];

/// Access to readable and writable memory.
const ACCESS: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Pages of the longest batch: 64 MiB of pages of 4 KiB.
const PAGES_MAX: u64 = 16_384;

/// Returns the number of minor faults of this thread so far.
pub(super) fn minor_faults() -> io::Result<u64> {
    Ok(usage(Who::Thread)?.minor_faults)
}

/// Checks that every touch since then caused a fault. Reading the count may itself cause one or two faults.
pub(super) fn check_faults(before: u64, touches: u64) -> io::Result<()> {
    let faults = minor_faults()?.saturating_sub(before);
    if faults >= touches {
        return Ok(());
    }
    Err(io::Error::other(format!("{touches} pages were touched, but {faults} faults were counted")))
}

pub(super) fn page_bytes() -> usize {
    rustix::param::page_size().max(PAGE)
}

/// The kind of the first access to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touch {
    Read,
    Write,
}

/// One first write to a page.
///
/// The kernel allocates the most recently freed frames first, and clears them. The frames of a batch are
/// those of the previous batch, and the time to clear them depends on whether they are still in a cache. A
/// batch therefore has no more frames than half of the second-level cache holds. With longer batches the cost
/// depended on their length, and on the use of the last cache by other guests.
fn anonymous(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Steps::of(Anonymous::by(Touch::Write, pages_in_l2(setting)))))
}

/// Returns the number of pages in half of the second-level cache.
pub(super) fn pages_in_l2(setting: &Setting) -> u64 {
    let pages = setting.caches.l2.map(|l2| l2.bytes() / 2 / page_bytes() as u64);
    pages.map_or(PAGES_MAX, |pages| pages.clamp(2, PAGES_MAX))
}

/// One first read of a page.
fn zero(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Steps::of(Anonymous::by(Touch::Read, PAGES_MAX))))
}

/// Pages of new memory, touched one after another.
struct Anonymous {
    touch: Touch,
    /// Pages of the longest batch.
    most: u64,
    page: usize,
    /// The memory of the batch.
    region: Option<Region>,
    next: *mut u8,
    faults: u64,
}

impl Anonymous {
    fn by(touch: Touch, most: u64) -> Self {
        Self { touch, most, page: page_bytes(), region: None, next: std::ptr::null_mut(), faults: 0 }
    }
}

impl Step for Anonymous {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        let pages = usize::try_from(operations).map_err(io::Error::other)?;
        let region = Region::new(pages * self.page, ACCESS)?;
        self.next = region.start;
        self.region = Some(region);
        self.faults = minor_faults()?;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        // SAFETY: `arm` has mapped this number of writable pages for this batch.
        unsafe {
            match self.touch {
                Touch::Write => self.next.write_volatile(1),
                Touch::Read => {
                    self.next.read_volatile();
                }
            }
            self.next = self.next.add(self.page);
        }
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let checked = check_faults(self.faults, operations);
        self.region = None;
        checked
    }

    fn max_batch(&self) -> u64 {
        self.most
    }
}

/// One first write to a huge page.
fn huge(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let setting = |file: &str| fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{file}"));
    let bytes = setting("hpage_pmd_size").ok().and_then(|size| size.trim().parse::<usize>().ok());
    let mode = setting("enabled").unwrap_or_default();
    let (Some(page), false) = (bytes, mode.contains("[never]")) else {
        return Err(Refusal::Unavailable(
            "transparent huge pages are off; write 'madvise' to /sys/kernel/mm/transparent_hugepage/enabled"
                .to_owned(),
        ));
    };
    let mut huge = Huge { page, region: None, next: std::ptr::null_mut(), huge_bytes: 0, faults: 0 };
    huge.arm(1)?;
    huge.step()?;
    huge.disarm(1).map_err(|_| {
        Refusal::Unavailable(
            "the kernel could not allocate a huge page; free memory or compact it".to_owned(),
        )
    })?;
    Ok(Prepared::alone(Steps::of(huge)))
}

/// Memory of the longest batch of huge pages.
const HUGE_BYTES_MAX: usize = 256 << 20;

/// Huge pages touched one after another.
struct Huge {
    page: usize,
    /// The memory of the batch.
    region: Option<Region>,
    next: *mut u8,
    /// Bytes of this process in huge pages before the batch.
    huge_bytes: u64,
    faults: u64,
}

impl Step for Huge {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        let pages = usize::try_from(operations).map_err(io::Error::other)?;
        // One additional page, because huge pages begin at multiples of their size.
        let bytes = (pages + 1) * self.page;
        let region = Region::new(bytes, ACCESS)?;
        // SAFETY: advice about exactly the new mapping.
        let advised = unsafe { libc::madvise(region.start.cast(), bytes, libc::MADV_HUGEPAGE) };
        check("madvise", advised)?;
        self.next = region.start.wrapping_add(region.start.align_offset(self.page));
        self.region = Some(region);
        self.huge_bytes = in_huge_pages()?;
        self.faults = minor_faults()?;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        // SAFETY: `arm` has mapped this number of writable huge pages for this batch.
        unsafe { self.next.write_volatile(1) };
        self.next = self.next.wrapping_add(self.page);
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        check_faults(self.faults, operations)?;
        let (due, now) = (operations * self.page as u64, in_huge_pages()?);
        self.region = None;
        if now.saturating_sub(self.huge_bytes) >= due {
            Ok(())
        } else {
            Err(io::Error::other(format!("{operations} huge pages were touched, but fewer exist")))
        }
    }

    fn max_batch(&self) -> u64 {
        (HUGE_BYTES_MAX / self.page).max(2) as u64
    }
}

/// Returns the number of bytes of this process's anonymous memory that are in huge pages.
fn in_huge_pages() -> io::Result<u64> {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup")?;
    huge_kib(&rollup)
        .map(|kib| kib * 1024)
        .ok_or_else(|| io::Error::other("/proc/self/smaps_rollup contains no AnonHugePages"))
}

fn huge_kib(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Pages of the longest batch of copies: 16 MiB, whose page tables a fork copies in a fraction of a
/// millisecond.
const COPIES_MAX: u64 = 4096;

/// One first write to a page that a child shares.
fn copy_on_write(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let (page, next) = (page_bytes(), std::ptr::null_mut());
    Ok(Prepared::alone(Steps::of(CopyOnWrite { cpu: setting.cpu, page, next, shared: None, faults: 0 })))
}

struct CopyOnWrite {
    cpu: usize,
    page: usize,
    next: *mut u8,
    /// The memory of the batch, and the child that shares it.
    shared: Option<(Region, Child)>,
    faults: u64,
}

/// The contents of the pages that parent and child share, and the value that the parent writes.
const SHARED: u8 = 1;
const WRITTEN: u8 = 2;

/// A forked process that sleeps, and finally reports whether its pages are unchanged.
struct Child {
    _partner: Partner,
    /// When it is closed, the child checks its pages.
    ask: Option<OwnedFd>,
    answer: OwnedFd,
}

impl Child {
    fn fork(cpu: usize, region: &Region, page: usize) -> io::Result<Self> {
        let (wait, ask) = pipe_with(PipeFlags::CLOEXEC)?;
        let (answer, reply) = pipe_with(PipeFlags::CLOEXEC)?;
        let (start, bytes) = (region.start, region.bytes);
        let closed_in_child = std::cell::Cell::new(Some(ask));
        let partner = Partner::fork(cpu, || {
            // The child's copy of the writing end would keep the pipe open.
            drop(closed_in_child.take());
            let asked = rustix::io::write(&reply, &[0]).is_ok() && rustix::io::read(&wait, &mut [0]) == Ok(0);
            // SAFETY: the child has a copy of the whole mapping.
            let same = (0..bytes).step_by(page).all(|at| unsafe { start.add(at).read_volatile() } == SHARED);
            i32::from(!(asked && same && rustix::io::write(&reply, &[SHARED]).is_ok()))
        })?;
        let child = Self { _partner: partner, ask: closed_in_child.take(), answer };
        // The child has reported that it sleeps from now on.
        child.expect_reply(0)?;
        Ok(child)
    }

    fn expect_reply(&self, due: u8) -> io::Result<()> {
        let mut byte = [u8::MAX];
        let got = rustix::io::read(&self.answer, &mut byte)?;
        if got == 1 && byte[0] == due {
            Ok(())
        } else {
            Err(io::Error::other("a page of the child has changed"))
        }
    }
}

impl Step for CopyOnWrite {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        let pages = usize::try_from(operations).map_err(io::Error::other)?;
        let region = Region::new(pages * self.page, ACCESS)?;
        region.touch();
        let child = Child::fork(self.cpu, &region, self.page)?;
        self.next = region.start;
        self.shared = Some((region, child));
        self.faults = minor_faults()?;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        // SAFETY: `arm` has mapped this number of writable pages for this batch.
        unsafe { self.next.write_volatile(WRITTEN) };
        self.next = self.next.wrapping_add(self.page);
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        check_faults(self.faults, operations)?;
        let Some((_region, mut child)) = self.shared.take() else { return Ok(()) };
        drop(child.ask.take());
        child.expect_reply(SHARED)
    }

    fn max_batch(&self) -> u64 {
        COPIES_MAX
    }
}

/// One first write to a page that a child shared until it ended.
fn reuse(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let memory = Anonymous::by(Touch::Write, COPIES_MAX);
    Ok(Prepared::alone(Steps::of(Reuse { memory, cpu: setting.cpu })))
}

struct Reuse {
    memory: Anonymous,
    cpu: usize,
}

impl Step for Reuse {
    /// Shares the memory of the batch with a child that ends.
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.memory.arm(operations)?;
        self.memory.region.iter().for_each(Region::touch);
        drop(Partner::fork(self.cpu, || 0)?);
        self.memory.faults = minor_faults()?;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.memory.step()
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.memory.disarm(operations)
    }

    fn max_batch(&self) -> u64 {
        self.memory.max_batch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched<S: Step>(mut step: S, armed: u64, touched: u64) -> io::Result<()> {
        step.arm(armed)?;
        (0..touched).try_for_each(|_| step.step())?;
        step.disarm(armed)
    }

    #[test]
    fn a_touch_is_a_fault_and_untouched_pages_are_detected() {
        for touch in [Touch::Read, Touch::Write] {
            touched(Anonymous::by(touch, 500), 500, 500).unwrap();
            let error = touched(Anonymous::by(touch, 500), 500, 300).unwrap_err().to_string();
            assert!(error.starts_with("500 pages were touched, but 3"), "{error}");
        }
        let reuse = || Reuse {
            memory: Anonymous::by(Touch::Write, 500),
            cpu: assay_process::cpus::allowed().unwrap()[0],
        };
        touched(reuse(), 500, 500).unwrap();
        assert!(touched(reuse(), 500, 300).is_err());
    }

    #[test]
    fn huge_memory_is_read_by_name() {
        let rollup = "Rss:  7 kB\nAnonHugePages:      2048 kB\nShmemPmdMapped:     0 kB\n";
        assert_eq!(huge_kib(rollup), Some(2048));
        assert_eq!(huge_kib("Rss: 7 kB\n"), None);
    }

    #[test]
    fn the_child_keeps_pages_that_the_parent_overwrites_and_detects_changed_ones() {
        let (page, cpu) = (page_bytes(), assay_process::cpus::allowed().unwrap()[0]);
        let ask = |region: &Region, change: &dyn Fn()| {
            let mut child = Child::fork(cpu, region, page).unwrap();
            change();
            drop(child.ask.take());
            child.expect_reply(SHARED)
        };
        let private = Region::new(8 * page, ACCESS).unwrap();
        private.touch();
        // SAFETY: this is the first byte of a mapping that this test owns.
        ask(&private, &|| unsafe { private.start.write_volatile(WRITTEN) }).unwrap();
        // Now the new child finds a value that is not the shared one.
        assert!(ask(&private, &|| ()).is_err());
    }
}
