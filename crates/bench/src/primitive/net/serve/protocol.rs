//! The protocol between a measuring host and its peer: a request of one line, answered with one line.
//!
//! ```text
//! assay-bench/1 connect               ok, then the server closes the connection
//! assay-bench/1 echo SIZE             ok, then the server returns every message of SIZE bytes
//! assay-bench/1 datagrams SIZE PORT   ok, then, while the connection is open, the server returns every
//!                                     datagram of SIZE bytes from the client's UDP port PORT to the UDP port
//!                                     with the number of the connection's port
//! assay-bench/1 sink SIZE             ok, then repeatedly: the client sends COUNT and COUNT pieces of SIZE
//!                                     bytes; the server returns COUNT and the digest of the last piece
//! assay-bench/1 source SIZE           ok, then repeatedly: the client sends COUNT; the server returns COUNT
//!                                     pieces of SIZE bytes
//! ```
//!
//! COUNT and digest are numbers of eight bytes, big-endian. The answer to any other request is `refused: `
//! and the reason, and the server closes the connection. Any change of the protocol requires a new number in
//! the first word.

use std::fmt;
use std::str::FromStr;

/// The first word of every request.
pub(crate) const VERSION: &str = "assay-bench/1";

/// The answer to a granted request.
pub(crate) const OK: &str = "ok";

/// The beginning of the answer to a refused request.
pub(crate) const REFUSED: &str = "refused: ";

/// Maximum length of a line in bytes, including its end.
pub(crate) const LINE_MAX: usize = 256;

/// Maximum size of a message or piece in bytes: the memory that one session may require on the other side.
pub(crate) const SIZE_MAX: usize = 1 << 20;

/// Maximum size of a datagram in bytes.
pub(crate) const DATAGRAM_MAX: usize = 65_507;

/// Maximum number of pieces in a batch.
pub(crate) const COUNT_MAX: u64 = 1 << 24;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// An answer only.
    Connect,
    /// A session that continues until the connection ends.
    Session(Session),
}

/// The kind of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Session {
    Echo { size: usize },
    Datagrams { size: usize, port: u16 },
    Sink { size: usize },
    Source { size: usize },
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("this host supports only {VERSION}; run the same version of assay on both hosts")]
    Version,
    #[error("a request must be connect, echo SIZE, datagrams SIZE PORT, sink SIZE or source SIZE")]
    Request,
    #[error("SIZE must be from 1 to {0} bytes")]
    Size(usize),
    #[error("PORT must be from 1 to 65535")]
    Port,
    #[error(
        "a request must be one line of at most {LINE_MAX} bytes of ASCII, with nothing after it before the answer"
    )]
    Line,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Connect => write!(f, "{VERSION} connect"),
            Request::Session(Session::Echo { size }) => write!(f, "{VERSION} echo {size}"),
            Request::Session(Session::Datagrams { size, port }) => {
                write!(f, "{VERSION} datagrams {size} {port}")
            }
            Request::Session(Session::Sink { size }) => write!(f, "{VERSION} sink {size}"),
            Request::Session(Session::Source { size }) => write!(f, "{VERSION} source {size}"),
        }
    }
}

impl FromStr for Request {
    type Err = Refused;

    fn from_str(line: &str) -> Result<Self, Refused> {
        let mut words = line.split(' ');
        if words.next() != Some(VERSION) {
            return Err(Refused::Version);
        }
        let request = match words.next() {
            Some("connect") => Request::Connect,
            Some("echo") => Request::Session(Session::Echo { size: size(words.next(), SIZE_MAX)? }),
            Some("datagrams") => {
                let (size, port) = (size(words.next(), DATAGRAM_MAX)?, port(words.next())?);
                Request::Session(Session::Datagrams { size, port })
            }
            Some("sink") => Request::Session(Session::Sink { size: size(words.next(), SIZE_MAX)? }),
            Some("source") => Request::Session(Session::Source { size: size(words.next(), SIZE_MAX)? }),
            _ => return Err(Refused::Request),
        };
        if words.next().is_some() { Err(Refused::Request) } else { Ok(request) }
    }
}

fn size(word: Option<&str>, most: usize) -> Result<usize, Refused> {
    let size = number(word).ok_or(Refused::Request)?;
    match usize::try_from(size) {
        Ok(size) if (1..=most).contains(&size) => Ok(size),
        _ => Err(Refused::Size(most)),
    }
}

fn port(word: Option<&str>) -> Result<u16, Refused> {
    let port = number(word).ok_or(Refused::Request)?;
    u16::try_from(port).ok().filter(|port| *port > 0).ok_or(Refused::Port)
}

