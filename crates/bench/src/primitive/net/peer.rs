//! The calls of `tcp` and `cork` on connections whose peer runs on another processor, the usual case on a
//! machine with several: the kernel delivers a segment by changing the peer's half of the connection, which
//! is in the caches of the peer's processor, and a received segment is there, too.
//!
//! The peer stays awake. A send to one that sleeps is `tcp.wakeup` in addition.

use std::io;

use assay_quantity::{PrimitiveId, Size};

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting};
use crate::primitive::kit::limit;
use crate::primitive::kit::peer::{PeerConnections, SIZES};
use crate::primitive::kit::pieces::Pieces;
use crate::primitive::kit::placement::partner_cpu;
use crate::primitive::kit::scratch::CachedFile;
use crate::primitive::kit::tcp_pair::Wire;
use crate::primitive::net::cork;

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &[
            "tcp.send{size=64B|4KiB|64KiB,buffer=reused,cpus=different}",
            "tcp.send{size=4KiB|64KiB,buffer=fresh,cpus=different}",
        ],
        full: &["tcp.send{size=64B|4KiB|32KiB|64KiB,buffer=*,cpus=different}"],
        cost: Per::ByteOfSize,
        calls: &["write"],
        about: "`write` to a TCP socket over loopback whose peer is awake on another processor, with the \
                segments' way into the peer's queue",
        source: "own: how a server sends to a client that runs beside it",
        prepare: send,
    },
    Row {
        quick: &[
            "tcp.receive{size=64B|4KiB|64KiB,buffer=reused,cpus=different}",
            "tcp.receive{size=4KiB|64KiB,buffer=fresh,cpus=different}",
        ],
        full: &["tcp.receive{size=64B|4KiB|32KiB|64KiB,buffer=*,cpus=different}"],
        cost: Per::ByteOfSize,
        calls: &["read"],
        about: "`read` from a TCP socket of bytes that another processor has put into its queue",
        source: "own: how a server receives from a client that runs beside it",
        prepare: receive,
    },
    Row {
        quick: &["tcp.writev{size=4KiB|64KiB,cpus=different}"],
        full: &["tcp.writev{size=4KiB|32KiB|64KiB,cpus=different}"],
        cost: Per::ByteOfSize,
        calls: &["writev"],
        about: "`writev` to a TCP socket of a 256-byte header and a body, `size` bytes together, whose peer \
                is awake on another processor",
        source: "own: how a server sends a response to a client that runs beside it",
        prepare: writev,
    },
    Row {
        quick: &["tcp.sendfile{size=4KiB|64KiB,cpus=different}"],
        full: &["tcp.sendfile{size=4KiB|32KiB|64KiB,cpus=different}"],
        cost: Per::ByteOfSize,
        calls: &["sendfile"],
        about: "`sendfile` from a cached file to a TCP socket whose peer is awake on another processor",
        source: "own: how a server sends a file to a client that runs beside it",
        prepare: sendfile,
    },
    Row {
        quick: &["tcp.uncork{size=4KiB|32KiB,cpus=different}"],
        full: &[],
        cost: Per::ByteOfSize,
        calls: &["setsockopt"],
        about: "`setsockopt(TCP_CORK)` off with `size` bytes held back: their transmission into the queue of \
                a peer that is awake on another processor",
        source: "own: how a server ends a response to a client that runs beside it",
        prepare: uncork,
    },
];

/// Prepares `write` of one piece.
fn send(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    sending(id, setting, |wire, pieces| wire.write(pieces.next()))
}

/// Prepares `writev` of one piece in two segments: a header and the rest.
fn writev(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    sending(id, setting, |wire, pieces| wire.write_segments(pieces.next()))
}

/// Prepares `sendfile` of the next part of a cached file.
fn sendfile(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let mut file = CachedFile::holding(limit::size(id, SIZES)?, setting)?;
    sending(id, setting, move |wire, pieces| wire.send_file(&mut file, pieces.size()))
}

fn sending(
    id: &PrimitiveId,
    setting: &mut Setting,
    mut send: impl FnMut(&Wire, &mut Pieces) -> io::Result<()> + 'static,
) -> Result<Prepared, Refusal> {
    let size = Size(limit::size(id, SIZES)? as u64);
    let peer = PeerConnections::sending(partner_cpu(id, setting)?, size)?;
    let mut pieces = Pieces::of(id, setting)?;
    let send = Send { peer, hold_back: |_: &Wire| Ok(()), send: move |wire: &Wire| send(wire, &mut pieces) };
    Ok(send.prepared(setting))
}

/// Prepares `TCP_CORK` off with one piece held back.
fn uncork(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let piece = vec![0; limit::size(id, cork::SIZES)?];
    let peer = PeerConnections::holding_back(partner_cpu(id, setting)?, Size(piece.len() as u64))?;
    let hold_back = move |wire: &Wire| {
        wire.cork()?;
        wire.write(&piece)?;
        wire.check_held_back(piece.len())
    };
    Ok(Send { peer, hold_back, send: Wire::uncork }.prepared(setting))
}

