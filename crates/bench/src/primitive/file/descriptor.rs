//! Calls on an open file that transfer no bytes: reading its size and flags, changing its position,
//! duplicating its descriptor.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use assay_quantity::PrimitiveId;

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::{check, failed};
use crate::primitive::kit::scratch::{Scratch, any_size};
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["file.fstat"],
        full: &[],
        cost: Per::Operation,
        calls: &["fstat", "newfstatat", "statx"],
        about: "`fstat` of an open file",
        source: "lmbench 3, lat_syscall fstat",
        prepare: fstat,
    },
    Row {
        quick: &["file.dup_close"],
        full: &[],
        cost: Per::Operation,
        calls: &["dup", "close"],
        about: "`dup` of a descriptor, and `close` of the copy",
        source: "own: how shells and servers move descriptors",
        prepare: dup_close,
    },
    Row {
        quick: &["file.lseek"],
        full: &[],
        cost: Per::Operation,
        calls: &["lseek"],
        about: "`lseek` to another position of an open file",
        source: "own: how buffered readers change their position",
        prepare: lseek,
    },
    Row {
        quick: &["file.fcntl"],
        full: &[],
        cost: Per::Operation,
        calls: &["fcntl"],
        about: "`fcntl(F_GETFL)` on an open file",
        source: "own: how libraries check descriptors that they receive",
        prepare: fcntl,
    },
];

/// A structure that `stat` fills.
// SAFETY: `stat` consists of numbers only, so zeroes are a valid value.
pub(super) const ZERO_STAT: libc::stat = unsafe { std::mem::zeroed() };

/// Checks that the file of this `stat` has the expected size.
#[inline]
pub(super) fn check_size(call: &'static str, stat: &libc::stat, due: usize) -> io::Result<()> {
    if usize::try_from(stat.st_size) == Ok(due) { Ok(()) } else { Err(wrong_size(call, stat.st_size, due)) }
}

#[cold]
fn wrong_size(call: &'static str, reported: libc::off_t, due: usize) -> io::Error {
    io::Error::other(format!("{call} reported a size of {reported} bytes for a file of {due} bytes"))
}

/// The number of the next descriptor: the lowest free one, as POSIX guarantees. A call that returns it has
/// created a descriptor, and if a later call returns it again, the previous descriptor was closed.
pub(super) struct Slot(RawFd);

impl Slot {
    /// Finds the number. It changes if another descriptor is created and kept open.
    pub(super) fn find() -> io::Result<Self> {
        Ok(Self(std::fs::File::open("/dev/null")?.as_raw_fd()))
    }

    /// Checks that a call has created a descriptor with this number.
    #[inline]
    pub(super) fn check(&self, call: &'static str, descriptor: RawFd) -> io::Result<()> {
        if descriptor == self.0 { Ok(()) } else { Err(self.not_next(call, descriptor)) }
    }

    #[cold]
    fn not_next(&self, call: &'static str, descriptor: RawFd) -> io::Error {
        if descriptor < 0 {
            return failed(call);
        }
        io::Error::other(format!(
            "{call} returned descriptor {descriptor} instead of {}, the next free one",
            self.0
        ))
    }

    /// Checks that no descriptor has this number.
    pub(super) fn check_closed(&self) -> io::Result<()> {
        // SAFETY: the call takes numbers only.
        if unsafe { libc::fcntl(self.0, libc::F_GETFD) } < 0 {
            Ok(())
        } else {
            Err(io::Error::other(format!("descriptor {} is still open after close", self.0)))
        }
    }
}

/// `fstat` of an open file.
fn fstat(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = any_size(setting);
    let scratch = Scratch::with_bytes(setting, size)?;
    let mut stat = ZERO_STAT;
    Ok(Prepared::repeat(move || {
        stat.st_size = 0;
        // SAFETY: the descriptor is open; the call fills the structure or fails.
        check("fstat", unsafe { libc::fstat(scratch.descriptor(), &raw mut stat) })?;
        check_size("fstat", &stat, size)
    }))
}

/// `dup`, and `close` of the copy.
fn dup_close(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Steps::of(DupClose { scratch: Scratch::empty(setting)?, slot: Slot::find()? })))
}

struct DupClose {
    scratch: Scratch,
    slot: Slot,
}

impl Step for DupClose {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.slot = Slot::find()?;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        // SAFETY: the descriptor is open.
        let copy = unsafe { libc::dup(self.scratch.descriptor()) };
        self.slot.check("dup", copy)?;
        // SAFETY: closes the new descriptor, which nothing else uses.
        check("close", unsafe { libc::close(copy) }).map(drop)
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        self.slot.check_closed()
    }
}

/// Number of positions that `lseek` cycles through. None of them is 0, the result of a call that does
/// nothing.
const POSITIONS: libc::off_t = 4096;

/// `lseek` to a different position each time.
fn lseek(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let scratch = Scratch::empty(setting)?;
    let mut position = 1;
    Ok(Prepared::repeat(move || {
        position = position % POSITIONS + 1;
        // SAFETY: the descriptor is open.
        let reported = unsafe { libc::lseek(scratch.descriptor(), position, libc::SEEK_SET) };
        match check("lseek", reported)? {
            reported if reported == position => Ok(()),
            reported => Err(io::Error::other(format!("lseek to {position} moved to {reported}"))),
        }
    }))
}

/// `fcntl` that reads the flags of a file.
fn fcntl(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let scratch = Scratch::empty(setting)?;
    Ok(Prepared::repeat(move || {
        // SAFETY: the descriptor is open.
        let flags = check("fcntl", unsafe { libc::fcntl(scratch.descriptor(), libc::F_GETFL) })?;
        if flags & libc::O_ACCMODE == libc::O_RDWR {
            Ok(())
        } else {
            Err(io::Error::other("fcntl returned flags that differ from those of open"))
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_descriptor_and_one_that_stays_open_are_detected() {
        // Other tests of this process open and close files, so this slot is far above theirs.
        let base = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: the descriptor is open.
        let high = unsafe { libc::fcntl(base.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 900) };
        let slot = Slot(high);
        slot.check("dup", high).unwrap();
        let error = slot.check("dup", 0).unwrap_err().to_string();
        assert_eq!(error, format!("dup returned descriptor 0 instead of {high}, the next free one"));
        assert!(slot.check_closed().unwrap_err().to_string().contains("is still open"));
        // SAFETY: closes the copy created above.
        assert_eq!(unsafe { libc::close(high) }, 0);
        slot.check_closed().unwrap();
    }

    #[test]
    fn a_wrong_size_is_detected() {
        let mut stat = ZERO_STAT;
        stat.st_size = 7;
        check_size("stat", &stat, 7).unwrap();
        let error = check_size("stat", &stat, 8).unwrap_err().to_string();
        assert_eq!(error, "stat reported a size of 7 bytes for a file of 8 bytes");
        stat.st_size = -1;
        assert!(check_size("stat", &stat, 8).is_err());
    }
}
