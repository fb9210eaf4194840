//! How late a sleep ends (lmbench 3, `lat_usleep`).
//!
//! One operation is a sleep of a fixed length; the baseline, staying awake for the same time, is subtracted
//! (it adds one reading of the clock per batch). The remainder is the time from the requested moment until
//! the sleeper runs: the slack that the kernel may use to end several sleeps together, the timer's interrupt
//! on an idle processor, and the path from there into the process. The slack is set explicitly, because it is
//! inherited: to the kernel's default of 50 us, or to the minimum. A timerfd has no slack.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use assay_quantity::PrimitiveId;
use rustix::event::epoll;

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, Sharing, expect_done};
use crate::platform::clock::monotonic;
use crate::platform::kernel::{check, expect, own};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["timer.nanosleep_lateness"],
        full: &[],
        cost: Per::Operation,
        calls: &["clock_nanosleep", "nanosleep"],
        about: "time by which a `nanosleep` of 100 us exceeds 100 us, with a slack of 50 us",
        source: "lmbench 3, lat_usleep",
        prepare: nanosleep,
    },
    Row {
        quick: &["timer.nanosleep_lateness_without_slack"],
        full: &[],
        cost: Per::Operation,
        calls: &["clock_nanosleep", "nanosleep"],
        about: "time by which a `nanosleep` of 100 us exceeds 100 us, with a slack of 1 ns",
        source: "lmbench 3, lat_usleep, without the slack",
        prepare: nanosleep_without_slack,
    },
    Row {
        quick: &[],
        full: &["timer.select_lateness"],
        cost: Per::Operation,
        calls: &["select", "pselect6"],
        about: "time by which a `select` of 100 us without descriptors exceeds 100 us, with a slack of 50 \
                us",
        source: "lmbench 3, lat_usleep",
        prepare: select,
    },
    Row {
        quick: &["timer.epoll_lateness"],
        full: &[],
        cost: Per::Operation,
        calls: &["epoll_wait", "epoll_pwait"],
        about: "time by which an `epoll_wait` of 1 ms without descriptors exceeds 1 ms, with a slack of 50 \
                us",
        source: "own: the timers of event loops",
        prepare: epoll,
    },
    Row {
        quick: &["timer.timerfd_lateness"],
        full: &[],
        cost: Per::Operation,
        calls: &["timerfd_settime", "read"],
        about: "time by which `timerfd_settime` to 100 us and `read` exceed 100 us",
        source: "own: the timers of event loops",
        prepare: timerfd,
    },
];

/// The kernel's default slack and the smallest one that can be set, ns (prctl(2)).
const SLACK_DEFAULT_NS: libc::c_ulong = 50_000;
const SLACK_LEAST_NS: libc::c_ulong = 1;

/// The requested sleep: long enough for the processor to become idle, short enough for many in a sample.
const ASKED_NS: libc::c_long = 100_000;

/// `epoll_wait` counts in milliseconds.
const ASKED_MS: libc::c_int = 1;

fn nanosleep(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    nanosleeps(SLACK_DEFAULT_NS)
}

fn nanosleep_without_slack(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    nanosleeps(SLACK_LEAST_NS)
}

fn nanosleeps(slack_ns: libc::c_ulong) -> Result<Prepared, Refusal> {
    set_slack(slack_ns)?;
    Ok(late(ASKED_NS, || {
        let asked = libc::timespec { tv_sec: 0, tv_nsec: ASKED_NS };
        // SAFETY: the pointer is to a local; the pointer to the remaining time is null.
        check("nanosleep", unsafe { libc::nanosleep(&raw const asked, std::ptr::null_mut()) }).map(drop)
    }))
}

fn select(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    set_slack(SLACK_DEFAULT_NS)?;
    Ok(late(ASKED_NS, || {
        let mut asked = libc::timeval { tv_sec: 0, tv_usec: ASKED_NS / 1000 };
        let nothing = std::ptr::null_mut();
        // SAFETY: there are no descriptors, and the pointer to the timeout is to a local.
        let ready = unsafe { libc::select(0, nothing, nothing, nothing, &raw mut asked) };
        expect("select", ready as isize, 0)
    }))
}

