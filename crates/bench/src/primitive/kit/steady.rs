//! Laps through caches: a working set that caches may hold is measured in its steady state, lap after lap.
//!
//! Immediately after the preparation of the set, the caches are in a different state: they contain modified
//! lines, some of which other guests of a shared cache have evicted. In addition, the replacement policy
//! adapts for several laps before it keeps the same lines.

use std::io;

use crate::benchmark::Operation;

/// Laps after which further laps cost the same. Loads from 6 MiB, with 4 to 6 MiB of the third level
/// effective, took 38, 55, 110, 142, 141 and 138 ns in the first laps after the preparation of the set.
pub(super) const LAPS: usize = 4;

/// Traverses a working set until the caches have settled. A lap is `lap` operations.
pub(crate) fn settled<O: Operation>(mut operation: O, lap: u64) -> io::Result<O> {
    for _ in 0..LAPS {
        untimed(&mut operation, lap)?;
    }
    Ok(operation)
}

/// Runs an untimed batch of `operations`, rounded up to a multiple of the operation's granule.
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
    fn four_laps_are_run_each_as_a_batch_of_whole_granules() {
        let Batches { armed, run, disarmed } = settled(Batches::default(), 63).unwrap();
        assert_eq!([armed, run, disarmed], [[64; 4]; 3]);
    }
}
