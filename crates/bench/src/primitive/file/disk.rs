//! The storage device below the file system, bypassing the page cache (lmbench 1996, section 6.9 and its
//! lmdd, on files instead of raw devices).
//!
//! Every transfer uses `O_DIRECT` between one buffer and one place in a file. Data that is read is compared
//! with the expected contents of the place. Data that is written contains its place and its batch, and is
//! read back. The kernel's counters show that the bytes were transferred to or from the device. Caches of the
//! device or of a hypervisor's host are not visible here.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use assay_quantity::{PrimitiveId, Size};
use rand::RngExt;
use rand::seq::SliceRandom;

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting, Sharing};
use crate::platform::kernel::expect;
use crate::platform::layout::Buffer;
use crate::primitive::kit::limit;
use crate::primitive::kit::scratch::{Contents, PAGE};
use crate::primitive::kit::step::{Step, Steps};
use crate::primitive::kit::storage::{DirectFile, FILE_BYTES, Transferred};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["disk.request"],
        full: &[],
        cost: Per::Operation,
        calls: &["pread64"],
        about: "read of the next block of the smallest size that the file system allows, bypassing the page \
                cache: the overhead of a request",
        source: "lmbench 1996, section 6.9",
        prepare: request,
    },
    Row {
        quick: &["disk.read_random{size=4KiB}"],
        full: &["disk.read_random{size=4KiB|16KiB|64KiB|1MiB}"],
        cost: Per::ByteOfSize,
        calls: &["pread64"],
        about: "`pread` with `O_DIRECT` from a random place of a file of 32 MiB",
        source: "own: the latency of a database's cache miss",
        prepare: read_random,
    },
    Row {
        quick: &["disk.read_sequential{size=1MiB}"],
        full: &["disk.read_sequential{size=4KiB|64KiB|256KiB|1MiB}"],
        cost: Per::ByteOfSize,
        calls: &["pread64"],
        about: "`pread` with `O_DIRECT` of the next part of a file of 32 MiB",
        source: "lmbench 3, lmdd",
        prepare: read_sequential,
    },
    Row {
        quick: &["disk.write_random{size=4KiB}"],
        full: &["disk.write_random{size=4KiB|16KiB|64KiB|1MiB}"],
        cost: Per::ByteOfSize,
        calls: &["pwrite64"],
        about: "`pwrite` with `O_DIRECT` over a random place of a file of 32 MiB",
        source: "own: the latency of a database's page write",
        prepare: write_random,
    },
    Row {
        quick: &["disk.write_sequential{size=1MiB}"],
        full: &["disk.write_sequential{size=4KiB|64KiB|256KiB|1MiB}"],
        cost: Per::ByteOfSize,
        calls: &["pwrite64"],
        about: "`pwrite` with `O_DIRECT` over the next part of a file of 32 MiB",
        source: "lmbench 3, lmdd",
        prepare: write_sequential,
    },
];

/// Largest transfer: a quarter of the file, so that a place is not visited again immediately.
const SIZE_MAX: Size = Size(FILE_BYTES as u64 / 4);

/// Reads the next block of the smallest size.
fn request(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let file = DirectFile::to_read(setting)?;
    let size = file.block;
    reading(file, size, Places::in_order(size, setting))
}

/// A random place.
fn read_random(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let file = DirectFile::to_read(setting)?;
    let size = whole_blocks(id, &file)?;
    reading(file, size, Places::at_random(size, setting))
}

/// The next place.
fn read_sequential(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let file = DirectFile::to_read(setting)?;
    let size = whole_blocks(id, &file)?;
    reading(file, size, Places::in_order(size, setting))
}

/// A random place.
fn write_random(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let file = DirectFile::to_write(setting)?;
    let size = whole_blocks(id, &file)?;
    let places = Places::at_random(size, setting);
    writing(file, size, places, setting)
}

/// The next place.
fn write_sequential(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let file = DirectFile::to_write(setting)?;
    let size = whole_blocks(id, &file)?;
    let places = Places::in_order(size, setting);
    writing(file, size, places, setting)
}

/// Returns the size of a transfer. Fails unless it is a multiple of a block.
fn whole_blocks(id: &PrimitiveId, file: &DirectFile) -> Result<usize, Refusal> {
    let size = limit::size(id, Size(file.block as u64)..=SIZE_MAX)?;
    if size.is_multiple_of(file.block) {
        return Ok(size);
    }
    let block = Size(file.block as u64);
    Err(Refusal::Unavailable(format!(
        "transfers that bypass the page cache must be multiples of a block of {block}; {id} is not"
    )))
}

/// Places of one size in the file, in the order in which they are visited repeatedly.
struct Places {
    order: Vec<u32>,
    size: usize,
    next: usize,
}

impl Places {
    /// Starts at a random place, because a device may remember where the previous process ended.
    fn in_order(size: usize, setting: &mut Setting) -> Self {
        let order = Self::all(size);
        let next = setting.rng.random_range(0..order.len());
        Self { order, size, next }
    }

    fn at_random(size: usize, setting: &mut Setting) -> Self {
        let mut order = Self::all(size);
        order.shuffle(&mut setting.rng);
        Self { order, size, next: 0 }
    }

    fn all(size: usize) -> Vec<u32> {
        (0..u32::MAX).take(FILE_BYTES / size).collect()
    }

    /// Returns the offset of the next place.
    #[inline]
    fn next(&mut self) -> u64 {
        let place = self.order[self.next];
        self.next = if self.next + 1 == self.order.len() { 0 } else { self.next + 1 };
        u64::from(place) * self.size as u64
    }