fn epoll(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    set_slack(SLACK_DEFAULT_NS)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
    Ok(late(1_000_000 * libc::c_long::from(ASKED_MS), move || {
        // SAFETY: zeroes are a valid `epoll_event`, and the kernel writes at most one of them.
        let ready = unsafe {
            let mut event: libc::epoll_event = std::mem::zeroed();
            libc::epoll_wait(poll.as_raw_fd(), &raw mut event, 1, ASKED_MS)
        };
        expect("epoll_wait", ready as isize, 0)
    }))
}

fn timerfd(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let timer = new_timerfd()?;
    Ok(late(ASKED_NS, move || set_and_read(&timer)))
}

/// Creates a timer that is not armed.
pub(super) fn new_timerfd() -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers only.
    own("timerfd_create", unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) })
}

#[inline]
fn set_and_read(timer: &OwnedFd) -> io::Result<()> {
    let once = libc::itimerspec {
        it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: libc::timespec { tv_sec: 0, tv_nsec: ASKED_NS },
    };
    let (fd, mut expirations) = (timer.as_raw_fd(), 0_u64);
    // SAFETY: the pointer is to a local; the pointer to the previous setting is null.
    check("timerfd_settime", unsafe { libc::timerfd_settime(fd, 0, &raw const once, std::ptr::null_mut()) })?;
    // SAFETY: eight bytes are read into a local of eight.
    let got = unsafe { libc::read(fd, (&raw mut expirations).cast(), size_of::<u64>()) };
    expect("read", got, size_of::<u64>())?;
    if expirations == 1 {
        Ok(())
    } else {
        Err(io::Error::other(format!("the timer expired {expirations} times")))
    }
}

fn set_slack(slack_ns: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the call takes numbers only, and changes this thread only.
    check("prctl", unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns) }).map(drop)
}

/// Prepares the lateness of a sleep of this many nanoseconds.
fn late(asked_ns: libc::c_long, sleep: impl FnMut() -> io::Result<()> + 'static) -> Prepared {
    let asked_ns = asked_ns.unsigned_abs();
    Prepared {
        operation: Box::new(Asleep { sleep, asked_ns, slept_ns: 0, done: 0 }),
        baseline: Some(Box::new(Awake { asked_ns, waited_ns: 0 })),
        sharing: Sharing::Asleep,
    }
}

struct Asleep<S> {
    sleep: S,
    asked_ns: u64,
    slept_ns: u64,
    done: u64,
}

impl<S: FnMut() -> io::Result<()>> Operation for Asleep<S> {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        let begun_ns = monotonic::now_ns();
        for _ in 0..operations {
            (self.sleep)()?;
        }
        self.slept_ns = monotonic::now_ns() - begun_ns;
        self.done = operations;
        Ok(())
    }

    /// A real sleep never ends early, whereas a call that does nothing returns immediately.
    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        long_enough(self.slept_ns, operations * self.asked_ns)
    }
}

/// Stays awake until each moment at which one of a series of back-to-back sleeps would have to end.
struct Awake {
    asked_ns: u64,
    waited_ns: u64,
}

impl Operation for Awake {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        let begun_ns = monotonic::now_ns();
        let mut now_ns = begun_ns;
        for operation in 1..=operations {
            while now_ns - begun_ns < operation * self.asked_ns {
                std::hint::spin_loop();
                now_ns = monotonic::now_ns();
            }
        }
        self.waited_ns = now_ns - begun_ns;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        long_enough(std::mem::take(&mut self.waited_ns), operations * self.asked_ns)
    }
}

fn long_enough(took_ns: u64, asked_ns: u64) -> io::Result<()> {
    if took_ns >= asked_ns {
        return Ok(());
    }
    Err(io::Error::other(format!("waited {took_ns} ns instead of the requested {asked_ns} ns")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_that_ends_too_early_is_an_error() {
        let mut asleep = Asleep { sleep: || Ok(()), asked_ns: 1_000_000_000, slept_ns: 0, done: 0 };
        asleep.run(3).unwrap();
        let error = asleep.disarm(3).unwrap_err().to_string();
        assert!(error.contains("instead of the requested 3000000000 ns"), "{error}");
    }

    #[test]
    fn staying_awake_lasts_as_long_as_the_requested_sleeps() {
        let mut awake = Awake { asked_ns: 10_000, waited_ns: 0 };
        awake.run(7).unwrap();
        awake.disarm(7).unwrap();
        assert!(awake.disarm(7).is_err(), "once only");
    }
}
