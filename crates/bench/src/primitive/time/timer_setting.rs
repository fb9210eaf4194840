//! The cost of moving the expiry of an armed timer, as for every timeout of a server that is extended.

use std::io;
use std::os::fd::AsRawFd;

use assay_quantity::PrimitiveId;

use super::lateness::new_timerfd;
use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::check;
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["timer.setitimer"],
        full: &[],
        cost: Per::Operation,
        calls: &["setitimer"],
        about: "`setitimer` that moves the expiry of an armed `ITIMER_REAL`",
        source: "own: the cost of a timeout",
        prepare: setitimer,
    },
    Row {
        quick: &["timer.timer_settime"],
        full: &[],
        cost: Per::Operation,
        calls: &["timer_settime"],
        about: "`timer_settime` that moves the expiry of an armed POSIX timer",
        source: "own: the cost of a timeout",
        prepare: timer_settime,
    },
    Row {
        quick: &["timer.timerfd_settime"],
        full: &[],
        cost: Per::Operation,
        calls: &["timerfd_settime"],
        about: "`timerfd_settime` that moves the expiry of an armed timer",
        source: "own: the cost of a timeout",
        prepare: timerfd_settime,
    },
];

/// Time until the timers expire, in seconds: never during the measurement.
const AN_HOUR: libc::time_t = 3600;

fn setitimer(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    resetting(|interval| {
        let new = libc::itimerval {
            it_interval: libc::timeval { tv_sec: 0, tv_usec: interval.into() },
            it_value: libc::timeval { tv_sec: AN_HOUR, tv_usec: 0 },
        };
        // SAFETY: zeroes are a valid `itimerval`; the pointers are to locals that outlive the call.
        let (result, old) = unsafe {
            let mut old: libc::itimerval = std::mem::zeroed();
            (libc::setitimer(libc::ITIMER_REAL, &raw const new, &raw mut old), old)
        };
        check("setitimer", result)?;
        Ok(old.it_interval.tv_usec)
    })
}

fn timer_settime(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    // SAFETY: zeroes are a valid `timer_t`, and the pointer is to a local. Without an event, an expiry would
    // send SIGALRM.
    let timer = unsafe {
        let mut timer: libc::timer_t = std::mem::zeroed();
        let made = libc::timer_create(libc::CLOCK_MONOTONIC, std::ptr::null_mut(), &raw mut timer);
        check("timer_create", made)?;
        timer
    };
    resetting(move |interval| {
        let (new, mut old) = (in_an_hour(interval), in_an_hour(0));
        // SAFETY: the timer is ours, and the pointers are to locals that outlive the call.
        let result = unsafe { libc::timer_settime(timer, 0, &raw const new, &raw mut old) };
        check("timer_settime", result)?;
        Ok(old.it_interval.tv_nsec)
    })
}

fn timerfd_settime(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let timer = new_timerfd()?;
    resetting(move |interval| {
        let (new, mut old) = (in_an_hour(interval), in_an_hour(0));
        // SAFETY: the pointers are to locals that outlive the call.
        let result = unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const new, &raw mut old) };
        check("timerfd_settime", result)?;
        Ok(old.it_interval.tv_nsec)
    })
}

fn in_an_hour(interval_ns: u32) -> libc::itimerspec {
    libc::itimerspec {
        it_interval: libc::timespec { tv_sec: 0, tv_nsec: interval_ns.into() },
        it_value: libc::timespec { tv_sec: AN_HOUR, tv_nsec: 0 },
    }
}

/// Prepares repeated calls of `set`, which sets a timer to an hour from now with an interval and returns the
/// previous interval.
fn resetting(mut set: impl FnMut(u32) -> io::Result<libc::c_long> + 'static) -> Result<Prepared, Refusal> {
    set(INTERVALS)?;
    Ok(Prepared::alone(Steps::of(Reset { set, interval: INTERVALS })))
}

/// Intervals cycle from 1 to this value, in the unit of the call.
const INTERVALS: u32 = 999_999;

struct Reset<S> {
    set: S,
    interval: u32,
}

impl<S: FnMut(u32) -> io::Result<libc::c_long>> Step for Reset<S> {
    /// The kernel must return the interval of the previous setting.
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let due = libc::c_long::from(self.interval);
        self.interval = self.interval % INTERVALS + 1;
        let had = (self.set)(self.interval)?;
        if had == due { Ok(()) } else { Err(another_interval(due, had)) }
    }

    /// One more call returns the last setting of the batch.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        self.step()
    }
}

#[cold]
fn another_interval(due: libc::c_long, had: libc::c_long) -> io::Error {
    io::Error::other(format!("the timer was set to an interval of {due}, but had one of {had}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_that_was_not_set_is_detected_by_its_interval() {
        let mut had = 3;
        let mut set =
            Reset { set: move |interval: u32| Ok(std::mem::replace(&mut had, interval.into())), interval: 3 };
        set.step().unwrap();
        set.step().unwrap();
        let mut lost = Reset { set: |_| Ok(0), interval: 3 };
        let error = lost.step().unwrap_err().to_string();
        assert_eq!(error, "the timer was set to an interval of 3, but had one of 0");
    }
}
