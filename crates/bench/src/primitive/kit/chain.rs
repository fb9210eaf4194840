//! Chains of pointers through memory, and the loads that follow them. The address of each load is the value
//! of the previous load, so that a load takes its full latency (lmbench, 1996, section 6.2).

use std::hint::black_box;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use super::once::Others;
use super::order::Order;
use super::steady;
use crate::benchmark::{Operation, expect_done};
use crate::platform::layout::Buffer;

/// Elements of a working set, linked into a lap, or into interleaved laps for several chains.
///
/// An element is one or more words. It contains the address of the element that follows in the lap after as
/// many positions as there are chains. Element `i` is at offset `place(i)` of the buffer, in bytes.
pub(crate) struct Chain<P> {
    buffer: Rc<Buffer>,
    order: Order,
    /// Number of positions of the order that form the lap. Elements at later positions are not linked.
    lap: u64,
    chains: u64,
    place: P,
    /// The elements that fill the caches, if all elements of the lap must come from memory.
    others: Option<(Others, Touch)>,
}

/// How an element is brought into the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    /// Reads it.
    Load,
    /// Reads it and writes its second word, so that its line differs from the copy in memory.
    Modify,
}

/// The word of an element that is modified.
const COUNT: usize = 1;

impl<P: Fn(usize) -> usize> Chain<P> {
    /// Links the elements at the first `lap` positions of an order, in that order.
    pub(crate) fn link(buffer: Rc<Buffer>, order: Order, lap: u64, chains: u64, place: P) -> Self {
        let chain = Self { buffer, order, lap, chains, place, others: None };
        for position in 0..lap {
            let (from, to) = (chain.at(position), chain.at((position + chains) % lap));
            // SAFETY: `place` returns offsets within the buffer that are multiples of a word, and the buffer
            // begins at a line.
            unsafe { from.write_volatile(to.expose_provenance()) };
        }
        chain
    }

    /// Number of steps of a lap that the caches may hold, or 0 if the lap comes from memory.
    fn lap_in_caches(&self) -> u64 {
        if self.others.is_none() { self.lap } else { 0 }
    }

    /// Returns the same chain with all of its elements coming from memory: fills the caches with at most
    /// `fitting` elements that are not part of the lap, now and whenever a batch would pass the end of the
    /// lap.
    pub(crate) fn left_to_others(mut self, fitting: u64, touch: Touch) -> Self {
        let others = Others::behind(self.lap, &self.order, fitting);
        self.leave_caches_to(&others, touch);
        self.others = Some((others, touch));
        self
    }

    fn leave_caches_to(&self, others: &Others, touch: Touch) {
        let elements = 0..self.order.length();
        let lines = elements.map(|element| self.element(element).cast::<u8>().cast_const());
        // SAFETY: elements are within the buffer.
        unsafe { others.take_caches(lines, |positions| self.touch(positions, touch)) };
    }

    /// Returns whether a batch that ends right before this position must start at the beginning of the lap
    /// instead of continuing. If so, the lap has been evicted from the caches.
    fn begins_again(&self, end: u64) -> bool {
        let Some((others, touch)) = self.others.as_ref().filter(|(others, _)| others.are_due_before(end))
        else {
            return false;
        };
        self.leave_caches_to(others, *touch);
        true
    }

    /// The longest batch.
    fn longest_batch(&self) -> u64 {
        self.others.as_ref().map_or(u64::MAX, |(others, _)| others.longest_batch())
    }

    /// Touches the elements at these positions in order, without waiting for each one.
    pub(crate) fn touch(&self, positions: Range<u64>, touch: Touch) {
        for position in positions {
            let element = self.at(position);
            // SAFETY: as in `link`; modified elements have two words.
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
        // SAFETY: `place` returns offsets within the buffer.
        unsafe { self.buffer.base().add((self.place)(element as usize)).cast() }
    }
}

/// Loads that follow `K` chains concurrently, one load of each chain in rotation. One operation is one load.
pub(crate) struct Chase<const K: usize, P> {
    chain: Chain<P>,
    at: [*const usize; K],
    /// Position of the first chain, including whole laps.
    position: u64,
    done: u64,
}

impl<const K: usize, P: Fn(usize) -> usize> Chase<K, P> {
    /// Returns a chase along the chains, after the caches have settled.
    pub(crate) fn along(chain: Chain<P>) -> io::Result<Self> {
        let lap = chain.lap_in_caches();
        steady::settled(Self::begun(chain), lap)
    }

    /// Starts at the first elements of the lap.
    fn begun(chain: Chain<P>) -> Self {
        debug_assert_eq!(chain.chains, K as u64);
        Self { at: Self::firsts(&chain), chain, position: 0, done: 0 }
    }

