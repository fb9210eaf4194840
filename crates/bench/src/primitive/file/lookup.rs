//! Lookup of a file by name: `open`, `stat`, and both for a name that does not exist (lmbench 3, lat_syscall;
//! thesis, section 4.2).

use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;

use assay_quantity::PrimitiveId;

use super::descriptor::{ZERO_STAT, check_size};
use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::{check, expect_error};
use crate::primitive::kit::scratch::{Scratch, any_size};
use crate::primitive::kit::slot::open_and_close;

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["file.open_close"],
        full: &[],
        cost: Per::Operation,
        calls: &["open", "openat", "close"],
        about: "`open` of an existing file, and `close`",
        source: "hbench-OS lat_syscall; thesis, section 4.2",
        prepare: open_close,
    },
    Row {
        quick: &["file.open_missing"],
        full: &[],
        cost: Per::Operation,
        calls: &["open", "openat"],
        about: "`open` that fails with `ENOENT`",
        source: "own: searches for libraries and configuration files consist of these",
        prepare: open_missing,
    },
    Row {
        quick: &["file.stat"],
        full: &[],
        cost: Per::Operation,
        calls: &["stat", "newfstatat", "statx"],
        about: "`stat` of a path",
        source: "hbench-OS lat_syscall; thesis, section 4.2",
        prepare: stat,
    },
    Row {
        quick: &["file.stat_missing"],
        full: &[],
        cost: Per::Operation,
        calls: &["stat", "newfstatat", "statx"],
        about: "`stat` that fails with `ENOENT`",
        source: "own: how interpreters search for modules",
        prepare: stat_missing,
    },
];

/// `open` of a file that exists, and `close`.
fn open_close(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let scratch = Scratch::with_bytes(setting, 1)?;
    Ok(open_and_close("open", move || Ok(open(&scratch.name)))?)
}

#[inline]
fn open(name: &CString) -> RawFd {
    // SAFETY: the name is a C string that outlives the call.
    unsafe { libc::open(name.as_ptr(), libc::O_RDONLY) }
}

/// `open` of a file that does not exist, in a directory that does.
fn open_missing(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let name = missing(setting)?;
    Ok(Prepared::repeat(move || expect_error("open", open(&name), libc::ENOENT)))
}

/// `stat` by path.
fn stat(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = any_size(setting);
    let scratch = Scratch::with_bytes(setting, size)?;
    let mut stat = ZERO_STAT;
    Ok(Prepared::repeat(move || {
        stat.st_size = 0;
        // SAFETY: the name is a C string; the call fills the structure or fails.
        check("stat", unsafe { libc::stat(scratch.name.as_ptr(), &raw mut stat) })?;
        check_size("stat", &stat, size)
    }))
}

/// `stat` of a file that does not exist, in a directory that does.
fn stat_missing(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let name = missing(setting)?;
    let mut stat = ZERO_STAT;
    Ok(Prepared::repeat(move || {
        // SAFETY: the name is a C string; the call fills the structure or fails.
        expect_error("stat", unsafe { libc::stat(name.as_ptr(), &raw mut stat) }, libc::ENOENT)
    }))
}

fn missing(setting: &Setting) -> io::Result<CString> {
    let path = setting.directory.join("missing");
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}
