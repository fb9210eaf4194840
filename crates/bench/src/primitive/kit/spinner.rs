//! A thread of this process that keeps another processor in user mode, or sleeps. The kernel must interrupt
//! that processor when something changes for the whole process, but not while the thread sleeps.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, Thread};

use assay_process::Process;

use crate::benchmark::{Refusal, Setting, Sharing};
use crate::platform::clock::monotonic;
use crate::platform::partner::PartnerThread;

/// The activity of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activity {
    /// It runs in user mode all the time.
    Spinning,
    /// It waits, and its processor executes nothing for this process.
    Sleeping,
}

/// The thread.
#[derive(Debug)]
pub(crate) struct Spinner {
    partner: PartnerThread,
    thread: Thread,
    cpu: usize,
    wish: Arc<Wish>,
}

/// Whether the thread has to spin, and the number of iterations of its loop.
#[derive(Debug, Default)]
struct Wish {
    spin: AtomicBool,
    turns: AtomicU64,
}

/// Timeout for a change of the activity, for which the thread only has to be scheduled.
const PATIENCE_NS: u64 = 2_000_000_000;

impl Spinner {
    /// Starts the thread, sleeping, on the sample's second processor.
    pub(crate) fn start(setting: &Setting) -> Result<Self, Refusal> {
        let cpu = setting.other_cpu.ok_or_else(|| {
            Refusal::Unavailable("this process may use one processor only, but two are required".to_owned())
        })?;
        Ok(Self::on(cpu)?)
    }

    fn on(cpu: usize) -> io::Result<Self> {
        let wish = Arc::new(Wish::default());
        let (sender, receiver) = mpsc::channel();
        let life = {
            let wish = wish.clone();
            move || {
                // Cannot fail: the caller waits for this message.
                let _ = sender.send(thread::current());
                spin_or_sleep(&wish);
            }
        };
        let partner = PartnerThread::spawn(cpu, life)?;
        let thread = receiver.recv().map_err(io::Error::other)?;
        Ok(Self { partner, thread, cpu, wish })
    }

    /// Returns the processor of the thread.
    pub(crate) fn cpu(&self) -> usize {
        self.cpu
    }

    /// Describes the thread as the participant on the second processor.
    pub(crate) fn sharing(&self) -> Sharing {
        Sharing::TwoCpus { partner: self.partner.tid(), cpu: self.cpu }
    }

    /// Sets the activity of the thread, and waits until the thread has changed to it.
    pub(crate) fn set(&self, activity: Activity) -> io::Result<()> {
        let turns = self.turns();
        self.wish.spin.store(activity == Activity::Spinning, Ordering::SeqCst);
        self.thread.unpark();
        let until = monotonic::now_ns() + PATIENCE_NS;
        while !self.does(activity, turns)? {
            if monotonic::now_ns() > until {
                return Err(io::Error::other(format!("the other thread was not {activity:?} within 2 s")));
            }
        }
        Ok(())
    }

    fn turns(&self) -> u64 {
        self.wish.turns.load(Ordering::SeqCst)
    }

    fn does(&self, activity: Activity, turns_before: u64) -> io::Result<bool> {
        if activity == Activity::Spinning {
            return Ok(self.turns() != turns_before);
        }
        // The intention to sleep is not enough: the kernel must report the thread as asleep.
        Ok(Process::read(self.partner.tid())?.is_some_and(|thread| thread.is_asleep()))
    }
}

/// Runs the thread.
fn spin_or_sleep(wish: &Wish) {
    loop {
        while wish.spin.load(Ordering::Relaxed) {
            wish.turns.fetch_add(1, Ordering::Relaxed);
        }
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_spins_and_sleeps_as_requested() {
        let spinner = Spinner::on(assay_process::cpus::allowed().unwrap()[0]).unwrap();
        for _ in 0..3 {
            let before = spinner.turns();
            spinner.set(Activity::Spinning).unwrap();
            assert!(spinner.turns() > before);
            spinner.set(Activity::Sleeping).unwrap();
            let asleep = spinner.turns();
            thread::yield_now();
            assert_eq!(spinner.turns(), asleep);
        }
    }
}
