//! Runs a command in a guest: a machine with a kernel of its own, made for this one command.
//!
//! [`run`] writes the guest's file system, starts the guest, watches it, and returns what the command printed
//! and its exit status. A guest that panics, hangs or ends early is an error that contains the guest's own
//! last words, and it is killed with all its processes in every case. The subcommand `sim` calls this crate.
//! It computes nothing and prints nothing.
//!
//! [`Job`], [`Finished`] and [`RunError`] are the same for every platform; what is particular to one is in
//! its module ([`qemu`]).
#![forbid(unsafe_code)]

pub mod answer;
mod archive;
pub mod image;
pub mod kernel;
mod mark;
mod program;
pub mod qemu;
mod root;
mod watch;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use assay_process::{Exit, StopError};
use thiserror::Error;

pub use answer::{Finished, Uptime};
pub use root::CopyError;

use answer::AnswerError;

/// A command for a guest, with the files that it needs.
#[derive(Debug, Clone)]
pub struct Job {
    /// Command for the guest's shell, run in the directory `/work`.
    pub command: String,
    /// Files and directories of the host that are copied to `/work`, each under its last name.
    pub copies: Vec<PathBuf>,
    /// Instructions that mark the command's beginning and end for an observer: programs of the guest execute
    /// them before and after it.
    pub marks: [[u8; 8]; 2],
    /// Time from the start of the guest after which it is killed, in time of the host.
    pub limit: Duration,
}

/// Where a guest runs.
#[derive(Debug, Clone)]
pub enum Platform {
    /// A whole emulated machine.
    Qemu(qemu::Machine),
}

/// Runs a job in a new guest. When `stop` becomes true, the guest is killed. No process and no file of the
/// guest remains.
///
/// # Errors
/// [`RunError`]. A command that ends with a status other than 0 is not an error.
pub fn run(platform: &Platform, job: &Job, stop: &AtomicBool) -> Result<Finished, RunError> {
    let directory = tempfile::Builder::new().prefix("assay-guest-").tempdir();
    let directory = directory.map_err(|source| RunError::File { path: std::env::temp_dir(), source })?;
    let start = match platform {
        Platform::Qemu(machine) => machine.prepare(job, directory.path())?,
    };
    watch::watch(start, job.limit, stop)
}

/// Why a job has no result.
#[derive(Debug, Error)]
pub enum RunError {
    /// A file cannot be copied into the guest.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// A file of the guest cannot be written or read.
    #[error("cannot use {}: {source}; check free space and permissions", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The program that runs the guest cannot be started or observed.
    #[error("cannot run {program}: {source}")]
    Program {
        /// Its name.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// It ended before the command did.
    #[error("{program} {exit} before the guest's command ended: {last}")]
    Ended {
        /// Its name.
        program: String,
        /// How it ended.
        exit: Exit,
        /// The last line that it or the guest printed.
        last: String,
    },
    /// The guest's kernel has panicked.
    #[error("the guest's kernel panicked: {reason}")]
    Panicked {
        /// Its message.
        reason: String,
    },
    /// The guest did not start the command within the limit.
    #[error("the guest did not boot within {} s and was killed; the last line on its console: {last}", limit.as_secs_f64())]
    NotBooted {
        /// The limit.
        limit: Duration,
        /// The last line on its console.
        last: String,
    },
    /// The command did not end within the limit.
    #[error("the guest's command did not end within {} s, and the guest was killed; raise the limit", limit.as_secs_f64())]
    NotEnded {
        /// The limit.
        limit: Duration,
    },
    /// The command has ended, but not all of its output has arrived.
    #[error("the output of the guest's command did not arrive within {} s; raise the limit or print less", limit.as_secs_f64())]
    NotArrived {
        /// The limit.
        limit: Duration,
    },
    /// The guest's results are missing or damaged.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// A process of the guest still exists.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// The caller stopped it.
    #[error("interrupted; the guest was killed")]
    Interrupted,
}
