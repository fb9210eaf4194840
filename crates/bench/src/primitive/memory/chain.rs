//! Chains of pointers through memory, and the loads that follow them: each load's address is the value of the
//! load before it, so that a load takes its whole latency (lmbench, 1996, section 6.2).

use std::hint::black_box;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use assay_quantity::Size;

use super::order::Order;
use crate::benchmark::{Operation, expect_done};
use crate::flush::flush;
use crate::layout::{Buffer, LINE};

/// Elements of a working set, linked into one lap or, for several chains, into interleaved ones.
///
/// An element is one word or more; it holds the address of the element that comes so many positions later in the
/// lap as there are chains. Element `i` lies `place(i)` bytes into the buffer.
pub(super) struct Chain<P> {
    buffer: Rc<Buffer>,
    order: Order,
    place: P,
    chains: u64,
}

/// What is done to an element that is to be in the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    /// It is read.
    Load,
    /// Its second word is written as well, so that its line differs from what memory has.
    Modify,
}

/// The word of an element that is modified.
const COUNT: usize = 1;

impl<P: Fn(usize) -> usize> Chain<P> {
    /// Links the elements, in order of address, which is the fastest.
    pub(super) fn link(buffer: Rc<Buffer>, order: Order, chains: u64, place: P) -> Self {
        let chain = Self { buffer, order, place, chains };
        let length = chain.length();
        for element in 0..length {
            let successor = (chain.order.position(element) + chain.chains) % length;
            let (from, to) = (chain.element(element), chain.at(successor));
            // SAFETY: `place` gives places within the buffer, multiples of a word, and the buffer begins at a line.
            unsafe { from.write_volatile(to.expose_provenance()) };
        }
        chain
    }

    /// Elements in a lap.
    pub(super) fn length(&self) -> u64 {
        self.order.length()
    }

    /// Leaves in the caches what a program leaves there that has gone round for long: the elements that come last
    /// in the lap, as many as fit, and nothing of the rest. The next element of the lap is then in a cache if and
    /// only if the working set fits into it.
    pub(super) fn settle(&self, last_cache: Size, element_bytes: usize, touch: Touch) {
        // SAFETY: elements are within the buffer.
        unsafe { flush((0..self.length()).map(|element| self.element(element).cast::<u8>().cast_const())) };
        let fitting = last_cache.bytes() / element_bytes.clamp(1, LINE) as u64;
        self.touch(self.length().saturating_sub(fitting)..self.length(), touch);
    }

    /// Touches the elements at these positions of the lap, in its order, without waiting for one after the other.
    pub(super) fn touch(&self, positions: Range<u64>, touch: Touch) {
        for position in positions {
            let element = self.at(position);
            // SAFETY: as in `link`; elements that are modified have two words.
            unsafe {
                black_box(element.read_volatile());
                if touch == Touch::Modify {
                    let count = element.add(COUNT);
                    count.write_volatile(count.read_volatile());
                }
            }
        }
    }

    /// The element at this position of the lap.
    fn at(&self, position: u64) -> *mut usize {
        self.element(self.order.at(position))
    }

    #[expect(clippy::cast_possible_truncation, reason = "elements are within a buffer, whose length is a usize")]
    fn element(&self, element: u64) -> *mut usize {
        // SAFETY: `place` gives places within the buffer.
        unsafe { self.buffer.base().add((self.place)(element as usize)).cast() }
    }
}

/// Loads that follow `K` chains at once, one of each in turn. One operation is one load.
pub(super) struct Chase<const K: usize, P> {
    chain: Chain<P>,
    at: [*const usize; K],
    /// Where in the lap the first chain stands.
    position: u64,
    longest: u64,
    done: u64,
}

impl<const K: usize, P: Fn(usize) -> usize> Chase<K, P> {
    /// Begins at the first elements of the lap. `longest` bounds a batch.
    pub(super) fn along(chain: Chain<P>, longest: u64) -> Self {
        debug_assert_eq!(chain.chains, K as u64);
        let at = std::array::from_fn(|number| chain.at(number as u64 % chain.length()).cast_const());
        Self { chain, at, position: 0, longest, done: 0 }
    }
}

impl<const K: usize, P: Fn(usize) -> usize> Operation for Chase<K, P> {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        let mut at = self.at;
        for _ in 0..operations / K as u64 {
            for pointer in &mut at {
                // SAFETY: every element holds the address of an element of the same buffer, which lives in `self`.
                *pointer = std::ptr::with_exposed_provenance(unsafe { pointer.read_volatile() });
            }
        }
        // The next batch goes on here, which also makes the whole chain a result that is used.
        self.at = black_box(at);
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        let length = self.chain.length();
        self.position = (self.position + operations) % length;
        for (number, at) in self.at.iter().enumerate() {
            expect_at(self.chain.at((self.position + number as u64) % length), *at)?;
        }
        Ok(())
    }

    fn max_batch(&self) -> u64 {
        self.longest
    }

    fn granule(&self) -> u64 {
        K as u64
    }
}

fn expect_at(due: *mut usize, at: *const usize) -> io::Result<()> {
    if due.cast_const() == at {
        Ok(())
    } else {
        Err(io::Error::other(format!("the loads lead to {at:p} where the chain leads to {due:p}")))
    }
}

/// Loads whose lines have all been modified: whatever line makes room for another must be written back first.
pub(super) struct DirtyChase<P> {
    chase: Chase<1, P>,
}

impl<P: Fn(usize) -> usize> DirtyChase<P> {
    pub(super) fn along(chain: Chain<P>, longest: u64) -> Self {
        Self { chase: Chase::along(chain, longest) }
    }
}

