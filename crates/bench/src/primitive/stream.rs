//! Bytes through a TCP connection over the loopback interface, both ends in one process (thesis, sections
//! 2.2.3 and 4.2): what a server pays to send, what it pays to receive, and both together.
//!
//! On the loopback interface a `write` does not return before the segments are in the peer's queue, so
//! sending and receiving can be timed apart: send n pieces and drain them untimed, or queue n pieces
//! untimed and read them. A batch must fit into the socket's buffers, and that every byte arrived is
//! checked after each.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use assay_quantity::PrimitiveId;

use super::pieces::Pieces;
use super::socket::Listener;
use crate::benchmark::{Operation, Prepared, Refusal, Setting};
use crate::kernel::{check, expect};

/// `write` of one piece.
pub(crate) fn send(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    sending(id, setting, |wire, pieces| wire.write(pieces.next()))
}

/// `writev` of one piece in two segments: a header of 256 bytes and the rest.
pub(crate) fn writev(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    sending(id, setting, |wire, pieces| {
        let piece = pieces.next();
        let (header, body) = piece.split_at(HEADER_BYTES.min(piece.len()));
        let segment =
            |part: &[u8]| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
        let segments = [segment(header), segment(body)];
        // SAFETY: both segments describe slices that outlive the call, which only reads them.
        let sent = unsafe { libc::writev(wire.sender.as_raw_fd(), segments.as_ptr(), 2) };
        expect("writev", sent, piece.len())
    })
}

/// Bytes of the first segment of a `writev`: a response head.
const HEADER_BYTES: usize = 256;

/// `sendfile` of the next part of a cached file.
pub(crate) fn sendfile(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let file = cached_file(setting)?;
    let mut offset: libc::off_t = 0;
    sending(id, setting, move |wire, pieces| {
        let size = pieces.size();
        // SAFETY: the pointer is to a variable that outlives the call.
        let sent =
            unsafe { libc::sendfile(wire.sender.as_raw_fd(), file.as_raw_fd(), &raw mut offset, size) };
        if offset >= FILE_BYTES {
            offset = 0;
        }
        expect("sendfile", sent, size)
    })
}

/// Bytes of the file that `sendfile` walks through; a multiple of every transfer size.
const FILE_BYTES: libc::off_t = 8 << 20;

fn cached_file(setting: &Setting) -> io::Result<File> {
    let mut file = tempfile::tempfile_in(&setting.directory)?;
    let mib = vec![0x5a; 1 << 20];
    for _ in 0..FILE_BYTES >> 20 {
        file.write_all(&mib)?;
    }
    Ok(file)
}

/// `read` of one piece that waits in the socket's queue.
pub(crate) fn receive(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let pieces = Pieces::of(id, setting)?;
    let queued = vec![0; pieces.size()];
    let wire = Wire::open(pieces.size())?;
    Ok(Prepared::alone(Receive { wire, pieces, queued }))
}

/// `write` of one piece and `read` of it at the other end.
pub(crate) fn transfer(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let (mut out, mut back) = (Pieces::of(id, setting)?, Pieces::of(id, setting)?);
    let wire = Wire::open(out.size())?;
    Ok(Prepared::repeat(move || {
        wire.write(out.next())?;
        wire.read(back.next())
    }))
}

fn sending(
    id: &PrimitiveId,
    setting: &mut Setting,
    send: impl FnMut(&Wire, &mut Pieces) -> io::Result<()> + 'static,
) -> Result<Prepared, Refusal> {
    let pieces = Pieces::of(id, setting)?;
    let wire = Wire::open(pieces.size())?;
    Ok(Prepared::alone(Send { wire, pieces, send }))
}

/// Both ends of a connection.
struct Wire {
    sender: OwnedFd,
    receiver: OwnedFd,
    /// Pieces that can be sent in a row and arrive at once.
    pieces_max: u64,
}

/// Buffer asked for on each side, where we may. What the kernel grants is twice as much, for its own
/// bookkeeping; where we may not, its own tuning gives up to a few MiB.
const BUFFER_BYTES: i32 = 16 << 20;

/// Bytes of the longest batch: a millisecond or two of the fastest transfers, and half of the buffer.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// Pieces of the longest batch: a millisecond or two of the smallest transfers.
const PIECES_MAX: usize = 2048;

/// Times that a batch length is tried: the windows of both sides double with each.
const ATTEMPTS: u32 = 8;

