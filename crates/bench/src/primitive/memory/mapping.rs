//! Files mapped into memory, read there, and unmapped (lmbench 1996, section 5.3; lmbench 3, bw_mmap_rd and
//! lat_mmap; thesis, section 2.2.5); also the calls alone.

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::RawFd;

use assay_quantity::{PrimitiveId, Size};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::check;
use crate::primitive::kit::limit;
use crate::primitive::kit::region::{is_mapped, mapped};
use crate::primitive::kit::scratch::{CachedFile, PAGE};
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["mmap.reread{size=1MiB}"],
        full: &["mmap.reread{size=4KiB|16KiB|64KiB|256KiB|1MiB|4MiB}"],
        cost: Per::ByteOfSize,
        calls: &["mmap", "munmap"],
        about: "`mmap` of the next part of a cached file, every word added up, `munmap`",
        source: "lmbench 1996, section 5.3; thesis, section 2.2.5",
        prepare: reread,
    },
    Row {
        quick: &["mmap.map_unmap{size=4KiB|1MiB}"],
        full: &["mmap.map_unmap{size=4KiB|64KiB|256KiB|1MiB|8MiB}"],
        cost: Per::Operation,
        calls: &["mmap", "munmap"],
        about: "`mmap` of the next part of a cached file, one word of every page read, `munmap`",
        source: "lmbench 3, lat_mmap, with every page touched",
        prepare: map_unmap,
    },
    Row {
        quick: &["mmap.map_file"],
        full: &[],
        cost: Per::Operation,
        calls: &["mmap"],
        about: "`mmap` of 64 KiB of a cached file; unmapped untimed and never touched",
        source: "own: how programs get their libraries",
        prepare: map_file_alone,
    },
    Row {
        quick: &["mmap.map_anonymous"],
        full: &[],
        cost: Per::Operation,
        calls: &["mmap"],
        about: "`mmap` of 64 KiB of anonymous memory; unmapped untimed and never touched",
        source: "own: how allocators get memory",
        prepare: map_anonymous_alone,
    },
    Row {
        quick: &["mmap.unmap"],
        full: &[],
        cost: Per::Operation,
        calls: &["munmap"],
        about: "`munmap` of 64 KiB of a cached file that was never touched",
        source: "own: one half of mmap.map_unmap, without the faults and the release of pages",
        prepare: unmap,
    },
];

/// Sizes of a mapped part of a file: at least one word.
const PARTS: RangeInclusive<Size> = Size(8)..=Size::mib(256);

/// Maps the next part of a cached file, adds up every word of it, and unmaps it.
fn reread(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, PARTS)?;
    Ok(Prepared::alone(Steps::of(MapPart::of(size, Sum::EveryWord, setting)?)))
}

/// Maps the next part of a cached file, reads the first word of each page of it, and unmaps it.
fn map_unmap(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, PARTS)?;
    Ok(Prepared::alone(Steps::of(MapPart::of(size, Sum::FirstWordOfPages, setting)?)))
}

/// Which words of a part are added up.
#[derive(Clone, Copy)]
enum Sum {
    EveryWord,
    FirstWordOfPages,
}

struct MapPart {
    file: CachedFile,
    size: usize,
    which: Sum,
    /// Bytes between the starts of two parts: whole pages.
    step: usize,
    /// The sum of the words of each part of the file.
    sums: Vec<u64>,
    sum: u64,
    due: u64,
    last: *mut u8,
}

impl MapPart {
    fn of(size: usize, which: Sum, setting: &mut Setting) -> io::Result<Self> {
        let step = size.next_multiple_of(rustix::param::page_size().max(PAGE));
        let file = CachedFile::holding(step, setting)?;
        let mut sums = Vec::new();
        for at in file.places(step) {
            let (contents, page) = (file.contents(), at / PAGE as u64);
            sums.push(match which {
                Sum::EveryWord => contents.sum(page, size),
                Sum::FirstWordOfPages => (0..size.div_ceil(PAGE) as u64)
                    .fold(0_u64, |sum, number| sum.wrapping_add(contents.word(page + number))),
            });
        }
        Ok(Self { file, size, which, step, sums, sum: 0, due: 0, last: std::ptr::null_mut() })
    }

    /// Number of words that are added up, and the bytes between two of them.
    fn words(&self) -> (usize, usize) {
        match self.which {
            Sum::EveryWord => (self.size / size_of::<u64>(), size_of::<u64>()),
            Sum::FirstWordOfPages => (self.size.div_ceil(PAGE), PAGE),
        }
    }
}