impl<P: Fn(usize) -> usize> Operation for DirtyChase<P> {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        self.chase.run(operations)
    }

    /// Modifies the lines that the batch has brought into the caches, which are still there.
    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let first = self.chase.position;
        self.chase.disarm(operations)?;
        let chain = &self.chase.chain;
        for step in 0..operations.min(chain.length()) {
            let position = (first + step) % chain.length();
            chain.touch(position..position + 1, Touch::Modify);
        }
        Ok(())
    }

    fn max_batch(&self) -> u64 {
        self.chase.max_batch()
    }
}

/// Loads of the next element's address, after each of which the element is modified, so that every step takes a
/// line into the cache for writing and, sooner or later, one out of it.
pub(super) struct Update<P> {
    chain: Chain<P>,
    at: *mut usize,
    /// Steps of all batches.
    total: u64,
    longest: u64,
    done: u64,
}

impl<P: Fn(usize) -> usize> Update<P> {
    pub(super) fn along(chain: Chain<P>, longest: u64) -> Self {
        let at = chain.at(0);
        Self { chain, at, total: 0, longest, done: 0 }
    }

    /// How often so many steps come to this position of the lap.
    fn visits(&self, position: u64, steps: u64) -> u64 {
        let length = self.chain.length();
        steps / length + u64::from(position < steps % length)
    }
}

impl<P: Fn(usize) -> usize> Operation for Update<P> {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        let mut at = self.at;
        for _ in 0..operations {
            // SAFETY: every element has two words and holds in the first the address of an element of the same
            // buffer, which lives in `self`.
            unsafe {
                let next = std::ptr::with_exposed_provenance_mut(at.read_volatile());
                let count = at.add(COUNT);
                count.write_volatile(count.read_volatile() + 1);
                at = next;
            }
        }
        self.at = black_box(at);
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        let length = self.chain.length();
        let first = self.total;
        self.total += operations;
        expect_at(self.chain.at(self.total % length), self.at)?;
        for step in first..first + operations.min(length) {
            let position = step % length;
            // SAFETY: as in `run`.
            let count = unsafe { self.chain.at(position).add(COUNT).read_volatile() } as u64;
            let due = self.visits(position, self.total);
            if count != due {
                return Err(io::Error::other(format!("a line was modified {count} times where {due} are due")));
            }
        }
        Ok(())
    }

    fn max_batch(&self) -> u64 {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    fn chain(lines: usize, chains: u64, seed: u64) -> Chain<impl Fn(usize) -> usize> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let buffer = Rc::new(Buffer::new(lines * LINE, &mut rng).unwrap());
        let order = Order::random(lines as u64, &mut rng);
        Chain::link(buffer, order, chains, |element| element * LINE)
    }

    proptest! {
        #[test]
        fn a_chain_comes_to_every_element_once_in_a_lap(lines in 3usize..300, seed: u64) {
            let mut chase = Chase::<1, _>::along(chain(lines, 1, seed), u64::MAX);
            let first = chase.at;
            for step in 1..=lines {
                chase.run(1).unwrap();
                chase.disarm(1).unwrap();
                prop_assert_eq!(chase.at == first, step == lines, "after {} of {}", step, lines);
            }
        }

        #[test]
        fn several_chains_share_one_lap(lines in 4usize..200, rounds in 1u64..100, seed: u64) {
            let mut chase = Chase::<4, _>::along(chain(lines, 4, seed), u64::MAX);
            chase.run(4 * rounds).unwrap();
            chase.disarm(4 * rounds).unwrap();
            // The same way with one chain at a time.
            for number in 0..4 {
                let position = (4 * rounds + number) % lines as u64;
                prop_assert_eq!(chase.chain.at(position).cast_const(), chase.at[number as usize]);
            }
        }

        #[test]
        fn every_update_is_counted_in_its_own_line(
            lines in 3usize..100,
            batches in prop::collection::vec(1u64..500, 1..6),
            seed: u64,
        ) {
            let mut update = Update::along(chain(lines, 1, seed), u64::MAX);
            for batch in batches {
                update.run(batch).unwrap();
                update.disarm(batch).unwrap();
            }
        }
    }

    #[test]
    fn a_chain_that_was_not_followed_to_its_end_is_noticed() {
        let mut chase = Chase::<1, _>::along(chain(63, 1, 1), u64::MAX);
        chase.run(16).unwrap();
        assert!(chase.disarm(32).unwrap_err().to_string().contains("16 done"));
        let mut chase = Chase::<1, _>::along(chain(63, 1, 1), u64::MAX);
        let begin = chase.at;
        chase.run(64).unwrap();
        chase.at = begin;
        assert!(chase.disarm(64).unwrap_err().to_string().contains("where the chain leads to"));
        let mut idle = Chase::<2, _>::along(chain(63, 2, 1), u64::MAX);
        assert!(idle.disarm(2).is_err());
    }

    #[test]
    fn an_update_that_is_missing_in_one_line_is_noticed() {
        let mut update = Update::along(chain(63, 1, 2), u64::MAX);
        update.run(63).unwrap();
        // SAFETY: an element of the live chain.
        unsafe { update.chain.at(40).add(COUNT).write_volatile(0) };
        let error = update.disarm(63).unwrap_err().to_string();
        assert!(error.contains("modified 0 times where 1 are due"), "{error}");
    }

    #[test]
    fn settling_and_modifying_leave_the_chain_whole() {
        for touch in [Touch::Load, Touch::Modify] {
            let chain = chain(63, 1, 3);
            chain.settle(Size(20 * LINE as u64), LINE, touch);
            let mut dirty = DirtyChase::along(chain, u64::MAX);
            for batch in [5, 64, 200] {
                dirty.run(batch).unwrap();
                dirty.disarm(batch).unwrap();
            }
            assert!(dirty.disarm(1).is_err());
        }
    }
}
