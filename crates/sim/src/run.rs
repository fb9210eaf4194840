//! A run of a simulated machine, which can be kept in a file: `assay.simulation/2`.

use serde::{Deserialize, Serialize};

use crate::format::{self, FormatError};
use crate::profile::{Contradiction, Profile};

/// Marks the file and its version.
const FORMAT: &str = "assay.simulation/2";

/// What ran, in which machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Command of the guest's shell; `None` for the mix of system calls.
    #[serde(deserialize_with = "Option::deserialize")]
    pub command: Option<String>,
    /// Files and directories that were copied into the guest, as they were given.
    pub copies: Vec<String>,
    /// Release of the kernel.
    pub kernel: String,
    /// Root file system of the command, as it was given; `None` for that of busybox.
    #[serde(deserialize_with = "Option::deserialize")]
    pub root: Option<String>,
    /// Memory of the guest in MiB, without that of the image.
    pub memory_mib: u32,
    /// Whether the guest's time passed with its instructions: the same run has the same profile then.
    pub deterministic: bool,
    /// What was observed.
    pub observed: Observed,
    /// Functions of the kernel that were annotated as services.
    pub functions: Vec<String>,
}

/// What was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observed {
    /// Instructions of each program, and of each service and routine of the kernel.
    Services,
    /// Instructions of all programs and of the kernel.
    Count,
}

/// A run of a command in a simulated machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// What ran, in which machine.
    pub setup: Setup,
    /// Status with which the command ended.
    pub status: u8,
    /// Where its instructions went.
    pub profile: Profile,
}

impl Run {
    /// Writes the run as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        format::write(FORMAT, self)
    }

    /// Reads a run.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn from_json(text: &str) -> Result<Self, FormatError> {
        let run: Self = format::read(text, FORMAT)?;
        run.check()?;
        Ok(run)
    }

    /// Checks that the numbers add up, and that there are those that the setup demands.
    ///
    /// # Errors
    /// [`Contradiction`].
    pub fn check(&self) -> Result<(), Contradiction> {
        let (setup, profile) = (&self.setup, &self.profile);
        profile.check()?;
        let has_services = setup.observed == Observed::Services;
        if profile.routines.is_empty() == (has_services && profile.total.kernel > 0) {
            return Err(Contradiction("it has routines without services, or services without routines"));
        }
        if profile.elapsed.is_some() != (has_services && setup.deterministic) {
            return Err(Contradiction("it has times without the clock for them, or the clock without times"));
        }
        Ok(())
    }
}
