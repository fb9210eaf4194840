//! Laps through caches: a working set that caches may hold is measured in its steady state, lap after lap.
//!
//! Right after the set was made ready the caches hold something else: lines that were modified, some of which other
//! guests of a shared cache have evicted. And replacement adapts for several laps before it keeps the same lines.

use std::io;

use crate::benchmark::Operation;

/// Laps after which the next ones cost the same. Loads from 6 MiB, where 4 to 6 MiB of the third level were
/// effective, took 38, 55, 110, 142, 141 and 138 ns in the first laps after the set was made ready.
pub(in super::super) const LAPS: usize = 4;

/// Goes through a working set until the caches have settled; a lap is `lap` operations.
pub(in super::super) fn settled<O: Operation>(mut operation: O, lap: u64) -> io::Result<O> {
    for _ in 0..LAPS {
        untimed(&mut operation, lap)?;
    }
    Ok(operation)
}

/// Does a batch of `operations` that is not timed, rounded up to a length that the operation can do.
pub(super) fn untimed(operation: &mut impl Operation, operations: u64) -> io::Result<()> {
    let operations = operations.next_multiple_of(operation.granule());
    operation.arm(operations)?;
    operation.run(operations)?;
    operation.disarm(operations)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches that were armed, run and disarmed.
    #[derive(Default)]
    struct Batches {
        armed: Vec<u64>,
        run: Vec<u64>,
        disarmed: Vec<u64>,
    }

    impl Operation for Batches {
        fn arm(&mut self, operations: u64) -> io::Result<()> {
            self.armed.push(operations);
            Ok(())
        }

        fn run(&mut self, operations: u64) -> io::Result<()> {
            self.run.push(operations);
            Ok(())
        }

        fn disarm(&mut self, operations: u64) -> io::Result<()> {
            self.disarmed.push(operations);
            Ok(())
        }

        fn granule(&self) -> u64 {
            8
        }
    }

    #[test]
    fn four_laps_are_gone_through_each_of_them_a_batch_that_can_be_done() {
        let Batches { armed, run, disarmed } = settled(Batches::default(), 63).unwrap();
        assert_eq!([armed, run, disarmed], [[64; 4]; 3]);
    }
}