/// Prepares `read` of one piece that the peer has sent.
fn receive(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = Size(limit::size(id, SIZES)? as u64);
    let peer = PeerConnections::receiving(partner_cpu(id, setting)?, size)?;
    // After the fork: memory that the peer shares would be copied when it is written to.
    let pieces = Pieces::of(id, setting)?;
    let sharing = peer.sharing(setting);
    Ok(Prepared { operation: Box::new(Receive { peer, pieces }), baseline: None, sharing })
}

/// A send on each connection.
struct Send<H, S> {
    peer: PeerConnections,
    /// Writes what the timed call sends, if it does not write it itself.
    hold_back: H,
    send: S,
}

impl<H, S> Send<H, S>
where
    H: FnMut(&Wire) -> io::Result<()> + 'static,
    S: FnMut(&Wire) -> io::Result<()> + 'static,
{
    fn prepared(self, setting: &Setting) -> Prepared {
        let sharing = self.peer.sharing(setting);
        Prepared { operation: Box::new(self), baseline: None, sharing }
    }
}

impl<H, S> Operation for Send<H, S>
where
    H: FnMut(&Wire) -> io::Result<()>,
    S: FnMut(&Wire) -> io::Result<()>,
{
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.peer.serve(operations)?;
        self.peer.read_answers(operations)?;
        self.peer.wires(operations).try_for_each(&mut self.hold_back)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        self.peer.wires(operations).try_for_each(&mut self.send)
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.peer.check_arrived(operations)
    }

    fn max_batch(&self) -> u64 {
        self.peer.max_batch()
    }
}

/// A receive on each connection.
struct Receive {
    peer: PeerConnections,
    pieces: Pieces,
}

impl Operation for Receive {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.peer.serve(operations)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        self.peer.wires(operations).try_for_each(|wire| wire.read(self.pieces.next()))
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.peer.check_empty(operations)?;
        self.peer.answer(operations)
    }

    fn max_batch(&self) -> u64 {
        self.peer.max_batch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    const PIECE: usize = 64;

    fn a_cpu() -> usize {
        assay_process::cpus::allowed().unwrap()[0]
    }

    fn a_batch(operation: &mut dyn Operation, operations: u64) -> io::Result<()> {
        operation.arm(operations)?;
        operation.run(operations)?;
        operation.disarm(operations)
    }

    #[test]
    fn batches_of_any_length_follow_each_other_in_both_directions() {
        let peer = PeerConnections::sending(a_cpu(), Size(PIECE as u64)).unwrap();
        let mut send =
            Send { peer, hold_back: |_: &Wire| Ok(()), send: |wire: &Wire| wire.write(&[0; PIECE]) };
        let peer = PeerConnections::receiving(a_cpu(), Size(PIECE as u64)).unwrap();
        let pieces = Pieces::reused(PIECE, &mut Pcg64Mcg::seed_from_u64(1)).unwrap();
        let mut receive = Receive { peer, pieces };
        for operation in [&mut send as &mut dyn Operation, &mut receive] {
            for operations in [1, operation.max_batch(), 3] {
                a_batch(operation, operations).unwrap();
            }
        }
    }

    #[test]
    fn a_piece_that_is_not_sent_or_not_read_is_an_error() {
        let peer = PeerConnections::sending(a_cpu(), Size(PIECE as u64)).unwrap();
        let mut idle = Send { peer, hold_back: |_: &Wire| Ok(()), send: |_: &Wire| Ok(()) };
        let error = a_batch(&mut idle, 2).unwrap_err().to_string();
        assert_eq!(error, "expected 64 bytes at the receiver, found 0");
        let peer = PeerConnections::receiving(a_cpu(), Size(PIECE as u64)).unwrap();
        let pieces = Pieces::reused(PIECE, &mut Pcg64Mcg::seed_from_u64(1)).unwrap();
        let mut receive = Receive { peer, pieces };
        receive.arm(2).unwrap();
        receive.run(1).unwrap();
        let error = receive.disarm(2).unwrap_err().to_string();
        assert_eq!(error, "expected 0 bytes at the receiver, found 64");
    }

    #[test]
    fn bytes_that_are_not_held_back_until_the_timed_call_are_an_error() {
        let peer = PeerConnections::holding_back(a_cpu(), Size(PIECE as u64)).unwrap();
        let held = |wire: &Wire| wire.check_held_back(PIECE);
        let hold_back = |wire: &Wire| {
            wire.cork()?;
            wire.write(&[0; PIECE])?;
            held(wire)
        };
        let mut uncork = Send { peer, hold_back, send: Wire::uncork };
        a_batch(&mut uncork, 2).unwrap();
        let error = held(uncork.peer.wire(0)).unwrap_err().to_string();
        assert_eq!(error, "expected 64 bytes to be held back, found 0");
    }
}
