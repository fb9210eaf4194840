//! Raw measurements: what one fresh process saw of one primitive.
//!
//! `bench` makes samples, `store` keeps them as they are, and `statistics` computes costs and estimates from
//! them whenever they are needed. Change the statistic, and the history is re-read.

use crate::evidence::Evidence;

/// One timed batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// Operations in the batch.
    pub operations: u64,
    /// Time between the two clock reads around it, ns, clock overhead included: elapsed time, or the
    /// processor time of a thread that sleeps on purpose.
    pub elapsed_ns: f64,
}

/// Events that the processor or the kernel counted in separate batches, which are not timed.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// Name of the event: `instructions`, `page faults`.
    pub event: String,
    /// Operations and events of each batch, in order; or why there are none.
    pub batches: Result<Vec<(u64, f64)>, String>,
}

/// What one fresh process measured: the unit of replication (Kalibera and Jones, ISMM 2013).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sample {
    /// Seed of the layout and of every other random choice of the process.
    pub seed: u64,
    /// Batches of the primitive, in the order they were timed.
    pub observations: Vec<Observation>,
    /// Batches of the work that comes with the primitive but does not belong to it (the pipe under a context
    /// switch; thesis, section 2.2.4), in order. Empty if there is none.
    pub baseline: Vec<Observation>,
    /// Further batches that could not be done as asked, because other tasks kept a participant from running.
    pub refused: usize,
    /// Readings of the machine meanwhile.
    pub evidence: Evidence,
    /// Events that were counted; empty unless requested.
    pub counted: Vec<Counted>,
}
