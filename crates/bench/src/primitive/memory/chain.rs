//! Chains of pointers through memory, and the loads that follow them: each load's address is the value of the
//! load before it, so that a load takes its whole latency (lmbench, 1996, section 6.2).

use std::hint::black_box;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use super::order::Order;
use crate::benchmark::{Operation, expect_done};
use crate::flush::flush;
use crate::layout::Buffer;

/// Elements of a working set, linked into a lap or, for several chains, into interleaved ones.
///
/// An element is one word or more; it holds the address of the element that comes so many positions later in the
/// lap as there are chains. Element `i` lies `place(i)` bytes into the buffer.
pub(super) struct Chain<P> {
    buffer: Rc<Buffer>,
    order: Order,
    /// How many positions of the order make the lap; elements at later ones are not linked.
    lap: u64,
    chains: u64,
    place: P,
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
    /// Links the elements at the first `lap` positions of an order, in that order: what the caches still hold
    /// afterwards are the elements that come last, modified.
    ///
    /// Nothing takes them out again and back in, unmodified: a last cache that is filled by what the one before it
    /// puts out may refuse unmodified lines that were used once. A set of 2 MiB then took 100 ns a load on a Cascade
    /// Lake whose third level gave the same set, modified, in 27 ns.
    pub(super) fn link(buffer: Rc<Buffer>, order: Order, lap: u64, chains: u64, place: P) -> Self {
        let chain = Self { buffer, order, lap, chains, place };
        for position in 0..lap {
            let (from, to) = (chain.at(position), chain.at((position + chains) % lap));
            // SAFETY: `place` gives places within the buffer, multiples of a word, and the buffer begins at a line.
            unsafe { from.write_volatile(to.expose_provenance()) };
        }
        chain
    }

    /// Positions of a lap.
    pub(super) fn lap(&self) -> u64 {
        self.lap
    }

    /// Takes everything out of the caches, and fills them with elements that are not part of the lap: those that
    /// come last in the order, `fitting` of them or as many as there are. What a load finds is then what it finds
    /// in a program that goes through far more than the caches hold.
    pub(super) fn leave_caches_to_others(&self, fitting: u64, touch: Touch) {
        let length = self.order.length();
        // SAFETY: elements are within the buffer.
        unsafe { flush((0..length).map(|element| self.element(element).cast::<u8>().cast_const())) };
        self.touch(self.lap.max(length.saturating_sub(fitting))..length, touch);
    }

    /// Touches the elements at these positions, in their order, without waiting for one after the other.
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

    /// The element at this position.
    fn at(&self, position: u64) -> *mut usize {
        self.element(self.order.at(position))
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "elements are within a buffer, whose length is a usize"
    )]
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
        let at = std::array::from_fn(|number| chain.at(number as u64 % chain.lap()).cast_const());
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
        let lap = self.chain.lap();
        self.position = (self.position + operations) % lap;
        for (number, at) in self.at.iter().enumerate() {
            expect_at(self.chain.at((self.position + number as u64) % lap), *at)?;
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
        for step in 0..operations.min(chain.lap()) {
            let position = (first + step) % chain.lap();
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
        let lap = self.chain.lap();
        steps / lap + u64::from(position < steps % lap)
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
        let lap = self.chain.lap();
        let first = self.total;
        self.total += operations;
        expect_at(self.chain.at(self.total % lap), self.at)?;
        for step in first..first + operations.min(lap) {
            let position = step % lap;
            // SAFETY: as in `run`.
            let count = unsafe { self.chain.at(position).add(COUNT).read_volatile() } as u64;
            let due = self.visits(position, self.total);
            if count != due {
                return Err(io::Error::other(format!(
                    "a line was modified {count} times where {due} are due"
                )));
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
    use crate::layout::LINE;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    fn chain(lines: usize, chains: u64, seed: u64) -> Chain<impl Fn(usize) -> usize> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let buffer = Rc::new(Buffer::new(lines * LINE, &mut rng).unwrap());
        let order = Order::random(lines as u64, &mut rng);
        Chain::link(buffer, order, lines as u64, chains, |element| element * LINE)
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
            // Where each would be alone: so many rounds of four positions from its own.
            for (number, at) in (0..).zip(chase.at) {
                let position = (4 * rounds + number) % lines as u64;
                prop_assert_eq!(chase.chain.at(position).cast_const(), at);
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
    fn leaving_the_caches_and_modifying_lines_keep_the_chain_whole() {
        for touch in [Touch::Load, Touch::Modify] {
            let mut chain = chain(127, 1, 3);
            chain = Chain::link(chain.buffer, chain.order, 63, 1, chain.place);
            chain.leave_caches_to_others(20, touch);
            let mut dirty = DirtyChase::along(chain, u64::MAX);
            for batch in [5, 64, 200] {
                dirty.run(batch).unwrap();
                dirty.disarm(batch).unwrap();
            }
            assert!(dirty.disarm(1).is_err());
        }
    }
}
