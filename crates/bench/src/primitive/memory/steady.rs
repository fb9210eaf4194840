//! Laps through caches: a working set that caches may hold is measured in the state that lap after lap leaves them in.
//!
//! What they hold right after it was made ready is something else: lines that were modified, in the order of making,
//! and other tenants of a shared cache have had the time since to take their places. Which lines stay is settled
//! by the cache's replacement, which adapts over several laps.

use std::io;

use crate::benchmark::Operation;

/// Laps after which the next ones cost the same. Loads from 6 MiB on a processor whose third level has 4 to 6 MiB for
/// one guest took 38, 55, 110, 142, 141 and 138 ns in their first laps after the linking.
const LAPS: u64 = 4;

/// Operations after which the caches have settled, `lap` of them being a lap.
pub(in super::super) fn laps(lap: u64) -> u64 {
    LAPS * lap
}

/// An operation after so many operations that are not timed.
pub(in super::super) fn after<O: Operation>(mut operation: O, operations: u64) -> io::Result<O> {
    let operations = operations.next_multiple_of(operation.granule());
    operation.arm(operations)?;
    operation.run(operations)?;
    operation.disarm(operations)?;
    Ok(operation)
}
