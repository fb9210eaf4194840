//! The interrupt of a timer: the time that a program loses each time that a timer expires (own; the kernel's
//! ticks and every timer of every other process take this time from the running program).
//!
//! One operation is a fixed amount of work, during which one timer expires without a waiter; the same work
//! without a timer is the baseline. The timers are set before the timed part, each to a different time,
//! because a periodic timer is only rearmed when it is read.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use assay_quantity::PrimitiveId;
use rand_pcg::Pcg64Mcg;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_getres,
    timerfd_create, timerfd_settime,
};

use crate::benchmark::{Disturbed, Operation, Per, Prepared, Refusal, Row, Setting, Sharing};
use crate::platform::clock::monotonic;
use crate::primitive::cpu::arithmetic::additions;

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    quick: &["interrupt.timer"],
    full: &[],
    cost: Per::Operation,
    calls: &[],
    about: "the interrupt of a timer that expires without waking a process: 10 us of additions during which \
            one `timerfd` expires, less the additions alone",
    source: "own: the time that every tick takes from the running program",
    prepare: timer,
}];

/// Work of one operation, ns: many times an interrupt, so that one has ended long before the next one occurs,
/// and short enough that the interrupts are a considerable part of the time.
const WORK_NS: u64 = 10_000;

/// Time from one expiry to the next, ns: less than the work takes even if the processor has become faster
/// since the work was measured, so that the last timer expires before the work has ended.
const SPACING_NS: u64 = 8_000;

/// Work before the first expiry and after the last one, ns, the same in every batch: the time between the
/// setting of the timers and the beginning of the work, and a reserve.
const MARGIN_NS: u64 = 200_000;

/// Maximum time for setting one timer, ns.
const SETTING_NS: u64 = 3_000;

/// The shortest batch: a shorter one would consist mostly of the margin.
const OPERATIONS_MIN: u64 = 64;

/// Number of timers: every process may have this many descriptors.
const TIMERS_MAX: usize = 512;

/// The required resolution of a timer, ns: coarser timers expire at ticks, several of them at the same one.
const RESOLUTION_NS: i64 = 1000;

/// Prepares one interrupt of a timer.
fn timer(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let resolution = clock_getres(ClockId::Monotonic);
    if resolution.tv_sec > 0 || resolution.tv_nsec > RESOLUTION_NS {
        return Err(Refusal::Unavailable(format!(
            "timers of this kernel expire at ticks, every {} ns; use one with CONFIG_HIGH_RES_TIMERS",
            resolution.tv_nsec
        )));
    }
    let worker = |timers, pace: &Pace, rng: &mut Pcg64Mcg| Interrupted {
        work: additions(rng),
        operation: pace.additions(WORK_NS),
        margin: pace.additions(2 * MARGIN_NS),
        timers,
        first_ns: 0,
        ran_ns: None,
    };
    let pace = Pace::measure(&mut setting.rng)?;
    let timers = (0..TIMERS_MAX).map(|_| one_timer()).collect::<io::Result<_>>()?;
    Ok(Prepared {
        operation: Box::new(worker(timers, &pace, &mut setting.rng)),
        baseline: Some(Box::new(worker(Vec::new(), &pace, &mut setting.rng))),
        sharing: Sharing::Alone,
    })
}

fn one_timer() -> io::Result<OwnedFd> {
    Ok(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?)
}

/// The speed of additions.
struct Pace {
    additions: u64,
    ns: u64,
}

impl Pace {
    /// Measures the fastest of a few attempts, so that work is never shorter than required.
    fn measure(rng: &mut Pcg64Mcg) -> io::Result<Self> {
        const ADDITIONS: u64 = 1 << 18;
        let mut work = additions(rng);
        let mut fastest_ns = u64::MAX;
        for _ in 0..5 {
            work.arm(ADDITIONS)?;
            let begun_ns = monotonic::now_ns();
            work.run(ADDITIONS)?;
            fastest_ns = fastest_ns.min(monotonic::now_ns() - begun_ns);
            work.disarm(ADDITIONS)?;
        }
        Ok(Self { additions: ADDITIONS, ns: fastest_ns.max(1) })
    }

    /// Returns the number of additions that take this time.
    fn additions(&self, ns: u64) -> u64 {
        self.additions * ns / self.ns
    }
}

/// Work during which timers expire, if there are any.
struct Interrupted<W> {
    work: W,
    /// Additions of one operation.
    operation: u64,
    /// Additions of a batch in addition to its operations.
    margin: u64,
    timers: Vec<OwnedFd>,
    /// The time at which the first timer expires.
    first_ns: u64,
    /// The times at which the work of a batch began and ended.
    ran_ns: Option<(u64, u64)>,
}

