//! The cost of a sleep to the sleeper: the part of a wait that the same call does not have if it need not
//! wait.
//!
//! One operation is `FUTEX_WAIT` for a word that a partner changes. The baseline is the call on a word that
//! has changed. Both are timed by the processor time of this thread, which does not pass while it sleeps.
//! An operation therefore includes taking the thread off the run queue, the switch away from it, and the
//! switch back to it; it includes neither the other work of the processor in between nor the interrupt that
//! ends its idling, which is charged to no thread.
//!
//! With `cpus=different` the partner stays awake on another processor and wakes this thread every [`NAP_NS`],
//! so that this processor is idle in between; with `sleep_deep`, every [`DEEP_NAP_NS`]. With `cpus=same` the
//! partner is what runs in between: it wakes this thread as soon as it is switched to, and yields.

use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use assay_process::accounting::{Who, usage};
use assay_quantity::{Key, PrimitiveId};

use super::wakeup::{AWAKE_ONE_IN, DEEP_NAP_NS, NAP_NS};
use crate::benchmark::{Disturbed, Operation, Per, Prepared, Refusal, Row, Setting, Timing, expect_done};
use crate::platform::clock::monotonic;
use crate::platform::kernel::expect_error;
use crate::platform::partner::Partner;
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

/// Sleeps of the longest batch with long naps, 16 ms; 2 us of processor time each are not much compared with
/// the nap.
const DEEP_MAX: u64 = 16;

fn sleep(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let nap_ns = if id.word(Key::Cpus) == "different" { NAP_NS } else { 0 };
    sleeps(id, setting, nap_ns, u64::MAX)
}

fn sleep_deeply(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    sleeps(id, setting, DEEP_NAP_NS, DEEP_MAX)
}

fn sleeps(id: &PrimitiveId, setting: &mut Setting, nap_ns: u64, longest: u64) -> Result<Prepared, Refusal> {
    let cpu = partner_cpu(id, setting)?;
    let word = Rc::new(Shared::new(AtomicU32::new(0))?);
    let theirs = word.clone();
    let waker = Partner::fork(cpu, move || wake_repeatedly(&theirs, nap_ns))?;
    let sharing = sharing(setting, cpu, &waker);
    Ok(Prepared {
        operation: Box::new(Sleeps { word, _waker: waker, longest, done: 0, switches_before: 0 }),
        baseline: Some(Box::new(Awake { word: Shared::new(AtomicU32::new(1))?, done: 0 })),
        sharing,
    })
}

/// Changes the word and wakes its sleeper, again and again, with a pause before each; without one it yields
/// to the sleeper. Returns if a call fails.
fn wake_repeatedly(word: &AtomicU32, pause_ns: u64) -> libc::c_int {
    loop {
        let begun_ns = monotonic::now_ns();
        while monotonic::now_ns().saturating_sub(begun_ns) < pause_ns {
            std::hint::spin_loop();
        }
        word.fetch_add(1, Ordering::Release);
        if futex_word::wake(word, Scope::Shared).is_err() {
            return libc::EXIT_FAILURE;
        }
        if pause_ns == 0 {
            std::thread::yield_now();
        }
    }
}

/// Waits that sleep until the waker changes the word.
struct Sleeps {
    word: Rc<Shared<AtomicU32>>,
    _waker: Partner,
    longest: u64,
    done: u64,
    /// Voluntary switches of this thread before the batch.
    switches_before: u64,
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
    if switches + 1 + operations / AWAKE_ONE_IN < operations {
        return Err(Disturbed::error(format!("{switches} of {operations} waits slept")));
    }
    Ok(())
}

/// Waits for a word that has changed.
struct Awake {
    word: Shared<AtomicU32>,
    done: u64,
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
    use assay_process::accounting::thread_cpu_ns;

    fn sleeps(nap_ns: u64) -> Sleeps {
        let cpu = assay_process::cpus::allowed().unwrap()[0];
        assay_process::cpus::pin(cpu).unwrap();
        let word = Rc::new(Shared::new(AtomicU32::new(0)).unwrap());
        let theirs = word.clone();
        let waker = Partner::fork(cpu, move || wake_repeatedly(&theirs, nap_ns)).unwrap();
        Sleeps { word, _waker: waker, longest: u64::MAX, done: 0, switches_before: 0 }
    }

    #[test]
    fn every_wait_sleeps_and_its_time_is_that_on_the_processor() {
        let mut sleeps = sleeps(DEEP_NAP_NS);
        // A busy machine may delay the sleeper. At least one of a hundred batches is undisturbed.
        let passes = (0..100).any(|_| {
            let begun_ns = thread_cpu_ns().unwrap();
            sleeps.arm(20).unwrap();
            sleeps.run(20).unwrap();
            let ran_ns = thread_cpu_ns().unwrap() - begun_ns;
            sleeps.disarm(20).is_ok() && ran_ns < 20 * DEEP_NAP_NS / 2
        });
        assert!(passes);
    }

    #[test]
    fn a_batch_that_stayed_awake_is_disturbed_and_one_that_did_not_wait_fails() {
        let mut sleeps = sleeps(0);
        sleeps.arm(40).unwrap();
        assert!(sleeps.disarm(40).unwrap_err().to_string().contains("0 of 40 operations were done"));
        for (slept, accepted) in [(36, false), (37, true)] {
            let disturbed = check(slept, 40).is_err_and(|error| Disturbed::is(&error));
            assert_eq!(disturbed, !accepted, "{slept} of 40 waits slept");
        }
    }
}
