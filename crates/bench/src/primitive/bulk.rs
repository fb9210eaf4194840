//! Bytes in bulk from one process to another through a TCP connection (lmbench, 1996, section 5.2; lmbench 3,
//! `bw_tcp`): the sender's and the receiver's work at the same time, as far as each lets the other go on.
//!
//! A batch is announced before its time begins, and ends when the receiver says how many pieces have come; that
//! answer and the first piece's way are in every batch once and drop out. Every byte is counted at the receiver;
//! what lies in its buffer after the batch, the whole last piece, is compared with what was sent.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;

use assay_quantity::{PrimitiveId, Size};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::echo::PATIENCE;
use super::limit;
use super::pieces::Pieces;
use super::placement::{partner_cpu, sharing};
use super::socket::{Listener, read_all, write};
use crate::benchmark::{Operation, Prepared, Refusal, Setting};
use crate::partner::Partner;
use crate::serve::protocol::{COUNT_MAX, SIZE_MAX, digest, pattern};
use crate::serve::session::{Link, sink};
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        ids: &["tcp.stream{size=64KiB,buffer=reused,cpus=different}"],
        profile: Profile::Quick,
        cost: Per::ByteOfSize,
        calls: &["write", "read"],
        about: "write to a TCP socket over loopback while another process reads all of it",
        source: "lmbench 1996, section 5.2; lmbench 3, bw_tcp",
        prepare: stream,
    },
    Row {
        ids: &[
            "tcp.stream{size=1KiB,buffer=reused,cpus=different}",
            "tcp.stream{size=4KiB,buffer=reused,cpus=different}",
            "tcp.stream{size=1MiB,buffer=reused,cpus=different}",
            "tcp.stream{size=4KiB,buffer=fresh,cpus=different}",
            "tcp.stream{size=64KiB,buffer=fresh,cpus=different}",
        ],
        profile: Profile::Full,
        cost: Per::ByteOfSize,
        calls: &["write", "read"],
        about: "write to a TCP socket over loopback while another process reads all of it",
        source: "lmbench 1996, section 5.2; lmbench 3, bw_tcp",
        prepare: stream,
    },
];

/// Sizes of a piece.
pub(super) const SIZES: std::ops::RangeInclusive<Size> = Size(1)..=Size(SIZE_MAX as u64);

/// `write` of a piece, and its way into the partner's buffer.
fn stream(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, SIZES)?;
    let cpu = partner_cpu(id, setting)?;
    let (here, there) = Listener::open(1)?.pair()?;
    // Each makes its buffer after the fork: made before it, every page would be copied at its first use.
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

/// The partner's whole life: it takes batches until there are none.
fn take(connection: TcpStream, mut pieces: Pieces) -> io::Result<()> {
    static NEVER: AtomicBool = AtomicBool::new(false);
    sink(&Link::new(connection, &NEVER)?, &mut pieces);
    Ok(())
}

/// Pieces to a sink.
pub(super) struct Outgoing<K> {
    socket: OwnedFd,
    pieces: Pieces,
    /// Digest of a piece.
    digest: u64,
    /// Pieces that the sink has said of the batch that it has taken.
    taken: u64,
    granule: u64,
    /// What keeps the sink taking.
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

    /// In batches of at least so many pieces.
    pub(super) fn in_batches_of(self, granule: u64) -> Self {
        Self { granule, ..self }
    }
}

/// Makes every piece the same.
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
            return Err(io::Error::other(format!("{operations} pieces were sent and {taken} have come")));
        }
        let mut last = [0; 8];
        read_all(&self.socket, &mut last)?;
        if u64::from_be_bytes(last) == self.digest {
            Ok(())
        } else {
            Err(io::Error::other("what came last is not what was sent"))
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
            io::Error::other(format!("the other side took and said nothing for {} s", PATIENCE.as_secs()))
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

    /// Pieces to whoever holds the other end.
    fn outgoing(size: usize) -> (Outgoing<()>, OwnedFd) {
        let (here, there) = Listener::open(1).unwrap().pair().unwrap();
        (Outgoing::new(here, reused(size), size, ()).unwrap(), there)
    }

    #[test]
    fn every_batch_arrives_whole_and_one_after_the_other() {
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
    fn a_batch_that_was_not_sent_or_came_short_or_came_altered_is_an_error() {
        let (mut outgoing, there) = outgoing(100);
        assert!(outgoing.disarm(3).unwrap_err().to_string().contains("3 pieces were sent and 0 have come"));
        let answer = |taken: u64, digest: u64| {
            write(&there, &taken.to_be_bytes()).unwrap();
            write(&there, &digest.to_be_bytes()).unwrap();
        };
        let right = digest(&pattern(100));
        answer(2, right);
        outgoing.run(3).unwrap();
        assert!(outgoing.disarm(3).unwrap_err().to_string().contains("3 pieces were sent and 2 have come"));
        let (mut outgoing, there) = self::outgoing(100);
        write(&there, &[3_u64.to_be_bytes(), (right ^ 1).to_be_bytes()].concat()).unwrap();
        outgoing.run(3).unwrap();
        assert!(outgoing.disarm(3).unwrap_err().to_string().contains("not what was sent"));
    }

    #[test]
    fn a_sink_that_goes_silent_ends_the_sample() {
        let (mut outgoing, _there) = outgoing(1);
        let error = outgoing.run(1).unwrap_err().to_string();
        assert_eq!(error, "the other side took and said nothing for 2 s");
    }

    #[test]
    fn every_piece_is_filled() {
        let mut pieces = reused(300);
        fill(&mut pieces, &pattern(300));
        assert_eq!(pieces.next(), pattern(300));
        assert_eq!((pattern(300)[250], pattern(300)[251]), (250, 0));
    }
}
