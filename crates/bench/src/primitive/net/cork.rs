//! A response that is held back until it is complete: `TCP_CORK` on, a header, a file, `TCP_CORK` off, like
//! servers that fill their segments themselves. The cost of a corked call is only the buffering; the cost of
//! uncorking includes the path of all bytes through the loopback interface into the peer's queue.
//!
//! A corked connection holds back less than one segment, so a batch is spread over many connections with one
//! response each. Before each uncorking no byte may have arrived, and after it all bytes must have arrived.
//! No process sleeps on the peer's queue, so none of these figures includes the wake-up of a reader.

use std::io;

use assay_quantity::{PrimitiveId, Size};

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting};
use crate::platform::layout::PAGE;
use crate::primitive::kit::limit;
use crate::primitive::kit::pieces::Pieces;
use crate::primitive::kit::scratch::CachedFile;
use crate::primitive::kit::socket::connections_max;
use crate::primitive::kit::tcp_pair::{HEADER_BYTES, HELD_SIZES, Wire};
use crate::primitive::net::peer;

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["tcp.writev_corked{size=256B|4KiB}"],
        full: &[],
        cost: Per::ByteOfSize,
        calls: &["writev"],
        about: "`writev` of a header of at most 256 bytes and a body, `size` bytes together, as the first \
                piece to a connection with `TCP_CORK` on, which buffers it without sending",
        source: "own: how servers begin a response that ends with a file",
        prepare: writev,
    },
    Row {
        quick: &["tcp.sendfile_corked{size=4KiB|32KiB}"],
        full: &[],
        cost: Per::ByteOfSize,
        calls: &["sendfile"],
        about: "`sendfile` from a cached file to a connection with `TCP_CORK` on that contains a header, \
                which buffers it without sending",
        source: "own: how servers add a file to a response",
        prepare: sendfile,
    },
    Row {
        quick: &["tcp.uncork{size=4KiB|32KiB}", "tcp.uncork{size=4KiB|32KiB,cpus=different}"],
        full: &[],
        cost: Per::ByteOfSize,
        calls: &["setsockopt"],
        about: "`setsockopt(TCP_CORK)` off with `size` bytes held back: their transmission into the peer's \
                queue, on which no process sleeps",
        source: "own: how servers end a response that they have held back",
        prepare: uncork,
    },
];

/// `writev` of the first piece to a corked connection. It creates the segment to which later pieces are
/// added.
fn writev(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, HELD_SIZES)?;
    let mut pieces = Pieces::of(id, setting)?;
    let responses = Responses::open(Response { before: 0, size, pieces: 1 })?;
    Ok(Prepared::alone(Fill { responses, put: move |wire: &Wire| wire.write_segments(pieces.next()) }))
}

/// `sendfile` of the next part of a cached file to a corked connection that contains a header.
fn sendfile(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, Size(1)..=Size((FILE_PAGES_MAX * PAGE) as u64))?;
    // Pieces that are not multiples of a page begin and end within pages, and once more where the file starts
    // again.
    let pages = if size.is_multiple_of(PAGE) { FILE_PAGES_MAX } else { FILE_PAGES_MAX - 2 };
    let pieces = (pages * PAGE / size).max(1);
    let mut file = CachedFile::new(setting)?;
    let responses = Responses::open(Response { before: HEADER_BYTES, size, pieces })?;
    Ok(Prepared::alone(Fill { responses, put: move |wire: &Wire| wire.send_file(&mut file, size) }))
}

/// `TCP_CORK` off with `size` bytes held back.
fn uncork(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    if peer::is_elsewhere(id) {
        return peer::uncork(id, setting);
    }
    let before = limit::size(id, HELD_SIZES)?;
    let responses = Responses::open(Response { before, size: 0, pieces: 1 })?;
    Ok(Prepared::alone(Uncork { responses }))
}

/// Maximum number of pages of a file that it holds back in addition to a header, in the same fragments.
const FILE_PAGES_MAX: usize = 15;

/// Requested buffer on each side: several times the segment, so that the window allows it to grow to full
/// size.
const BUFFER_BYTES: i32 = 1 << 20;

/// The contents of one corked connection.
#[derive(Clone, Copy)]
struct Response {
    /// Bytes written before the timed part.
    before: usize,
    /// Bytes of a timed piece.
    size: usize,
    /// Number of timed pieces.
    pieces: usize,
}

