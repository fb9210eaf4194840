//! Atomic operations, on a line that only this processor uses and on a line that others change at the same
//! time (own; the basis of every lock, counter and queue between processors).
//!
//! A figure under contention is the time of one operation while the other processors execute the same
//! operation without a pause. It includes the transfer of the line between the processors, and depends on how
//! evenly the hardware distributes it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use assay_quantity::{Key, PrimitiveId};

use crate::benchmark::{Operation, Per, Prepare, Prepared, Refusal, Row, Setting, Sharing, expect_done};
use crate::platform::clock::monotonic;
use crate::platform::partner::Partner;
use crate::primitive::kit::limit;
use crate::primitive::kit::shared::Shared;
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    row(&["atomic.add"], "fetch-and-add to a line in this processor's cache", add),
    row(&["atomic.exchange"], "exchange with a line in this processor's cache", exchange),
    row(
        &["atomic.compare_exchange"],
        "compare-and-exchange that succeeds, in this processor's cache",
        compare,
    ),
    row(
        &["atomic.fence"],
        "store, and a sequentially consistent fence, which waits until the store is visible to all \
         processors",
        store_and_fence,
    ),
    row(
        &["atomic.add{threads=2,cpus=different}"],
        "fetch-and-add to a line to which `threads` - 1 others, each on its own processor, add without a \
         pause",
        add_contended,
    ),
    row(
        &["atomic.compare_exchange{threads=2,cpus=different}"],
        "addition by compare-and-exchange, repeated until it succeeds, to a line to which `threads` - 1 \
         others, each on its own processor, add without a pause",
        compare_contended,
    ),
];

const fn row(quick: &'static [&'static str], about: &'static str, prepare: Prepare) -> Row {
    let source = "own: the basis of locks, counters and queues between processors";
    Row { quick, full: &[], cost: Per::Operation, calls: &[], about, source, prepare }
}

/// A value aligned to the largest unit that processors fetch together: two lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

/// One fetch-and-add.
fn add(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(alone(|counter, _| counter.fetch_add(1, Ordering::SeqCst)))
}

/// One exchange.
fn exchange(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(alone(|counter, count| counter.swap(count + 1, Ordering::SeqCst)))
}

/// One compare-and-exchange that succeeds.
fn compare(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(alone(|counter, count| {
        // A value other than the count reveals the failure.
        match counter.compare_exchange(count, count + 1, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(found) | Err(found) => found,
        }
    }))
}

/// One store, followed by a fence.
fn store_and_fence(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(alone(|counter, count| {
        counter.store(count + 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        count
    }))
}

/// Counts from 0 with an operation that receives the counter and the count, and returns the count that it
/// found.
fn alone(operation: impl Fn(&AtomicU64, u64) -> u64 + 'static) -> Prepared {
    Prepared::alone(Steps::of(Alone { counter: Box::default(), count: 0, found: 0, operation }))
}

struct Alone<F> {
    counter: Box<Apart<AtomicU64>>,
    count: u64,
    /// Sum of the counts that the operations found.
    found: u64,
    operation: F,
}

impl<F: Fn(&AtomicU64, u64) -> u64> Step for Alone<F> {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        (self.count, self.found) = (0, 0);
        self.counter.0.store(0, Ordering::SeqCst);
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.found = self.found.wrapping_add((self.operation)(&self.counter.0, self.count));
        self.count += 1;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let counted = self.counter.0.load(Ordering::SeqCst);
        let due = u64::try_from(u128::from(operations) * u128::from(operations.saturating_sub(1)) / 2);
        if counted == operations && Ok(self.found) == due {
            return Ok(());
        }
        Err(io::Error::other(format!("the counter is at {counted} after {operations} operations")))
    }
}

/// One fetch-and-add, while others add.
fn add_contended(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    contended(id, setting, |counter| {
        counter.fetch_add(1, Ordering::SeqCst);
    })
}

/// One addition by compare-and-exchange, while others add.
fn compare_contended(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    contended(id, setting, |counter| {
        let mut count = counter.load(Ordering::Relaxed);
        while let Err(found) = counter.compare_exchange(count, count + 1, Ordering::SeqCst, Ordering::SeqCst)
        {
            count = found;
        }
    })
}

/// Adds one to a counter to which partners on other processors add in the same way.
fn contended(
    id: &PrimitiveId,
    setting: &Setting,
    operation: impl Fn(&AtomicU64) + Copy + 'static,
) -> Result<Prepared, Refusal> {
    let threads = limit::count(id, Key::Threads, 2..=setting.cpus.len().max(2) as u64)?;
    // The first partner runs on the processor that was assigned to the sample for a partner.
    let mut cpus: Vec<usize> = setting.other_cpu.into_iter().collect();
    cpus.extend(setting.cpus.iter().filter(|cpu| **cpu != setting.cpu && Some(**cpu) != setting.other_cpu));
    let Some(cpu) = cpus.first().copied() else {
        return Err(Refusal::Unavailable(
            "this process may use one processor only, but two are required".to_owned(),
        ));
    };
    let contended = Contended::begin(&cpus[..threads - 1], operation)?;
    let sharing = match contended.partners.as_slice() {
        [partner] => Sharing::TwoCpus { partner: partner.pid(), cpu },
        partners => Sharing::Many { others: partners.iter().map(Partner::pid).collect() },
    };
    Ok(Prepared { operation: Box::new(contended), baseline: None, sharing })
}

