//! A run of a simulated machine as a file, to be shown and compared later: `assay.simulation/1`.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::profile::{Profile, ProfileError};

/// Marks the file and its version.
const FORMAT: &str = "assay.simulation/1";

/// What ran, in which machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Command of the guest's shell; `None` for the mix of system calls.
    pub command: Option<String>,
    /// Release of the kernel.
    pub kernel: String,
    /// Memory of the guest in MiB.
    pub memory_mib: u32,
    /// Whether the guest's time passed with its instructions: the same run has the same profile then.
    pub deterministic: bool,
    /// What was observed.
    pub observed: Observed,
}

/// What was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observed {
    /// Instructions of each program and of each service of the kernel.
    Services,
    /// Instructions of all programs and of the kernel.
    Count,
}

/// A run of a command in a simulated machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Version of this file.
    format: String,
    /// What ran, in which machine.
    pub setup: Setup,
    /// Status with which the command ended.
    pub status: u8,
    /// Where its instructions went.
    pub profile: Profile,
}

/// Why a run cannot be read.
#[derive(Debug, Error)]
pub enum RunError {
    /// It is not a run, or a damaged one.
    #[error("{0}")]
    Malformed(#[from] serde_json::Error),
    /// It has another version.
    #[error("its format is '{0}', but '{FORMAT}' is required; if the file is newer, update assay")]
    Version(String),
    /// Its profile cannot be right.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// The format of a file, which decides about its other fields.
#[derive(Deserialize)]
struct Envelope {
    format: String,
}

impl Run {
    /// A run that has ended.
    #[must_use]
    pub fn new(setup: Setup, status: u8, profile: Profile) -> Self {
        Self { format: FORMAT.to_owned(), setup, status, profile }
    }

    /// Writes the run as JSON.
    ///
    /// # Panics
    /// Never: all its parts have a form in JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a run has a form in JSON") + "\n"
    }

    /// Reads a run, whose sums are right.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn from_json(text: &str) -> Result<Self, RunError> {
        let Envelope { format } = serde_json::from_str(text)?;
        if format != FORMAT {
            return Err(RunError::Version(format));
        }
        let run: Self = serde_json::from_str(text)?;
        run.profile.check()?;
        Ok(run)
    }
}
