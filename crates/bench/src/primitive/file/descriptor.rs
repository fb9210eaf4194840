//! Calls on an open file that transfer no bytes: reading its size and flags, changing its position,
//! duplicating its descriptor.

use std::io;

use assay_quantity::PrimitiveId;

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::check;
use crate::primitive::kit::scratch::{Scratch, any_size};
use crate::primitive::kit::slot::open_and_close;

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
    let scratch = Scratch::empty(setting)?;
    // SAFETY: the descriptor is open.
    Ok(open_and_close("dup", move || Ok(unsafe { libc::dup(scratch.descriptor()) }))?)
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
