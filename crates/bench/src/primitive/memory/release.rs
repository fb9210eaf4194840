//! The release of pages that page faults have mapped, by one `munmap` of many.
//!
//! Each page that a program touches is released once: by `munmap` or `madvise`, by `execve`, or at the end of
//! the process.

use std::io;
use std::ptr;

use assay_quantity::PrimitiveId;

use super::fault::{page_bytes, pages_in_l2};
use super::file_fault::{APART, Mapping, WHOLE, whole};
use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, expect_done};
use crate::primitive::kit::region::{Region, is_mapped};
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
    Ok(Prepared::alone(Release::of(written, page_bytes(), pages_in_l2(setting))))
}

/// Maps anonymous memory, and writes to every page.
fn written(bytes: usize) -> io::Result<(Region, *mut u8)> {
    let region = Region::new(bytes, libc::PROT_READ | libc::PROT_WRITE)?;
    region.touch();
    let start = region.start;
    Ok((region, start))
}

/// The release of the pages of a file that a page fault has mapped.
fn file(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let scratch = whole(setting)?;
    Ok(Prepared::alone(Release::of(move |bytes| read(&scratch, bytes), APART, (WHOLE / APART) as u64)))
}

/// Maps the beginning of a file, and reads one page of each part that one page fault maps.
fn read(file: &Scratch, bytes: usize) -> io::Result<(Mapping, *mut u8)> {
    let mapping = Mapping::of(&file.file, bytes)?;
    mapping.map_around()?;
    let start = mapping.start;
    Ok((mapping, start))
}

/// One `munmap` of all pages of a batch.
struct Release<F, M> {
    /// Maps memory of this many bytes, all of it present, which is unmapped when it is dropped.
    map: F,
    /// Bytes that one operation releases.
    unit: usize,
    /// Operations of the longest batch.
    most: u64,
    held: Option<M>,
    /// The first and the last page of the memory.
    ends: [*mut u8; 2],
}

impl<M, F: FnMut(usize) -> io::Result<(M, *mut u8)>> Release<F, M> {
    fn of(map: F, unit: usize, most: u64) -> Self {
        Self { map, unit, most, held: None, ends: [ptr::null_mut(); 2] }
    }
}

impl<M, F: FnMut(usize) -> io::Result<(M, *mut u8)>> Operation for Release<F, M> {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        let bytes = self.unit * usize::try_from(operations).map_err(io::Error::other)?;
        let (held, start) = (self.map)(bytes)?;
        self.ends = [start, start.wrapping_add(bytes - page_bytes())];
        self.held = Some(held);
        Ok(())
    }

    fn run(&mut self, _: u64) -> io::Result<()> {
        self.held = None;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let held = self.held.take();
        expect_done(if held.is_none() { operations } else { 0 }, operations)?;
        if self.ends.iter().any(|page| is_mapped(*page)) {
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
        let mut release = Release::of(written, page_bytes(), 4);
        release.arm(3).unwrap();
        assert_eq!(release.disarm(3).unwrap_err().to_string(), "0 of 3 operations were done");
        assert!(!is_mapped(release.ends[0]));
        release.arm(3).unwrap();
        release.run(3).unwrap();
        release.disarm(3).unwrap();
    }
}
