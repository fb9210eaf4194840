//! What a guest reports on its serial port, written by the script `init`:
//!
//! ```text
//! started UPTIME
//! ended UPTIME STATUS
//! output BYTES
//! ...errors BYTES
//! ...complete
//! ```
//!
//! The dots stand for as many bytes as announced. They may be missing if the host's disk is full, so nothing
//! is accepted without the last line.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

/// What a command in a guest has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Exit status of the command, as its shell reports it: 128 and more for a signal.
    pub status: u8,
    /// What it wrote to stdout.
    pub output: Vec<u8>,
    /// What it wrote to stderr.
    pub errors: Vec<u8>,
    /// When the command started.
    pub started: Uptime,
    /// When the command ended.
    pub ended: Uptime,
}

/// Time since the start of the guest's kernel, in time of the guest. Its resolution is 10 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uptime(pub Duration);

impl fmt::Display for Uptime {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:.2} s", self.0.as_secs_f64())
    }
}

/// Why what a guest wrote is not a result.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// The kernel could not unpack all files.
    #[error("the guest's memory is too small for its files; give it more memory")]
    Incomplete,
    /// The kernel does not find or understand the image.
    #[error(
        "the guest's kernel cannot mount the image; it needs ext4 built in, and the drivers nfit and nd_pmem, built \
         in or as modules in lib/modules next to its directory"
    )]
    NoImage,
    /// The image has no room for the directories that a guest needs.
    #[error("the guest cannot create directories in the image; it must have free blocks and inodes")]
    FullImage,
    /// It ends before the end of the command.
    #[error("the guest was shut down before its command had ended")]
    Unended,
    /// It ends within the results.
    #[error("the guest's results end after {0} bytes; check free space in the temporary directory")]
    Truncated(usize),
    /// A line is not what it must be.
    #[error(
        "the guest's results are damaged (expected '{expected}', found {found:?}); the command must neither write \
         to /dev/ttyS1 nor change /assay"
    )]
    Unexpected {
        /// The form of the line.
        expected: &'static str,
        /// The line.
        found: String,
    },
}

impl AnswerError {
    /// Whether the guest has said that it cannot run the command.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, AnswerError::Incomplete | AnswerError::NoImage | AnswerError::FullImage)
    }
}

/// How far a guest has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It has not started the command.
    Booting,
    /// The command runs.
    Running,
    /// The command has ended.
    Ended,
}

/// Returns how far the guest has come that has written this.
pub(crate) fn progress(bytes: &[u8]) -> Progress {
    let mut cursor = Cursor { bytes, at: 0 };
    match (cursor.words("started"), cursor.words("ended")) {
        (Ok(_), Ok(_)) => Progress::Ended,
        (Ok(_), Err(_)) => Progress::Running,
        (Err(_), _) => Progress::Booting,
    }
}

/// Reads all that a guest has reported.
///
/// # Errors
/// [`AnswerError`], if it is not complete or does not have the form above.
pub fn parse(bytes: &[u8]) -> Result<Finished, AnswerError> {
    match bytes {
        b"incomplete\n" => return Err(AnswerError::Incomplete),
        b"no image\n" => return Err(AnswerError::NoImage),
        b"full image\n" => return Err(AnswerError::FullImage),
        _ => {}
    }
    let mut cursor = Cursor { bytes, at: 0 };
    let started = cursor.parse("started", "started UPTIME", |[uptime]| parse_uptime(uptime))?;
    if cursor.at == bytes.len() {
        return Err(AnswerError::Unended);
    }
    let (ended, status) = cursor.parse("ended", "ended UPTIME STATUS", |[uptime, status]| {
        Some((parse_uptime(uptime)?, status.parse().ok()?))
    })?;
    let output = cursor.part("output", "output BYTES")?;
    let errors = cursor.part("errors", "errors BYTES")?;
    cursor.parse("complete", "complete", |[]| Some(()))?;
    Ok(Finished { status, output, errors, started, ended })
}