impl<W: Operation> Interrupted<W> {
    fn additions(&self, operations: u64) -> u64 {
        (self.margin + operations * self.operation).next_multiple_of(self.work.granule())
    }

    /// Sets a timer for each operation, and returns a margin before the first one expires.
    fn set_timers(&mut self, operations: u64) -> io::Result<()> {
        self.first_ns = monotonic::now_ns() + operations * SETTING_NS + MARGIN_NS;
        for (timer, turn) in self.timers.iter().zip(0..operations) {
            let expires_ns = self.first_ns + turn * SPACING_NS;
            let left = Duration::from_nanos(expires_ns.saturating_sub(monotonic::now_ns()).max(1));
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: left };
            timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
        }
        while monotonic::now_ns() + MARGIN_NS < self.first_ns {
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Checks that every timer has expired during the work.
    fn expect_expired(&self, operations: u64, (begun_ns, ended_ns): (u64, u64)) -> io::Result<()> {
        let last_ns = self.first_ns + operations.saturating_sub(1) * SPACING_NS;
        if begun_ns > self.first_ns {
            // Waits until all have expired, because none may expire in the next batch.
            while monotonic::now_ns() <= last_ns {
                std::hint::spin_loop();
            }
            let late_ns = begun_ns - self.first_ns;
            return Err(Disturbed::error(format!(
                "the work began {late_ns} ns after the first timer expired"
            )));
        }
        if ended_ns < last_ns {
            let early_ns = last_ns - ended_ns;
            return Err(io::Error::other(format!(
                "the work ended {early_ns} ns before the last timer expired: the processor has become faster"
            )));
        }
        for (timer, turn) in self.timers.iter().zip(0..operations) {
            let mut expired = [0; 8];
            let read = rustix::io::read(timer, &mut expired);
            if read != Ok(expired.len()) || u64::from_ne_bytes(expired) != 1 {
                return Err(io::Error::other(format!(
                    "timer {turn} of {operations} did not expire: {read:?}"
                )));
            }
        }
        Ok(())
    }
}

impl<W: Operation> Operation for Interrupted<W> {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.work.arm(self.additions(operations))?;
        if self.timers.is_empty() { Ok(()) } else { self.set_timers(operations) }
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        let begun_ns = monotonic::now_ns();
        self.work.run(self.additions(operations))?;
        self.ran_ns = Some((begun_ns, monotonic::now_ns()));
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.work.disarm(self.additions(operations))?;
        let ran_ns = self.ran_ns.take().ok_or_else(|| io::Error::other("the work was not executed"))?;
        if self.timers.is_empty() { Ok(()) } else { self.expect_expired(operations, ran_ns) }
    }

    fn max_batch(&self) -> u64 {
        TIMERS_MAX as u64
    }

    fn granule(&self) -> u64 {
        OPERATIONS_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn interrupted(timers: usize) -> Interrupted<impl Operation> {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let pace = Pace::measure(&mut rng).unwrap();
        Interrupted {
            work: additions(&mut rng),
            operation: pace.additions(WORK_NS),
            margin: pace.additions(2 * MARGIN_NS),
            timers: (0..timers).map(|_| one_timer().unwrap()).collect(),
            first_ns: 0,
            ran_ns: None,
        }
    }

    #[test]
    fn every_timer_expires_during_the_work() {
        // A busy machine may disturb a batch, which is then rejected, or the measurement of the pace. At
        // least one of a hundred attempts is undisturbed.
        let passes = (0..100).any(|_| {
            let mut interrupted = interrupted(64);
            interrupted.arm(64).unwrap();
            interrupted.run(64).unwrap();
            interrupted.disarm(64).is_ok()
        });
        assert!(passes);
    }

    #[test]
    fn a_timer_that_did_not_expire_is_an_error() {
        let mut interrupted = interrupted(64);
        interrupted.first_ns = monotonic::now_ns();
        let since = (interrupted.first_ns, interrupted.first_ns + 64 * SPACING_NS);
        let error = interrupted.expect_expired(64, since).unwrap_err().to_string();
        assert!(error.contains("timer 0 of 64 did not expire"), "{error}");
        let late = interrupted.expect_expired(64, (since.0 + 1, since.1)).unwrap_err();
        assert!(Disturbed::is(&late));
        assert_eq!(late.to_string(), "the work began 1 ns after the first timer expired");
        assert!(monotonic::now_ns() > interrupted.first_ns + 63 * SPACING_NS);
        let early = interrupted.expect_expired(64, (since.0, since.0)).unwrap_err();
        assert!(!Disturbed::is(&early));
        assert!(early.to_string().contains("ns before the last timer"), "{early}");
    }

    #[test]
    fn work_that_was_not_executed_is_an_error() {
        let mut interrupted = interrupted(0);
        interrupted.arm(64).unwrap();
        assert!(interrupted.disarm(64).is_err());
    }
}
