//! Import: a trace from the log of strace, for users who may not run the recorder.
//!
//! The log has the calls with their arguments, results and elapsed times, and the processes. It has neither
//! CPUs, nor page faults, nor what a call did in its time: see [`Origin::Strace`]. The whole log is read
//! twice: first the threads that it creates, then everything, because a thread may appear before the call
//! that created it returns. The memory depends on the number of threads and objects.

mod address;
mod call;
mod clock;
mod convert;
mod line;
mod log;
mod notation;
mod object;
mod order;
mod survey;
#[cfg(test)]
mod tests;
mod threads;
mod value;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

pub use self::line::Defect;
use self::{clock::ABSOLUTE_NS, convert::Conversion, log::Log, survey::Survey};
use crate::container::{Opening, Origin, WriteError, Writer};

/// The thread of a log that has no numbers of threads, because strace did not follow any.
const ONLY_THREAD: u32 = 1;

/// Result of an import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Imported {
    /// Calls that returned.
    pub calls: u64,
    /// Processes.
    pub processes: u64,
    /// Processes that the log does not create. Each thread to which strace was attached is one, and each
    /// whose creation was not logged.
    pub roots: u64,
    /// Whether the log has numbers of threads. Otherwise they are those of process 1.
    pub is_numbered: bool,
    /// Lines that are not in the trace because strace does not write such lines.
    pub skipped: u64,
    /// The first of them, from 1.
    pub first_skipped: Option<u64>,
    /// Arguments with a constant whose value is not known: it is missing in the value of the trace.
    pub unnamed: u64,
    /// Longest time by which a record begins later than its line says: in a trace, records are in the order
    /// of their ends.
    pub moved_ns: u64,
}

/// A log could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The log could not be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The log.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The log is not a file: it is read twice.
    #[error("{}: is not a file; write the log into a file first", .0.display())]
    NotAFile(PathBuf),
    /// A line of the log lacks what a trace must have.
    #[error("{}, line {line}: {defect}", path.display())]
    Line {
        /// The log.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is missing.
        defect: Defect,
    },
    /// The caller asked to stop.
    #[error("interrupted; no trace was written")]
    Interrupted,
    /// No line of the log is a call.
    #[error("{}: contains no system call; record it with 'strace -f -ttt -T -y -o LOG COMMAND'", .0.display())]
    NoCalls(PathBuf),
    /// The trace could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Writes the trace `container` from the file `log`, which strace wrote with the options `-ttt` or `-tt` or
/// `-r`, `-T` and, so that the kinds of descriptors are known, `-y` or `-yy`. After an error, and if
/// `is_interrupted` is set, there is no trace.
///
/// `architecture` is the one whose calls the log has.
pub fn strace(
    log: &Path,
    container: &Path,
    architecture: &str,
    is_interrupted: &AtomicBool,
) -> Result<Imported, ImportError> {
    let log = Log::of(log, is_interrupted)?;
    let survey = Survey::of(&log)?;
    let (Some(start_ns), true) = (survey.clock.start_ns, survey.calls > 0) else {
        return Err(ImportError::NoCalls(log.path.to_owned()));
    };
    let opening = Opening {
        origin: Origin::Strace,
        host: String::new(),
        kernel: String::new(),
        architecture: architecture.to_owned(),
        command: Vec::new(),
        roots: Vec::new(),
        cpus: 1,
        monotonic_ns: start_ns,
        // The time of a day and a relative time have no date.
        realtime_ns: if start_ns < ABSOLUTE_NS { 0 } else { start_ns },
    };
    let writer = Writer::create(container, opening)?;
    let imported = Conversion::of(survey.births, writer).read(&log).inspect_err(|_| {
        // The failure that made it useless is reported; a failure to remove it is less important.
        let _ = fs::remove_dir_all(container);
    })?;
    Ok(Imported { is_numbered: survey.is_numbered, ..imported })
}
