//! GET over HTTP/1.1, for the closed loop.

use std::net::SocketAddr;

use super::protocol::{Fault, Protocol, Step, Then};
use super::response::{self, Expected, ResponseReader};
use crate::workload::Reuse;

/// A request for one page, and the correct response.
#[derive(Debug)]
pub struct Http {
    messages: [Vec<u8>; 1],
    reuse: Reuse,
    expected: Expected,
}

impl Http {
    /// Requests `path` from the server at `address`.
    pub fn new(address: SocketAddr, path: &str, reuse: Reuse, expected: Expected) -> Http {
        let close = match reuse {
            Reuse::KeepAlive => "",
            Reuse::NewConnection => "Connection: close\r\n",
        };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: assay\r\nAccept: */*\r\n{close}\r\n"
        );
        Http { messages: [request.into_bytes()], reuse, expected }
    }

    /// Returns `step`, with a close after a request for one: the server need not announce it.
    fn with_requested_close(&self, step: Result<Step, response::Fault>) -> Result<Step, Fault> {
        match (step?, self.reuse) {
            (Step::Complete { used, .. }, Reuse::NewConnection) => {
                Ok(Step::Complete { used, then: Then::Close })
            }
            (step, _) => Ok(step),
        }
    }
}

impl Protocol for Http {
    type Reader = ResponseReader;

    fn reader(&self) -> ResponseReader {
        ResponseReader::new()
    }

    fn messages(&self) -> &[Vec<u8>] {
        &self.messages
    }

    fn feed(&self, reader: &mut ResponseReader, bytes: &[u8]) -> Result<Step, Fault> {
        self.with_requested_close(reader.feed(&self.expected, bytes))
    }

    fn end(&self, reader: &mut ResponseReader) -> Result<Step, Fault> {
        self.with_requested_close(reader.end(&self.expected))
    }
}
