//! Connections to a peer on another processor. The peer stays awake, so that no call here wakes it up, and
//! its half of each connection is in the caches of its processor.
//!
//! Each connection alternates, like one between a client and a server: a piece in one direction, an answer of
//! one byte in the other. The peer does its part of a batch in one turn, before the timed part.

use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use assay_process::Process;
use assay_quantity::Size;

use super::futex_word::{self, Scope};
use super::placement::sharing;
use super::shared::Shared;
use super::tcp_pair::Wire;
use crate::benchmark::{Refusal, Setting, Sharing};
use crate::platform::clock::monotonic;
use crate::platform::partner::{Partner, wait_until};

/// Number of connections, and so of the operations of the longest batch: more than 100 us of sends.
const CONNECTIONS: usize = 64;

/// Requested buffer of each side: several pieces of the largest size.
const BUFFER_BYTES: i32 = 1 << 20;

/// Sizes of a piece, which must arrive in one turn.
pub(crate) const SIZES: std::ops::RangeInclusive<Size> = Size(1)..=Size::kib(64);

const ANSWER: [u8; 1] = [1];

/// Connections to a peer on another processor.
pub(crate) struct PeerConnections {
    connections: Rc<[Connection]>,
    size: u64,
    peer: Peer,
    cpu: usize,
}

/// One connection, in both directions.
struct Connection {
    pieces: Wire,
    answers: Wire,
}

impl PeerConnections {
    /// Opens connections on which this process sends pieces of this size to a peer on `cpu`.
    pub(crate) fn sending(cpu: usize, size: Size) -> Result<Self, Refusal> {
        Self::sending_on(connections(size)?, cpu, size)
    }

    /// Opens connections whose segments are large enough that `TCP_CORK` holds back a piece.
    pub(crate) fn holding_back(cpu: usize, size: Size) -> Result<Self, Refusal> {
        let connections = connections(size)?;
        let bytes = bytes(size)?;
        connections.iter().try_for_each(|connection| connection.pieces.open_segment(bytes))?;
        Self::sending_on(connections, cpu, size)
    }

    /// Opens connections on which this process receives pieces of this size from a peer on `cpu`.
    pub(crate) fn receiving(cpu: usize, size: Size) -> Result<Self, Refusal> {
        let connections = connections(size)?;
        // Each turn begins with an answer that waits for the peer.
        connections.iter().try_for_each(|connection| connection.answers.write(&ANSWER))?;
        let piece = vec![0; bytes(size)?];
        Self::open(connections, cpu, size, move |connection| {
            connection.answers.read(&mut [0; ANSWER.len()])?;
            connection.pieces.write(&piece)?;
            connection.pieces.check_arrived(size.bytes())
        })
    }

    fn sending_on(connections: Rc<[Connection]>, cpu: usize, size: Size) -> Result<Self, Refusal> {
        // Each turn begins with a piece that waits for the peer.
        let piece = vec![0; bytes(size)?];
        connections.iter().try_for_each(|connection| connection.pieces.write(&piece))?;
        Self::open(connections, cpu, size, move |connection| {
            connection.pieces.drain(size.bytes())?;
            connection.answers.write(&ANSWER)?;
            connection.answers.check_arrived(ANSWER.len() as u64)
        })
    }

    fn open(
        connections: Rc<[Connection]>,
        cpu: usize,
        size: Size,
        serve: impl Fn(&Connection) -> io::Result<()>,
    ) -> Result<Self, Refusal> {
        let turn = |operations| connections.iter().take(operations).try_for_each(&serve);
        let peer = Peer::fork(cpu, turn)?;
        Ok(Self { connections, size: size.bytes(), peer, cpu })
    }

    /// Lets the peer serve the connections of a batch.
    pub(crate) fn serve(&self, operations: u64) -> io::Result<()> {
        self.peer.turn(operations)
    }

    /// Reads the answers to the previous pieces of a batch.
    pub(crate) fn read_answers(&self, operations: u64) -> io::Result<()> {
        self.of_batch(operations).try_for_each(|connection| connection.answers.read(&mut [0; ANSWER.len()]))
    }

