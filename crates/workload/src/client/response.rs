//! Parses one HTTP/1 response as it arrives and compares it with the expected one (RFC 9112). Pure: the input
//! is bytes, the output is a verdict that does not depend on how the bytes are split. No input causes a
//! panic; at most one head is buffered. The client passes the received bytes; this module accesses no socket.

use std::mem::MaybeUninit;

use httparse::{ParserConfig, Status};
use thiserror::Error;

use super::chunked::{Chunked, Decoded, Violation};
use super::load::Failure;
use super::protocol;
pub use super::protocol::{Step, Then};

/// Maximum size of a head: twice the size that nginx and Apache accept for a request.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of header fields.
const HEADERS_MAX: usize = 64;

/// The correct response to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: ExpectedBody,
}

/// The correct body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedBody {
    /// These bytes.
    Exactly(Vec<u8>),
    /// Any body of this many bytes.
    Length(u64),
    /// Any body of at most this many bytes.
    Within(u64),
}

/// An error in a response.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// Not HTTP, or HTTP that this parser does not support.
    #[error("malformed response: {0}")]
    Malformed(&'static str),
    /// The status differs from the expected one.
    #[error("status {found} instead of {expected}")]
    Status {
        /// The expected status.
        expected: u16,
        /// The received status.
        found: u16,
    },
    /// The length of the body differs from the expected one.
    #[error("body of {found} bytes instead of {expected}")]
    Length {
        /// The expected length.
        expected: u64,
        /// The received length.
        found: u64,
    },
    /// The body is longer than expected.
    #[error("body of more than {expected} bytes")]
    Longer {
        /// The expected length.
        expected: u64,
    },
    /// The body has wrong bytes.
    #[error("body differs from the expected one at byte {at}")]
    Body {
        /// Offset of the first wrong byte.
        at: u64,
    },
    /// The connection was closed before the end of the response.
    #[error("connection closed before the response was complete")]
    EarlyClose,
}

impl Fault {
    /// Returns the kind of failure that this counts as.
    pub fn failure(&self) -> Failure {
        match self {
            Fault::Malformed(_) => Failure::Malformed,
            Fault::Status { .. } => Failure::WrongStatus,
            Fault::Length { .. } | Fault::Longer { .. } => Failure::WrongLength,
            Fault::Body { .. } => Failure::WrongContent,
            Fault::EarlyClose => Failure::EarlyClose,
        }
    }
}

impl From<Fault> for protocol::Fault {
    fn from(fault: Fault) -> protocol::Fault {
        protocol::Fault::new(fault.failure(), fault.to_string())
    }
}

impl From<Violation> for Fault {
    fn from(violation: Violation) -> Fault {
        Fault::Malformed(violation)
    }
}

/// A parser of consecutive responses. After a fault, it must be `reset`.
#[derive(Debug)]
pub struct ResponseReader {
    /// The head so far, if it did not arrive in one piece.
    head: Vec<u8>,
    body: Body,
    then: Then,
    /// Number of content bytes so far.
    received: u64,
}

/// The next part of the response.
#[derive(Debug)]
enum Body {
    /// The head is not complete.
    HeadFirst,
    /// This many bytes of content.
    Counted { left: u64 },
    /// Content in chunks.
    Chunked(Chunked),
    /// Content until the connection is closed.
    UntilClose,
}

impl Default for ResponseReader {
    fn default() -> ResponseReader {
        ResponseReader::new()
    }
}

impl ResponseReader {
    /// Creates a reader that expects the start of a response.
    pub fn new() -> ResponseReader {
        ResponseReader {
            head: Vec::with_capacity(HEAD_BYTES_MAX),
            body: Body::HeadFirst,
            then: Then::KeepOpen,
            received: 0,
        }
    }

    /// Resets the state: the next byte is the first byte of a response.
    pub fn reset(&mut self) {
        self.head.clear();
        self.body = Body::HeadFirst;
        self.received = 0;
    }

    /// Continues with `bytes`. After `Complete`, the reader expects the next response.
    pub fn feed(&mut self, expected: &Expected, bytes: &[u8]) -> Result<Step, Fault> {
        let mut used = 0;
        if let Body::HeadFirst = self.body {
            match self.feed_head(expected, bytes)? {
                Some(head) => used = head,
                None => return Ok(Step::Incomplete),
            }
        }
        let rest = &bytes[used..];
        let received = &mut self.received;
        let decoded = match &mut self.body {
            Body::HeadFirst => return Ok(Step::Incomplete),
            Body::Counted { left } => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                expected.compare(received, &rest[..length])?;
                *left -= length as u64;
                Decoded { used: length, end: *left == 0 }
            }
            Body::Chunked(chunked) => chunked.feed(rest, |content| expected.compare(received, content))?,
            Body::UntilClose => {
                expected.compare(received, rest)?;
                Decoded { used: rest.len(), end: false }
            }
        };
        if !decoded.end {
            return Ok(Step::Incomplete);
        }
        self.complete(expected, used + decoded.used)
    }

    /// Handles the close of the connection: it ends a response without any other indication of its length,
    /// and is an error for other responses.
    pub fn end(&mut self, expected: &Expected) -> Result<Step, Fault> {
        match self.body {
            Body::UntilClose => self.complete(expected, 0),
            _ => Err(Fault::EarlyClose),
        }
    }

    fn complete(&mut self, expected: &Expected, used: usize) -> Result<Step, Fault> {
        expected.check_length(self.received)?;
        self.reset();
        Ok(Step::Complete { used, then: self.then })
    }

    /// Parses the head; when it is complete, returns how many of `bytes` belong to it.
    ///
    /// A head is only parsed up to a line feed, which makes the verdict independent of how it was split.
    fn feed_head(&mut self, expected: &Expected, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let before = self.head.len();
        let window = &bytes[..bytes.len().min(HEAD_BYTES_MAX - before)];
        if let Some(line_feed) = window.iter().rposition(|&byte| byte == b'\n') {
            let parsed = if before == 0 {
                Head::parse(&window[..=line_feed])?
            } else {
                self.head.extend_from_slice(&window[..=line_feed]);
                let parsed = Head::parse(&self.head)?;
                self.head.truncate(before);
                parsed
            };
            if let Some(head) = parsed {
                self.then = head.then;
                self.body = head.body(expected)?;
                return Ok(Some(head.bytes - before));
            }
        }
        if before + window.len() == HEAD_BYTES_MAX {
            return Err(Fault::Malformed("the head is larger than 16 KiB"));
        }
        self.head.extend_from_slice(window);
        Ok(None)
    }
}

