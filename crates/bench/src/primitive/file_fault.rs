//! Page faults of mapped files: a page that is in the page cache (minor), and one that must be read from
//! storage (major).
//!
//! A fault of a file maps the pages around it as well, as far as they are in the page cache, sixteen at a
//! time and more where they lie in one large folio. So that a touch is a fault, and the figure that of one
//! page, only every sixteenth page of the file is in the page cache here, and the kernel's count of faults is
//! compared.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use assay_process::accounting::{Who, usage};
use assay_quantity::PrimitiveId;
use rand::seq::SliceRandom;
use rustix::fs::{Advice, fadvise};

use super::fault::{check_faults, minor_faults};
use super::file::{Contents, PAGE, Scratch};
use super::region::mapped;
use super::step::{Step, Steps};
use super::storage::{self, DirectFile, FILE_BYTES};
use crate::benchmark::{Prepared, Refusal, Setting};
use crate::evidence::Sharing;
use crate::kernel::check;
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        ids: &["page_fault.file"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &[],
        about: "first read of a mapped page of a file that is in the page cache, and no page around it",
        source: "lmbench 3, lat_pagefault, with the faults counted",
        prepare: minor,
    },
    Row {
        ids: &["page_fault.major"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &[],
        about: "first read of a mapped page of a file that is in no cache of the kernel, in random order",
        source: "own: what a program pays whose pages were evicted",
        prepare: major,
    },
];

/// Bytes between the pages that are in the page cache: what a fault maps around it, fault_around_bytes, is 64
/// KiB unless somebody has changed it.
const APART: usize = 64 << 10;

/// Pages of the longest batch.
const PAGES_MAX: usize = 1024;

/// A mapping of the beginning of a file, that is unmapped with its owner.
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

    /// The first word of the page that begins at `at`.
    #[inline]
    fn word(&self, at: usize) -> u64 {
        debug_assert!(at + size_of::<u64>() <= self.bytes, "beyond the mapping");
        // SAFETY: the callers stay within the mapping, which the file backs; the read is volatile because the
        // file could change, and because the fault is what is wanted.
        unsafe { self.start.add(at).cast::<u64>().read_volatile() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing points into it any more. What cannot be unmapped goes with
        // the process.
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
    /// A new mapping, into which nothing is mapped yet.
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

/// That the first words of these pages add up to this sum.
fn check_sum(sum: u64, contents: &Contents, pages: impl Iterator<Item = u64>) -> io::Result<()> {
    if sum == pages.fold(0, |sum: u64, page| sum.wrapping_add(contents.word(page))) {
        Ok(())
    } else {
        Err(io::Error::other("the sum of the mapped words is not that of the file"))
    }
}

/// One first read of a page that is on storage only.
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
    /// Where in the order this batch began.
    batch: usize,
    sum: u64,
    faults: u64,
}

impl Step for Major {
    /// Nothing of the file is mapped or in the page cache, and nothing is read ahead.
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        let pages = usize::try_from(operations).map_err(io::Error::other)?;
        self.mapping = Mapping::of(&self.file.file, FILE_BYTES)?;
        // Pages that were mapped are dropped from the page cache only once they are unmapped.
        fadvise(&self.file.file, 0, None, Advice::DontNeed)?;
        // SAFETY: advice about exactly the mapping just made.
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
                "{operations} pages were touched and {faults} major faults counted"
            )));
        }
        let pages = self.order[self.batch..self.next].iter().map(|at| (at / PAGE) as u64);
        check_sum(self.sum, &self.file.contents, pages)
    }

    fn max_batch(&self) -> u64 {
        self.order.len() as u64
    }
}
