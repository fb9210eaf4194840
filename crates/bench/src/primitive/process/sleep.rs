//! The cost of a sleep to the sleeper: the part of a wait that the same call does not have if it need not
//! wait.
//!
//! One operation is `FUTEX_WAIT` for a word that a partner changes. The baseline is the call on a word that
//! has changed. Both are timed by the processor time of this thread, as the kernel charges it: an operation
//! includes the way to the scheduler, the switch back to the thread, and what it finds cold then. What the
//! scheduler does after it has read its clock is charged to the thread that runs next: taking this thread off
//! the run queue, and the switch away from it. If the processor becomes idle, no thread is charged for it,
//! nor for the interrupt that ends the idling.
//!
//! With `cpus=different` the partner stays awake on another processor and wakes this thread every [`NAP_NS`],
//! so that this processor is idle in between; with `sleep_deep`, every [`DEEP_NAP_NS`]. With `cpus=same` the
//! partner is what runs in between: it wakes this thread as soon as it is switched to, and yields.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use assay_process::accounting::{Who, usage};
use assay_quantity::{Key, PrimitiveId};

use super::wakeup::{AWAKE_ONE_IN, DEEP_NAP_NS, NAP_NS};
use crate::benchmark::{Disturbed, Operation, Per, Prepared, Refusal, Row, Setting, Timing, expect_done};
use crate::platform::clock::monotonic;
use crate::platform::kernel::expect_error;
use crate::platform::partner::{Partner, wait_until};
use crate::primitive::kit::futex_word::{self, Scope};
use crate::primitive::kit::placement::{partner_cpu, sharing};
use crate::primitive::kit::shared::Shared;

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["process.sleep{cpus=*}"],
        full: &[],
        cost: Per::Operation,
        calls: &["futex"],
        about: "processor time of a `FUTEX_WAIT` that sleeps, less one that need not: on different processors \
                this one is idle until the other wakes it every 50 us; on the same one the waker runs in between",
        source: "own: the cost of a request in addition to its calls if the server sleeps before it",
        prepare: sleep,
    },
    Row {
        quick: &["process.sleep_deep{cpus=different}"],
        full: &[],
        cost: Per::Operation,
        calls: &["futex"],
        about: "processor time of a `FUTEX_WAIT` that sleeps, less one that need not: this processor is idle \
                until another wakes it every 1 ms",
        source: "own: the cost of a sleep that is long enough for a deeper idle state",
        prepare: sleep_deeply,
    },
];

/// What the partner does before each wake-up.
#[derive(Debug, Clone, Copy)]
enum Before {
    /// It lets this thread run, which shares its processor.
    Yield,
    /// It stays awake for a time.
    Pause { ns: u64 },
}

impl Before {
    /// Returns the number of sleeps of the longest batch: with pauses, few enough for a sample of less than
    /// 100 ms, the limit of the quick profile.
    fn longest(self) -> u64 {
        match self {
            Before::Yield => u64::MAX,
            Before::Pause { ns } => (4 * DEEP_NAP_NS / ns).min(64),
        }
    }
}

fn sleep(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let different = id.word(Key::Cpus) == "different";
    sleeps(id, setting, if different { Before::Pause { ns: NAP_NS } } else { Before::Yield })
}

fn sleep_deeply(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    sleeps(id, setting, Before::Pause { ns: DEEP_NAP_NS })
}

fn sleeps(id: &PrimitiveId, setting: &mut Setting, before: Before) -> Result<Prepared, Refusal> {
    let cpu = partner_cpu(id, setting)?;
    let (sleeps, awake) = (Sleeps::beside(cpu, before)?, Awake::new()?);
    let sharing = sharing(setting, cpu, &sleeps.waker);
    Ok(Prepared { operation: Box::new(sleeps), baseline: Some(Box::new(awake)), sharing })
}

/// Changes the word and wakes its sleeper, again and again. Returns if a call fails.
fn wake_repeatedly(word: &AtomicU32, before: Before) -> libc::c_int {
    loop {
        match before {
            Before::Yield => std::thread::yield_now(),
            Before::Pause { ns } => {
                let begun_ns = monotonic::now_ns();
                while monotonic::now_ns().saturating_sub(begun_ns) < ns {
                    std::hint::spin_loop();
                }
            }
        }
        word.fetch_add(1, Ordering::Release);
        if futex_word::wake(word, Scope::Shared).is_err() {
            return libc::EXIT_FAILURE;
        }
    }
}

