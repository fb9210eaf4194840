//! The cheapest calls: the way into the kernel and back, and the clock that needs no such way
//! (lmbench, 1996, section 6.3; thesis, section 4.2).

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;

use assay_quantity::PrimitiveId;

use crate::benchmark::{Prepared, Refusal, Setting};
use crate::kernel::{check, expect};
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        ids: &["call.null"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["getppid"],
        about: "getppid: into the kernel and back",
        source: "lmbench 1996, section 6.3; thesis, section 4.2 (lower bound of every call)",
        prepare: null,
    },
    Row {
        ids: &["null.write{size=1B}"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["write"],
        about: "write of one byte to /dev/null",
        source: "lmbench 1996, section 6.3",
        prepare: null_write,
    },
    Row {
        ids: &["clock.gettime"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &[],
        about: "clock_gettime(CLOCK_MONOTONIC) through the C library and its vDSO",
        source: "own: servers ask for the time more often than for anything else",
        prepare: clock_gettime,
    },
];

/// `getppid`, which no library may answer from memory.
fn null(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::repeat(|| {
        // SAFETY: the call takes no arguments.
        check("getppid", unsafe { libc::syscall(libc::SYS_getppid) }).map(drop)
    }))
}

/// A write of one byte that the driver throws away: descriptor lookup and VFS, and nothing below.
fn null_write(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let sink = OpenOptions::new().write(true).open("/dev/null")?;
    Ok(Prepared::repeat(move || {
        let byte = 0_u8;
        // SAFETY: the pointer is to a local of one byte.
        expect("write", unsafe { libc::write(sink.as_raw_fd(), (&raw const byte).cast(), 1) }, 1)
    }))
}

/// `clock_gettime(CLOCK_MONOTONIC)` through the C library, so through the vDSO where there is one.
fn clock_gettime(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::repeat(|| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a local that outlives the call.
        let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        std::hint::black_box(time.tv_nsec);
        check("clock_gettime", result).map(drop)
    }))
}
