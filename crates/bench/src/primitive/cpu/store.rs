//! Stores and the buffer in which they wait (Bershad, Draves and Forin, *Using Microbenchmarks to Evaluate
//! System Performance*, 1992, section 3.2: a lock that is taken and released with no store in between appears
//! cheaper than any lock in real use, because the write buffer never fills).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use assay_quantity::{Key, PrimitiveId};

use super::arithmetic::Multiplications;
use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, expect_done};
use crate::platform::layout::{Buffer, LINE};
use crate::primitive::kit::limit;
use crate::primitive::kit::pieces::Pieces;
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["spinlock.lock_unlock"],
        full: &[],
        cost: Per::Operation,
        calls: &[],
        about: "a free lock taken by compare-and-exchange and released by a store, with nothing in between",
        source: "Using Microbenchmarks to Evaluate System Performance, 1992, section 3.2",
        prepare: lock_unlock,
    },
    Row {
        quick: &["spinlock.lock_store_unlock{buffer=*}"],
        full: &[],
        cost: Per::Operation,
        calls: &[],
        about: "a free lock taken and released, with one store in between to the data that it protects, \
                which is in the cache or in none",
        source: "Using Microbenchmarks to Evaluate System Performance, 1992, section 3.2",
        prepare: lock_store_unlock,
    },
    Row {
        quick: &[],
        full: &["cpu.stores{stores=1|8|16|24|32|40|48|56|64|72|80|88|96|112|128}"],
        cost: Per::Operation,
        calls: &[],
        about: "this number of stores to lines that are in the second-level cache only, and then 384 \
                dependent multiplications",
        source: "uarch-bench; the 1992 paper, section 3.2: the depth of a write buffer may be hard to \
                 discover",
        prepare: burst,
    },
];

/// Prepares taking and releasing a free lock.
fn lock_unlock(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Steps::of(Lock { word: Box::new(AtomicU64::new(0)), turns: 0, protected: Nothing })))
}

/// Prepares taking a free lock, one store, and releasing the lock.
fn lock_store_unlock(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let protected = Bytes { pieces: Pieces::of(id, setting)?, last: std::ptr::null() };
    Ok(Prepared::alone(Steps::of(Lock { word: Box::new(AtomicU64::new(0)), turns: 0, protected })))
}

/// The work while a lock is held.
trait Protected {
    fn change(&mut self, turn: u64);
    fn was_changed(&self, turn: u64) -> bool;
}

/// No work, as in the benchmark that the paper warns about.
struct Nothing;

impl Protected for Nothing {
    #[inline]
    fn change(&mut self, _: u64) {}

    fn was_changed(&self, _: u64) -> bool {
        true
    }
}

/// One byte, in cache or not.
struct Bytes {
    pieces: Pieces,
    last: *const u8,
}

/// The byte that a turn stores.
fn lowest_byte(turn: u64) -> u8 {
    turn.to_le_bytes()[0]
}

impl Protected for Bytes {
    #[inline]
    fn change(&mut self, turn: u64) {
        let byte = &raw mut self.pieces.next()[0];
        // SAFETY: the first byte of a piece, which is borrowed exclusively; volatile, so that no store is
        // removed.
        unsafe { byte.write_volatile(lowest_byte(turn)) };
        self.last = byte;
    }

    fn was_changed(&self, turn: u64) -> bool {
        // SAFETY: null, or a byte of a piece, and the pieces live in `self`.
        let last = unsafe { self.last.as_ref() };
        last.is_some_and(|byte| *byte == lowest_byte(turn))
    }
}

/// A lock whose word counts how often it was taken and released: odd while the lock is held.
struct Lock<P> {
    word: Box<AtomicU64>,
    turns: u64,
    protected: P,
}

impl<P: Protected> Step for Lock<P> {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.word.store(0, Ordering::SeqCst);
        self.turns = 0;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let free = 2 * self.turns;
        if self.word.compare_exchange(free, free + 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Err(io::Error::other("the lock is held, although no other thread uses it"));
        }
        self.turns += 1;
        self.protected.change(self.turns);
        self.word.store(free + 2, Ordering::Release);
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let word = self.word.load(Ordering::SeqCst);
        if word == 2 * operations && self.protected.was_changed(operations) {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "after {operations} turns the word of the lock is {word}, or nothing was stored"
        )))
    }
}

/// Prepares a burst of stores, and multiplications that can overlap them.
fn burst(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let stores = limit::count(id, Key::Stores, 1..=STORES_MAX)?;
    // Half of the second-level cache: more than the first level holds, so that the next level is not needed.
    let set = setting.caches.l2.and_then(|cache| usize::try_from(cache.bytes() / 2).ok());
    let lines = set.map_or(0, |set| set / LINE);
    if lines < stores {
        return Err(Refusal::Unavailable(
            "the machine does not report the size of its second-level cache, or the cache is too small; \
             see /sys/devices/system/cpu/cpu0/cache"
                .to_owned(),
        ));
    }
    let buffer = Buffer::new(lines * LINE, &mut setting.rng)?;
    let multiplications = Multiplications::new(&mut setting.rng);
    Ok(Prepared::alone(Bursts { buffer, stores, slots: lines / stores, bursts: 0, multiplications, done: 0 }))
}

/// Far beyond the depth of any store buffer.
const STORES_MAX: u64 = 1024;

/// Blocks of multiplications after each burst: about 500 ns, longer than the longest burst of the rows takes
/// to drain into the second-level cache (128 stores of 1 to 4 ns each). While the buffer holds the whole
/// burst, the multiplications begin immediately and determine the cost of a burst; after a longer burst they
/// wait until the remaining stores fit into the buffer. The cost is therefore constant up to the depth of the
/// buffer, and then rises.
const BLOCKS: u64 = 3;