    fn firsts(chain: &Chain<P>) -> [*const usize; K] {
        std::array::from_fn(|number| chain.at(number as u64 % chain.lap).cast_const())
    }
}

impl<const K: usize, P: Fn(usize) -> usize> Operation for Chase<K, P> {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        if self.chain.begins_again(self.position + operations) {
            self.position = 0;
            self.at = Self::firsts(&self.chain);
        }
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        let mut at = self.at;
        for _ in 0..operations / K as u64 {
            for pointer in &mut at {
                // SAFETY: every element contains the address of an element of the same buffer, which lives in
                // `self`.
                *pointer = std::ptr::with_exposed_provenance(unsafe { pointer.read_volatile() });
            }
        }
        // The next batch continues here. The compiler therefore cannot discard the chain as unused.
        self.at = black_box(at);
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        let lap = self.chain.lap;
        self.position += operations;
        for (number, at) in self.at.iter().enumerate() {
            expect_at(self.chain.at((self.position + number as u64) % lap), *at)?;
        }
        Ok(())
    }

    fn max_batch(&self) -> u64 {
        self.chain.longest_batch()
    }

    fn granule(&self) -> u64 {
        K as u64
    }
}

fn expect_at(due: *mut usize, at: *const usize) -> io::Result<()> {
    if due.cast_const() == at {
        Ok(())
    } else {
        Err(io::Error::other(format!("the loads lead to {at:p}, but the chain leads to {due:p}")))
    }
}

/// Loads of lines that have all been modified: a line must be written back before it is replaced by another
/// one.
pub(crate) struct DirtyChase<P> {
    chase: Chase<1, P>,
}

impl<P: Fn(usize) -> usize> DirtyChase<P> {
    pub(crate) fn along(chain: Chain<P>) -> io::Result<Self> {
        let lap = chain.lap_in_caches();
        steady::settled(Self { chase: Chase::begun(chain) }, lap)
    }
}

impl<P: Fn(usize) -> usize> Operation for DirtyChase<P> {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.chase.arm(operations)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        self.chase.run(operations)
    }

    /// Modifies the lines that the batch has brought into the caches, which still contain them.
    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let first = self.chase.position;
        self.chase.disarm(operations)?;
        let chain = &self.chase.chain;
        for step in 0..operations.min(chain.lap) {
            let position = (first + step) % chain.lap;
            chain.touch(position..position + 1, Touch::Modify);
        }
        Ok(())
    }

    fn max_batch(&self) -> u64 {
        self.chase.max_batch()
    }
}

/// Loads of the next element's address, each followed by a modification of the element, so that every step
/// brings a line into the cache for writing and eventually evicts one.
pub(crate) struct Update<P> {
    chain: Chain<P>,
    at: *mut usize,
    /// The position, including whole laps.
    position: u64,
    done: u64,
}

impl<P: Fn(usize) -> usize> Update<P> {
    pub(crate) fn along(chain: Chain<P>) -> io::Result<Self> {
        let (at, lap) = (chain.at(0), chain.lap_in_caches());
        steady::settled(Self { chain, at, position: 0, done: 0 }, lap)
    }
}

impl<P: Fn(usize) -> usize> Operation for Update<P> {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        if self.chain.begins_again(self.position + operations) {
            self.position = 0;
            self.at = self.chain.at(0);
        }
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        let mut at = self.at;
        for _ in 0..operations {
            // SAFETY: every element has two words; the first contains the address of an element of the same
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

    /// Checks the counts of the lines that the batch visited, which are in the caches, and resets them to 0.
    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        let lap = self.chain.lap;
        let first = self.position;
        self.position += operations;
        expect_at(self.chain.at(self.position % lap), self.at)?;
        for step in 0..operations.min(lap) {
            let due = operations / lap + u64::from(step < operations % lap);
            // SAFETY: as in `run`.
            let count = unsafe {
                let count = self.chain.at((first + step) % lap).add(COUNT);
                let counted = count.read_volatile();
                count.write_volatile(0);
                counted as u64
            };
            if count != due {
                return Err(io::Error::other(format!("a line was modified {count} times instead of {due}")));
            }
        }
        Ok(())
    }

    fn max_batch(&self) -> u64 {
        self.chain.longest_batch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::layout::LINE;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;
    use std::cell::Cell;

    fn chain(lines: usize, chains: u64, seed: u64) -> Chain<impl Fn(usize) -> usize> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let buffer = Rc::new(Buffer::new(lines * LINE, &mut rng).unwrap());
        let order = Order::random(lines as u64, &mut rng);
        Chain::link(buffer, order, lines as u64, chains, |element| element * LINE)
    }

    proptest! {
        #[test]
        fn a_chain_visits_every_element_once_per_lap(lines in 3usize..300, seed: u64) {
            let mut chase = Chase::<1, _>::along(chain(lines, 1, seed)).unwrap();
            let first = chase.at;
            for step in 1..=lines {
                chase.run(1).unwrap();
                chase.disarm(1).unwrap();
                prop_assert_eq!(chase.at == first, step == lines, "after {} of {}", step, lines);
            }
        }

        #[test]
        fn several_chains_share_one_lap(lines in 4usize..200, rounds in 1u64..100, seed: u64) {
            let mut chase = Chase::<4, _>::along(chain(lines, 4, seed)).unwrap();
            let begin = chase.position;
            chase.run(4 * rounds).unwrap();
            chase.disarm(4 * rounds).unwrap();
            // The position that each chain would reach alone: `rounds` times four positions from its own.
            for (number, at) in (0..).zip(chase.at) {
                let position = (begin + 4 * rounds + number) % lines as u64;
                prop_assert_eq!(chase.chain.at(position).cast_const(), at);
            }
        }

        #[test]
        fn every_update_is_counted_in_its_own_line(
            lines in 3usize..100,
            batches in prop::collection::vec(1u64..500, 1..6),
            seed: u64,
        ) {
            let mut update = Update::along(chain(lines, 1, seed)).unwrap();
            for batch in batches {
                update.run(batch).unwrap();
                update.disarm(batch).unwrap();
            }
        }
    }

