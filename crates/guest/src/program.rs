//! Runs a program of the host to its end, and reads what it has written.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assay_process::clock::now;
use assay_process::{Exit, Group, StopRequest};
use rustix::process::Signal;

use crate::RunError;

/// How often the limit and `stop` are looked at. The end of the program is noticed at once.
const PAUSE: Duration = Duration::from_millis(20);

/// Time for the program to end by itself before it is killed. QEMU ends within milliseconds; one whose main
/// loop hangs ignores the signal.
const GRACE: StopRequest = StopRequest { signal: Signal::TERM, grace: Duration::from_secs(2) };

/// Runs a program to its end, and returns that; `None` if it has not ended within `limit`. None of its
/// processes remains.
///
/// # Errors
/// [`RunError::Program`], [`RunError::Stop`], and [`RunError::Interrupted`] when `stop` becomes true.
pub fn run(
    name: &str,
    command: &mut Command,
    limit: Duration,
    stop: &AtomicBool,
) -> Result<Option<Exit>, RunError> {
    let program = |source| RunError::Program { program: name.to_owned(), source };
    let mut group = Group::new().map_err(program)?;
    group.spawn(command).map_err(program)?;
    let deadline = now() + limit;
    let exit = loop {
        if stop.load(Ordering::Relaxed) {
            group.stop(GRACE)?;
            return Err(RunError::Interrupted);
        }
        if group.wait(PAUSE).map_err(program)?.is_some() {
            break group.exit().map_err(program)?;
        }
        if now() >= deadline {
            break None;
        }
    };
    group.stop(GRACE)?;
    Ok(exit)
}

/// Reads a file as text.
pub fn read_text(path: &Path) -> Result<String, RunError> {
    Ok(String::from_utf8_lossy(&read(path)?).into_owned())
}

/// Reads a file.
pub fn read(path: &Path) -> Result<Vec<u8>, RunError> {
    fs::read(path).map_err(unusable(path))
}

/// What a failed operation on a file means.
pub fn unusable(path: &Path) -> impl Fn(io::Error) -> RunError {
    |source| RunError::File { path: path.to_owned(), source }
}

/// The last line that is not empty.
pub fn last_line(text: &str) -> String {
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.unwrap_or("(nothing was printed)").to_owned()
}
