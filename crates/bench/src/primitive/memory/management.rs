//! Explicit memory management: changing the protection, returning memory, moving the end of the heap.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use assay_quantity::{PrimitiveId, Size};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::{check, expect};
use crate::primitive::kit::limit;
use crate::primitive::kit::region::Region;
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["mmap.protect{size=4KiB}"],
        full: &[],
        cost: Per::Operation,
        calls: &["mprotect"],
        about: "`mprotect` of present memory: half of the calls to read-only, half back",
        source: "own: an operation of loaders, just-in-time compilers and garbage collectors",
        prepare: protect,
    },
    Row {
        quick: &["mmap.discard{size=64KiB}"],
        full: &[],
        cost: Per::Operation,
        calls: &["madvise"],
        about: "`madvise(MADV_DONTNEED)` of present anonymous memory, which returns its pages to the kernel",
        source: "own: how allocators return memory",
        prepare: discard,
    },
    Row {
        quick: &["brk.move{size=128KiB}"],
        full: &[],
        cost: Per::Operation,
        calls: &["brk"],
        about: "`brk` that moves the end of the heap: half of the calls up, half down",
        source: "own: how small heaps grow",
        prepare: brk,
    },
];

/// Read and write access.
const ACCESS: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Prepares `mprotect` of memory that is present.
fn protect(id: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, Size(1)..=Size::mib(64))?;
    // An unchanged page on each side prevents the memory from merging with its neighbours.
    let page = rustix::param::page_size();
    let region = Region::new(size.next_multiple_of(page) + 2 * page, ACCESS)?;
    region.touch();
    let whole = region.bytes;
    let protect = Protect { region, size, zero: File::open("/dev/zero")?, next: libc::PROT_READ };
    protect.protect(protect.region.start, whole, libc::PROT_NONE)?;
    Ok(Prepared::alone(Steps::of(protect)))
}

struct Protect {
    region: Region,
    size: usize,
    zero: File,
    next: libc::c_int,
}

impl Protect {
    fn start(&self) -> *mut u8 {
        self.region.start.wrapping_add(rustix::param::page_size())
    }

    #[inline]
    fn protect(&self, start: *mut u8, bytes: usize, protection: libc::c_int) -> io::Result<()> {
        // SAFETY: a part of our own mapping, into which nothing points.
        check("mprotect", unsafe { libc::mprotect(start.cast(), bytes, protection) }).map(drop)
    }

    /// Whether the kernel can write to the memory.
    fn is_writable(&self) -> io::Result<bool> {
        // SAFETY: the kernel writes one byte into our own mapping, if it is writable.
        let got = unsafe { libc::read(self.zero.as_raw_fd(), self.start().cast(), 1) };
        if got < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT) {
            return Ok(false);
        }
        expect("read", got, 1).map(|()| true)
    }
}

impl Step for Protect {
    /// Removes all access to the memory.
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.next = libc::PROT_READ;
        self.protect(self.start(), self.size, libc::PROT_NONE)
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.protect(self.start(), self.size, self.next)?;
        self.next ^= libc::PROT_WRITE;
        Ok(())
    }

    /// Checks that the memory is writable, as after every second change, and read-only after one more change.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        let after = self.is_writable()?;
        self.step()?;
        if after && !self.is_writable()? {
            Ok(())
        } else {
            Err(io::Error::other("mprotect did not change the protection of the memory"))
        }
    }

    fn granule(&self) -> u64 {
        2
    }
}

/// Prepares `madvise` that returns present memory.
fn discard(id: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, Size(1)..=Size(DISCARDED_MAX / 4))?;
    let size = size.next_multiple_of(rustix::param::page_size());
    Ok(Prepared::alone(Steps::of(Discard { size, region: None, next: std::ptr::null_mut() })))
}

/// Bytes that the longest batch returns: they can be made present in a few milliseconds.
const DISCARDED_MAX: u64 = 8 << 20;

struct Discard {
    size: usize,
    /// The memory of the batch.
    region: Option<Region>,
    next: *mut u8,
}

impl Step for Discard {
    /// Maps the memory and makes all of it present.
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        let operations = usize::try_from(operations).map_err(io::Error::other)?;
        let region = Region::new(operations * self.size, ACCESS)?;
        region.touch();
        self.next = region.start;
        self.region = Some(region);
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let part = self.next;
        self.next = part.wrapping_add(self.size);
        // SAFETY: `arm` has mapped one part for each operation of this batch, and nothing points into them.
        check("madvise", unsafe { libc::madvise(part.cast(), self.size, libc::MADV_DONTNEED) }).map(drop)
    }

    /// Checks that none of the memory is present.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        match self.region.take().map(|region| region.present()).transpose()? {
            None | Some(0) => Ok(()),
            Some(pages) => Err(io::Error::other(format!("madvise left {pages} pages present"))),
        }
    }

    fn max_batch(&self) -> u64 {
        DISCARDED_MAX / self.size as u64
    }
}

/// Prepares `brk` that alternately enlarges and shrinks the heap.
fn brk(id: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, Size(1)..=Size::mib(64))?.next_multiple_of(rustix::param::page_size());
    let size = libc::c_long::try_from(size).map_err(io::Error::other)?;
    let end = move_to(0);
    // Allocations between batches find the heap unchanged, because every second move restores its end.
    Ok(Prepared::alone(Steps::of(Brk { end, size, next: end + size })))
}

struct Brk {
    end: libc::c_long,
    size: libc::c_long,
    next: libc::c_long,
}

/// Requests an end of the heap, and returns the end that the kernel has set. A request below the heap changes
/// nothing.
#[inline]
fn move_to(end: libc::c_long) -> libc::c_long {
    // SAFETY: the C library's part of the heap stays unchanged, because no caller requests an end below it.
    unsafe { libc::syscall(libc::SYS_brk, end) }
}

impl Step for Brk {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.end = move_to(0);
        self.next = self.end + self.size;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        if move_to(self.next) != self.next {
            return Err(io::Error::other("brk did not move the end of the heap"));
        }
        self.next = self.end + self.end + self.size - self.next;
        Ok(())
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        if move_to(0) == self.end {
            Ok(())
        } else {
            Err(io::Error::other("brk did not restore the end of the heap"))
        }
    }

    fn granule(&self) -> u64 {
        2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_not_returned_is_an_error() {
        let page = rustix::param::page_size();
        let mut discard = Discard { size: page, region: None, next: std::ptr::null_mut() };
        discard.arm(3).unwrap();
        discard.step().unwrap();
        assert_eq!(discard.disarm(3).unwrap_err().to_string(), "madvise left 2 pages present");
        discard.arm(2).unwrap();
        (0..2).for_each(|_| discard.step().unwrap());
        discard.disarm(2).unwrap();
    }
}
