//! What can go wrong with a store: one error per operation, each one line that says what to do.

use std::fmt;
use std::path::{Path, PathBuf};

use assay_quantity::Unit;
use rusqlite::ErrorCode;

use crate::RunId;

/// Why SQLite refused: the causes that a person can do something about, apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The file is not what it should be.
    Damaged(String),
    /// No space is left.
    Full,
    /// The file or its directory cannot be written.
    ReadOnly,
    /// The file cannot be opened or created.
    CannotOpen,
    /// Another process has held the store for too long.
    Busy,
    /// The device failed.
    Device(String),
    /// Anything else, in SQLite's words.
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
                write!(f, "it is damaged or no store at all ({what}); move it away, or name another file")
            }
            Failure::Full => f.write_str("the disk is full; free some space and try again"),
            Failure::ReadOnly => {
                f.write_str("it cannot be written; make the file and its directory writable, or name another file")
            }
            Failure::CannotOpen => f.write_str(
                "it cannot be opened or created; check that its directory may be written, or name another file",
            ),
            Failure::Busy => {
                f.write_str("another process has kept it locked; end that process, or try again later")
            }
            Failure::Device(what) => write!(f, "the device failed ({what}); check the disk, or name another file"),
            Failure::Other(what) => write!(f, "SQLite failed ({what}); name another file"),
        }
    }
}

/// A store that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its directory does not exist and cannot be created.
    #[error("cannot create directory {} for the store: {source}; create it, or name another file", directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The path is a directory, a device, or a pipe.
    #[error("store {} is not a regular file; name another file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A database of another program.
    #[error("{} is a database of another program (application id {application_id:#x}); name another file", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What it says that it is.
        application_id: i32,
    },
    /// Written by a later version of this program.
    #[error("store {} has format {found}, and this program knows formats up to {known}; use a newer assay, or name another file", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest known format.
        known: i64,
    },
    /// SQLite refused.
    #[error("cannot open store {}: {failure}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Why.
        failure: Failure,
    },
}

/// Something that could not be added to a store. Nothing of it was.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WriteError {
    /// There is no such run.
    #[error("store {} has no run {run}; see 'assay history'", path.display())]
    NoRun {
        /// The file.
        path: PathBuf,
        /// The number.
        run: RunId,
    },
    /// The run has an end already.
    #[error("run {run} of store {} has already ended; begin another", path.display())]
    Ended {
        /// The file.
        path: PathBuf,
        /// The run.
        run: RunId,
    },
    /// The samples of one primitive are in one unit.
    #[error("{primitive} is in {unit} in run {run}, and a sample of it came in {other}; begin another run")]
    Units {
        /// The run.
        run: RunId,
        /// The primitive.
        primitive: String,
        /// Unit of the samples that are there.
        unit: String,
        /// Unit of the refused sample.
        other: Unit,
    },
    /// A time that is infinite or not a number was not observed.
    #[error("a sample of {primitive} holds {value} ns, which no clock reads; it was not stored")]
    NotFinite {
        /// The primitive.
        primitive: String,
        /// The value.
        value: f64,
    },
    /// SQLite refused.
    #[error("cannot write to store {}: {failure}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Why.
        failure: Failure,
    },
}

/// Something that could not be read from a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// There is no such run.
    #[error("store {} has no run {run}; see 'assay history'", path.display())]
    NoRun {
        /// The file.
        path: PathBuf,
        /// The number.
        run: RunId,
    },
    /// A row holds what this program never writes.
    #[error("store {} is damaged: {what}; move it away, or name another file", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which row, and what is wrong with it.
        what: String,
    },
    /// SQLite refused.
    #[error("cannot read store {}: {failure}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Why.
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
