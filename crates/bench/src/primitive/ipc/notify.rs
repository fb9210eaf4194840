//! Descriptors that report events: event counters, queued signals, processes.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use assay_quantity::PrimitiveId;
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, getrlimit};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::{self, check, expect};
use crate::primitive::kit::slot::open_and_close;
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["eventfd.write_read"],
        full: &[],
        cost: Per::Operation,
        calls: &["write", "read"],
        about: "`write` of a number to an event counter and `read` of it",
        source: "own: how event loops wake themselves",
        prepare: write_read,
    },
    Row {
        quick: &["signalfd.read"],
        full: &[],
        cost: Per::Operation,
        calls: &["read"],
        about: "`read` of a queued signal through a `signalfd`",
        source: "own: signals of an event loop",
        prepare: read_signal,
    },
    Row {
        quick: &["pidfd.open_close"],
        full: &[],
        cost: Per::Operation,
        calls: &["pidfd_open", "close"],
        about: "`pidfd_open` of this process and `close`",
        source: "own: how supervisors keep a stable reference to a process",
        prepare: open_close,
    },
    Row {
        quick: &[],
        full: &["pidfd.send_signal"],
        cost: Per::Operation,
        calls: &["pidfd_send_signal"],
        about: "`pidfd_send_signal` to this process, the handler, and the return from it",
        source: "own: for comparison with signal.deliver",
        prepare: send_signal,
    },
];

/// Prepares the write of a number to a counter and its read, with a different number each time.
fn write_read(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let counter = eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from)?;
    Ok(Prepared::alone(Steps::of(Counter { counter, number: 0 })))
}

struct Counter {
    counter: OwnedFd,
    number: u64,
}

impl Step for Counter {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.number += 1;
        let (fd, mut number) = (self.counter.as_raw_fd(), self.number);
        // SAFETY: the pointer is to a local of eight bytes.
        expect("write", unsafe { libc::write(fd, (&raw const number).cast(), 8) }, 8)?;
        number = 0;
        // SAFETY: as above.
        expect("read", unsafe { libc::read(fd, (&raw mut number).cast(), 8) }, 8)?;
        if number == self.number { Ok(()) } else { Err(another_number(self.number, number)) }
    }

    /// `step` has already checked that every number came back.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cold]
fn another_number(due: u64, came: u64) -> io::Error {
    io::Error::other(format!("read {came} instead of {due}"))
}

/// Prepares the `read` of one queued signal.
fn read_signal(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let signal = libc::SIGRTMIN();
    // SAFETY: the set is filled before it is used; the calls change this thread's mask, and create a
    // descriptor that has no other owner.
    let queue = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        check("sigaddset", libc::sigaddset(&raw mut set, signal))?;
        check("sigprocmask", libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()))?;
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        OwnedFd::from_raw_fd(check("signalfd", libc::signalfd(-1, &raw const set, flags))?)
    };
    let longest = getrlimit(Resource::Sigpending).current.unwrap_or(u64::MAX).min(QUEUED_MAX) / 2;
    Ok(Prepared::alone(Steps::of(ReadSignal { queue, signal, sent: 0, read: 0, longest })))
}

/// Maximum number of queued signals, if the limit allows as many: a millisecond of reads.
const QUEUED_MAX: u64 = 8192;

struct ReadSignal {
    queue: OwnedFd,
    signal: libc::c_int,
    /// The values of the last queued signal and of the last one read.
    sent: usize,
    read: usize,
    longest: u64,
}

impl Step for ReadSignal {
    /// Queues a signal for each operation, each with a different value.
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            self.sent += 1;
            let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(self.sent) };
            // SAFETY: the signal is blocked, so it is queued for this process, and its value is never used as
            // a pointer.
            check("sigqueue", unsafe { libc::sigqueue(libc::getpid(), self.signal, value) })?;
        }
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.read += 1;
        // SAFETY: zeroes are a valid value of the structure, and the pointer and the length describe a local.
        let (got, signal) = unsafe {
            let mut signal: libc::signalfd_siginfo = std::mem::zeroed();
            let length = size_of::<libc::signalfd_siginfo>();
            (libc::read(self.queue.as_raw_fd(), (&raw mut signal).cast(), length), signal)
        };
        expect("read", got, size_of::<libc::signalfd_siginfo>())?;
        if signal.ssi_ptr == self.read as u64 {
            Ok(())
        } else {
            Err(another_number(self.read as u64, signal.ssi_ptr))
        }
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        if self.read == self.sent {
            return Ok(());
        }
        Err(io::Error::other(format!("{} signals were queued, but {} were read", self.sent, self.read)))
    }

    fn max_batch(&self) -> u64 {
        self.longest
    }
}

/// Prepares `pidfd_open` of this process and `close`.
fn open_close(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let own = own_pid();
    pidfd_open(own)?;
    Ok(open_and_close("pidfd_open", move || {
        // SAFETY: the call takes numbers only.
        let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, own, 0) };
        RawFd::try_from(opened).map_err(io::Error::other)
    })?)
}

fn own_pid() -> libc::pid_t {
    // SAFETY: the call takes no arguments and cannot fail.
    unsafe { libc::getpid() }
}

fn pidfd_open(pid: libc::pid_t) -> Result<OwnedFd, Refusal> {
    // SAFETY: the call takes numbers only.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if opened < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
        return Err(Refusal::Unavailable("this kernel has no pidfd_open; it needs Linux 5.3".to_owned()));
    }
    Ok(kernel::own("pidfd_open", libc::c_int::try_from(opened).map_err(io::Error::other)?)?)
}

/// Prepares a signal to this process through its descriptor.
fn send_signal(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let handler: extern "C" fn(libc::c_int) = count;
    // SAFETY: zeroes are a valid `sigaction`: no flags, an empty mask. The handler only adds to an atomic,
    // which is allowed in a signal handler.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        check("sigaction", libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()))?;
    }
    let own = pidfd_open(own_pid())?;
    Ok(Prepared::alone(Steps::of(SendSignal { own, before: 0 })))
}

static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

struct SendSignal {
    own: OwnedFd,
    before: u64,
}

impl Step for SendSignal {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.before = HANDLED.load(Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let nothing: *const libc::siginfo_t = std::ptr::null();
        // SAFETY: sends a signal that has a handler to this process.
        let result = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.own.as_raw_fd(), libc::SIGUSR2, nothing, 0)
        };
        check("pidfd_send_signal", result).map(drop)
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let handled = HANDLED.load(Ordering::Relaxed) - self.before;
        if handled == operations {
            return Ok(());
        }
        Err(io::Error::other(format!("{operations} signals were sent, but {handled} were handled")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_returns_the_number_that_was_written() {
        let mut counter = Counter { counter: eventfd(0, EventfdFlags::empty()).unwrap(), number: 41 };
        counter.step().unwrap();
        assert_eq!(counter.number, 42);
        rustix::io::write(&counter.counter, &1_u64.to_ne_bytes()).unwrap();
        assert!(counter.step().unwrap_err().to_string().contains("read 44 instead of 43"));
    }
}
