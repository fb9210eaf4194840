//! Bulk transfer from one process to another through a TCP connection (lmbench, 1996, section 5.2; lmbench 3,
//! `bw_tcp`): the sender and the receiver work concurrently, except where one waits for the other.
//!
//! A batch is announced before its timing starts, and ends when the receiver reports the number of received
//! pieces. This answer and the path of the first piece occur once in every batch and cancel. The receiver
//! counts every byte. The contents of its buffer after the batch, the whole last piece, are compared with the
//! sent data.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;

use assay_quantity::{PrimitiveId, Size};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::serve::protocol::{COUNT_MAX, SIZE_MAX, digest, pattern};
use super::serve::session::{Link, sink};
use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting};
use crate::platform::partner::Partner;
use crate::primitive::kit::echo::PATIENCE;
use crate::primitive::kit::limit;
use crate::primitive::kit::pieces::Pieces;
use crate::primitive::kit::placement::{partner_cpu, sharing};
use crate::primitive::kit::socket::{Listener, read_all, write};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    quick: &["tcp.stream{size=64KiB,buffer=reused,cpus=different}"],
    full: &[
        "tcp.stream{size=1KiB|4KiB|64KiB|1MiB,buffer=reused,cpus=different}",
        "tcp.stream{size=4KiB|64KiB,buffer=fresh,cpus=different}",
    ],
    cost: Per::ByteOfSize,
    calls: &["write", "read"],
    about: "`write` of `size` bytes to a TCP socket over loopback while another process reads all of it",
    source: "lmbench 1996, section 5.2; lmbench 3, bw_tcp",
    prepare: stream,
}];

/// Valid sizes of a piece.
pub(super) const SIZES: std::ops::RangeInclusive<Size> = Size(1)..=Size(SIZE_MAX as u64);

/// `write` of a piece, and its path into the partner's buffer.
fn stream(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, SIZES)?;
    let cpu = partner_cpu(id, setting)?;
    let (here, there) = Listener::open(1)?.pair()?;
    // Each process allocates its buffer after the fork. Otherwise every page would be copied at its first
    // use.
    let pieces = |setting: &mut Setting| Pieces::half(id, setting);
    let partner = Partner::fork(cpu, || {
        setting.rng.advance(1);
        match pieces(setting).and_then(|pieces| take(there.into(), pieces)) {
            Ok(()) => libc::EXIT_SUCCESS,
            Err(_) => libc::EXIT_FAILURE,
        }
    })?;
    let sharing = sharing(setting, cpu, &partner);
    let outgoing = Outgoing::new(here, pieces(setting)?, size, partner)?;
    Ok(Prepared { operation: Box::new(outgoing), baseline: None, sharing })
}

/// The main loop of the partner: receives batches until there are no more.
fn take(connection: TcpStream, mut pieces: Pieces) -> io::Result<()> {
    static NEVER: AtomicBool = AtomicBool::new(false);
    sink(&Link::new(connection, &NEVER)?, &mut pieces);
    Ok(())
}

/// Sends pieces to a sink.
pub(super) struct Outgoing<K> {
    socket: OwnedFd,
    pieces: Pieces,
    /// Digest of a piece.
    digest: u64,
    /// Pieces of the batch that the sink has reported as received.
    taken: u64,
    granule: u64,
    /// Keeps the sink running.
    _taking: K,
}

impl<K> Outgoing<K> {
    pub(super) fn new(socket: OwnedFd, mut pieces: Pieces, size: usize, taking: K) -> io::Result<Self> {
        for timeout in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, timeout, Some(PATIENCE))?;
        }
        let pattern = pattern(size);
        fill(&mut pieces, &pattern);
        Ok(Self { socket, pieces, digest: digest(&pattern), taken: 0, granule: 1, _taking: taking })
    }

    /// Sets the granule of batches in pieces.
    pub(super) fn in_batches_of(self, granule: u64) -> Self {
        Self { granule, ..self }
    }
}