/// Parses a number as [`Request`] writes it: digits only.
fn number(word: Option<&str>) -> Option<u64> {
    word.filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

/// The state of a line that is being received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// The line is incomplete.
    Unfinished,
    /// The line is a request.
    Asks(Request),
    /// The line is invalid.
    Bad(Refused),
}

impl Line {
    /// Parses all bytes received so far.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            return if bytes.len() < LINE_MAX { Line::Unfinished } else { Line::Bad(Refused::Line) };
        };
        match std::str::from_utf8(&bytes[..end]) {
            Ok(line) if end + 1 == bytes.len() && line.is_ascii() => match line.parse() {
                Ok(request) => Line::Asks(request),
                Err(refused) => Line::Bad(refused),
            },
            _ => Line::Bad(Refused::Line),
        }
    }
}

/// Returns the contents of a piece: bytes that depend on their position.
pub(crate) fn pattern(size: usize) -> Vec<u8> {
    // The period is not a power of two, so that a piece that is shifted by a page or a line is different.
    (0..=250).cycle().take(size).collect()
}

/// Returns a number that depends on every byte and its position (the FNV-1a hash).
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn requests() -> impl Strategy<Value = Request> {
        prop_oneof![
            Just(Request::Connect),
            (1..=SIZE_MAX).prop_map(|size| Request::Session(Session::Echo { size })),
            (1..=DATAGRAM_MAX, 1u16..)
                .prop_map(|(size, port)| Request::Session(Session::Datagrams { size, port })),
            (1..=SIZE_MAX).prop_map(|size| Request::Session(Session::Sink { size })),
            (1..=SIZE_MAX).prop_map(|size| Request::Session(Session::Source { size })),
        ]
    }

    proptest! {
        #[test]
        fn every_request_reads_back_as_it_was_written(request in requests()) {
            let line = format!("{request}\n");
            prop_assert_eq!(Line::of(line.as_bytes()), Line::Asks(request));
            for cut in 0..line.len() {
                prop_assert_eq!(Line::of(&line.as_bytes()[..cut]), Line::Unfinished);
            }
        }

        #[test]
        fn any_input_is_a_request_or_refused_before_the_line_is_too_long(
            bytes in prop::collection::vec(any::<u8>(), 0..400)
        ) {
            match Line::of(&bytes) {
                Line::Unfinished => prop_assert!(bytes.len() < LINE_MAX),
                Line::Asks(request) => prop_assert_eq!(format!("{request}\n").into_bytes(), bytes),
                Line::Bad(refused) => prop_assert!(refused.to_string().len() + REFUSED.len() < LINE_MAX),
            }
        }

        #[test]
        fn a_changed_byte_changes_the_digest(
            mut bytes in prop::collection::vec(any::<u8>(), 1..100), at: prop::sample::Index, bit in 0u32..8
        ) {
            let before = digest(&bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert_ne!(digest(&bytes), before);
        }
    }

    #[test]
    fn invalid_requests_are_refused_with_the_matching_reason() {
        let refused = |line: &str| match Line::of(line.as_bytes()) {
            Line::Bad(refused) => refused,
            other => panic!("{line:?}: {other:?}"),
        };
        assert_eq!(refused("GET / HTTP/1.1\r\n"), Refused::Version);
        assert_eq!(refused("assay-bench/2 connect\n"), Refused::Version);
        for line in [
            "fly",
            "echo",
            "echo x",
            "echo +1",
            "echo 1 2",
            "connect 1",
            "echo  1",
            "datagrams 1",
            "Echo 1",
            "",
        ] {
            assert_eq!(refused(&format!("{VERSION} {line}\n")), Refused::Request, "{line}");
        }
        for line in ["echo 0", "sink 1048577", "source 18446744073709551615"] {
            assert_eq!(refused(&format!("{VERSION} {line}\n")), Refused::Size(SIZE_MAX), "{line}");
        }
        assert_eq!(refused(&format!("{VERSION} datagrams 65508 1\n")), Refused::Size(DATAGRAM_MAX));
        for port in ["0", "65536"] {
            assert_eq!(refused(&format!("{VERSION} datagrams 1 {port}\n")), Refused::Port);
        }
        assert_eq!(refused(&format!("{VERSION} connect\nmore")), Refused::Line);
        assert_eq!(refused(&format!("{VERSION} écho 1\n")), Refused::Line);
        assert_eq!(refused(&"x".repeat(LINE_MAX)), Refused::Line);
    }
}
