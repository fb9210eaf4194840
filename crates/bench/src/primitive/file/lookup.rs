//! Lookup of a file by name: `open`, `stat`, `access` and `readlink`, and some of them for a name that does
//! not exist (lmbench 3, lat_syscall; thesis, section 4.2).

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;

use assay_quantity::PrimitiveId;

use super::descriptor::{ZERO_STAT, check_size};
use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::{check, expect, expect_error};
use crate::primitive::kit::scratch::{Scratch, any_size};
use crate::primitive::kit::slot::open_and_close;
use crate::primitive::kit::step::{Step, Steps};

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
    Row {
        quick: &["file.access"],
        full: &[],
        cost: Per::Operation,
        calls: &["access", "faccessat", "faccessat2"],
        about: "`access` of a path",
        source: "own: how loaders and scripts check for a file",
        prepare: access,
    },
    Row {
        quick: &["file.access_missing"],
        full: &[],
        cost: Per::Operation,
        calls: &["access", "faccessat", "faccessat2"],
        about: "`access` that fails with `ENOENT`",
        source: "own: how every dynamic program looks for `/etc/ld.so.preload`",
        prepare: access_missing,
    },
    Row {
        quick: &["file.readlink"],
        full: &[],
        cost: Per::Operation,
        calls: &["readlink", "readlinkat"],
        about: "`readlink` of a symbolic link",
        source: "own: how programs find the real path of a file",
        prepare: readlink,
    },
    Row {
        quick: &["file.readlink_missing"],
        full: &[],
        cost: Per::Operation,
        calls: &["readlink", "readlinkat"],
        about: "`readlink` that fails with `ENOENT`",
        source: "own: how compilers search for a file",
        prepare: readlink_missing,
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

/// `access` of a file that exists, for any kind of access.
fn access(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let (scratch, missing) = (Scratch::with_bytes(setting, 1)?, missing(setting)?);
    Ok(Prepared::alone(Steps::of(Access { scratch, missing })))
}

struct Access {
    scratch: Scratch,
    missing: CString,
}

/// Calls `access` and returns its result.
#[inline]
fn accessed(name: &CString) -> libc::c_int {
    // SAFETY: the name is a C string that outlives the call.
    unsafe { libc::access(name.as_ptr(), libc::F_OK) }
}

impl Step for Access {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        check("access", accessed(&self.scratch.name)).map(drop)
    }

    /// A call that is not made succeeds for every name.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        expect_error("access", accessed(&self.missing), libc::ENOENT)
    }
}

/// `access` of a file that does not exist.
fn access_missing(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let name = missing(setting)?;
    Ok(Prepared::repeat(move || expect_error("access", accessed(&name), libc::ENOENT)))
}

/// `readlink` of a link.
fn readlink(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    const TARGET: &str = "the target of the link";
    let link = tempfile::Builder::new()
        .prefix("link-")
        .make_in(&setting.directory, |path| std::os::unix::fs::symlink(TARGET, path))?;
    let name = CString::new(link.path().as_os_str().as_bytes()).map_err(io::Error::other)?;
    Ok(Prepared::repeat(move || {
        let _exists = &link;
        expect("readlink", linked(&name), TARGET.len())
    }))
}

/// `readlink` of a name that does not exist.
fn readlink_missing(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let name = missing(setting)?;
    Ok(Prepared::repeat(move || expect_error("readlink", linked(&name), libc::ENOENT)))
}

/// Calls `readlink` and returns its result.
#[inline]
fn linked(name: &CString) -> isize {
    let mut target = [MaybeUninit::<u8>::uninit(); 256];
    // SAFETY: the name is a C string; the pointer and the length are those of an array.
    unsafe { libc::readlink(name.as_ptr(), target.as_mut_ptr().cast(), target.len()) }
}

fn missing(setting: &Setting) -> io::Result<CString> {
    let path = setting.directory.join("missing");
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}