/// Seconds with two decimals, as in `/proc/uptime`.
fn parse_uptime(text: &str) -> Option<Uptime> {
    let seconds: f64 = text.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok().map(Uptime)
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Reads a line that begins with `name`, and returns the words after it.
    fn words(&mut self, name: &'static str) -> Result<Vec<&'a str>, AnswerError> {
        let rest = &self.bytes[self.at..];
        let end =
            rest.iter().position(|byte| *byte == b'\n').ok_or(AnswerError::Truncated(self.bytes.len()))?;
        let line = String::from_utf8_lossy(&rest[..end.min(80)]).into_owned();
        let unexpected = AnswerError::Unexpected { expected: name, found: line };
        let mut words = std::str::from_utf8(&rest[..end]).map_err(|_| unexpected.clone())?.split(' ');
        if words.next() != Some(name) {
            return Err(unexpected);
        }
        self.at += end + 1;
        Ok(words.collect())
    }

    /// Reads a line of a name and `N` words.
    fn parse<T, const N: usize>(
        &mut self,
        name: &'static str,
        form: &'static str,
        parse: impl Fn([&str; N]) -> Option<T>,
    ) -> Result<T, AnswerError> {
        let words = self.words(name)?;
        let found = || format!("{name} {}", words.join(" "));
        let parsed = words.clone().try_into().ok().and_then(parse);
        parsed.ok_or_else(|| AnswerError::Unexpected { expected: form, found: found() })
    }

    /// Reads a length and as many bytes.
    fn part(&mut self, name: &'static str, form: &'static str) -> Result<Vec<u8>, AnswerError> {
        let length: usize = self.parse(name, form, |[length]| length.parse().ok())?;
        let rest = &self.bytes[self.at..];
        let part = rest.get(..length).ok_or(AnswerError::Truncated(self.bytes.len()))?;
        self.at += length;
        Ok(part.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "started 1.50\nended 12.25 3\noutput 6\nhello\nerrors 4\nok\n\ncomplete\n";

    #[test]
    fn an_answer_is_read_with_its_parts() {
        let finished = parse(ANSWER.as_bytes()).unwrap();
        assert_eq!(finished.output, b"hello\n");
        assert_eq!(finished.errors, b"ok\n\n");
        assert_eq!(finished.status, 3);
        assert_eq!(
            (finished.started.to_string(), finished.ended.to_string()),
            ("1.50 s".into(), "12.25 s".into())
        );
    }

    #[test]
    fn no_part_of_an_answer_is_an_answer() {
        for length in 0..ANSWER.len() {
            let part = &ANSWER.as_bytes()[..length];
            let (expected, reached) = match length {
                13 => (AnswerError::Unended, Progress::Running),
                0..13 => (AnswerError::Truncated(length), Progress::Booting),
                14..27 => (AnswerError::Truncated(length), Progress::Running),
                _ => (AnswerError::Truncated(length), Progress::Ended),
            };
            assert_eq!(parse(part), Err(expected), "{}", &ANSWER[..length]);
            assert_eq!(progress(part), reached, "{}", &ANSWER[..length]);
        }
    }

    #[test]
    fn a_damaged_line_is_shown_with_what_it_should_be() {
        for (from, to, expected) in [
            ("started 1.50", "login:", "expected 'started', found \"login:\""),
            ("ended 12.25 3", "ended -1 3", "expected 'ended UPTIME STATUS', found \"ended -1 3\""),
            ("ended 12.25 3", "ended 12.25 300", "expected 'ended UPTIME STATUS', found \"ended 12.25 300\""),
            (
                "ended 12.25 3",
                "ended 12.25 3\r",
                "expected 'ended UPTIME STATUS', found \"ended 12.25 3\\r\"",
            ),
            ("output 6", "output x", "expected 'output BYTES', found \"output x\""),
            ("output 6", "output 5", "expected 'errors', found \"\""),
        ] {
            let error = parse(ANSWER.replace(from, to).as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(parse(b"incomplete\n"), Err(AnswerError::Incomplete));
        assert_eq!(parse(b"no image\n"), Err(AnswerError::NoImage));
        assert_eq!(parse(b"full image\n"), Err(AnswerError::FullImage));
    }
}