/// Waits that sleep until the waker changes the word.
struct Sleeps {
    word: Shared<AtomicU32>,
    waker: Partner,
    longest: u64,
    done: u64,
    /// Voluntary switches of this thread before the batch.
    switches_before: u64,
}

impl Sleeps {
    /// Forks a waker on processor `cpu`, and waits until it has begun.
    fn beside(cpu: usize, before: Before) -> io::Result<Self> {
        let word = Shared::new(AtomicU32::new(0))?;
        let waker = Partner::fork(cpu, || wake_repeatedly(&word, before))?;
        wait_until(|| Ok(word.load(Ordering::Acquire) > 0), "the waker did not begin")?;
        Ok(Self { word, waker, longest: before.longest(), done: 0, switches_before: 0 })
    }
}

impl Operation for Sleeps {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.switches_before = usage(Who::Thread)?.voluntary_switches;
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            futex_word::wait_while(&self.word, self.word.load(Ordering::Acquire), Scope::Shared)?;
        }
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        check(usage(Who::Thread)?.voluntary_switches - self.switches_before, operations)
    }

    fn timing(&self) -> Timing {
        Timing::Processor
    }

    fn max_batch(&self) -> u64 {
        self.longest
    }
}

/// Checks that all but a few of the waits slept: the word may change just before one.
fn check(switches: u64, operations: u64) -> io::Result<()> {
    if switches + operations / AWAKE_ONE_IN < operations {
        return Err(Disturbed::error(format!("{switches} of {operations} waits slept")));
    }
    Ok(())
}

/// Waits that need not sleep: the word has changed.
struct Awake {
    word: Shared<AtomicU32>,
    done: u64,
}

impl Awake {
    fn new() -> io::Result<Self> {
        Ok(Self { word: Shared::new(AtomicU32::new(1))?, done: 0 })
    }
}

impl Operation for Awake {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            expect_error("futex", futex_word::wait(&self.word, 0, Scope::Shared), libc::EAGAIN)?;
        }
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)
    }

    fn timing(&self) -> Timing {
        Timing::Processor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sleeps beside a waker on the same processor.
    fn sleeps() -> Sleeps {
        let cpu = assay_process::cpus::allowed().unwrap()[0];
        assay_process::cpus::pin(cpu).unwrap();
        Sleeps::beside(cpu, Before::Yield).unwrap()
    }

    #[test]
    fn waits_sleep_and_those_of_the_baseline_do_not() {
        let (mut sleeps, mut awake) = (sleeps(), Awake::new().unwrap());
        // On a busy machine the word may change before a wait. At least one of a hundred batches is
        // undisturbed.
        let passes = (0..100).any(|_| {
            sleeps.arm(20).unwrap();
            sleeps.run(20).unwrap();
            let result = sleeps.disarm(20);
            assert!(result.as_ref().err().is_none_or(Disturbed::is), "{result:?}");
            result.is_ok()
        });
        assert!(passes);
        let before = usage(Who::Thread).unwrap().voluntary_switches;
        awake.run(20).unwrap();
        awake.disarm(20).unwrap();
        assert_eq!(usage(Who::Thread).unwrap().voluntary_switches, before);
    }

    #[test]
    fn operation_and_baseline_are_timed_by_processor_time() {
        assert_eq!(sleeps().timing(), Timing::Processor);
        assert_eq!(Awake::new().unwrap().timing(), Timing::Processor);
    }

    #[test]
    fn a_batch_that_stayed_awake_is_disturbed_and_one_that_did_not_wait_fails() {
        let mut sleeps = sleeps();
        sleeps.arm(40).unwrap();
        assert!(sleeps.disarm(40).unwrap_err().to_string().contains("0 of 40 operations were done"));
        for (slept, operations, accepted) in [(37, 40, false), (38, 40, true), (14, 15, false), (0, 1, false)]
        {
            let disturbed = check(slept, operations).is_err_and(|error| Disturbed::is(&error));
            assert_eq!(disturbed, !accepted, "{slept} of {operations} waits slept");
        }
    }

    #[test]
    fn a_sample_with_pauses_ends_soon() {
        let longest = [NAP_NS, DEEP_NAP_NS].map(|ns| Before::Pause { ns }.longest());
        assert_eq!(longest, [64, 4]);
    }
}