/// Fills every piece with the same pattern.
fn fill(pieces: &mut Pieces, pattern: &[u8]) {
    let first = pieces.next();
    first.copy_from_slice(pattern);
    let first = first.as_ptr();
    loop {
        let piece = pieces.next();
        if piece.as_ptr() == first {
            break;
        }
        piece.copy_from_slice(pattern);
    }
}

impl<K> Operation for Outgoing<K> {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        write(&self.socket, &operations.to_be_bytes())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            write(&self.socket, self.pieces.next()).map_err(silent)?;
        }
        let mut taken = [0; 8];
        read_all(&self.socket, &mut taken).map_err(silent)?;
        self.taken = u64::from_be_bytes(taken);
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let taken = std::mem::take(&mut self.taken);
        if taken != operations {
            return Err(io::Error::other(format!("{operations} pieces were sent and {taken} were received")));
        }
        let mut last = [0; 8];
        read_all(&self.socket, &mut last)?;
        if u64::from_be_bytes(last) == self.digest {
            Ok(())
        } else {
            Err(io::Error::other("the last received piece differs from the sent one"))
        }
    }

    fn max_batch(&self) -> u64 {
        COUNT_MAX
    }

    fn granule(&self) -> u64 {
        self.granule
    }
}

#[cold]
fn silent(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            io::Error::other(format!("the other side received and sent nothing for {} s", PATIENCE.as_secs()))
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    fn reused(size: usize) -> Pieces {
        Pieces::reused(size, &mut Pcg64Mcg::seed_from_u64(1)).unwrap()
    }

    /// Returns a sender and the other end of its connection.
    fn outgoing(size: usize) -> (Outgoing<()>, OwnedFd) {
        let (here, there) = Listener::open(1).unwrap().pair().unwrap();
        (Outgoing::new(here, reused(size), size, ()).unwrap(), there)
    }

    #[test]
    fn every_batch_arrives_completely_and_in_sequence() {
        for size in [1, 1000, SIZE_MAX] {
            let (mut outgoing, there) = outgoing(size);
            let taking = std::thread::spawn(move || take(there.into(), reused(size)));
            for operations in [1, 2, 7] {
                outgoing.arm(operations).unwrap();
                outgoing.run(operations).unwrap();
                outgoing.disarm(operations).unwrap();
            }
            drop(outgoing);
            taking.join().unwrap().unwrap();
        }
    }

    #[test]
    fn a_batch_that_was_not_sent_or_arrives_incomplete_or_altered_is_an_error() {
        let (mut outgoing, there) = outgoing(100);
        assert!(
            outgoing.disarm(3).unwrap_err().to_string().contains("3 pieces were sent and 0 were received")
        );
        let answer = |taken: u64, digest: u64| {
            write(&there, &taken.to_be_bytes()).unwrap();
            write(&there, &digest.to_be_bytes()).unwrap();
        };
        let right = digest(&pattern(100));
        answer(2, right);
        outgoing.run(3).unwrap();
        assert!(
            outgoing.disarm(3).unwrap_err().to_string().contains("3 pieces were sent and 2 were received")
        );
        let (mut outgoing, there) = self::outgoing(100);
        write(&there, &[3_u64.to_be_bytes(), (right ^ 1).to_be_bytes()].concat()).unwrap();
        outgoing.run(3).unwrap();
        assert!(outgoing.disarm(3).unwrap_err().to_string().contains("differs from the sent one"));
    }

    #[test]
    fn a_sink_that_stops_responding_ends_the_sample() {
        let (mut outgoing, _there) = outgoing(1);
        let error = outgoing.run(1).unwrap_err().to_string();
        assert_eq!(error, "the other side received and sent nothing for 2 s");
    }

    #[test]
    fn every_piece_is_filled() {
        let mut pieces = reused(300);
        fill(&mut pieces, &pattern(300));
        assert_eq!(pieces.next(), pattern(300));
        assert_eq!((pattern(300)[250], pattern(300)[251]), (250, 0));
    }
}
