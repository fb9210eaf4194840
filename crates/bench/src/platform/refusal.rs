//! Why a benchmark cannot be prepared on this machine.

use std::io;

/// A benchmark that cannot be prepared on this machine.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The benchmark is not available on this machine, for this reason.
    #[error("{0}")]
    Unavailable(String),
    /// A call failed unexpectedly.
    #[error(transparent)]
    Failed(#[from] io::Error),
}
