//! One line of a log of strace: thread, time, and what happened.

use super::{
    call::{digits, nanoseconds},
    notation::{find, object},
    value::{constant, number},
};

/// What must be done about a log that cannot be imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// The line begins with `[pid 12]`.
    #[error("it has '[pid ...]' as on a terminal; let strace write the log with its option -o")]
    OfTerminal,
    /// The line has a call and no time, or one without a fraction of a second.
    #[error("it has no time with a fraction of a second; record with the option -ttt of strace")]
    NoTime,
    /// The call has no elapsed time.
    #[error("it has no elapsed time; record with the option -T of strace")]
    NoElapsed,
    /// The line is longer than [`LINE_MAX`].
    #[error("it is longer than 1 MiB; a log of strace has no such lines")]
    TooLong,
}

/// Longest line, in bytes: a call with the longest path, each byte escaped, is a tenth of it.
pub(super) const LINE_MAX: usize = 1 << 20;

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// The thread; `None` in a log of a single process.
    pub thread: Option<u32>,
    pub stamp: Stamp,
    pub event: Event<'a>,
}

/// The time of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stamp {
    /// Since 1970 (`-ttt`) or, if it is small, since the line before (`-r`), in ns.
    Since(u64),
    /// Of the day (`-tt`), in ns.
    OfDay(u64),
}

/// What happened.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// A call that began and may have returned.
    Call(&'a [u8]),
    /// The beginning of a call that returns in a later line.
    Begins(&'a [u8]),
    /// The rest of a call that began in an earlier line.
    Resumes(&'a [u8]),
    /// More of a call that began in an earlier line and does not return in this one.
    Continues(&'a [u8]),
    /// The thread ended, with the code that `wait` returns.
    Ends(i64),
    /// The thread with this number executed a program and now has the number of the line.
    Superseded(u32),
    /// A signal, or a stop: a trace has neither.
    Signal,
}

/// Reads a line; `None` if strace does not write such lines.
pub(super) fn parse(text: &[u8]) -> Result<Option<Line<'_>>, Defect> {
    if text.starts_with(b"[pid ") {
        return Err(Defect::OfTerminal);
    }
    let (thread, rest) = thread(text);
    let Some((stamp, rest)) = stamp(rest) else {
        return if is_call(without_time(rest)) { Err(Defect::NoTime) } else { Ok(None) };
    };
    Ok(event(columns(rest)).map(|event| Line { thread, stamp, event }))
}

/// Splits the number of the thread, which may have its name, from the beginning.
fn thread(text: &[u8]) -> (Option<u32>, &[u8]) {
    let split = || {
        let end = text.iter().position(|byte| !byte.is_ascii_digit())?;
        let (number, rest) = text.split_at(end);
        let rest = match object(rest) {
            Some(name) => &rest[name.len() + 2..],
            None => rest,
        };
        let rest = rest.strip_prefix(b" ")?.trim_ascii_start();
        Some((u32::try_from(digits(number)?).ok()?, rest))
    };
    split().map_or((None, text.trim_ascii_start()), |(thread, rest)| (Some(thread), rest))
}

/// Skips a time that has no fraction.
fn without_time(text: &[u8]) -> &[u8] {
    let time = text.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b':').count();
    text[time..].trim_ascii_start()
}

/// Splits the time from the beginning.
fn stamp(text: &[u8]) -> Option<(Stamp, &[u8])> {
    let end = text.iter().position(|byte| *byte == b' ')?;
    let (time, rest) = text.split_at(end);
    let stamp = match time.iter().rposition(|byte| *byte == b':') {
        None => Stamp::Since(nanoseconds(time)?),
        Some(colon) => {
            let (hours, minutes) = time[..colon].split_at_checked(find(time, b":")?)?;
            let minutes =
                digits(hours)?.checked_mul(60)?.checked_add(digits(minutes.strip_prefix(b":")?)?)?;
            let of_minutes = minutes.checked_mul(60_000_000_000)?;
            Stamp::OfDay(of_minutes.checked_add(nanoseconds(&time[colon + 1..])?)?)
        }
    };
    Some((stamp, rest.trim_ascii_start()))
}

/// Skips the relative time that `-r` adds to another, and the columns of `-n` and `-i`.
fn columns(text: &[u8]) -> &[u8] {
    let mut rest = text;
    while let Some(close) = match rest.first() {
        Some(b'(') => Some(b")"),
        Some(b'[') => Some(b"]"),
        _ => None,
    } {
        let Some(end) = find(rest, close) else { break };
        rest = rest[end + 1..].trim_ascii_start();
    }
    rest
}

fn event(text: &[u8]) -> Option<Event<'_>> {
    if let Some(rest) = text.strip_prefix(b"<... ") {
        let rest = &rest[find(rest, b" resumed>")? + b" resumed>".len()..];
        return Some(begins(rest).map_or(Event::Resumes(rest), Event::Continues));
    }
    if text.starts_with(b"--- ") {
        return Some(Event::Signal);
    }
    if let Some(end) = text.strip_prefix(b"+++ ") {
        return ending(end);
    }
    if !is_call(text) {
        return None;
    }
    Some(begins(text).map_or(Event::Call(text), Event::Begins))
}

/// Returns the beginning of a call that does not return in this line.
fn begins(text: &[u8]) -> Option<&[u8]> {
    let ends = [&b" <unfinished ...>"[..], b"<unfinished ...>", b" <detached ...>", b"<detached ...>"];
    ends.iter().find_map(|end| text.strip_suffix(*end))
}

/// Returns whether the text begins like a call: a name and a parenthesis.
fn is_call(text: &[u8]) -> bool {
    let name = text.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    name > 0 && text.get(name) == Some(&b'(') || text.starts_with(b"???(")
}

/// Reads the end of a thread, `exited with 0 +++`.
fn ending(text: &[u8]) -> Option<Event<'_>> {
    let text = text.strip_suffix(b" +++")?;
    if let Some(status) = text.strip_prefix(b"exited with ") {
        let status = i64::try_from(number(status)?).ok()?;
        return Some(Event::Ends((status & 0xff) << 8));
    }
    if let Some(thread) = text.strip_prefix(b"superseded by execve in pid ") {
        let end = thread.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(thread.len());
        return Some(Event::Superseded(u32::try_from(digits(&thread[..end])?).ok()?));
    }
    let signal = text.strip_prefix(b"killed by ")?;
    let (signal, dumped) = match signal.strip_suffix(b" (core dumped)") {
        Some(signal) => (signal, 0x80),
        None => (signal, 0),
    };
    let signal = i64::try_from(constant(signal)?).ok()?;
    Some(Event::Ends(signal | dumped))
}
