//! The release of pages that page faults have mapped, by one `munmap` of many.
//!
//! Each page that a program touches is released once: by `munmap`, by `execve`, or at the end of the process.

use std::io;
use std::os::fd::AsRawFd;

use assay_quantity::PrimitiveId;

use super::fault::{page_bytes, pages_in_l2};
use super::file_fault::{APART, WHOLE, whole};
use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, expect_done};
use crate::platform::kernel::check;
use crate::primitive::kit::region::{Region, is_mapped, mapped};
use crate::primitive::kit::scratch::Scratch;

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["mmap.release_anonymous"],
        full: &[],
        cost: Per::Operation,
        calls: &["munmap"],
        about: "release of a page of anonymous memory: the share of one page in a `munmap` of many pages that \
                have been written",
        source: "own: the end of what page_fault.anonymous begins",
        prepare: anonymous,
    },
    Row {
        quick: &["mmap.release_file"],
        full: &[],
        cost: Per::Operation,
        calls: &["munmap"],
        about: "release of the sixteen pages of a file that one page fault has mapped: their share in a `munmap` \
                of many",
        source: "own: the end of what page_fault.file_around begins",
        prepare: file,
    },
];

/// The release of a page of anonymous memory.
fn anonymous(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let (most, page) = (pages_in_l2(setting), page_bytes());
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let map = move |bytes| {
        let region = Region::new(bytes, access)?;
        region.touch();
        Ok(std::mem::ManuallyDrop::new(region).start)
    };
    Ok(Prepared::alone(Release { map, unit: page, most, mapping: None, done: 0 }))
}

/// The release of the pages of a file that a page fault has mapped.
fn file(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let scratch = whole(setting)?;
    let map = move |bytes| map_file(&scratch, bytes);
    Ok(Prepared::alone(Release { map, unit: APART, most: (WHOLE / APART) as u64, mapping: None, done: 0 }))
}

/// Maps the beginning of a file, and reads one page of each part that one page fault maps.
fn map_file(file: &Scratch, bytes: usize) -> io::Result<*mut u8> {
    let (access, flags, descriptor) = (libc::PROT_READ, libc::MAP_SHARED, file.file.as_raw_fd());
    // SAFETY: a new mapping of a file at an address of the kernel's choice.
    let start = mapped(unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, descriptor, 0) })?;
    for at in (0..bytes).step_by(APART) {
        // SAFETY: within the mapping, which the file backs.
        unsafe { start.add(at).read_volatile() };
    }
    Ok(start)
}

/// One `munmap` of all pages of a batch.
struct Release<F> {
    /// Maps memory of this many bytes, all of it present.
    map: F,
    /// Bytes that one operation releases.
    unit: usize,
    /// Operations of the longest batch.
    most: u64,
    mapping: Option<(*mut u8, usize)>,
    done: u64,
}

impl<F> Release<F> {
    fn unmap(start: *mut u8, bytes: usize) -> io::Result<()> {
        // SAFETY: nothing points into a mapping of this benchmark.
        check("munmap", unsafe { libc::munmap(start.cast(), bytes) }).map(drop)
    }
}

impl<F: FnMut(usize) -> io::Result<*mut u8>> Operation for Release<F> {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        let bytes = self.unit * usize::try_from(operations).map_err(io::Error::other)?;
        self.mapping = Some(((self.map)(bytes)?, bytes));
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        let Some((start, bytes)) = self.mapping else { return Ok(()) };
        Self::unmap(start, bytes)?;
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let Some((start, bytes)) = self.mapping.take() else { return expect_done(0, operations) };
        if std::mem::take(&mut self.done) == 0 {
            Self::unmap(start, bytes)?;
            return expect_done(0, operations);
        }
        if is_mapped(start) {
            return Err(io::Error::other("munmap left memory mapped"));
        }
        Ok(())
    }

    fn max_batch(&self) -> u64 {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_not_released_is_an_error_and_is_released() {
        let page = page_bytes();
        let map = |bytes| {
            let region = Region::new(bytes, libc::PROT_READ | libc::PROT_WRITE)?;
            region.touch();
            Ok(std::mem::ManuallyDrop::new(region).start)
        };
        let mut release = Release { map, unit: page, most: 4, mapping: None, done: 0 };
        release.arm(3).unwrap();
        let start = release.mapping.unwrap().0;
        assert_eq!(release.disarm(3).unwrap_err().to_string(), "0 of 3 operations were done");
        assert!(!is_mapped(start));
        release.arm(3).unwrap();
        release.run(3).unwrap();
        release.disarm(3).unwrap();
    }
}
