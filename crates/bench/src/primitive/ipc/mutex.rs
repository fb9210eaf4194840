//! Locks: a mutex without contention, and one that several threads contend for.
//!
//! The mutex protects a non-atomic counter: its final value is right only if no two threads were ever in the
//! critical section at the same time.

use std::cell::UnsafeCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use assay_quantity::{Key, PrimitiveId};

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, Sharing, expect_done};
use crate::platform::clock::monotonic;
use crate::platform::kernel::check_pthread;
use crate::platform::partner::PartnerThread;
use crate::primitive::kit::futex_word::check_that_the_kernel_answers;
use crate::primitive::kit::limit;
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["mutex.lock_unlock"],
        full: &[],
        cost: Per::Operation,
        calls: &[],
        about: "`pthread_mutex_lock` and `unlock` of a free mutex, in a process of several threads (with one \
                thread the C library uses no atomic operations)",
        source: "own: the cost of every critical section",
        prepare: lock_unlock,
    },
    Row {
        quick: &["mutex.contended{threads=2}"],
        full: &["mutex.contended{threads=2|4|8}"],
        cost: Per::Operation,
        calls: &["futex"],
        about: "one critical section, which increments a counter, of any of the threads, which all enter it \
                repeatedly until the total is reached; if there are more threads than processors, they share \
                processors",
        source: "own: the cost of a contended lock",
        prepare: contended,
    },
];

/// Maximum number of threads that contend for one mutex.
const THREADS_MAX: u64 = 256;

/// Prepares lock, increment, unlock.
fn lock_unlock(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    // With one thread, the C library's mutex does not use atomic operations.
    let second = PartnerThread::spawn(setting.cpu, || {
        loop {
            std::thread::park();
        }
    })?;
    Ok(Prepared::alone(Steps::of(LockUnlock { guarded: Guarded::default(), before: 0, _second: second })))
}

struct LockUnlock {
    guarded: Guarded,
    before: u64,
    _second: PartnerThread,
}

impl Step for LockUnlock {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.before = self.guarded.count()?;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        // The counter never reaches this target, so every section counts.
        self.guarded.enter(u64::MAX).map(drop)
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.guarded.check(self.before, operations)
    }
}

/// A counter and the mutex that protects it, on one cache line, as data and its lock often are.
#[repr(align(128))]
struct Guarded {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    counter: UnsafeCell<u64>,
}

impl Default for Guarded {
    fn default() -> Self {
        Self { mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER), counter: UnsafeCell::new(0) }
    }
}

// SAFETY: the counter is touched only by the thread that holds the mutex.
unsafe impl Sync for Guarded {}
// SAFETY: neither field is tied to a thread; a mutex is not moved after its first use, because `Guarded` is
// then shared or boxed.
unsafe impl Send for Guarded {}

impl Guarded {
    /// Executes one critical section, which increments the counter unless it has reached the target. Returns
    /// whether it incremented the counter.
    #[inline]
    fn enter(&self, target: u64) -> io::Result<bool> {
        // SAFETY: the mutex is initialised. Between lock and unlock this thread has exclusive access to the
        // counter; the accesses are volatile, so that additions are not merged.
        unsafe {
            check_pthread("pthread_mutex_lock", libc::pthread_mutex_lock(self.mutex.get()))?;
            let counter = self.counter.get();
            let count = counter.read_volatile();
            if count != target {
                counter.write_volatile(count.wrapping_add(1));
            }
            check_pthread("pthread_mutex_unlock", libc::pthread_mutex_unlock(self.mutex.get()))?;
            Ok(count != target)
        }
    }

    fn count(&self) -> io::Result<u64> {
        // SAFETY: as above.
        unsafe {
            check_pthread("pthread_mutex_lock", libc::pthread_mutex_lock(self.mutex.get()))?;
            let count = self.counter.get().read_volatile();
            check_pthread("pthread_mutex_unlock", libc::pthread_mutex_unlock(self.mutex.get()))?;
            Ok(count)
        }
    }

    fn check(&self, before: u64, sections: u64) -> io::Result<()> {
        let counted = self.count()?.wrapping_sub(before);
        if counted == sections {
            return Ok(());
        }
        Err(io::Error::other(format!("expected {sections} critical sections, counted {counted}")))
    }
}

/// Prepares several threads that contend for one mutex.
fn contended(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let threads = limit::count(id, Key::Threads, 2..=THREADS_MAX)?;
    let other_cpu = setting.other_cpu.ok_or_else(|| {
        Refusal::Unavailable(
            "this process may use one processor only, but a contended lock requires several; allow another one"
                .to_owned(),
        )
    })?;
    let rest = setting.cpus.iter().copied().filter(|cpu| ![setting.cpu, other_cpu].contains(cpu));
    let cpus: Vec<usize> = [setting.cpu, other_cpu].into_iter().chain(rest).collect();
    let contest = Arc::new(Contest::default());
    let mut partners = Vec::new();
    for thread in 1..threads {
        let contest = contest.clone();
        partners.push(PartnerThread::spawn(cpus[thread % cpus.len()], move || contest.take_part())?);
    }
    let sharing = match partners.as_slice() {
        [partner] => Sharing::TwoCpus { partner: partner.tid(), cpu: other_cpu },
        partners => Sharing::Many { others: partners.iter().map(PartnerThread::tid).collect() },
    };
    let operation = Contended { contest, partners: partners.len() as u64, before: 0 };
    Ok(Prepared { operation: Box::new(operation), baseline: None, sharing })
}

