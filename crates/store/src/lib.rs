//! Runs and raw samples in SQLite.
//!
//! All measurements are stored as observed. Each sample is one transaction, so that a run that is interrupted
//! or killed keeps its samples; a power failure loses at most the last ones. Derived numbers are never
//! stored: a cost, an interval or a verdict is computed from the samples on every request. Only this crate
//! contains SQL. It reads no clock and no environment: the caller passes the time and the path of the file.
//! `docs/store.md` describes the file.
#![forbid(unsafe_code)]

mod earlier;
mod failure;
mod read;
mod row;
mod schema;
mod write;

use std::path::{Path, PathBuf};
use std::time::Duration;

use assay_quantity::{Description, PrimitiveId, Sample, Unit};
use rusqlite::Connection;

pub use failure::{Failure, OpenError, ReadError, WriteError};

/// Timeout of a writer that waits for another writer. A transaction takes milliseconds, so a writer that has
/// waited this long waits for a stuck process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// An open store.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
}

/// The number of a run; never reused in one store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub i64);

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Properties of a run at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunStart {
    /// Start time as RFC 3339 text, from the caller's clock.
    pub started_at: String,
    /// The command line, one string per argument.
    pub command: Vec<String>,
    /// Version of the measuring program.
    pub version: String,
    /// Name of the machine.
    pub machine: String,
    /// Description of the machine.
    pub description: Description,
    /// Seed of all random choices of the run.
    pub seed: u64,
}

/// Outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The run completed.
    Completed,
    /// The user stopped the run.
    Interrupted,
    /// The run failed for this reason.
    Failed(String),
}

/// A stored run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Number of the run.
    pub id: RunId,
    /// Properties at its start.
    pub start: RunStart,
    /// Outcome; `None` for a run that was cut off or is still running.
    pub outcome: Option<Outcome>,
}

/// The samples of one primitive.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The primitive.
    pub primitive: PrimitiveId,
    /// Unit of its cost: ns or ns/B.
    pub unit: Unit,
    /// Its samples, in insertion order.
    pub samples: Vec<Sample>,
}

/// A sample that could not be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The primitive.
    pub primitive: PrimitiveId,
    /// The reason, in one line.
    pub reason: String,
}

impl Store {
    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}
