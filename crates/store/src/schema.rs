//! Opens a store: the file, its markers and its tables.
//!
//! A store has an application id, which distinguishes it from databases of other programs, and a format
//! number. An older format is upgraded by the missing migrations; a newer format is rejected, because this
//! program could destroy data that it does not understand.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use crate::failure::OpenError;
use crate::{BUSY_TIMEOUT, Store};

/// "asay" in ASCII.
pub const APPLICATION_ID: i32 = 0x6173_6179;

/// Migrations from format `n` to format `n + 1`, each in one transaction with its number. A released
/// migration is never edited, because stores with its result exist.
const MIGRATIONS: [&str; 3] =
    [include_str!("schema/1.sql"), include_str!("schema/2.sql"), include_str!("schema/3.sql")];

/// The newest format.
pub const FORMAT: i64 = MIGRATIONS.len() as i64;

impl Store {
    /// Opens the store in this file; creates the file and its directories if they are missing.
    ///
    /// # Errors
    /// [`OpenError`] if the file is not a store that this program can use.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            fs::create_dir_all(directory)
                .map_err(|source| OpenError::Directory { directory: directory.to_owned(), source })?;
        }
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(OpenError::NotAFile { path: path.to_owned() });
        }
        let refused = |error| OpenError::sqlite(path, &error);
        let mut connection = Connection::open(path).map_err(refused)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(refused)?;
        bring_up_to_date(&mut connection, path)?;
        prepare(&connection).map_err(refused)?;
        Ok(Self { connection, path: path.to_owned() })
    }
}

/// Checks the markers and applies the missing migrations under the write lock, since two processes may create
/// the same store concurrently.
fn bring_up_to_date(connection: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let refused = |error| OpenError::sqlite(path, &error);
    let marked = |connection: &Connection| -> rusqlite::Result<(i32, i64)> {
        let read = |pragma| connection.pragma_query_value(None, pragma, |row| row.get(0));
        Ok((read("application_id")?, connection.pragma_query_value(None, "user_version", |row| row.get(0))?))
    };
    if marked(connection).map_err(refused)? == (APPLICATION_ID, FORMAT) {
        return Ok(());
    }
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(refused)?;
    let (application_id, format) = marked(&transaction).map_err(refused)?;
    let tables: i64 =
        transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(refused)?;
    let is_new = application_id == 0 && format == 0 && tables == 0;
    if application_id != APPLICATION_ID && !is_new {
        return Err(OpenError::NotOurs { path: path.to_owned(), application_id });
    }
    if format > FORMAT {
        return Err(OpenError::Newer { path: path.to_owned(), found: format, known: FORMAT });
    }
    for step in MIGRATIONS.iter().skip(usize::try_from(format).unwrap_or(0)) {
        transaction.execute_batch(step).map_err(refused)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(refused)?;
    transaction.pragma_update(None, "user_version", FORMAT).map_err(refused)?;
    transaction.commit().map_err(refused)
}

/// Configures the connection. With a write-ahead log, readers can read while a run writes. Without a flush
/// per transaction (`NORMAL`), a killed process loses nothing and a power failure loses at most the last
/// samples; a flush per sample would cause disk traffic between the measurements.
fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    keep_write_ahead_log(connection)?;
    connection.pragma_update(None, "synchronous", "normal")?;
    connection.pragma_update(None, "foreign_keys", true)
}

/// Sets the journal mode, which is stored in the file. SQLite may not wait for another process here,
/// regardless of the connection's timeout: it reads first, and fails immediately if it cannot write
/// afterwards (`sqlite3BtreeSetVersion`).
fn keep_write_ahead_log(connection: &Connection) -> rusqlite::Result<()> {
    const PAUSE: Duration = Duration::from_millis(5);
    connection.busy_timeout(Duration::ZERO)?;
    let mut waited = Duration::ZERO;
    let set = loop {
        let set = connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()));
        let is_busy =
            set.as_ref().is_err_and(|error| error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy));
        if !is_busy || waited >= BUSY_TIMEOUT {
            break set;
        }
        thread::sleep(PAUSE);
        waited += PAUSE;
    };
    connection.busy_timeout(BUSY_TIMEOUT)?;
    set
}