impl Wire {
    /// A connection whose windows have been opened for pieces of `size` bytes.
    fn open(size: usize) -> io::Result<Self> {
        let listener = Listener::with_buffers(1, Some(BUFFER_BYTES))?;
        let (sender, receiver) = listener.pair_with_buffers(BUFFER_BYTES)?;
        // Reno, which every kernel has, keeps doubling its window until something is lost. The usual
        // algorithms stop at some twenty segments on a loopback connection, whose acknowledgements they
        // take for a crowded network; then a batch would wait for a reader that comes after it.
        rustix::net::sockopt::set_tcp_congestion(&sender, "reno")?;
        // A full buffer is an error of the benchmark, not something to wait for: the reader is ourselves.
        rustix::io::ioctl_fionbio(&sender, true)?;
        let mut wire = Self { sender, receiver, pieces_max: 0 };
        wire.open_window(size)?;
        Ok(wire)
    }

    /// Sends and drains ever longer batches until the longest arrives at once, or a length does not in
    /// several attempts. In that case the edge is near, and it moves with the kernel's tuning of buffers:
    /// half of what arrived is kept.
    fn open_window(&mut self, size: usize) -> io::Result<()> {
        let longest = (BATCH_BYTES_MAX / size).clamp(2, PIECES_MAX);
        let piece = vec![0; size];
        let mut pieces = 1;
        while pieces < longest {
            let next = (2 * pieces).min(longest);
            let mut arrives = false;
            for _ in 0..ATTEMPTS {
                arrives = arrives || self.arrives_at_once(&piece, next)?;
            }
            if !arrives {
                pieces /= 2;
                break;
            }
            pieces = next;
        }
        self.pieces_max = pieces.max(2) as u64;
        Ok(())
    }

    fn arrives_at_once(&self, piece: &[u8], pieces: usize) -> io::Result<bool> {
        let mut sent = 0;
        for _ in 0..pieces {
            match rustix::io::write(&self.sender, piece) {
                Ok(bytes) => sent += bytes as u64,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let arrived = rustix::io::ioctl_fionread(&self.receiver)?;
        self.drain(sent)?;
        Ok(arrived == sent && sent == (pieces * piece.len()) as u64)
    }

    #[inline]
    fn write(&self, piece: &[u8]) -> io::Result<()> {
        // SAFETY: the pointer and the length are those of a slice.
        let sent = unsafe { libc::write(self.sender.as_raw_fd(), piece.as_ptr().cast(), piece.len()) };
        expect("write", sent, piece.len())
    }

    #[inline]
    fn read(&self, piece: &mut [u8]) -> io::Result<()> {
        // SAFETY: the pointer and the length are those of a slice that is borrowed mutably.
        let got = unsafe { libc::read(self.receiver.as_raw_fd(), piece.as_mut_ptr().cast(), piece.len()) };
        expect("read", got, piece.len())
    }

    /// That so many bytes wait at the receiver.
    fn check_arrived(&self, bytes: u64) -> io::Result<()> {
        let arrived = rustix::io::ioctl_fionread(&self.receiver)?;
        if arrived == bytes {
            Ok(())
        } else {
            Err(io::Error::other(format!("{bytes} bytes were sent and {arrived} have arrived")))
        }
    }

    /// Takes so many bytes out of the receiver's queue without copying them.
    fn drain(&self, bytes: u64) -> io::Result<()> {
        let mut left = usize::try_from(bytes).map_err(io::Error::other)?;
        while left > 0 {
            // SAFETY: for TCP, MSG_TRUNC discards the bytes and writes to no buffer (tcp(7)).
            let got =
                unsafe { libc::recv(self.receiver.as_raw_fd(), std::ptr::null_mut(), left, libc::MSG_TRUNC) };
            match usize::try_from(check("recv", got)?) {
                Ok(got) if got > 0 => left -= got.min(left),
                _ => return Err(io::Error::other(format!("the connection ended with {left} bytes due"))),
            }
        }
        Ok(())
    }
}

struct Send<F> {
    wire: Wire,
    pieces: Pieces,
    send: F,
}

impl<F: FnMut(&Wire, &mut Pieces) -> io::Result<()>> Operation for Send<F> {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            (self.send)(&self.wire, &mut self.pieces)?;
        }
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let bytes = operations * self.pieces.size() as u64;
        self.wire.check_arrived(bytes)?;
        self.wire.drain(bytes)
    }

    fn max_batch(&self) -> u64 {
        self.wire.pieces_max
    }
}

struct Receive {
    wire: Wire,
    pieces: Pieces,
    queued: Vec<u8>,
}

impl Operation for Receive {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            self.wire.write(&self.queued)?;
        }
        self.wire.check_arrived(operations * self.queued.len() as u64)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            self.wire.read(self.pieces.next())?;
        }
        Ok(())
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        self.wire.check_arrived(0)
    }

    fn max_batch(&self) -> u64 {
        self.wire.pieces_max
    }
}
