//! A response held back until it is complete: `TCP_CORK` on, a header, a file, `TCP_CORK` off, as servers
//! send that fill their segments themselves. A corked call costs the buffering alone; the way of all the
//! bytes through the loopback interface into the peer's queue is paid by the uncorking.
//!
//! A corked connection holds back less than one segment, so a batch is spread over many connections, one
//! response each. Before each uncorking nothing may have arrived, and after it every byte must have.
//! Nobody sleeps on the peer's queue: waking a reader is in none of these figures.

use std::io;

use assay_quantity::{PrimitiveId, Size};

use super::file::CachedFile;
use super::limit;
use super::pieces::Pieces;
use super::socket::connections_max;
use super::wire::{HEADER_BYTES, Wire};
use crate::benchmark::{Operation, Prepared, Refusal, Setting};
use crate::layout::PAGE;
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        ids: &["tcp.writev_corked{size=256B}", "tcp.writev_corked{size=4KiB}"],
        profile: Profile::Quick,
        cost: Per::ByteOfSize,
        calls: &["writev"],
        about: "writev of the first piece into a corked TCP socket: buffered, nothing is sent",
        source: "own: how servers begin a response that ends with a file",
        prepare: writev,
    },
    Row {
        ids: &["tcp.sendfile_corked{size=4KiB}", "tcp.sendfile_corked{size=32KiB}"],
        profile: Profile::Quick,
        cost: Per::ByteOfSize,
        calls: &["sendfile"],
        about: "sendfile from a cached file into a corked TCP socket that holds a header: buffered, nothing \
                is sent",
        source: "own: how servers add a file to a response",
        prepare: sendfile,
    },
    Row {
        ids: &["tcp.uncork{size=4KiB}", "tcp.uncork{size=32KiB}"],
        profile: Profile::Quick,
        cost: Per::ByteOfSize,
        calls: &["setsockopt"],
        about: "TCP_CORK off with size bytes held back: their way over loopback into the peer's queue, where \
                nobody sleeps",
        source: "own: how servers end a response that they have held back",
        prepare: uncork,
    },
];

/// `writev` of the first piece into a corked connection: it makes the segment that later ones join.
fn writev(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, Size(1)..=Size(HELD_MAX as u64))?;
    let mut pieces = Pieces::of(id, setting)?;
    let responses = Responses::open(Response { before: 0, size, pieces: 1 })?;
    Ok(Prepared::alone(Fill { responses, put: move |wire: &Wire| wire.write_segments(pieces.next()) }))
}

/// `sendfile` of the next part of a cached file into a corked connection that holds a header.
fn sendfile(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, Size(1)..=Size((FILE_PAGES_MAX * PAGE) as u64))?;
    // Pieces that do not end with a page begin and end within one, and once more where the file begins anew.
    let pages = if size.is_multiple_of(PAGE) { FILE_PAGES_MAX } else { FILE_PAGES_MAX - 2 };
    let pieces = (pages * PAGE / size).max(1);
    let mut file = CachedFile::new(setting)?;
    let responses = Responses::open(Response { before: HEADER_BYTES, size, pieces })?;
    Ok(Prepared::alone(Fill { responses, put: move |wire: &Wire| wire.send_file(&mut file, size) }))
}

/// `TCP_CORK` off with so many bytes held back.
fn uncork(id: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let before = limit::size(id, Size(1)..=Size(HELD_MAX as u64))?;
    let responses = Responses::open(Response { before, size: 0, pieces: 1 })?;
    Ok(Prepared::alone(Uncork { responses }))
}

/// Bytes that a connection holds back at most: fewer than the 65483 of a loopback segment, in no more
/// pages than the fragments of a socket buffer can name (17), because a second one would let the first go.
const HELD_MAX: usize = 62 << 10;

/// Pages of a file that it holds back at most beside a header, of the same fragments.
const FILE_PAGES_MAX: usize = 15;

/// Buffer asked for on each side: several times the segment, so that the window lets it grow to full size.
const BUFFER_BYTES: i32 = 1 << 20;

/// What is put into one corked connection.
#[derive(Clone, Copy)]
struct Response {
    /// Bytes that are in it before the timed part.
    before: usize,
    /// Bytes of a timed piece.
    size: usize,
    /// Timed pieces.
    pieces: usize,
}

impl Response {
    /// Bytes held back when `pieces` of it are in.
    fn bytes(&self, pieces: u64) -> u64 {
        self.before as u64 + pieces * self.size as u64
    }
}

/// Connections with a response each.
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
            if !wire.open_segment(held)? {
                return Err(Refusal::Unavailable(format!(
                    "no segment of the loopback interface holds more than {held} bytes here, so TCP_CORK \
                     does not hold them back"
                )));
            }
            wires.push(wire);
        }
        Ok(Self { wires, response, before: vec![0; response.before] })
    }

    /// The connections that a batch uses, each with the number of its pieces.
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

    /// Takes away what must have arrived by now.
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

/// Pieces into corked connections, one connection after the other.
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

/// The uncorking of connections that hold a response back.
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
    fn a_batch_fills_one_connection_after_the_other_and_no_more_than_there_are_pieces() {
        let parts = |operations| {
            let responses = responses(15);
            responses.of_batch(operations).map(|(_, pieces)| pieces).collect::<Vec<_>>()
        };
        assert_eq!(parts(1), [1]);
        assert_eq!(parts(15), [15]);
        assert_eq!(parts(32), [15, 15, 2]);
    }

    #[test]
    fn what_arrives_before_the_uncorking_is_an_error() {
        let responses = responses(1);
        let put = |wire: &Wire| wire.write(&[0; 4096]).and_then(|()| wire.uncork());
        let mut fill = Fill { responses, put };
        fill.arm(2).unwrap();
        fill.run(2).unwrap();
        let error = fill.disarm(2).unwrap_err().to_string();
        assert_eq!(error, "0 bytes were due at the receiver and 4352 are there");
    }

    #[test]
    fn bytes_that_never_arrive_are_an_error() {
        let responses = Responses::open(Response { before: 4096, size: 0, pieces: 1 }).unwrap();
        let mut uncork = Uncork { responses };
        // Nothing is written to the second wire: the kernel sends corked bytes after 200 ms by itself.
        uncork.arm(1).unwrap();
        uncork.run(1).unwrap();
        let error = uncork.disarm(2).unwrap_err().to_string();
        assert_eq!(error, "4096 bytes were due at the receiver and 0 are there");
    }
}