    #[test]
    fn a_chain_that_was_not_followed_to_its_end_is_detected() {
        let mut chase = Chase::<1, _>::along(chain(63, 1, 1)).unwrap();
        chase.run(16).unwrap();
        assert!(chase.disarm(32).unwrap_err().to_string().contains("16 of 32 operations"));
        let mut chase = Chase::<1, _>::along(chain(63, 1, 1)).unwrap();
        let begin = chase.at;
        chase.run(64).unwrap();
        chase.at = begin;
        assert!(chase.disarm(64).unwrap_err().to_string().contains("but the chain leads to"));
        let mut idle = Chase::<2, _>::along(chain(63, 2, 1)).unwrap();
        assert!(idle.disarm(2).is_err());
    }

    #[test]
    fn a_missing_update_of_one_line_is_detected() {
        let mut update = Update::along(chain(63, 1, 2)).unwrap();
        update.run(63).unwrap();
        // SAFETY: this is an element of the live chain.
        unsafe { update.chain.at(40).add(COUNT).write_volatile(0) };
        let error = update.disarm(63).unwrap_err().to_string();
        assert!(error.contains("modified 0 times instead of 1"), "{error}");
    }

    #[test]
    fn filling_the_caches_and_modifying_lines_keep_the_chain_intact() {
        for touch in [Touch::Load, Touch::Modify] {
            let chain = chain(127, 1, 3);
            let chain = Chain::link(chain.buffer, chain.order, 63, 1, chain.place).left_to_others(20, touch);
            let mut dirty = DirtyChase::along(chain).unwrap();
            for batch in [5, 64, 200] {
                dirty.run(batch).unwrap();
                dirty.disarm(batch).unwrap();
            }
            assert!(dirty.disarm(1).is_err());
        }
    }

    /// Lines of a lap through memory, and a batch length that divides it evenly.
    const LAP: u64 = 60;
    const BATCH: u64 = 20;

    /// Runs batches of an operation along a lap that must come from memory. Returns the number of lines that
    /// each batch looked up before it began, which indicates that it emptied the caches.
    fn looked_up<O: Operation>(
        along: impl FnOnce(Chain<Box<dyn Fn(usize) -> usize>>) -> io::Result<O>,
        batches: usize,
    ) -> Vec<u64> {
        let looked_up = Rc::new(Cell::new(0));
        let seen = looked_up.clone();
        let Chain { buffer, order, .. } = chain(127, 1, 4);
        let place: Box<dyn Fn(usize) -> usize> = Box::new(move |element| {
            seen.set(seen.get() + 1);
            element * LINE
        });
        let mut operation =
            along(Chain::link(buffer, order, LAP, 1, place).left_to_others(30, Touch::Modify)).unwrap();
        assert!(operation.max_batch() < LAP);
        let batch = || {
            looked_up.set(0);
            operation.arm(BATCH).unwrap();
            let before = looked_up.get();
            operation.run(BATCH).unwrap();
            operation.disarm(BATCH).unwrap();
            before
        };
        std::iter::repeat_with(batch).take(batches).collect()
    }

    #[test]
    fn a_batch_that_would_revisit_a_line_of_memory_empties_the_caches_and_restarts_the_lap() {
        // All lines are flushed, thirty others are loaded, and the chase looks up its first one.
        let again = 127 + 30 + 1;
        let expected = [0, 0, 0, again, 0, 0, again];
        assert_eq!(looked_up(Chase::<1, _>::along, 7), expected);
        assert_eq!(looked_up(DirtyChase::along, 7), expected);
        assert_eq!(looked_up(Update::along, 7), expected);
    }

    #[test]
    fn a_lap_that_the_caches_may_hold_is_settled_and_then_traversed_repeatedly() {
        let mut chase = Chase::<1, _>::along(chain(63, 1, 5)).unwrap();
        let settled = 4 * 63;
        assert_eq!(chase.position, settled);
        assert_eq!(DirtyChase::along(chain(63, 1, 5)).unwrap().chase.position, settled);
        assert_eq!(Update::along(chain(63, 1, 5)).unwrap().position, settled);
        for _ in 0..10 {
            chase.arm(BATCH).unwrap();
            chase.run(BATCH).unwrap();
            chase.disarm(BATCH).unwrap();
        }
        assert_eq!(chase.position, settled + 10 * BATCH);
    }
}
