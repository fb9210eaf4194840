//! How a subcommand speaks: reports to stdout, complaints to stderr, files whole or not at all.

use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use assay_report::{Colour, Format, Report, Style, Symbols};
use rustix::termios::tcgetwinsize;

use crate::interrupt::Interrupted;

/// Nobody reads stdout any more. A type of its own: a server's broken pipe is another matter.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads stdout any more")]
struct Unread;

/// What the user has asked to see in the exit code.
#[derive(Debug, thiserror::Error)]
pub enum Alarm {
    /// A figure cannot be relied on.
    #[error("{0}")]
    Doubtful(String),
    /// A primitive is slower.
    #[error("{0}")]
    Slower(String),
}

/// What the exit codes mean, for `--help`. The command line's own errors end with 2.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    an error, which the last line on stderr tells
  2    a command line that is wrong
  3    figures that cannot be relied on (bench --strict, compare --fail-over)
  4    a primitive that is slower (compare --fail-over)
  130  an interrupt";

/// Prints a report to stdout in the asked format.
pub fn show(report: &Report, format: &Format) -> anyhow::Result<()> {
    print(&(format.render)(report, &style()))
}

/// How a subcommand ends that has printed its report and then has more to say: that goes before a report that could not
/// be printed, or that a reader closed early.
pub fn end(printed: anyhow::Result<()>, end: anyhow::Result<()>) -> anyhow::Result<()> {
    match (printed, end) {
        (Err(unprinted), Err(end)) => {
            if !unprinted.is::<Unread>() {
                say(&format!("assay: {}", line(&unprinted)));
            }
            Err(end)
        }
        (printed, end) => end.and(printed),
    }
}

/// Prints text to stdout. A reader that has seen enough is no error; see [`complain`].
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = stdout();
    printed(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Where data goes, for what is printed piece by piece; [`printed`] says how that went.
pub fn stdout() -> impl Write {
    BufWriter::new(io::stdout().lock())
}

/// How printing ended.
pub fn printed(written: io::Result<()>) -> anyhow::Result<()> {
    if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return Err(Unread.into());
    }
    written.context("cannot print to stdout; give it a place that has space")
}

/// Says one thing to the user, on stderr.
pub fn say(line: &str) {
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Ends the process with one line for an error; a closed pipe is success.
pub fn complain(error: &anyhow::Error) -> ExitCode {
    if error.is::<Unread>() {
        return ExitCode::SUCCESS;
    }
    say(&format!("assay: {}", line(error)));
    match error.downcast_ref() {
        Some(Alarm::Doubtful(_)) => ExitCode::from(3),
        Some(Alarm::Slower(_)) => ExitCode::from(4),
        None if error.is::<Interrupted>() => ExitCode::from(130),
        None => ExitCode::FAILURE,
    }
}

/// An error with its causes, in one line. A cause that an error names itself is not told twice.
pub fn line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !line.contains(&cause) {
            line.push_str(if line.is_empty() { "" } else { ": " });
            line.push_str(&cause);
        }
    }
    line.replace('\n', " ")
}

/// Writes a file whole or not at all: beside its place first, then renamed. A link keeps pointing, and a
/// device or a pipe is written into, for there is nothing to replace.
pub fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}; is there space, and may you write there?", path.display());
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if is_special(&place) {
        return fs::write(&place, text).with_context(failed);
    }
    let mut file = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder(&place))
        .with_context(failed)?;
    file.write_all(text.as_bytes()).with_context(failed)?;
    file.as_file().sync_all().with_context(failed)?;
    file.persist(place).map_err(|error| error.error).with_context(failed)?;
    Ok(())
}

/// Fails early when a file that is wanted at the end of a long run could not be written then.
pub fn check_writable(path: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(!path.is_dir(), "{} is a directory; give the name of a file", path.display());
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if is_special(&place) {
        return Ok(());
    }
    tempfile::tempfile_in(folder(&place))
        .map(drop)
        .with_context(|| format!("cannot write to {}; give another place", folder(&place).display()))
}

/// Whether something other than a file is there.
fn is_special(place: &Path) -> bool {
    fs::metadata(place).is_ok_and(|there| !there.is_file())
}

fn folder(place: &Path) -> &Path {
    place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// How text looks where stdout goes. Lines are wrapped for a terminal only: a file or a pipe is read by programs that
/// take a line for a row.
pub fn style() -> Style {
    let stdout = io::stdout();
    let size = tcgetwinsize(&stdout).ok().filter(|size| size.ws_col > 0);
    let width = size.map_or(u16::MAX, |size| size.ws_col);
    let plain = !stdout.is_terminal() || std::env::var_os("NO_COLOR").is_some();
    let colour = if plain { Colour::Plain } else { Colour::Ansi };
    Style { width, symbols: Symbols::Unicode, colour }
}

/// Whether a person is watching stderr: only then are progress bars drawn.
pub fn watched() -> bool {
    io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_keeps_pointing_and_a_device_stays_a_device() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_file(&link, "new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");

        let pipe = directory.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &pipe).unwrap();
        check_writable(&pipe).unwrap();
        write_file(&pipe, "text").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
