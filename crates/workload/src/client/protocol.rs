//! The interface between the closed loop and a protocol: the messages to send, and the verdict on the bytes
//! that the server sends back. An implementation computes only; the loop owns the sockets.

use super::load::Failure;

/// One request of a protocol and its correct answer.
pub trait Protocol {
    /// The state of one connection: the part of an answer that has arrived.
    type Reader;

    /// Returns the reader of a connection.
    fn reader(&self) -> Self::Reader;

    /// Returns the messages of a new connection, never none. Each is sent when the answer to the one before
    /// it is complete. The last one is the request, which is repeated. Only a protocol with a single message
    /// may close a connection after an answer: its reader then continues with the next connection.
    fn messages(&self) -> &[Vec<u8>];

    /// Continues the answer with `bytes`, the next bytes from the server. The verdict does not depend on how
    /// the answer is split. After `Complete`, the reader expects the next answer, and keeps no byte of it.
    fn feed(&self, reader: &mut Self::Reader, bytes: &[u8]) -> Result<Step, Fault>;

    /// Handles a close by the server before the answer is complete.
    fn end(&self, _reader: &mut Self::Reader) -> Result<Step, Fault> {
        Err(Fault::early_close())
    }
}

/// Progress of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// More bytes are required; all passed bytes are used.
    Incomplete,
    /// The answer is complete and correct.
    Complete {
        /// Number of passed bytes that belong to it.
        used: usize,
        /// State of the connection after the answer.
        then: Then,
    },
}

/// State of the connection after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// The server waits for the next request.
    KeepOpen,
    /// The server closes it.
    Close,
}

/// A wrong answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kind of failure that it counts as.
    pub failure: Failure,
    /// What is wrong.
    pub problem: String,
}

impl Fault {
    pub(crate) fn new(failure: Failure, problem: impl Into<String>) -> Fault {
        Fault { failure, problem: problem.into() }
    }

    /// An error that the server reports with this text.
    pub(crate) fn reported(text: &[u8]) -> Fault {
        Fault::new(Failure::Error, String::from_utf8_lossy(text))
    }

    pub(crate) fn early_close() -> Fault {
        Fault::new(Failure::EarlyClose, "connection closed before the response was complete")
    }
}

/// Returns how many answers `pieces` contain, and how many bytes after the last complete one.
#[cfg(test)]
pub(super) fn verdict(protocol: &impl Protocol, pieces: &[&[u8]]) -> Result<(usize, usize), Fault> {
    let mut reader = protocol.reader();
    let (mut answers, mut open) = (0, 0);
    for piece in pieces {
        let mut rest = *piece;
        while let Step::Complete { used, .. } = protocol.feed(&mut reader, rest)? {
            (answers, open) = (answers + 1, 0);
            rest = &rest[used..];
        }
        open += rest.len();
    }
    Ok((answers, open))
}
