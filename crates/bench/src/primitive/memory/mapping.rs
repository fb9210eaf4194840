//! Files mapped into memory, read there, and unmapped (lmbench 1996, section 5.3; lmbench 3, bw_mmap_rd and
//! lat_mmap; thesis, section 2.2.5).

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

/// Maps a part of a file for reading.
#[inline]
fn map_file(file: RawFd, size: usize, at: libc::off_t) -> io::Result<*mut u8> {
    // SAFETY: a new shared mapping of a file at an address of the kernel's choice.
    mapped(unsafe { libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ, libc::MAP_SHARED, file, at) })
}