    /// Returns the offsets of the last `count` places, the latest first.
    fn before(&self, count: usize) -> impl Iterator<Item = u64> {
        let latest = self.order[..self.next].iter().rev().chain(self.order[self.next..].iter().rev());
        latest.take(count).map(|place| u64::from(*place) * self.size as u64)
    }
}

fn reading(file: DirectFile, size: usize, places: Places) -> Result<Prepared, Refusal> {
    let buffer = Buffer::aligned(size)?;
    let read = Read { file, places, buffer, last: 0, before: Transferred::now()? };
    Ok(Prepared { sharing: Sharing::Asleep, ..Prepared::alone(Steps::of(read)) })
}

struct Read {
    file: DirectFile,
    places: Places,
    buffer: Buffer,
    last: u64,
    before: Transferred,
}

impl Step for Read {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.buffer.fill(0);
        self.before = Transferred::now()?;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.last = self.places.next();
        let piece = &mut self.buffer;
        let (file, at) = (self.file.file.as_raw_fd(), self.last.cast_signed());
        // SAFETY: the pointer and the length are those of a slice that is borrowed mutably.
        let got = unsafe { libc::pread(file, piece.as_mut_ptr().cast(), piece.len(), at) };
        expect("pread", got, piece.len())?;
        // Only one word of each transfer is checked here. The last transfer is checked completely afterwards.
        let word = piece.first_chunk().map(|word| u64::from_ne_bytes(*word));
        let begins_a_page = self.last.is_multiple_of(PAGE as u64);
        if begins_a_page && word != Some(self.file.contents.word(self.last / PAGE as u64)) {
            return Err(another_place("pread", self.last));
        }
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let piece = &self.buffer;
        if !self.file.contents.are(piece, self.last) {
            return Err(another_place("pread", self.last));
        }
        let moved = Transferred::now()?.since(self.before).read_bytes;
        check_moved(moved, operations * piece.len() as u64)
    }
}

#[cold]
fn another_place(call: &str, at: u64) -> io::Error {
    io::Error::other(format!("{call} at offset {at} left bytes that do not belong there"))
}

/// Checks that the device has transferred the requested number of bytes. A file system may read additional
/// bytes.
fn check_moved(moved: u64, due: u64) -> io::Result<()> {
    if moved >= due {
        Ok(())
    } else {
        Err(io::Error::other(format!("{moved} bytes were transferred to or from storage instead of {due}")))
    }
}

fn writing(
    file: DirectFile,
    size: usize,
    places: Places,
    setting: &mut Setting,
) -> Result<Prepared, Refusal> {
    let (buffer, back) = (Buffer::aligned(size)?, Buffer::aligned(size)?);
    let contents = Contents::random(&mut setting.rng);
    let (before, batch) = (Transferred::now()?, setting.rng.random());
    let write = Write { file, places, buffer, back, contents, batch, before };
    Ok(Prepared { sharing: Sharing::Asleep, ..Prepared::alone(Steps::of(write)) })
}

struct Write {
    file: DirectFile,
    places: Places,
    buffer: Buffer,
    back: Buffer,
    /// The contents of every page, except for its stamp.
    contents: Contents,
    batch: u64,
    before: Transferred,
}

impl Write {
    /// Stamps every page of the buffer with its place and the batch.
    #[inline]
    fn stamp(&mut self, at: u64) {
        for (page, bytes) in self.buffer.chunks_mut(PAGE).enumerate() {
            let place = at + (page * PAGE) as u64;
            bytes[..8].copy_from_slice(&place.to_ne_bytes());
            bytes[8..16].copy_from_slice(&self.batch.to_ne_bytes());
        }
    }

    fn check(&mut self, at: u64) -> io::Result<()> {
        self.stamp(at);
        self.file.file.read_exact_at(&mut self.back, at)?;
        if self.back[..] == self.buffer[..] { Ok(()) } else { Err(another_place("pwrite", at)) }
    }
}

/// Number of places at the end of a batch that are read back.
const READ_BACK: u64 = 4;

impl Step for Write {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.batch = self.batch.wrapping_add(1);
        self.contents.fill(&mut self.buffer, 0);
        self.before = Transferred::now()?;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let at = self.places.next();
        self.stamp(at);
        let file = self.file.file.as_raw_fd();
        let piece = &self.buffer;
        // SAFETY: the pointer and the length are those of a slice.
        let written = unsafe { libc::pwrite(file, piece.as_ptr().cast(), piece.len(), at.cast_signed()) };
        expect("pwrite", written, piece.len())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let moved = Transferred::now()?.since(self.before).written_bytes;
        check_moved(moved, operations * self.buffer.len() as u64)?;
        let count = usize::try_from(operations.min(READ_BACK)).map_err(io::Error::other)?;
        let last: Vec<u64> = self.places.before(count).collect();
        last.into_iter().try_for_each(|at| self.check(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn places(order: Vec<u32>) -> Places {
        Places { order, size: 10, next: 0 }
    }

    #[test]
    fn places_are_visited_repeatedly_in_order_and_the_last_ones_are_known() {
        let mut places = places(vec![2, 0, 1]);
        assert_eq!([(); 4].map(|()| places.next()), [20, 0, 10, 20]);
        assert_eq!(places.before(3).collect::<Vec<_>>(), [20, 10, 0]);
        assert_eq!(places.before(1).collect::<Vec<_>>(), [20]);
    }

    #[test]
    fn every_place_of_the_file_is_visited_once_per_lap() {
        let all = Places::all(4096);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), FILE_BYTES / 4096);
        assert_eq!(all.last(), Some(&8191));
    }

    #[test]
    fn fewer_transferred_bytes_than_requested_are_an_error() {
        check_moved(4096, 4096).unwrap();
        let error = check_moved(4095, 4096).unwrap_err().to_string();
        assert_eq!(error, "4095 bytes were transferred to or from storage instead of 4096");
    }
}
