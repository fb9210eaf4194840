//! Runs and raw samples, kept in SQLite.
//!
//! Everything that is measured is kept as it was observed: each sample is one transaction, so that a run
//! that is interrupted, killed or cut off by a power failure keeps what it had. Derived numbers are never
//! stored: a cost, an interval, a verdict is computed again from the samples whenever it is asked for.
//! This is the only part that writes SQL. It knows no clock and no environment: the time and the place of
//! the file come from the caller. `docs/store.md` describes the file.
#![forbid(unsafe_code)]

mod failure;
mod place;
mod read;
mod row;
mod schema;
mod write;

use std::path::{Path, PathBuf};
use std::time::Duration;

use assay_quantity::{Description, PrimitiveId, Sample, Unit};
use rusqlite::Connection;

pub use failure::{Failure, OpenError, ReadError, WriteError};

/// How long a writer waits for another one. A transaction here takes milliseconds, so a writer that has
/// waited this long waits for something that is stuck.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// An open store.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
}

/// The number of a run; never given twice in one store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub i64);

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What is known when a run begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunStart {
    /// When, as RFC 3339 text; the caller has the clock.
    pub started_at: String,
    /// The command line, one string per argument.
    pub command: Vec<String>,
    /// Version of the program that measured.
    pub version: String,
    /// How people call the machine.
    pub machine: String,
    /// What the machine is.
    pub description: Description,
    /// The seed from which every random choice of the run comes.
    pub seed: u64,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it was asked.
    Completed,
    /// Somebody stopped it.
    Interrupted,
    /// It could not go on, and why.
    Failed(String),
}

/// A run as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its number.
    pub id: RunId,
    /// What was known when it began.
    pub start: RunStart,
    /// How it ended; `None` for a run that was cut off, or that is still going.
    pub outcome: Option<Outcome>,
}

/// The samples of one primitive.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The primitive.
    pub primitive: PrimitiveId,
    /// What its cost counts: ns or ns/B.
    pub unit: Unit,
    /// Its samples, in the order in which they were added.
    pub samples: Vec<Sample>,
}

/// A sample that could not be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The primitive.
    pub primitive: PrimitiveId,
    /// Why, in one line.
    pub reason: String,
}

impl Store {
    /// The file that it is in.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}
