//! Page faults of mapped files: a page that is in the page cache (minor), and a page that must be read from
//! storage (major).
//!
//! A fault of a file also maps the surrounding pages that are in the page cache, sixteen at a time, or more
//! if they are in one large folio. In the file of most rows only every sixteenth page is in the page cache,
//! so that each touch is a fault and the figure is that of one page. The kernel's count of faults is
//! compared.

use std::hint::black_box;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use assay_process::accounting::{Who, usage};
use assay_quantity::PrimitiveId;
use rand::seq::SliceRandom;
use rustix::fs::{Advice, fadvise};

use super::fault::{check_faults, minor_faults, pages_in_l2};
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
        quick: &["page_fault.file_around"],
        full: &[],
        cost: Per::Operation,
        calls: &[],
        about: "first read of a mapped page of a file whose pages are all in the page cache, each in a folio of \
                its own; the fault maps the sixteen pages around it",
        source: "own: the cost to a program of its code and its libraries",
        prepare: around,
    },
    Row {
        quick: &["page_fault.file_copy"],
        full: &[],
        cost: Per::Operation,
        calls: &[],
        about: "first access, a write, to a page of a private mapping of a file that is in the page cache, which \
                copies the page; the file must keep its contents",
        source: "own: the cost of a program's initialised variables",
        prepare: file_copy,
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
pub(super) const APART: usize = 64 << 10;

/// Pages of the longest batch.
const PAGES_MAX: usize = 1024;

/// Page faults that reading the count may itself cause.
const FAULTS_OF_COUNTING: u64 = 3;

/// The word that is written to private pages.
const WRITTEN: u64 = !0;

/// A mapping of the beginning of a file, which is unmapped when it is dropped.
pub(super) struct Mapping {
    pub(super) start: *mut u8,
    bytes: usize,
}

impl Mapping {
    /// A shared mapping to read.
    pub(super) fn of(file: &impl AsRawFd, bytes: usize) -> io::Result<Self> {
        Self::with(file, bytes, libc::PROT_READ, libc::MAP_SHARED)
    }

    /// A private mapping to write.
    fn private(file: &impl AsRawFd, bytes: usize) -> io::Result<Self> {
        Self::with(file, bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE)
    }

    fn with(file: &impl AsRawFd, bytes: usize, access: libc::c_int, flags: libc::c_int) -> io::Result<Self> {
        // SAFETY: a new mapping of a file at an address of the kernel's choice.
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

    /// Makes all pages present, with one page fault for each part of [`APART`] bytes.
    pub(super) fn map_around(&self) -> io::Result<()> {
        for at in (0..self.bytes).step_by(APART) {
            black_box(self.word(at));
        }
        self.expect_around(self.bytes)
    }

    /// Fails unless the last page of each part of [`APART`] bytes up to `end` is mapped. The first one has
    /// been read.
    fn expect_around(&self, end: usize) -> io::Result<()> {
        let (before, mut read) = (minor_faults()?, 0);
        for at in (0..end).step_by(APART) {
            black_box(self.word(at + APART - PAGE));
            read += 1;
        }
        match minor_faults()?.saturating_sub(before) {
            faults if faults < read.max(FAULTS_OF_COUNTING) => Ok(()),
            faults => Err(io::Error::other(format!(
                "{read} page faults mapped no page around theirs: {faults} more faults were counted"
            ))),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this struct owns the mapping, and nothing points into it any more. If unmapping fails, the
        // mapping is removed with the process.
        let _ = unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// Creates a file with every sixteenth page in the page cache.
fn sparse(setting: &mut Setting) -> Result<Scratch, Refusal> {
    written(setting, (0..PAGES_MAX).map(|number| number * APART))
}

/// Bytes of a file that is completely in the page cache, as large as many programs with their libraries.
pub(super) const WHOLE: usize = 4 << 20;

/// Creates a file of [`WHOLE`] bytes that is in the page cache.
pub(super) fn whole(setting: &mut Setting) -> Result<Scratch, Refusal> {
    written(setting, (0..WHOLE).step_by(PAGE))
}

/// Creates a file with these pages in the page cache, each in a folio of its own, because each is written
/// alone.
fn written(setting: &mut Setting, pages: impl Iterator<Item = usize>) -> Result<Scratch, Refusal> {
    let scratch = Scratch::empty(setting)?;
    let mut page = [0; PAGE];
    for at in pages.map(|at| at as u64) {
        scratch.contents.fill(&mut page, at);
        scratch.file.write_all_at(&page, at)?;
    }
    Ok(scratch)
}

/// One first read of a page whose neighbours are in the page cache too.
fn around(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let scratch = whole(setting)?;
    let mapping = Mapping::of(&scratch.file, WHOLE)?;
    let minor = Minor { scratch, mapping, bytes: WHOLE, next: 0, sum: 0, faults: 0 };
    Ok(Prepared::alone(Steps::of(Around(minor))))
}

struct Around(Minor);

impl Step for Around {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.0.arm(operations)
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.0.step()
    }

    /// Checks in addition that the last page around each one is mapped too.
    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.0.disarm(operations)?;
        self.0.mapping.expect_around(self.0.next)
    }

    fn max_batch(&self) -> u64 {
        self.0.max_batch()
    }
}

/// One first read of a page that is in the page cache.
fn minor(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let scratch = sparse(setting)?;
    let bytes = APART * PAGES_MAX;
    let mapping = Mapping::of(&scratch.file, bytes)?;
    Ok(Prepared::alone(Steps::of(Minor { scratch, mapping, bytes, next: 0, sum: 0, faults: 0 })))
}

struct Minor {
    scratch: Scratch,
    mapping: Mapping,
    /// Bytes of the mapping.
    bytes: usize,
    next: usize,
    sum: u64,
    faults: u64,
}

impl Step for Minor {
    /// Creates a new mapping without mapped pages.
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.mapping = Mapping::of(&self.scratch.file, self.bytes)?;
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
        (self.bytes / APART) as u64
    }
}

/// One first write to a page of a private mapping.
///
/// The frames of the copies are those of the previous batch: as for anonymous memory, a batch has no more of
/// them than half of the second-level cache holds.
fn file_copy(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let most = pages_in_l2(setting).min(PAGES_MAX as u64);
    let scratch = sparse(setting)?;
    let mapping = Mapping::private(&scratch.file, APART * PAGES_MAX)?;
    Ok(Prepared::alone(Steps::of(Copy { scratch, most, mapping, next: 0, faults: 0 })))
}

struct Copy {
    scratch: Scratch,
    /// Pages of the longest batch.
    most: u64,
    mapping: Mapping,
    next: usize,
    faults: u64,
}

impl Step for Copy {
    /// Creates a new mapping without mapped pages.
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.mapping = Mapping::private(&self.scratch.file, APART * PAGES_MAX)?;
        self.next = 0;
        self.faults = minor_faults()?;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        // SAFETY: `arm` has mapped all pages of the longest batch, privately and for writing.
        unsafe { self.mapping.start.add(self.next).cast::<u64>().write_volatile(WRITTEN) };
        self.next += APART;
        Ok(())
    }

    /// Checks that every page was copied, and that the file is unchanged.
    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        check_faults(self.faults, operations)?;
        let mut page = [0; PAGE];
        for at in (0..self.next).step_by(APART) {
            self.scratch.file.read_exact_at(&mut page, at as u64)?;
            let second = u64::from_ne_bytes(page.as_chunks().0[1]);
            let is_copy =
                self.mapping.word(at) == WRITTEN && self.mapping.word(at + size_of::<u64>()) == second;
            if !is_copy || !self.scratch.contents.are(&page, at as u64) {
                return Err(io::Error::other("a written page is no copy, or has changed the file"));
            }
        }
        Ok(())
    }

    fn max_batch(&self) -> u64 {
        self.most
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