impl Response {
    /// Returns the number of bytes held back after `pieces` pieces.
    fn bytes(&self, pieces: u64) -> u64 {
        self.before as u64 + pieces * self.size as u64
    }
}

/// Connections with one response each.
struct Responses {
    wires: Vec<Wire>,
    response: Response,
    before: Vec<u8>,
}

impl Responses {
    fn open(response: Response) -> Result<Self, Refusal> {
        let held = response.before + response.size * response.pieces;
        let mut wires = Vec::new();
        for _ in 0..connections_max() {
            let wire = Wire::open(BUFFER_BYTES)?;
            wire.open_segment(held)?;
            wires.push(wire);
        }
        Ok(Self { wires, response, before: vec![0; response.before] })
    }

    /// Returns the connections that a batch uses, each with the number of its pieces.
    fn of_batch(&self, operations: u64) -> impl Iterator<Item = (&Wire, u64)> {
        let pieces = self.response.pieces as u64;
        let parts = (0..operations.div_ceil(pieces)).map(move |part| pieces.min(operations - part * pieces));
        self.wires.iter().zip(parts)
    }

    fn arm(&self, operations: u64) -> io::Result<()> {
        for (wire, _) in self.of_batch(operations) {
            wire.cork()?;
            if !self.before.is_empty() {
                wire.write(&self.before)?;
            }
            wire.check_arrived(0)?;
        }
        Ok(())
    }

    /// Checks that all bytes have arrived and removes them.
    fn drain(&self, operations: u64) -> io::Result<()> {
        self.of_batch(operations).try_for_each(|(wire, pieces)| {
            let bytes = self.response.bytes(pieces);
            wire.check_arrived(bytes).and_then(|()| wire.drain(bytes))
        })
    }

    fn max_batch(&self) -> u64 {
        (self.wires.len() * self.response.pieces) as u64
    }
}

/// Writes pieces to corked connections, one connection after another.
struct Fill<F> {
    responses: Responses,
    put: F,
}

impl<F: FnMut(&Wire) -> io::Result<()>> Operation for Fill<F> {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.responses.arm(operations)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        for (wire, pieces) in self.responses.of_batch(operations) {
            for _ in 0..pieces {
                (self.put)(wire)?;
            }
        }
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        for (wire, _) in self.responses.of_batch(operations) {
            wire.check_arrived(0)?;
            wire.uncork()?;
        }
        self.responses.drain(operations)
    }

    fn max_batch(&self) -> u64 {
        self.responses.max_batch()
    }
}

/// Uncorks connections that hold back a response.
struct Uncork {
    responses: Responses,
}

impl Operation for Uncork {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.responses.arm(operations)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        self.responses.of_batch(operations).try_for_each(|(wire, _)| wire.uncork())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.responses.drain(operations)
    }

    fn max_batch(&self) -> u64 {
        self.responses.max_batch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn responses(pieces: usize) -> Responses {
        Responses::open(Response { before: HEADER_BYTES, size: 4096, pieces }).unwrap()
    }

    #[test]
    fn a_batch_fills_one_connection_after_another_and_only_as_many_as_required() {
        let parts = |operations| {
            let responses = responses(15);
            responses.of_batch(operations).map(|(_, pieces)| pieces).collect::<Vec<_>>()
        };
        assert_eq!(parts(1), [1]);
        assert_eq!(parts(15), [15]);
        assert_eq!(parts(32), [15, 15, 2]);
    }

    #[test]
    fn bytes_that_arrive_before_the_uncorking_are_an_error() {
        let responses = responses(1);
        let put = |wire: &Wire| wire.write(&[0; 4096]).and_then(|()| wire.uncork());
        let mut fill = Fill { responses, put };
        fill.arm(2).unwrap();
        fill.run(2).unwrap();
        let error = fill.disarm(2).unwrap_err().to_string();
        assert_eq!(error, "expected 0 bytes at the receiver, found 4352");
    }

    #[test]
    fn bytes_that_never_arrive_are_an_error() {
        let responses = Responses::open(Response { before: 4096, size: 0, pieces: 1 }).unwrap();
        let mut uncork = Uncork { responses };
        // Nothing is written to the second wire, because the kernel sends corked bytes after 200 ms.
        uncork.arm(1).unwrap();
        uncork.run(1).unwrap();
        let error = uncork.disarm(2).unwrap_err().to_string();
        assert_eq!(error, "expected 4096 bytes at the receiver, found 0");
    }
}
