//! Transfers over TCP whose peer runs on another processor, the usual case on a machine with several: the
//! kernel delivers a segment by changing the peer's half of the connection, which is in the caches of the
//! peer's processor, and a received segment is there, too. The rows are those of `tcp` and `cork`.
//!
//! The peer stays awake. A send to one that sleeps is `tcp.wakeup` in addition.

use std::io;

use assay_quantity::{Key, PrimitiveId, Size};

use crate::benchmark::{Operation, Prepared, Refusal, Setting};
use crate::primitive::kit::limit;
use crate::primitive::kit::peer::{PeerConnections, SIZES};
use crate::primitive::kit::pieces::Pieces;
use crate::primitive::kit::placement::partner_cpu;
use crate::primitive::kit::tcp_pair::{HELD_SIZES, Wire};

/// Whether the peer of an id runs on another processor.
pub(super) fn is_elsewhere(id: &PrimitiveId) -> bool {
    id.word(Key::Cpus) == "different"
}

/// Prepares the send of one piece by `send`.
pub(super) fn sending(
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
pub(super) fn uncork(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let piece = vec![0; limit::size(id, HELD_SIZES)?];
    let peer = PeerConnections::holding_back(partner_cpu(id, setting)?, Size(piece.len() as u64))?;
    let hold_back = move |wire: &Wire| {
        wire.cork()?;
        wire.write(&piece)?;
        wire.check_held_back(piece.len())
    };
    Ok(Send { peer, hold_back, send: Wire::uncork }.prepared(setting))
}

/// Prepares `read` of one piece that the peer has sent.
pub(super) fn receive(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
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