struct Bursts {
    buffer: Buffer,
    stores: usize,
    /// Bursts that fit into the buffer next to each other.
    slots: usize,
    /// Bursts so far; the next one stores its number.
    bursts: u64,
    multiplications: Multiplications,
    done: u64,
}

impl Operation for Bursts {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.multiplications.begin();
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        let lines = self.buffer.as_mut_ptr();
        let mut slot = usize::try_from(self.bursts % self.slots as u64).map_err(io::Error::other)?;
        let mut multiplications = self.multiplications;
        for burst in self.bursts + 1..=self.bursts + operations {
            // SAFETY: `slot` is below `slots`, the number of times that `stores` lines fit into the buffer.
            unsafe { store_lines(lines.add(slot * self.stores * LINE), self.stores, burst) };
            multiplications.go_on(BLOCKS);
            slot = if slot + 1 == self.slots { 0 } else { slot + 1 };
        }
        self.bursts += operations;
        self.multiplications = multiplications;
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        self.multiplications.expect(operations * BLOCKS)?;
        for (slot, lines) in (0..).zip(self.buffer.chunks_exact(self.stores * LINE).take(self.slots)) {
            let due = last_burst(self.bursts, slot, self.slots as u64).to_ne_bytes();
            if !lines.chunks_exact(LINE).all(|line| line.starts_with(&due)) {
                return Err(io::Error::other(
                    "a line does not contain the number of the last burst that wrote to it",
                ));
            }
        }
        Ok(())
    }
}

/// Stores without a branch between them.
const UNROLLED: usize = 8;

/// Stores `value` to the first word of `stores` lines.
///
/// # Safety
/// The lines are writable memory that is not used otherwise, and begin at a multiple of their length.
#[inline]
unsafe fn store_lines(mut line: *mut u8, stores: usize, value: u64) {
    for _ in 0..stores / UNROLLED {
        for next in 0..UNROLLED {
            // SAFETY: one of the lines; volatile, so that no store is removed.
            unsafe { line.add(next * LINE).cast::<u64>().write_volatile(value) };
        }
        // SAFETY: at most the end of the lines.
        line = unsafe { line.add(UNROLLED * LINE) };
    }
    for next in 0..stores % UNROLLED {
        // SAFETY: as above.
        unsafe { line.add(next * LINE).cast::<u64>().write_volatile(value) };
    }
}

/// Returns the number of the last burst, counted from 1, that was stored in a slot after this many bursts; 0
/// if none was.
fn last_burst(bursts: u64, slot: u64, slots: u64) -> u64 {
    if bursts <= slot { 0 } else { bursts - (bursts - 1 - slot) % slots }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    fn bursts(stores: usize, slots: usize) -> Bursts {
        let mut rng = Pcg64Mcg::seed_from_u64(2);
        let buffer = Buffer::new((stores * slots + 1) * LINE, &mut rng).unwrap();
        Bursts { buffer, stores, slots, bursts: 0, multiplications: Multiplications::new(&mut rng), done: 0 }
    }

    fn batch(operation: &mut impl Operation, operations: u64) -> io::Result<()> {
        operation.arm(operations)?;
        operation.run(operations)?;
        operation.disarm(operations)
    }

    #[test]
    fn every_line_contains_the_number_of_its_last_burst() {
        for (stores, slots) in [(1, 1), (7, 3), (8, 5), (19, 4)] {
            let mut bursts = bursts(stores, slots);
            for operations in [1, 2, 1, 7, 12] {
                batch(&mut bursts, operations).unwrap();
            }
            let last = bursts.buffer.len() - LINE;
            assert_eq!(bursts.buffer[last..], [0; LINE], "the line after the last slot is unused");
        }
    }

    #[test]
    fn a_missing_store_or_multiplication_is_an_error() {
        let mut bursts = bursts(9, 4);
        batch(&mut bursts, 6).unwrap();
        bursts.arm(2).unwrap();
        bursts.run(2).unwrap();
        bursts.buffer[(3 * 9 + 8) * LINE] ^= 1;
        assert!(bursts.disarm(2).unwrap_err().to_string().contains("the last burst that wrote to it"));
        bursts.buffer[(3 * 9 + 8) * LINE] ^= 1;
        bursts.done = 2;
        bursts.multiplications.go_on(1);
        assert!(bursts.disarm(2).unwrap_err().to_string().contains("6 blocks of multiplications"));
    }

    fn lock<P: Protected>(protected: P) -> Steps<Lock<P>> {
        Steps::of(Lock { word: Box::new(AtomicU64::new(0)), turns: 0, protected })
    }

    /// Stores nothing.
    struct Forgetful;

    impl Protected for Forgetful {
        fn change(&mut self, _: u64) {}
        fn was_changed(&self, _: u64) -> bool {
            false
        }
    }

    #[test]
    fn the_word_of_the_lock_counts_and_a_missing_store_is_an_error() {
        let mut free = lock(Nothing);
        for operations in [1, 50] {
            batch(&mut free, operations).unwrap();
        }
        free.arm(3).unwrap();
        assert!(free.disarm(3).unwrap_err().to_string().contains("0 of 3 operations were done"));
        assert!(batch(&mut lock(Forgetful), 3).unwrap_err().to_string().contains("nothing was stored"));
    }

    #[test]
    fn a_lock_that_is_already_held_is_an_error() {
        let mut held = Lock { word: Box::new(AtomicU64::new(1)), turns: 0, protected: Nothing };
        assert!(held.step().unwrap_err().to_string().contains("is held"));
    }
}