    /// Answers the pieces of a batch.
    pub(crate) fn answer(&self, operations: u64) -> io::Result<()> {
        self.of_batch(operations).try_for_each(|connection| connection.answers.write(&ANSWER))
    }

    /// Returns the connections of a batch, in the direction of the pieces.
    #[inline]
    pub(crate) fn wires(&self, operations: u64) -> impl Iterator<Item = &Wire> {
        self.of_batch(operations).map(|connection| &connection.pieces)
    }

    /// Returns a connection of a batch by its number, from 0.
    #[inline]
    pub(crate) fn wire(&self, number: usize) -> &Wire {
        &self.connections[number].pieces
    }

    /// Checks that a complete piece waits on each connection of a batch.
    pub(crate) fn check_arrived(&self, operations: u64) -> io::Result<()> {
        self.wires(operations).try_for_each(|wire| wire.check_arrived(self.size))
    }

    /// Checks that no byte waits on any connection of a batch.
    pub(crate) fn check_empty(&self, operations: u64) -> io::Result<()> {
        self.wires(operations).try_for_each(|wire| wire.check_arrived(0))
    }

    /// Waits until the peer sleeps; the next turn wakes it up.
    pub(crate) fn rest(&self) -> io::Result<()> {
        self.peer.rest()
    }

    #[cfg(test)]
    pub(crate) fn is_at_rest(&self) -> io::Result<bool> {
        self.peer.is_asleep()
    }

    /// Returns the processes that are meant to run.
    pub(crate) fn sharing(&self, setting: &Setting) -> Sharing {
        sharing(setting, self.cpu, &self.peer.partner)
    }

    /// Returns the number of operations of the longest batch.
    pub(crate) fn max_batch(&self) -> u64 {
        self.connections.len() as u64
    }

    fn of_batch(&self, operations: u64) -> impl Iterator<Item = &Connection> {
        (0..operations).zip(self.connections.iter()).map(|(_, connection)| connection)
    }
}

fn bytes(size: Size) -> io::Result<usize> {
    usize::try_from(size.bytes()).map_err(io::Error::other)
}

/// Opens connections with room for several pieces.
fn connections(size: Size) -> Result<Rc<[Connection]>, Refusal> {
    let piece = bytes(size)?;
    let connection = |_| {
        let pieces = Wire::open(BUFFER_BYTES)?;
        pieces.use_reno()?;
        if pieces.open_window(piece, 2)?.is_none() {
            return Err(Refusal::Unavailable(format!(
                "the socket buffers do not hold four pieces of {size}; choose a smaller size, or raise \
                 net.core.rmem_max"
            )));
        }
        let answers = pieces.reversed()?;
        Ok(Connection { pieces, answers })
    };
    (0..CONNECTIONS).map(connection).collect()
}

/// A process that does its turns on another processor, and spins in between or sleeps.
struct Peer {
    board: Shared<Board>,
    partner: Partner,
}

#[derive(Debug, Default)]
struct Board {
    /// Number of turns that are due.
    due: AtomicU32,
    /// Number of operations of the last of them.
    operations: AtomicU64,
    /// Number of turns done.
    done: AtomicU32,
    /// The error of the turn that ended the peer, as [`errno`] returns it.
    failed: AtomicI32,
    /// Whether the peer spins until the next turn. Otherwise it sleeps.
    spins: AtomicBool,
}

/// Time after which a turn that has not been done counts as lost, ns.
const LOST_NS: u64 = 2_000_000_000;

impl Peer {
    /// Forks a process that calls `turn` with the number of operations of each batch. It sleeps until the
    /// first turn.
    fn fork(cpu: usize, turn: impl FnMut(usize) -> io::Result<()>) -> io::Result<Self> {
        let board = Shared::new(Board::default())?;
        let partner = Partner::fork(cpu, || {
            let Err(error) = board.take_turns(turn);
            board.failed.store(errno(&error), Ordering::Relaxed);
            libc::EXIT_FAILURE
        })?;
        Ok(Self { board, partner })
    }

