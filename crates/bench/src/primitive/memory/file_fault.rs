//! Page faults of mapped files: a page that is in the page cache (minor), and a page that must be read from
//! storage (major).
//!
//! A fault of a file also maps the surrounding pages that are in the page cache, sixteen at a time, or more
//! if they are in one large folio. Here only every sixteenth page of the file is in the page cache, so that
//! each touch is a fault and the figure is that of one page. The kernel's count of faults is compared.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use assay_process::accounting::{Who, usage};
use assay_quantity::PrimitiveId;
use rand::seq::SliceRandom;
use rustix::fs::{Advice, fadvise};

use super::fault::{check_faults, minor_faults};
use crate::benchmark::{Per, Prepared, Refusal, Row, Setting, Sharing};
use crate::platform::kernel::check;
use crate::primitive::kit::region::mapped;
use crate::primitive::kit::scratch::{Contents, PAGE, Scratch};
use crate::primitive::kit::step::{Step, Steps};
use crate::primitive::kit::storage::{self, DirectFile, FILE_BYTES};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["page_fault.file"],
        full: &[],
        cost: Per::Operation,
        calls: &[],
        about: "first read of a mapped page of a file; only every sixteenth page is in the page cache, so \
                that one fault maps one page",
        source: "lmbench 3, lat_pagefault, with the faults counted",
        prepare: minor,
    },
    Row {
        quick: &["page_fault.major"],
        full: &[],
        cost: Per::Operation,
        calls: &[],
        about: "first read of a mapped page of a file that is not in the page cache, in random order; \
                counted by `ru_majflt`. The page may be in the memory of a virtual machine's host",
        source: "own: the cost to a program whose pages were evicted",
        prepare: major,
    },
];

/// Distance in bytes between the pages that are in the page cache. A fault maps fault_around_bytes around it,
/// 64 KiB unless changed.
const APART: usize = 64 << 10;

/// Pages of the longest batch.
const PAGES_MAX: usize = 1024;

/// A mapping of the beginning of a file, which is unmapped when it is dropped.
struct Mapping {
    start: *mut u8,
    bytes: usize,
}

impl Mapping {
    fn of(file: &impl AsRawFd, bytes: usize) -> io::Result<Self> {
        let (access, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new shared mapping of a file at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, file.as_raw_fd(), 0) };
        Ok(Self { start: mapped(start)?, bytes })
    }

    /// Returns the first word of the page that begins at `at`.
    #[inline]
    fn word(&self, at: usize) -> u64 {
        debug_assert!(at + size_of::<u64>() <= self.bytes, "beyond the mapping");
        // SAFETY: the callers stay within the mapping, which the file backs; the read is volatile because the
        // file could change, and because the fault must occur.
        unsafe { self.start.add(at).cast::<u64>().read_volatile() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this struct owns the mapping, and nothing points into it any more. If unmapping fails, the
        // mapping is removed with the process.
        let _ = unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// One first read of a page that is in the page cache.
fn minor(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let scratch = Scratch::empty(setting)?;
    let mut page = [0; PAGE];
    for number in 0..PAGES_MAX {
        let at = (number * APART) as u64;
        scratch.contents.fill(&mut page, at);
        scratch.file.write_all_at(&page, at)?;
    }
    let mapping = Mapping::of(&scratch.file, APART * PAGES_MAX)?;
    Ok(Prepared::alone(Steps::of(Minor { scratch, mapping, next: 0, sum: 0, faults: 0 })))
}

struct Minor {
    scratch: Scratch,
    mapping: Mapping,
    next: usize,
    sum: u64,
    faults: u64,
}

impl Step for Minor {
    /// Creates a new mapping without mapped pages.
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.mapping = Mapping::of(&self.scratch.file, APART * PAGES_MAX)?;
        (self.next, self.sum) = (0, 0);
        self.faults = minor_faults()?;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.sum = self.sum.wrapping_add(self.mapping.word(self.next));
        self.next += APART;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        check_faults(self.faults, operations)?;
        let pages = (0..operations).map(|page| page * (APART / PAGE) as u64);
        check_sum(self.sum, &self.scratch.contents, pages)
    }

    fn max_batch(&self) -> u64 {
        PAGES_MAX as u64
    }
}

/// Checks that the first words of these pages add up to this sum.
fn check_sum(sum: u64, contents: &Contents, pages: impl Iterator<Item = u64>) -> io::Result<()> {
    if sum == pages.fold(0, |sum: u64, page| sum.wrapping_add(contents.word(page))) {
        Ok(())
    } else {
        Err(io::Error::other("the sum of the mapped words differs from the sum of the file"))
    }
}

/// One first read of a page that is only on storage.
fn major(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let file = DirectFile::to_read(setting)?;
    let mut order: Vec<usize> = (0..FILE_BYTES).step_by(PAGE.max(rustix::param::page_size())).collect();
    order.shuffle(&mut setting.rng);
    let mapping = Mapping::of(&file.file, FILE_BYTES)?;
    let mut major = Major { file, mapping, order, next: 0, batch: 0, sum: 0, faults: 0 };
    major.arm(1)?;
    major.step()?;
    major.disarm(1).map_err(|_| storage::none(setting, "a major fault"))?;
    Ok(Prepared { sharing: Sharing::Asleep, ..Prepared::alone(Steps::of(major)) })
}

struct Major {
    file: DirectFile,
    mapping: Mapping,
    order: Vec<usize>,
    next: usize,
    /// Position in the order at which this batch began.
    batch: usize,
    sum: u64,
    faults: u64,
}

impl Step for Major {
    /// Ensures that no page of the file is mapped or in the page cache, and disables readahead.
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        let pages = usize::try_from(operations).map_err(io::Error::other)?;
        self.mapping = Mapping::of(&self.file.file, FILE_BYTES)?;
        // Mapped pages are dropped from the page cache only after they are unmapped.
        fadvise(&self.file.file, 0, None, Advice::DontNeed)?;
        // SAFETY: advice about exactly the new mapping.
        let advised = unsafe { libc::madvise(self.mapping.start.cast(), FILE_BYTES, libc::MADV_RANDOM) };
        check("madvise", advised)?;
        if self.next + pages > self.order.len() {
            self.next = 0;
        }
        (self.batch, self.sum) = (self.next, 0);
        self.faults = usage(Who::Process)?.major_faults;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.sum = self.sum.wrapping_add(self.mapping.word(self.order[self.next]));
        self.next += 1;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let faults = usage(Who::Process)?.major_faults.saturating_sub(self.faults);
        if faults < operations {
            return Err(io::Error::other(format!(
                "{operations} pages were touched, but {faults} major faults were counted"
            )));
        }
        let pages = self.order[self.batch..self.next].iter().map(|at| (at / PAGE) as u64);
        check_sum(self.sum, &self.file.contents, pages)
    }

    fn max_batch(&self) -> u64 {
        self.order.len() as u64
    }
}
