//! Errors of a store: one type per operation; each message is one line with a remedy.

use std::fmt;
use std::path::{Path, PathBuf};

use assay_quantity::Unit;
use rusqlite::ErrorCode;

use crate::RunId;

/// The cause of an SQLite error: the causes that a user can fix are distinguished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The file is damaged or not a store.
    Damaged(String),
    /// No space is left.
    Full,
    /// The file or its directory cannot be written.
    ReadOnly,
    /// The file cannot be opened or created.
    CannotOpen,
    /// Another process has locked the store for too long.
    Busy,
    /// The device failed.
    Device(String),
    /// Any other error, with SQLite's message.
    Other(String),
}

impl Failure {
    pub(crate) fn of(error: &rusqlite::Error) -> Self {
        let message = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Failure::Damaged(message),
            Some(ErrorCode::DiskFull) => Failure::Full,
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Failure::ReadOnly,
            Some(ErrorCode::CannotOpen) => Failure::CannotOpen,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Failure::Busy,
            Some(ErrorCode::SystemIoFailure) => Failure::Device(message),
            _ => Failure::Other(message),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Damaged(what) => {
                write!(f, "the file is damaged or not a store ({what}); move it away or specify another file")
            }
            Failure::Full => f.write_str("the disk is full; free some space and try again"),
            Failure::ReadOnly => {
                f.write_str("the file cannot be written; make the file and its directory writable or specify another file")
            }
            Failure::CannotOpen => f.write_str(
                "the file cannot be opened or created; check that its directory is writable or specify another file",
            ),
            Failure::Busy => {
                f.write_str("another process has locked it; end that process or try again later")
            }
            Failure::Device(what) => write!(f, "I/O error ({what}); check the disk or specify another file"),
            Failure::Other(what) => write!(f, "SQLite error ({what}); specify another file"),
        }
    }
}

/// A store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its directory does not exist and could not be created.
    #[error("cannot create directory {} for the store: {source}; create it or specify another file", directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The path is a directory, a device, or a pipe.
    #[error("store {} is not a regular file; specify another file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file is a database of another program.
    #[error("{} is a database of another program (application id {application_id:#x}); specify another file", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// Application id of the file.
        application_id: i32,
    },
    /// The store was written by a newer version of this program.
    #[error("store {} has format {found}, but this program supports formats up to {known}; use a newer assay or specify another file", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest supported format.
        known: i64,
    },
    /// SQLite returned an error.
    #[error("cannot open store {}: {failure}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The cause.
        failure: Failure,
    },
}

/// An item could not be added to a store. Nothing was written.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WriteError {
    /// The run does not exist.
    #[error("store {} has no run {run}; see 'assay history'", path.display())]
    NoRun {
        /// The file.
        path: PathBuf,
        /// The number.
        run: RunId,
    },
    /// The run has already ended.
    #[error("run {run} of store {} has already ended; start a new run", path.display())]
    Ended {
        /// The file.
        path: PathBuf,
        /// The run.
        run: RunId,
    },
    /// The unit differs from that of the primitive's other samples.
    #[error(
        "{primitive} has the unit {unit} in run {run}, but a new sample has the unit {other}; start a new run"
    )]
    Units {
        /// The run.
        run: RunId,
        /// The primitive.
        primitive: String,
        /// Unit of the stored samples.
        unit: String,
        /// Unit of the rejected sample.
        other: Unit,
    },
    /// A value is infinite or not a number.
    #[error("a sample of {primitive} contains the invalid value {value}; it was not stored")]
    NotFinite {
        /// The primitive.
        primitive: String,
        /// The value.
        value: f64,
    },
    /// SQLite returned an error.
    #[error("cannot write to store {}: {failure}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The cause.
        failure: Failure,
    },
}

/// A store could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The run does not exist.
    #[error("store {} has no run {run}; see 'assay history'", path.display())]
    NoRun {
        /// The file.
        path: PathBuf,
        /// The number.
        run: RunId,
    },
    /// A row contains data that this program never writes.
    #[error("store {} is damaged: {what}; move it away or specify another file", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The row and the problem.
        what: String,
    },
    /// SQLite returned an error.
    #[error("cannot read store {}: {failure}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The cause.
        failure: Failure,
    },
}

impl OpenError {
    pub(crate) fn sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        OpenError::Sqlite { path: path.to_owned(), failure: Failure::of(error) }
    }
}

impl WriteError {
    pub(crate) fn sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        WriteError::Sqlite { path: path.to_owned(), failure: Failure::of(error) }
    }
}

impl ReadError {
    pub(crate) fn sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        ReadError::Sqlite { path: path.to_owned(), failure: Failure::of(error) }
    }
}
