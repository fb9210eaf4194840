//! The cheapest calls: entry into the kernel and return, and the clock, which does not enter the kernel
//! (lmbench, 1996, section 6.3; thesis, section 4.2).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;

use assay_quantity::{PrimitiveId, Size};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::{check, expect};
use crate::platform::layout::Buffer;
use crate::primitive::kit::limit;
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["call.null"],
        full: &[],
        cost: Per::Operation,
        calls: &["getppid"],
        about: "`getppid`, a raw system call: entry into the kernel and return",
        source: "lmbench 1996, section 6.3; thesis, section 4.2 (lower bound of every call)",
        prepare: null,
    },
    Row {
        quick: &["null.read{size=1B|64KiB}"],
        full: &[],
        cost: Per::Operation,
        calls: &["read"],
        about: "`read` of `size` bytes from `/dev/zero`",
        source: "lmbench 3, lat_syscall read",
        prepare: null_read,
    },
    Row {
        quick: &["null.write{size=1B}"],
        full: &[],
        cost: Per::Operation,
        calls: &["write"],
        about: "`write` of one byte to `/dev/null`",
        source: "lmbench 1996, section 6.3",
        prepare: null_write,
    },
    Row {
        quick: &["clock.gettime"],
        full: &[],
        cost: Per::Operation,
        calls: &[],
        about: "`clock_gettime(CLOCK_MONOTONIC)` through the C library and its vDSO",
        source: "own: the most frequent call of servers",
        prepare: clock_gettime,
    },
    Row {
        quick: &["clock.gettime_call"],
        full: &[],
        cost: Per::Operation,
        calls: &["clock_gettime"],
        about: "`clock_gettime(CLOCK_MONOTONIC)` as a raw system call, without the vDSO",
        source: "own: the clocks that the vDSO does not read, and machines without a vDSO",
        prepare: clock_gettime_call,
    },
];

/// Largest transfer from `/dev/zero` and to `/dev/null`: beyond this size, memory is measured instead.
const SIZE_MAX: Size = Size::mib(1);

/// `getppid`, which no library caches.
fn null(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let parent = parent()?;
    if parent == 0 {
        // The kernel returns 0 for a parent in another PID namespace, and so does a call that does nothing.
        return Err(Refusal::Unavailable(
            "the parent of the measuring process is outside of its PID namespace; start assay from a shell there"
                .to_owned(),
        ));
    }
    Ok(Prepared::repeat(move || {
        // SAFETY: the call takes no arguments.
        let answer = unsafe { libc::syscall(libc::SYS_getppid) };
        if answer == parent { Ok(()) } else { Err(not_the_parent(answer)) }
    }))
}

/// A read of one byte that the driver generates: descriptor lookup, VFS, and one byte cleared.
fn null_read(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let source = File::open("/dev/zero")?;
    let size = limit::size(id, Size(1)..=SIZE_MAX)?;
    let mut buffer = Buffer::new(size, &mut setting.rng)?;
    Ok(Prepared::repeat(move || {
        buffer[0] = 1;
        buffer[size - 1] = 1;
        // SAFETY: the pointer and the length are those of a slice that is borrowed mutably.
        let got = unsafe { libc::read(source.as_raw_fd(), buffer.as_mut_ptr().cast(), size) };
        expect("read", got, size)?;
        if buffer[0] | buffer[size - 1] == 0 {
            Ok(())
        } else {
            Err(io::Error::other("read from /dev/zero left bytes that are not zero"))
        }
    }))
}

/// A write that the driver discards: descriptor lookup and VFS, and nothing below.
fn null_write(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let sink = OpenOptions::new().write(true).open("/dev/null")?;
    let size = limit::size(id, Size(1)..=SIZE_MAX)?;
    let buffer = Buffer::new(size, &mut setting.rng)?;
    Ok(Prepared::repeat(move || {
        // SAFETY: the pointer and the length are those of a slice.
        let written = unsafe { libc::write(sink.as_raw_fd(), buffer.as_ptr().cast(), size) };
        expect("write", written, size)
    }))
}

/// Returns the parent of this process from a source other than `getppid`.
fn parent() -> io::Result<libc::c_long> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.and_then(|number| number.trim().parse().ok())
        .ok_or_else(|| io::Error::other("/proc/self/status contains no PPid"))
}

#[cold]
fn not_the_parent(answer: libc::c_long) -> io::Error {
    io::Error::other(format!("getppid returned {answer}, which is not the parent of this process"))
}

/// `clock_gettime(CLOCK_MONOTONIC)` through the C library, and therefore through the vDSO if available.
fn clock_gettime(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    // SAFETY: the pointer is to a variable that outlives the call.
    Ok(reading(|time| unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, time) }.into()))
}

/// `clock_gettime(CLOCK_MONOTONIC)` by a system call.
fn clock_gettime_call(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    // SAFETY: as above.
    Ok(reading(|time| unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, time) }))
}

fn reading(read: impl FnMut(&mut libc::timespec) -> libc::c_long + 'static) -> Prepared {
    Prepared::alone(Steps::of(ClockGettime { read, armed: NEVER, last: NEVER }))
}

struct ClockGettime<F> {
    read: F,
    armed: libc::timespec,
    last: libc::timespec,
}

const NEVER: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

impl<F: FnMut(&mut libc::timespec) -> libc::c_long> Step for ClockGettime<F> {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.step()?;
        self.armed = std::mem::replace(&mut self.last, NEVER);
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        check("clock_gettime", (self.read)(&mut self.last)).map(drop)
    }

    /// Checks that the last time of the batch is between its beginning and now.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        let of = |time: libc::timespec| (time.tv_sec, time.tv_nsec);
        let last = self.last;
        self.step()?;
        if of(self.armed) <= of(last) && of(last) <= of(self.last) {
            Ok(())
        } else {
            Err(io::Error::other("clock_gettime returned a time that is not within the batch"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_the_one_that_the_kernel_returns() {
        assert_eq!(parent().unwrap(), libc::c_long::from(std::os::unix::process::parent_id().cast_signed()));
    }

    #[test]
    fn a_clock_that_was_not_read_within_the_batch_is_detected() {
        // SAFETY: the pointer is to a variable that outlives the call.
        let read =
            |time: &mut libc::timespec| unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, time) }.into();
        let mut clock = ClockGettime { read, armed: NEVER, last: NEVER };
        clock.arm(1).unwrap();
        assert!(clock.disarm(1).is_err(), "never read");
        clock.arm(1).unwrap();
        clock.step().unwrap();
        clock.disarm(1).unwrap();
        clock.arm(1).unwrap();
        clock.last = libc::timespec { tv_sec: libc::time_t::MAX, tv_nsec: 0 };
        assert!(clock.disarm(1).is_err(), "a time in the future");
    }
}
