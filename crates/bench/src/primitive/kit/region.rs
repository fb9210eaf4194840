//! Anonymous memory that is mapped for a benchmark and unmapped with it.

use std::ffi::c_void;
use std::io;

use crate::platform::kernel::{check, failed};

/// Returns the address that `mmap` returned. Fails if it is no mapping; address 0 is none, because the kernel
/// returns it only if it is requested.
#[inline]
pub(crate) fn mapped(result: *mut c_void) -> io::Result<*mut u8> {
    if result == libc::MAP_FAILED {
        Err(failed("mmap"))
    } else if result.is_null() {
        Err(io::Error::other("mmap returned no address"))
    } else {
        Ok(result.cast())
    }
}

/// Whether an address is mapped, according to the kernel.
pub(crate) fn is_mapped(page: *mut u8) -> bool {
    let mut resident = 0_u8;
    // SAFETY: the kernel only checks the address, and writes one byte for one page.
    unsafe { libc::mincore(page.cast(), 1, &raw mut resident) == 0 }
}

/// Anonymous memory of whole pages, without huge pages, that is unmapped on drop.
pub(crate) struct Region {
    pub(crate) start: *mut u8,
    pub(crate) bytes: usize,
}

impl Region {
    /// Maps new memory of at least this many bytes, none of it present.
    pub(crate) fn new(bytes: usize, protection: libc::c_int) -> io::Result<Self> {
        let bytes = bytes.next_multiple_of(rustix::param::page_size());
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice.
        let start = mapped(unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) })?;
        // SAFETY: advice about exactly this new mapping. A kernel without huge pages rejects it.
        unsafe { libc::madvise(start.cast(), bytes, libc::MADV_NOHUGEPAGE) };
        Ok(Self { start, bytes })
    }

    /// Returns the number of its pages that are in memory.
    pub(crate) fn present(&self) -> io::Result<usize> {
        let mut resident = vec![0_u8; self.bytes.div_ceil(rustix::param::page_size())];
        // SAFETY: the kernel writes one byte per page of the mapping into a vector of this length.
        let result = unsafe { libc::mincore(self.start.cast(), self.bytes, resident.as_mut_ptr()) };
        check("mincore", result)?;
        Ok(resident.iter().filter(|page| **page & 1 == 1).count())
    }

    /// Writes to every page.
    pub(crate) fn touch(&self) {
        for page in (0..self.bytes).step_by(rustix::param::page_size()) {
            // SAFETY: within the mapping, which the caller has mapped as writable.
            unsafe { self.start.add(page).write_volatile(1) };
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing points into it any more. If it cannot be unmapped, it ends
        // with the process.
        let _ = unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_mapped_while_its_owner_lives_and_no_longer() {
        let region = Region::new(5000, libc::PROT_READ | libc::PROT_WRITE).unwrap();
        assert_eq!(region.bytes % rustix::param::page_size(), 0);
        assert_eq!(region.present().unwrap(), 0);
        region.touch();
        assert_eq!(region.present().unwrap(), region.bytes / rustix::param::page_size());
        let start = region.start;
        assert!(is_mapped(start));
        drop(region);
        assert!(!is_mapped(start));
    }

    #[test]
    fn an_address_of_zero_is_no_mapping() {
        assert!(mapped(std::ptr::null_mut()).is_err());
        assert!(mapped(libc::MAP_FAILED).is_err());
    }
}
