//! Repeated traversals of a working set, chunk by chunk, with a check of the result afterwards.

use std::io;

use super::steady;
use super::working_set::{Residence, WorkingSet};
use crate::benchmark::{Operation, expect_done};

/// An operation on the chunks of a working set, in order.
pub(crate) trait Pass {
    /// Number of chunks in a lap.
    fn chunks(&self) -> usize;

    /// Prepares a batch, untimed.
    fn arm(&mut self) {}

    /// Processes one chunk: the timed part.
    fn visit(&mut self, chunk: usize);

    /// Waits for outstanding stores: the end of the timed part.
    fn finish(&mut self) {}

    /// Checks the chunks of the batch, untimed, and invalidates the result so that the next batch cannot pass
    /// with the work of this one.
    fn check(&mut self, visited: Visited) -> io::Result<()>;
}

/// The chunks of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Visited {
    first: usize,
    visits: u64,
    chunks: usize,
}

impl Visited {
    pub(crate) fn of(first: usize, visits: u64, chunks: usize) -> Self {
        Self { first, visits, chunks }
    }

    /// Returns each visited chunk once.
    pub(crate) fn each(self) -> impl Iterator<Item = usize> {
        let visits = usize::try_from(self.visits).unwrap_or(usize::MAX);
        (0..self.chunks.min(visits)).map(move |step| (self.first + step) % self.chunks)
    }

    /// Returns the number of whole laps, and the chunks that were visited once more.
    pub(crate) fn laps(self) -> (u64, impl Iterator<Item = usize>) {
        let chunks = self.chunks as u64;
        let rest = Self { visits: self.visits % chunks, ..self };
        (self.visits / chunks, rest.each())
    }
}

/// An operation that processes one chunk. The position is kept from batch to batch, so that a short batch
/// does not begin at chunks that the previous one has left in the caches.
pub(crate) struct Walk<P> {
    pass: P,
    next: usize,
    first: usize,
    done: u64,
}

impl<P: Pass> Walk<P> {
    /// Begins a lap with the caches in the state in which earlier laps would leave them. For a set in memory
    /// it is enough to visit the last chunks that fit into the last cache; a chunk takes `chunk_bytes` of it.
    pub(crate) fn settled(pass: P, set: WorkingSet, chunk_bytes: u64) -> io::Result<Self> {
        let chunks = pass.chunks();
        let mut walk = Self { pass, next: 0, first: 0, done: 0 };
        if set.residence == Residence::Found {
            return steady::settled(walk, chunks as u64);
        }
        let fitting =
            usize::try_from(set.last_cache.bytes() / chunk_bytes).unwrap_or(chunks).clamp(1, chunks);
        walk.next = chunks - fitting;
        steady::untimed(&mut walk, fitting as u64)?;
        Ok(walk)
    }
}

impl<P: Pass> Operation for Walk<P> {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.first = self.next;
        self.pass.arm();
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        let chunks = self.pass.chunks();
        for _ in 0..operations {
            self.pass.visit(self.next);
            self.next += 1;
            if self.next == chunks {
                self.next = 0;
            }
        }
        self.pass.finish();
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        let visited = Visited::of(self.first, operations, self.pass.chunks());
        self.pass.check(visited)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use assay_quantity::Size;
    use proptest::prelude::*;

    /// Returns a walk from the first chunk on, without settling the caches.
    pub(crate) fn walk<P: Pass>(pass: P) -> Walk<P> {
        Walk { pass, next: 0, first: 0, done: 0 }
    }

    /// Runs batches of a pass like the harness, but omits the chunks for which `skip` returns true from the
    /// timed part.
    pub(crate) fn batches<P: Pass>(
        walk: &mut Walk<P>,
        lengths: &[u64],
        skip: impl Fn(usize) -> bool,
    ) -> io::Result<()> {
        for length in lengths {
            walk.arm(*length)?;
            for _ in 0..*length {
                if !skip(walk.next) {
                    walk.pass.visit(walk.next);
                }
                walk.next = (walk.next + 1) % walk.pass.chunks();
            }
            walk.pass.finish();
            walk.done = *length;
            walk.disarm(*length)?;
        }
        Ok(())
    }

    struct Counts {
        visits: Vec<u64>,
        checked: Vec<u64>,
    }

    impl Pass for Counts {
        fn chunks(&self) -> usize {
            self.visits.len()
        }

        fn visit(&mut self, chunk: usize) {
            self.visits[chunk] += 1;
        }

        fn check(&mut self, visited: Visited) -> io::Result<()> {
            let (laps, rest) = visited.laps();
            self.checked.iter_mut().for_each(|count| *count += laps);
            rest.for_each(|chunk| self.checked[chunk] += 1);
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn what_is_checked_is_what_was_visited(
            chunks in 1usize..20,
            lengths in prop::collection::vec(1u64..70, 1..6),
            cache in 0u64..40,
            is_in_memory: bool,
        ) {
            let counts = Counts { visits: vec![0; chunks], checked: vec![0; chunks] };
            let residence = if is_in_memory { Residence::Memory } else { Residence::Found };
            let set = WorkingSet { bytes: chunks, last_cache: Size(cache), residence };
            let mut walk = Walk::settled(counts, set, 1).unwrap();
            prop_assert_eq!(walk.next, 0, "a lap begins");
            let visits = walk.pass.visits.iter().sum::<u64>();
            let fitting = cache.clamp(1, chunks as u64);
            prop_assert_eq!(visits, if is_in_memory { fitting } else { 4 * chunks as u64 });
            for length in lengths {
                walk.arm(length).unwrap();
                walk.run(length).unwrap();
                walk.disarm(length).unwrap();
                prop_assert_eq!(&walk.pass.visits, &walk.pass.checked);
            }
        }

        #[test]
        fn each_chunk_of_a_batch_is_checked_once(first in 0usize..9, visits in 1u64..40) {
            let each: Vec<usize> = Visited { first, visits, chunks: 9 }.each().collect();
            prop_assert_eq!(each.len() as u64, visits.min(9));
            let distinct: std::collections::BTreeSet<_> = each.iter().collect();
            prop_assert_eq!(distinct.len(), each.len());
            prop_assert_eq!(each[0], first);
        }
    }

    #[test]
    fn a_batch_that_was_not_run_is_rejected() {
        let mut walk = walk(Counts { visits: vec![0; 3], checked: vec![0; 3] });
        walk.arm(4).unwrap();
        assert!(walk.disarm(4).unwrap_err().to_string().contains("0 of 4 operations"));
    }
}
