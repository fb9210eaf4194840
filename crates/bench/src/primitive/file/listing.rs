//! Reading directories: opened, read, and both together.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use assay_quantity::{PrimitiveId, Size};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::{check, own};
use crate::platform::layout::Buffer;
use crate::primitive::kit::limit;
use crate::primitive::kit::place::{Place, Room};
use crate::primitive::kit::slot::{Slot, open_and_close};
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["directory.list"],
        full: &[],
        cost: Per::Operation,
        calls: &["open", "openat", "getdents64", "close"],
        about: "`open` of a directory of 100 files, `getdents64` to its end, `close`",
        source: "own: the first operation of ls and file servers",
        prepare: list,
    },
    Row {
        quick: &["directory.open_close"],
        full: &[],
        cost: Per::Operation,
        calls: &["open", "openat", "close"],
        about: "`open` of a directory, and `close`",
        source: "own: one part of directory.list",
        prepare: open_close,
    },
    Row {
        quick: &["directory.read{size=128B|1KiB|16KiB}"],
        full: &[],
        cost: Per::ByteOfSize,
        calls: &["getdents64"],
        about: "`getdents64` of a whole directory that has just been opened, whose entries take `size` bytes: 32 \
                for one with a name of 12",
        source: "own: one part of directory.list, for directories of any length",
        prepare: read,
    },
];

/// Opens a directory, reads it to its end and closes it.
fn list(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let listing = Listing::of(SELF_BYTES + ENTRIES * ENTRY_BYTES, id, setting)?;
    Ok(Prepared::alone(Steps::of(List { listing, slot: Slot::find()?, listed: 0 })))
}

/// Opens a directory and closes it.
fn open_close(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let listing = Listing::of(SELF_BYTES + ENTRY_BYTES, id, setting)?;
    Ok(open_and_close("open", move || Ok(listing.open()))?)
}

/// Reads a directory that has been opened.
fn read(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, Size((SELF_BYTES + ENTRY_BYTES) as u64)..=Size(LISTING_BYTES as u64))?;
    if !size.is_multiple_of(ALIGNMENT) {
        return Err(Refusal::Unavailable(format!(
            "the entries of a directory take a multiple of {ALIGNMENT} bytes; choose another size than {size}B"
        )));
    }
    Ok(Prepared::alone(Steps::of(Read {
        listing: Listing::of(size, id, setting)?,
        opened: Vec::new(),
        next: 0,
        size,
    })))
}

/// Entries of the listed directory.
const ENTRIES: usize = 100;

/// Size of the buffer of one `getdents64`: that of the C library's `readdir`.
const LISTING_BYTES: usize = 32 << 10;

/// Bytes of the two entries for the directory itself and its parent.
const SELF_BYTES: usize = 2 * 24;

/// Bytes of an entry whose name has 12 characters.
const ENTRY_BYTES: usize = 32;

/// The bytes of an entry are a multiple of this number.
const ALIGNMENT: usize = 8;

/// Directories of the longest batch that are open at the same time.
const OPEN_MAX: u64 = 256;

/// A directory whose entries take a given number of bytes, and a buffer for all of them.
struct Listing {
    _place: Place,
    _room: Room,
    path: CString,
    buffer: Buffer,
}

impl Listing {
    /// Creates the directory. `bytes` are those of a whole number of entries.
    fn of(bytes: usize, id: &PrimitiveId, setting: &mut Setting) -> Result<Self, Refusal> {
        let mut place = Place::of(id, setting)?;
        let room = place.room()?;
        let entries = (bytes - SELF_BYTES) / ENTRY_BYTES;
        // The last entry takes the rest: its name is longer.
        let rest = (bytes - SELF_BYTES) % ENTRY_BYTES;
        for number in 0..entries {
            let length = if number + 1 == entries { 12 + rest } else { 12 };
            File::create(room.path().join(format!("{number:0length$}")))?;
        }
        let path = CString::new(room.path().as_os_str().as_encoded_bytes()).map_err(io::Error::other)?;
        let buffer = Buffer::new(LISTING_BYTES, &mut setting.rng)?;
        Ok(Self { _place: place, _room: room, path, buffer })
    }

    /// Calls `open` and returns its result.
    #[inline]
    fn open(&self) -> RawFd {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: the path is a C string that outlives the call.
        unsafe { libc::open(self.path.as_ptr(), flags) }
    }

    /// Calls `getdents64` and returns the number of bytes.
    #[inline]
    fn read(&mut self, directory: RawFd) -> io::Result<usize> {
        let (pointer, length) = (self.buffer.as_mut_ptr(), self.buffer.len());
        // SAFETY: the pointer and the length are those of a slice that is borrowed mutably.
        let got = unsafe { libc::syscall(libc::SYS_getdents64, directory, pointer, length) };
        usize::try_from(check("getdents64", got)?).map_err(io::Error::other)
    }
}

struct Read {
    listing: Listing,
    /// The directories of a batch, none of which has been read before it.
    opened: Vec<OwnedFd>,
    next: usize,
    size: usize,
}

impl Step for Read {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.next = 0;
        for _ in 0..operations {
            self.opened.push(own("open", self.listing.open())?);
        }
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let got = self.listing.read(self.opened[self.next].as_raw_fd())?;
        self.next += 1;
        if got == self.size { Ok(()) } else { Err(another_listing(self.size, got)) }
    }

    /// `step` has already checked the number of bytes.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        self.opened.clear();
        Ok(())
    }

    fn max_batch(&self) -> u64 {
        OPEN_MAX
    }
}

#[cold]
fn another_listing(due: usize, came: usize) -> io::Error {
    io::Error::other(format!("getdents64 returned {came} bytes of entries instead of {due}"))
}

struct List {
    listing: Listing,
    slot: Slot,
    listed: usize,
}

impl Step for List {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.listing.buffer.fill(0);
        self.slot = Slot::find()?;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let directory = self.slot.check("open", self.listing.open())?;
        self.listed = self.listing.read(directory.number())?;
        if self.listed == 0 || self.listing.read(directory.number())? != 0 {
            return Err(io::Error::other("getdents64 did not list the directory in one piece"));
        }
        directory.close()
    }

    /// Checks that every entry was listed once.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        self.slot.check_closed()?;
        let listed = entries(&self.listing.buffer[..self.listed]);
        self.listed = 0;
        // The listing includes the directory itself and its parent.
        if listed == ENTRIES + 2 {
            Ok(())
        } else {
            Err(io::Error::other(format!("getdents64 listed {listed} entries instead of {}", ENTRIES + 2)))
        }
    }
}

/// Returns the number of entries of a listing. Each entry has its length at byte 16 (getdents(2)).
fn entries(mut listing: &[u8]) -> usize {
    let mut entries = 0;
    while let Some(length) = listing.get(16..18) {
        let length = usize::from(u16::from_ne_bytes([length[0], length[1]]));
        let Some(rest) = listing.get(length.max(18)..) else { break };
        listing = rest;
        entries += 1;
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_listing_are_counted_except_a_truncated_one() {
        let mut listing = vec![0_u8; 24 + 32];
        listing[16] = 24;
        listing[24 + 16] = 32;
        assert_eq!(entries(&listing), 2);
        assert_eq!(entries(&listing[..50]), 1);
        assert_eq!(entries(&[]), 0);
    }
}