impl Step for MapPart {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        let first = self.file.last(self.step, 1) / self.step as u64;
        let parts = self.sums.iter().cycle().skip(usize::try_from(first).map_err(io::Error::other)?);
        self.due = (0..operations).zip(parts).fold(0_u64, |sum, (_, part)| sum.wrapping_add(*part));
        self.sum = 0;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let at = self.file.advance(self.step);
        let (words, stride) = self.words();
        let mapping = map_file(self.file.descriptor(), self.size, at)?;
        let mut sum = self.sum;
        for word in 0..words {
            // SAFETY: within the mapping, which is page-aligned and backed by the file to its end; the
            // read is volatile because the file could change, and so that every word is touched.
            sum = sum.wrapping_add(unsafe { mapping.add(word * stride).cast::<u64>().read_volatile() });
        }
        (self.sum, self.last) = (sum, mapping);
        // SAFETY: unmaps exactly what was mapped above; nothing points into it.
        check("munmap", unsafe { libc::munmap(mapping.cast(), self.size) }).map(drop)
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        if self.sum != self.due {
            return Err(io::Error::other("the sum of the mapped words differs from the sum of the file"));
        }
        if is_mapped(self.last) {
            return Err(io::Error::other("munmap left the part of the file mapped"));
        }
        Ok(())
    }
}

/// Bytes of a mapping that is created or removed.
const MAPPING: usize = 64 << 10;

/// Mappings of the longest batch: a fraction of a millisecond. They are removed after each batch, because the
/// kernel takes longer the more mappings a process has.
const MAPPINGS_MAX: usize = 512;

/// Maps a part of a cached file.
fn map_file_alone(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let file = CachedFile::holding(MAPPING, setting)?;
    Ok(mapping(move || map_file(file.descriptor(), MAPPING, 0)))
}

/// Maps anonymous memory.
fn map_anonymous_alone(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping at an address of the kernel's choice.
    Ok(mapping(move || mapped(unsafe { libc::mmap(std::ptr::null_mut(), MAPPING, access, flags, -1, 0) })))
}

fn mapping(map: impl FnMut() -> io::Result<*mut u8> + 'static) -> Prepared {
    // Allocated here, so that no batch allocates.
    Prepared::alone(Steps::of(Map { map, mappings: Vec::with_capacity(MAPPINGS_MAX) }))
}

/// Unmaps what the benchmark has mapped.
fn remove(mapping: *mut u8) -> io::Result<()> {
    // SAFETY: nothing points into a mapping of the benchmark.
    check("munmap", unsafe { libc::munmap(mapping.cast(), MAPPING) }).map(drop)
}

fn check_unmapped(mappings: &[*mut u8]) -> io::Result<()> {
    match mappings.iter().filter(|start| is_mapped(**start)).count() {
        0 => Ok(()),
        left => Err(io::Error::other(format!("munmap left {left} parts mapped"))),
    }
}

struct Map<F> {
    map: F,
    mappings: Vec<*mut u8>,
}

impl<F: FnMut() -> io::Result<*mut u8>> Step for Map<F> {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.mappings.push((self.map)()?);
        Ok(())
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        let missing = self.mappings.iter().filter(|start| !is_mapped(**start)).count();
        self.mappings.drain(..).try_for_each(remove)?;
        if missing == 0 { Ok(()) } else { Err(io::Error::other(format!("mmap did not map {missing} parts"))) }
    }

    fn max_batch(&self) -> u64 {
        MAPPINGS_MAX as u64
    }
}

/// Unmaps a part of a cached file that was never touched.
fn unmap(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let file = CachedFile::holding(MAPPING, setting)?;
    Ok(Prepared::alone(Steps::of(Unmap { file, mappings: Vec::new(), next: 0 })))
}

struct Unmap {
    file: CachedFile,
    mappings: Vec<*mut u8>,
    /// The first one that has not been unmapped.
    next: usize,
}

impl Step for Unmap {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            self.mappings.push(map_file(self.file.descriptor(), MAPPING, 0)?);
        }
        self.next = 0;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let start = self.mappings[self.next];
        self.next += 1;
        remove(start)
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        // Something else may be mapped where a part was, so what was unmapped is not unmapped again.
        self.mappings.drain(self.next..).try_for_each(remove)?;
        let unmapped = check_unmapped(&self.mappings);
        self.mappings.clear();
        unmapped
    }

    fn max_batch(&self) -> u64 {
        MAPPINGS_MAX as u64
    }
}

/// Maps a part of a file for reading.
#[inline]
fn map_file(file: RawFd, size: usize, at: libc::off_t) -> io::Result<*mut u8> {
    // SAFETY: a new shared mapping of a file at an address of the kernel's choice.
    mapped(unsafe { libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ, libc::MAP_SHARED, file, at) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_mapping() -> *mut u8 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice.
        mapped(unsafe { libc::mmap(std::ptr::null_mut(), MAPPING, libc::PROT_READ, flags, -1, 0) }).unwrap()
    }

    #[test]
    fn a_part_that_is_not_mapped_or_not_unmapped_is_an_error() {
        // The kernel maps nothing at this address, unless it is requested.
        let nothing = std::ptr::without_provenance_mut(4096);
        let mut map = Map { map: || Ok(a_mapping()), mappings: Vec::new() };
        map.step().unwrap();
        map.disarm(1).unwrap();
        map.mappings.push(nothing);
        assert_eq!(map.disarm(1).unwrap_err().to_string(), "mmap did not map 1 parts");
        let start = a_mapping();
        let error = check_unmapped(&[nothing, start]).unwrap_err().to_string();
        assert_eq!(error, "munmap left 1 parts mapped");
        remove(start).unwrap();
        check_unmapped(&[nothing]).unwrap();
    }
}
