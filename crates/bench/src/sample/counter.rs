//! Counts events of the processor and of the kernel during an operation, to explain its cost.
//!
//! The counters are opened once per sample and read before and after each batch.

use std::io;

use assay_process::counter::{Count, Counter, Reading, Scope, open};
use assay_quantity::Counted;

use super::harness::{self, Around, Schedule};
use crate::benchmark::Operation;
use crate::platform::clock::Clock;

/// Returns every event without a count, for this reason.
pub(crate) fn refused(reason: &str) -> Vec<Counted> {
    let events = open().into_iter().map(|(name, _)| name.to_owned());
    events.map(|event| Counted { event, batches: Err(reason.to_owned()) }).collect()
}

/// Counts the events of every counter in batches of n and 2n operations. These batches are not the timed
/// ones: reading the counters costs a few system calls for each batch.
///
/// # Errors
/// Returns the error of the first call that fails.
pub(crate) fn count(
    clock: &impl Clock,
    schedule: Schedule,
    operation: &mut dyn Operation,
) -> io::Result<Vec<Counted>> {
    let counters = open();
    let mut counted: Vec<Counted> = counters
        .iter()
        .map(|(name, counter)| {
            let batches = counter.as_ref().map(|_| Vec::new()).map_err(ToString::to_string);
            let user_only = matches!(counter, Ok(Counter { scope: Scope::User, .. }));
            Counted {
                event: if user_only { format!("{name}, user mode") } else { (*name).to_owned() },
                batches,
            }
        })
        .collect();
    let read = || -> io::Result<Vec<Option<Reading>>> {
        counters.iter().map(|(_, counter)| counter.as_ref().ok().map(Counter::read).transpose()).collect()
    };
    let mut before = Vec::new();
    harness::around_batches(clock, schedule, operation, &mut |around| {
        match around {
            Around::Before => before = read()?,
            Around::After(operations) => {
                for (counted, (from, to)) in counted.iter_mut().zip(before.iter().zip(read()?)) {
                    let Some((from, to)) = from.zip(to) else { continue };
                    record(&mut counted.batches, operations, to.since(from));
                }
            }
        }
        Ok(())
    })?;
    Ok(counted)
}

/// Adds a count to its batches. A counter that the kernel never scheduled has no batches.
#[expect(clippy::cast_precision_loss, reason = "a batch has far fewer than 2^52 events")]
fn record(batches: &mut Result<Vec<(u64, f64)>, String>, operations: u64, count: Count) {
    let count = match count {
        Count::Exact(count) => count as f64,
        Count::Scaled { estimate, .. } => estimate,
        Count::NoTurn => {
            *batches = Err("the kernel never scheduled the counter; count fewer events".to_owned());
            return;
        }
    };
    if let Ok(batches) = batches {
        batches.push((operations, count));
    }
}
