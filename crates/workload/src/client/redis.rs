//! One command of Redis (its protocol, RESP version 2), for the closed loop.

use redis_protocol::resp2::decode::decode_range;
use redis_protocol::resp2::types::RangeFrame;

use super::load::Failure;
use super::protocol::{Fault, Protocol, Step, Then};

/// A reply of a wrong length is an error when it has this many bytes more than the correct one: enough for
/// its type, its length and the text of an error.
const SPARE_BYTES: usize = 1024;

/// The correct reply to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedReply {
    /// A string, a status or an integer with this text.
    Text(String),
    /// Any string or status of this many bytes.
    Bytes(u64),
}

/// A command and its correct reply.
#[derive(Debug)]
pub struct Redis {
    messages: [Vec<u8>; 1],
    expected: ExpectedReply,
    reply_bytes_max: usize,
}

impl Redis {
    /// Sends `command`, the name of a command and its arguments.
    pub fn new(command: &[String], expected: ExpectedReply) -> Redis {
        let mut message = format!("*{}\r\n", command.len());
        for word in command {
            message.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        let length = match &expected {
            ExpectedReply::Text(text) => text.len(),
            ExpectedReply::Bytes(bytes) => usize::try_from(*bytes).unwrap_or(usize::MAX),
        };
        let reply_bytes_max = length.saturating_add(SPARE_BYTES);
        Redis { messages: [message.into_bytes()], expected, reply_bytes_max }
    }

    /// Compares a complete reply, the first `length` of `bytes`, with the correct one.
    fn compare(&self, reply: &RangeFrame, bytes: &[u8], length: usize) -> Result<(), Fault> {
        // The parser skips the line end of a string of known length without a look at it.
        if !bytes[..length].ends_with(b"\r\n") {
            return Err(malformed());
        }
        match reply {
            RangeFrame::SimpleString(range) | RangeFrame::BulkString(range) => {
                self.compare_text(&bytes[range.0..range.1])
            }
            RangeFrame::Integer(number) => match &self.expected {
                ExpectedReply::Text(text) if text.as_bytes() == &bytes[1..length - 2] => Ok(()),
                _ => Err(wrong(&format!("the integer {number}"))),
            },
            RangeFrame::Null => Err(wrong("nil")),
            RangeFrame::Error(range) => Err(Fault::reported(&bytes[range.0..range.1])),
            RangeFrame::Array(_) => Err(wrong("an array")),
        }
    }

    fn compare_text(&self, found: &[u8]) -> Result<(), Fault> {
        let expected = match &self.expected {
            ExpectedReply::Text(text) => text.len() as u64,
            ExpectedReply::Bytes(bytes) => *bytes,
        };
        if found.len() as u64 != expected {
            let problem = format!("reply of {} bytes instead of {expected}", found.len());
            return Err(Fault::new(Failure::WrongLength, problem));
        }
        match &self.expected {
            ExpectedReply::Text(text) => match text.bytes().zip(found).position(|(a, b)| a != *b) {
                Some(at) => Err(wrong(&format!("a string that differs at byte {at}"))),
                None => Ok(()),
            },
            ExpectedReply::Bytes(_) => Ok(()),
        }
    }
}

fn malformed() -> Fault {
    Fault::new(Failure::Malformed, "malformed reply: not the protocol of Redis")
}

fn wrong(found: &str) -> Fault {
    Fault::new(Failure::WrongContent, format!("the reply is {found}, not the expected one"))
}

impl Protocol for Redis {
    /// The reply so far, if it did not arrive in one piece.
    type Reader = Vec<u8>;

    fn reader(&self) -> Vec<u8> {
        Vec::new()
    }

    fn messages(&self) -> &[Vec<u8>] {
        &self.messages
    }

    fn feed(&self, reader: &mut Vec<u8>, bytes: &[u8]) -> Result<Step, Fault> {
        let before = reader.len();
        let reply = if before == 0 {
            bytes
        } else {
            reader.extend_from_slice(bytes);
            reader.as_slice()
        };
        // An array can be nested without limit; no operation expects one.
        if reply.first() == Some(&b'*') {
            return Err(wrong("an array"));
        }
        let decoded = decode_range(reply).map_err(|_| malformed())?;
        if decoded.as_ref().map_or(reply.len(), |(_, length)| *length) > self.reply_bytes_max {
            let problem = format!("reply of more than {} bytes", self.reply_bytes_max);
            return Err(Fault::new(Failure::WrongLength, problem));
        }
        if let Some((frame, length)) = decoded {
            self.compare(&frame, reply, length)?;
            reader.clear();
            return Ok(Step::Complete { used: length - before, then: Then::KeepOpen });
        }
        if before == 0 {
            reader.extend_from_slice(bytes);
        }
        Ok(Step::Incomplete)
    }
}

#[cfg(test)]
mod tests;
