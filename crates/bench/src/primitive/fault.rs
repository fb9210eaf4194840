//! The page fault that a first touch of anonymous memory takes: a zeroed page and its mapping.
//!
//! lmbench's own page-fault figure divides by pages, of which one fault maps many; here huge pages are
//! turned off and the kernel's own count of faults is checked.

use std::io;

use assay_quantity::PrimitiveId;

use crate::benchmark::{Operation, Prepared, Refusal, Setting};
use crate::contamination::usage;
use crate::kernel::{check, failed};
use crate::layout::PAGE;
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    ids: &["page_fault.anonymous"],
    profile: Profile::Quick,
    cost: Per::Operation,
    calls: &[],
    about: "first write to a page of anonymous memory, without huge pages",
    source: "lmbench 3, lat_pagefault, with the faults counted",
    prepare: anonymous,
}];

/// Pages of the longest batch: 64 MiB of pages of 4 KiB.
const PAGES_MAX: u64 = 16_384;

/// One first write to a page.
fn anonymous(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let page = rustix::param::page_size().max(PAGE);
    Ok(Prepared::alone(Anonymous { page, region: std::ptr::null_mut(), length: 0, faults: 0 }))
}

struct Anonymous {
    page: usize,
    region: *mut libc::c_void,
    length: usize,
    faults: i64,
}

impl Anonymous {
    fn unmap(&mut self) -> io::Result<()> {
        if self.length == 0 {
            return Ok(());
        }
        // SAFETY: unmaps exactly what `arm` mapped; nothing points into it.
        check("munmap", unsafe { libc::munmap(self.region, self.length) })?;
        self.length = 0;
        Ok(())
    }
}

impl Operation for Anonymous {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        let length = usize::try_from(operations).map_err(io::Error::other)? * self.page;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice.
        self.region = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        if self.region == libc::MAP_FAILED {
            return Err(failed("mmap"));
        }
        self.length = length;
        // SAFETY: advice about exactly the mapping just made. A kernel without huge pages refuses it.
        unsafe { libc::madvise(self.region, length, libc::MADV_NOHUGEPAGE) };
        self.faults = usage(libc::RUSAGE_SELF)?.ru_minflt;
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        let mut at = self.region.cast::<u8>();
        for _ in 0..operations {
            // SAFETY: `arm` has mapped so many pages, writable, for this very batch.
            unsafe {
                at.write_volatile(1);
                at = at.add(self.page);
            }
        }
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let faults = usage(libc::RUSAGE_SELF)?.ru_minflt - self.faults;
        self.unmap()?;
        if u64::try_from(faults).is_ok_and(|faults| faults >= operations) {
            Ok(())
        } else {
            Err(io::Error::other(format!("{operations} pages were touched and {faults} faults counted")))
        }
    }

    fn max_batch(&self) -> u64 {
        PAGES_MAX
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        // Only a failed batch leaves a mapping, and the process ends with it.
        let _ = self.unmap();
    }
}