    /// Waits until the partner has done a turn.
    fn turn(&self, operations: u64) -> io::Result<()> {
        self.board.operations.store(operations, Ordering::Relaxed);
        self.board.spins.store(true, Ordering::Relaxed);
        let due = self.board.due.fetch_add(1, Ordering::Release) + 1;
        futex_word::wake(&self.board.due, Scope::Shared)?;
        let until_ns = monotonic::now_ns() + LOST_NS;
        while self.board.done.load(Ordering::Acquire) != due {
            if let Some(error) = failure(self.board.failed.load(Ordering::Relaxed)) {
                return Err(error);
            }
            if monotonic::now_ns() > until_ns {
                return Err(io::Error::other("the peer on the other processor did not answer within 2 s"));
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn rest(&self) -> io::Result<()> {
        self.board.spins.store(false, Ordering::Relaxed);
        wait_until(|| self.is_asleep(), "the peer on the other processor did not fall asleep")
    }

    fn is_asleep(&self) -> io::Result<bool> {
        Ok(Process::read(self.partner.pid())?.is_some_and(|partner| partner.is_asleep()))
    }
}

/// A failure without an error of the kernel: bytes were missing.
const NO_ERRNO: i32 = -1;

/// Returns the number of an error; [`NO_ERRNO`] if it is not one of the kernel.
fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(NO_ERRNO)
}

/// Returns the error with this number; `None` for 0.
fn failure(errno: i32) -> Option<io::Error> {
    let why = match errno {
        0 => return None,
        NO_ERRNO => "did not find the bytes that were sent".to_owned(),
        _ => format!("failed: {}", io::Error::from_raw_os_error(errno)),
    };
    Some(io::Error::other(format!("the peer on the other processor {why}")))
}

impl Board {
    /// Runs the partner until a turn fails.
    fn take_turns(&self, mut turn: impl FnMut(usize) -> io::Result<()>) -> io::Result<Infallible> {
        let mut done = 0;
        loop {
            while self.due.load(Ordering::Acquire) == done {
                if self.spins.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                } else {
                    futex_word::wait_while(&self.due, done, Scope::Shared)?;
                }
            }
            done = done.wrapping_add(1);
            let operations = usize::try_from(self.operations.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
            turn(operations)?;
            self.done.store(done, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_process::cpus;

    fn a_cpu() -> usize {
        cpus::allowed().unwrap()[0]
    }

    #[test]
    fn the_peer_does_each_turn_with_the_operations_of_its_batch_and_sleeps_when_it_rests() {
        let sum = Shared::new(AtomicU64::new(0)).unwrap();
        let peer = Peer::fork(a_cpu(), |operations| {
            sum.fetch_add(operations as u64, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
        for (operations, due) in [(3, 3), (4, 7)] {
            peer.turn(operations).unwrap();
            assert_eq!(sum.load(Ordering::Relaxed), due);
        }
        peer.rest().unwrap();
        peer.turn(1).unwrap();
        assert_eq!((sum.load(Ordering::Relaxed), peer.board.done.load(Ordering::Relaxed)), (8, 3));
    }

    #[test]
    fn a_turn_that_fails_is_an_error_of_the_batch() {
        let error_after = |error: fn() -> io::Error| {
            let peer = Peer::fork(a_cpu(), |_| Err(error())).unwrap();
            peer.turn(1).unwrap_err().to_string()
        };
        let reset = || io::Error::from_raw_os_error(libc::ECONNRESET);
        assert!(error_after(reset).starts_with("the peer on the other processor failed: Connection reset"));
        let short = "the peer on the other processor did not find the bytes that were sent";
        assert_eq!(error_after(|| io::Error::other("read returned 3, expected 4")), short);
    }

    #[test]
    fn the_peer_serves_only_the_connections_of_the_batch() {
        let peer = PeerConnections::receiving(a_cpu(), Size(100)).unwrap();
        peer.serve(2).unwrap();
        peer.check_arrived(2).unwrap();
        peer.wire(2).check_arrived(0).unwrap();
        let error = peer.check_empty(2).unwrap_err().to_string();
        assert_eq!(error, "expected 0 bytes at the receiver, found 100");
    }
}