/// The state that the threads of a batch share.
#[derive(Default)]
struct Contest {
    guarded: Guarded,
    /// The value of the counter at the end of this batch.
    target: AtomicU64,
    /// Critical sections of all threads in this batch: the sum of their own counts.
    sections: AtomicU64,
    /// Batches that have been armed. Each partner prepares for each of them.
    armed: AtomicU64,
    /// Partners that wait for the start of the armed batch.
    ready: AtomicU64,
    /// Batches that have been started.
    started: AtomicU64,
    /// Partners that have seen that the target is reached.
    finished: AtomicU64,
}

/// Interval at which partners, which sleep between batches, check whether the next one is armed.
const LOOK: Duration = Duration::from_micros(50);

/// Time after which a partner that has not responded counts as lost, ns.
const LOST_NS: u64 = 2_000_000_000;

impl Contest {
    /// Runs a partner until a lock fails; the batch then detects that the partner is missing.
    fn take_part(&self) {
        for batch in 1.. {
            while self.armed.load(Ordering::Acquire) < batch {
                std::thread::sleep(LOOK);
            }
            self.ready.fetch_add(1, Ordering::Release);
            // Stays awake from here on, so that all threads begin together.
            while self.started.load(Ordering::Acquire) < batch {
                std::thread::yield_now();
            }
            if self.fight().is_err() {
                return;
            }
            self.finished.fetch_add(1, Ordering::Release);
        }
    }

    /// Enters the critical section until the target is reached, so that all threads contend until the end.
    #[inline]
    fn fight(&self) -> io::Result<()> {
        let target = self.target.load(Ordering::Relaxed);
        let mut sections = 0;
        while self.guarded.enter(target)? {
            sections += 1;
        }
        self.sections.fetch_add(sections, Ordering::Release);
        Ok(())
    }

    /// Waits, without sleeping, until a counter has reached the number of partners.
    fn wait_for(counter: &AtomicU64, partners: u64) -> io::Result<()> {
        let begun_ns = monotonic::now_ns();
        while counter.load(Ordering::Acquire) < partners {
            if monotonic::now_ns().saturating_sub(begun_ns) > LOST_NS {
                return Err(io::Error::other(
                    "a thread did not respond within 2 s; it may have missed an unlock",
                ));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// Critical sections whose number all threads reach together.
struct Contended {
    contest: Arc<Contest>,
    partners: u64,
    before: u64,
}

impl Operation for Contended {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        let contest = &self.contest;
        self.before = contest.guarded.count()?;
        contest.target.store(self.before.wrapping_add(operations), Ordering::Relaxed);
        for counter in [&contest.sections, &contest.ready, &contest.finished] {
            counter.store(0, Ordering::Relaxed);
        }
        contest.armed.fetch_add(1, Ordering::Release);
        Contest::wait_for(&contest.ready, self.partners)
    }

    fn run(&mut self, _: u64) -> io::Result<()> {
        self.contest.started.fetch_add(1, Ordering::Release);
        self.contest.fight()?;
        Contest::wait_for(&self.contest.finished, self.partners)
    }

    /// Checks that no increment was lost, which would happen if two threads were in the critical section at
    /// the same time, and that threads that slept did so in the kernel.
    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        check_that_the_kernel_answers()?;
        expect_done(self.contest.sections.load(Ordering::Acquire), operations)?;
        self.contest.guarded.check(self.before, operations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_contend_for_the_mutex_count_every_section_exactly_once() {
        let cpu = assay_process::cpus::allowed().unwrap()[0];
        let contest = Arc::new(Contest::default());
        let theirs = contest.clone();
        PartnerThread::spawn(cpu, move || theirs.take_part()).unwrap();
        let mut contended = Contended { contest, partners: 1, before: 0 };
        for operations in [1, 64, 10_000] {
            contended.arm(operations).unwrap();
            contended.run(operations).unwrap();
            contended.disarm(operations).unwrap();
            assert!(contended.disarm(operations + 1).is_err());
        }
    }

    #[test]
    fn a_lost_increment_is_an_error() {
        let guarded = Guarded::default();
        assert!(guarded.enter(2).unwrap());
        guarded.check(0, 1).unwrap();
        let error = guarded.check(0, 2).unwrap_err().to_string();
        assert!(error.contains("expected 2 critical sections, counted 1"), "{error}");
        assert!(guarded.enter(2).unwrap());
        assert!(!guarded.enter(2).unwrap(), "the target is reached");
        guarded.check(0, 2).unwrap();
    }
}