/// State shared by the contenders.
#[derive(Debug, Default)]
struct Arena {
    counter: Apart<AtomicU64>,
    /// Whether the partners should add.
    go: Apart<AtomicBool>,
    /// Number of partners that are adding.
    adding: Apart<AtomicU64>,
    /// Total that the partners have added.
    added: Apart<AtomicU64>,
}

struct Contended<F> {
    arena: Shared<Arena>,
    operation: F,
    partners: Vec<Partner>,
    done: u64,
}

/// Additions of a partner between two checks of whether to continue: few enough to stop immediately, and
/// enough to make the cost of the check, whose line stays in its cache, negligible.
const BETWEEN_LOOKS: u64 = 16;

/// Timeout for a partner to start or to stop: it only has to be scheduled.
const PATIENCE_NS: u64 = 2_000_000_000;

impl<F: Fn(&AtomicU64) + Copy> Contended<F> {
    fn begin(cpus: &[usize], operation: F) -> io::Result<Self> {
        let arena = Shared::new(Arena::default())?;
        let partners = cpus.iter().map(|cpu| Partner::fork(*cpu, || contend(&arena, operation)));
        let partners = partners.collect::<io::Result<_>>()?;
        Ok(Self { arena, operation, partners, done: 0 })
    }

    /// Starts or stops the additions of the partners, and waits until all of them or none of them add.
    fn let_add(&self, go: bool) -> io::Result<()> {
        self.arena.go.0.store(go, Ordering::SeqCst);
        let wanted = if go { self.partners.len() as u64 } else { 0 };
        let until = monotonic::now_ns() + PATIENCE_NS;
        while self.arena.adding.0.load(Ordering::SeqCst) != wanted {
            if monotonic::now_ns() > until {
                return Err(io::Error::other("a partner did not start or stop within 2 s"));
            }
            std::hint::spin_loop();
        }
        Ok(())
    }
}

/// The main loop of a partner: adds while it should, and reports how much.
fn contend(arena: &Arena, operation: impl Fn(&AtomicU64)) -> libc::c_int {
    loop {
        while !arena.go.0.load(Ordering::SeqCst) {
            std::hint::spin_loop();
        }
        arena.adding.0.fetch_add(1, Ordering::SeqCst);
        let mut added = 0;
        while arena.go.0.load(Ordering::Relaxed) {
            (0..BETWEEN_LOOKS).for_each(|_| operation(&arena.counter.0));
            added += BETWEEN_LOOKS;
        }
        arena.added.0.fetch_add(added, Ordering::SeqCst);
        arena.adding.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<F: Fn(&AtomicU64) + Copy> Operation for Contended<F> {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.arena.counter.0.store(0, Ordering::SeqCst);
        self.arena.added.0.store(0, Ordering::SeqCst);
        self.let_add(true)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            (self.operation)(&self.arena.counter.0);
        }
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.let_add(false)?;
        expect_done(std::mem::take(&mut self.done), operations)?;
        let [counted, others] =
            [&self.arena.counter, &self.arena.added].map(|count| count.0.load(Ordering::SeqCst));
        if counted == operations + others && others > 0 {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "the counter is at {counted} after {operations} additions here and {others} by the others"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(operation: impl Fn(&AtomicU64, u64) -> u64 + 'static, operations: u64) -> io::Result<()> {
        let mut prepared = alone(operation);
        prepared.operation.arm(operations)?;
        prepared.operation.run(operations)?;
        prepared.operation.disarm(operations)
    }

    #[test]
    fn an_operation_that_does_not_count_is_rejected() {
        counted(|counter, _| counter.fetch_add(1, Ordering::SeqCst), 1000).unwrap();
        counted(|counter, _| counter.fetch_add(0, Ordering::SeqCst), 1000).unwrap_err();
        counted(|_, count| count, 1000).unwrap_err();
        // The final count is correct, although nothing was added before.
        let only_the_last = |counter: &AtomicU64, count| {
            if count == 999 { counter.swap(1000, Ordering::SeqCst) } else { 0 }
        };
        counted(only_the_last, 1000).unwrap_err();
    }

    /// With one partner, on another processor if there is one.
    fn two() -> Contended<impl Fn(&AtomicU64) + Copy> {
        let cpus = assay_process::cpus::allowed().unwrap();
        let add = |counter: &AtomicU64| {
            counter.fetch_add(1, Ordering::SeqCst);
        };
        Contended::begin(&cpus[cpus.len() - 1..], add).unwrap()
    }

    /// Runs a batch in which the partner adds, even if the processors are busy.
    fn run_contended(contended: &mut Contended<impl Fn(&AtomicU64) + Copy>, operations: u64) {
        contended.arm(operations).unwrap();
        while contended.arena.counter.0.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        contended.run(operations).unwrap();
    }

    #[test]
    fn the_counter_is_the_sum_of_all_additions_and_a_lost_addition_is_detected() {
        let mut contended = two();
        for operations in [1000, 2000] {
            run_contended(&mut contended, operations);
            contended.disarm(operations).unwrap();
        }
        run_contended(&mut contended, 1000);
        contended.arena.counter.0.fetch_sub(1, Ordering::SeqCst);
        let error = contended.disarm(1000).unwrap_err().to_string();
        assert!(error.contains("after 1000 additions here"), "{error}");
    }

    #[test]
    fn a_batch_without_contention_is_rejected() {
        let mut contended = two();
        contended.arm(10).unwrap();
        contended.let_add(false).unwrap();
        contended.arena.counter.0.store(0, Ordering::SeqCst);
        contended.arena.added.0.store(0, Ordering::SeqCst);
        contended.run(10).unwrap();
        assert!(contended.disarm(10).unwrap_err().to_string().contains("0 by the others"));
    }
}
