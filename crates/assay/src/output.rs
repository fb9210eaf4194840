//! Output of the subcommands: reports go to stdout, messages to stderr, and files are written atomically.

use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use assay_report::{Colour, Format, Report, Style, Symbols};
use rustix::termios::tcgetwinsize;

use crate::interrupt::Interrupted;

/// The reader of stdout has closed it. A separate type, because a broken pipe to a server is a different
/// error.
#[derive(Debug, thiserror::Error)]
#[error("the reader of stdout has closed it")]
struct Unread;

/// A result that the user requested as an exit code.
#[derive(Debug, thiserror::Error)]
pub enum Alarm {
    /// A figure is unreliable.
    #[error("{0}")]
    Doubtful(String),
    /// A primitive is slower.
    #[error("{0}")]
    Slower(String),
}

/// Meaning of the exit codes, for `--help`. clap exits with 2.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    error, described by the last line on stderr
  2    invalid command line
  3    unreliable or missing figures (bench --strict, compare --fail-over)
  4    slower primitives (compare --fail-over)
  130  interrupted";

/// A time as records contain it; five hundred years at most.
pub fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Prints a report to stdout in the given format.
pub fn show(report: &Report, format: &Format) -> anyhow::Result<()> {
    print(&(format.render)(report, &style()))
}

/// Replaces the screen of a terminal by the beginning of a report, as much as fits. On anything else it does
/// nothing.
pub fn redraw<E: Into<anyhow::Error>>(report: impl FnOnce() -> Result<Report, E>) -> anyhow::Result<()> {
    // Escape sequences of ECMA-48: to the upper left corner; clear the rest of a line, and of the screen.
    let (home, line, rest) = ("\x1b[H", "\x1b[K\n", "\x1b[J");
    if !io::stdout().is_terminal() {
        return Ok(());
    }
    let rows = tcgetwinsize(io::stdout()).map_or(u16::MAX, |size| size.ws_row);
    let text = assay_report::text::report(&report().map_err(Into::into)?, &style());
    // The cursor stands on the last row.
    let shown = text.lines().take(usize::from(rows).saturating_sub(1));
    let shown: String = shown.flat_map(|shown| [shown, line]).collect();
    print(&format!("{home}{shown}{rest}"))
}

/// Combines the results of printing a report and of the rest of a subcommand. An error of the rest takes
/// precedence over a failure to print; that failure is printed first unless the reader closed stdout early.
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

/// Prints text to stdout. A reader that closes stdout early is not an error; see [`complain`].
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = stdout();
    printed(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Bytes per write to stdout.
const STDOUT_BYTES: usize = 64 * 1024;

/// Returns a buffered stdout for output that is printed in pieces; pass the result to [`printed`].
pub fn stdout() -> impl Write {
    BufWriter::with_capacity(STDOUT_BYTES, io::stdout().lock())
}

/// Converts the result of writing to stdout.
pub fn printed(written: io::Result<()>) -> anyhow::Result<()> {
    if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return Err(Unread.into());
    }
    written.context("cannot write to stdout; redirect it to a place with free space")
}

/// Prints a message on stderr.
pub fn say(line: &str) {
    // A failure cannot be reported when stderr is closed.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints the output of a program on stderr, and ends its last line.
pub fn say_bytes(bytes: &[u8]) {
    let end: &[u8] = if bytes.is_empty() || bytes.ends_with(b"\n") { b"" } else { b"\n" };
    // A failure cannot be reported when stderr is closed.
    let _ = io::stderr().write_all(&[bytes, end].concat());
}

/// Prints an error in one line and returns its exit code; a closed pipe is success.
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

/// Formats an error with its causes in one line. Omits a cause that the line already contains, and escapes
/// control characters, which a file can bring in.
pub fn line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !line.contains(&cause) {
            line.push_str(if line.is_empty() { "" } else { ": " });
            line.push_str(&cause);
        }
    }
    assay_report::visible(&line.replace('\n', " ")).into_owned()
}

/// Writes a file atomically: to a temporary file in the same directory, then renamed. A symbolic link is
/// followed and kept. A device or a pipe is written directly, because it cannot be replaced.
pub fn write_file(path: &Path, content: &(impl AsRef<[u8]> + ?Sized)) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}; check free space and permissions", path.display());
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if is_special(&place) {
        return fs::write(&place, content).with_context(failed);
    }
    let mut file = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder(&place))
        .with_context(failed)?;
    file.write_all(content.as_ref()).with_context(failed)?;
    file.as_file().sync_all().with_context(failed)?;
    file.persist(place).map_err(|error| error.error).with_context(failed)?;
    Ok(())
}

/// Fails if a file cannot be written, so that a long run does not fail at its end.
pub fn check_writable(path: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(!path.is_dir(), "{} is a directory; give a file name", path.display());
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if is_special(&place) {
        return Ok(());
    }
    tempfile::tempfile_in(folder(&place))
        .map(drop)
        .with_context(|| format!("cannot write to {}; choose another directory", folder(&place).display()))
}

/// Whether the path exists and is not a regular file.
fn is_special(place: &Path) -> bool {
    fs::metadata(place).is_ok_and(|there| !there.is_file())
}

fn folder(place: &Path) -> &Path {
    place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the text style for stdout. Lines are wrapped for a terminal only: programs that read a file or a
/// pipe expect one row per line.
pub fn style() -> Style {
    let stdout = io::stdout();
    let size = tcgetwinsize(&stdout).ok().filter(|size| size.ws_col > 0);
    let width = size.map_or(u16::MAX, |size| size.ws_col);
    let plain = !stdout.is_terminal() || std::env::var_os("NO_COLOR").is_some();
    let colour = if plain { Colour::Plain } else { Colour::Ansi };
    Style { width, symbols: Symbols::Unicode, colour }
}

/// Whether stderr is a terminal, on which progress bars are drawn.
pub fn watched() -> bool {
    io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbolic_link_and_a_device_are_kept() {
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
