//! The cost to the waker of waking a sleeper on the same processor.
//!
//! A sleeper that is woken may take the processor immediately, so that a switch would be measured. The
//! sleepers therefore use a policy that does not preempt (`SCHED_BATCH`), and there is one for every wake-up
//! of a batch: they run when the batch has ended. Tasks of `SCHED_IDLE` do not preempt either, but with two
//! busy loops on the processor it took a second until all of them were asleep again. The cost consists of the
//! kernel's search for the sleeper and the enqueueing of the sleeper in this processor's run queue.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use assay_quantity::PrimitiveId;

use crate::benchmark::{Disturbed, Operation, Per, Prepared, Refusal, Row, Setting, Sharing, expect_done};
use crate::platform::partner::{PartnerThread, wait_until};
use crate::primitive::kit::futex_word::{self, Scope, WakeNone};
use crate::primitive::kit::step::Steps;

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    quick: &["process.wakeup{cpus=same}"],
    full: &[],
    cost: Per::Operation,
    calls: &["futex"],
    about: "`FUTEX_WAKE` of a thread that sleeps on this processor and does not preempt, less one without a \
            sleeper",
    source: "own: the cost of a request in addition to its bytes if its reader sleeps",
    prepare: wake_here,
}];

/// Number of sleepers on this processor, which is the length of the longest batch. A sample creates a thread
/// for each.
const SLEEPERS: usize = 128;

/// Prepares `FUTEX_WAKE` of a thread on this processor.
fn wake_here(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let board = Arc::new(AtomicU64::new(0));
    let mut words = Vec::with_capacity(SLEEPERS);
    for _ in 0..SLEEPERS {
        let word = Arc::new(AtomicU32::new(0));
        let (theirs, wakes) = (word.clone(), board.clone());
        PartnerThread::spawn(setting.cpu, move || sleep_here(&theirs, &wakes))?;
        words.push(word);
    }
    let here = WakesHere { words, wakes: board, due: SLEEPERS as u64, done: 0, awake: 0, ran: 0 };
    Ok(Prepared {
        operation: Box::new(here),
        baseline: Some(Box::new(Steps::of(WakeNone::default()))),
        sharing: Sharing::OneCpu { partners: Vec::new() },
    })
}

/// Runs a sleeper on this processor.
fn sleep_here(word: &AtomicU32, wakes: &AtomicU64) {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a local that outlives the call, which changes this thread only.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) } != 0 {
        return;
    }
    for seen in 0.. {
        wakes.fetch_add(1, Ordering::Release);
        while word.load(Ordering::Acquire) == seen {
            if futex_word::wait_while(word, seen, Scope::Private).is_err() {
                return;
            }
        }
    }
}

struct WakesHere {
    words: Vec<Arc<AtomicU32>>,
    /// Number of wake-ups that sleepers have reported, plus one for each sleeper that has begun.
    wakes: Arc<AtomicU64>,
    /// The expected value of `wakes`.
    due: u64,
    done: u64,
    /// Sleepers that were not asleep and therefore not woken.
    awake: u64,
    /// Sleepers that ran before the batch had ended.
    ran: u64,
}

impl Operation for WakesHere {
    /// Waits until all sleepers have reported their last wake-up and have then had the processor long enough
    /// to fall asleep.
    fn arm(&mut self, _: u64) -> io::Result<()> {
        wait_until(|| Ok(self.wakes.load(Ordering::Acquire) == self.due), "not all sleepers woke up")?;
        std::thread::sleep(Duration::from_micros(100));
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        for (word, _) in self.words.iter().zip(0..operations) {
            word.fetch_add(1, Ordering::Release);
            match futex_word::wake(word, Scope::Private)? {
                1 => {}
                0 => self.awake += 1,
                woken => return Err(io::Error::other(format!("futex woke {woken} sleepers instead of one"))),
            }
            self.done += 1;
        }
        self.due += self.done;
        self.ran = self.wakes.load(Ordering::Acquire) + self.done - self.due;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        self.arm(operations)?;
        let (awake, ran) = (std::mem::take(&mut self.awake), self.ran);
        // A tick of the clock may let one run; if the scheduler lets most run, most wake-ups include a
        // switch.
        if awake > 0 || (ran > 1 && 2 * ran > operations) {
            return Err(Disturbed::error(format!(
                "{awake} of {operations} sleepers were awake and {ran} ran before the batch had ended"
            )));
        }
        Ok(())
    }

    fn max_batch(&self) -> u64 {
        SLEEPERS as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleepers_on_this_processor_run_after_the_batch_that_wakes_them() {
        let cpu = assay_process::cpus::allowed().unwrap()[0];
        assay_process::cpus::pin(cpu).unwrap();
        let (wakes, word) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU32::new(0)));
        let (theirs, counted) = (word.clone(), wakes.clone());
        PartnerThread::spawn(cpu, move || sleep_here(&theirs, &counted)).unwrap();
        let mut here = WakesHere { words: vec![word], wakes, due: 1, done: 0, awake: 0, ran: 0 };
        // On a busy machine the sleeper may fall asleep too late. At least one of a hundred batches is
        // undisturbed.
        let passes = (0..100).any(|_| {
            here.arm(1).unwrap();
            here.run(1).unwrap();
            here.disarm(1).is_ok()
        });
        assert!(passes);
        assert!(here.disarm(1).unwrap_err().to_string().contains("0 of 1 operations were done"));
        (here.done, here.ran) = (3, 2);
        let error = here.disarm(3).unwrap_err();
        assert!(Disturbed::is(&error));
        assert_eq!(error.to_string(), "0 of 3 sleepers were awake and 2 ran before the batch had ended");
    }
}