impl Expected {
    /// Compares the next piece of content with the expected body.
    fn compare(&self, received: &mut u64, content: &[u8]) -> Result<(), Fault> {
        let start = *received;
        *received += content.len() as u64;
        let limit = match &self.body {
            ExpectedBody::Exactly(body) => {
                let right = usize::try_from(start).ok().and_then(|start| body.get(start..)).unwrap_or(&[]);
                let both = right.len().min(content.len());
                if right[..both] != content[..both] {
                    let same = right.iter().zip(content).take_while(|(a, b)| a == b).count();
                    return Err(Fault::Body { at: start + same as u64 });
                }
                body.len() as u64
            }
            ExpectedBody::Length(length) | ExpectedBody::Within(length) => *length,
        };
        if *received > limit { Err(Fault::Longer { expected: limit }) } else { Ok(()) }
    }

    /// Rejects a body of the wrong length; called when its length is first known.
    fn check_length(&self, found: u64) -> Result<(), Fault> {
        let expected = match &self.body {
            ExpectedBody::Exactly(body) => body.len() as u64,
            ExpectedBody::Length(length) => *length,
            ExpectedBody::Within(limit) => found.min(*limit),
        };
        if found == expected { Ok(()) } else { Err(Fault::Length { expected, found }) }
    }
}

/// The relevant fields of a head.
#[derive(Debug)]
struct Head {
    bytes: usize,
    status: u16,
    length: Option<u64>,
    chunked: bool,
    then: Then,
}

impl Head {
    /// Parses the head at the start of `bytes`; `None` if it is incomplete.
    fn parse(bytes: &[u8]) -> Result<Option<Head>, Fault> {
        let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut []);
        let parsed =
            ParserConfig::default().parse_response_with_uninit_headers(&mut response, bytes, &mut headers);
        let length = match parsed {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) => return Ok(None),
            Err(error) => return Err(Fault::Malformed(in_words(error))),
        };
        let (Some(status), Some(version)) = (response.code, response.version) else {
            return Err(Fault::Malformed("a head without a status"));
        };
        let then = if version == 0 { Then::Close } else { Then::KeepOpen };
        let mut head = Head { bytes: length, status, length: None, chunked: false, then };
        for header in response.headers.iter() {
            head.note(header)?;
        }
        if head.chunked && head.length.is_some() {
            return Err(Fault::Malformed("both Content-Length and Transfer-Encoding"));
        }
        Ok(Some(head))
    }

    /// Evaluates a header field that concerns the body or the connection.
    fn note(&mut self, header: &httparse::Header) -> Result<(), Fault> {
        let value = header.value.trim_ascii();
        if header.name.eq_ignore_ascii_case("content-length") {
            let length = decimal(value).ok_or(Fault::Malformed("Content-Length is not a number"))?;
            if self.length.is_some_and(|other| other != length) {
                return Err(Fault::Malformed("two different Content-Lengths"));
            }
            self.length = Some(length);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Fault::Malformed("a Transfer-Encoding other than chunked"));
            }
            self.chunked = true;
        } else if header.name.eq_ignore_ascii_case("connection") {
            for option in value.split(|&byte| byte == b',') {
                match option.trim_ascii() {
                    option if option.eq_ignore_ascii_case(b"close") => self.then = Then::Close,
                    option if option.eq_ignore_ascii_case(b"keep-alive") => self.then = Then::KeepOpen,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Returns the framing of the body if status and length are the expected ones.
    fn body(&self, expected: &Expected) -> Result<Body, Fault> {
        if self.status != expected.status {
            return Err(Fault::Status { expected: expected.status, found: self.status });
        }
        if matches!(self.status, 204 | 304) {
            return Ok(Body::Counted { left: 0 });
        }
        match (self.chunked, self.length) {
            (true, _) => Ok(Body::Chunked(Chunked::new())),
            (false, Some(length)) => {
                expected.check_length(length)?;
                Ok(Body::Counted { left: length })
            }
            (false, None) => Ok(Body::UntilClose),
        }
    }
}

/// Parses a decimal number without other characters (unlike `str::parse`, which accepts a sign).
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, byte| match byte {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

fn in_words(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "a wrong header name",
        httparse::Error::HeaderValue => "a wrong header value",
        httparse::Error::NewLine => "a wrong line end",
        httparse::Error::Status => "a wrong status line",
        httparse::Error::Token => "a wrong character",
        httparse::Error::TooManyHeaders => "more than 64 header fields",
        httparse::Error::Version => "not HTTP/1",
    }
}

#[cfg(test)]
mod tests;
