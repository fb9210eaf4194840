//! One direction of a channel at a time, both ends in one process: a write whose bytes are read untimed, and
//! a read of bytes that were written untimed. `net/tcp` does the same for a connection, whose windows must be
//! opened first.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use assay_quantity::{PrimitiveId, Size};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::expect;
use crate::primitive::kit::duplex::{enlarge_pipe, enlarge_receiver, enlarge_sender, one_pipe};
use crate::primitive::kit::limit;
use crate::primitive::kit::pieces::Pieces;
use crate::primitive::kit::step::{Step, Steps};
use crate::primitive::kit::udp_pair::{BYTES_MAX, udp_pair};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["pipe.write{size=64B|4KiB|64KiB,buffer=reused}", "pipe.write{size=4KiB|64KiB,buffer=fresh}"],
        full: &[],
        cost: Per::ByteOfSize,
        calls: &["write"],
        about: "`write` to a pipe; read at the other end untimed",
        source: "own: one half of pipe.transfer, for applications that are at one end",
        prepare: send,
    },
    Row {
        quick: &["pipe.read{size=64B|4KiB|64KiB,buffer=reused}", "pipe.read{size=4KiB|64KiB,buffer=fresh}"],
        full: &[],
        cost: Per::ByteOfSize,
        calls: &["read"],
        about: "`read` from a pipe of bytes that are already in it",
        source: "own: one half of pipe.transfer, for applications that are at one end",
        prepare: receive,
    },
    Row {
        quick: &["unix.send{size=64B|4KiB|64KiB,buffer=reused}", "unix.send{size=4KiB|64KiB,buffer=fresh}"],
        full: &[],
        cost: Per::ByteOfSize,
        calls: &["write"],
        about: "`write` to a Unix stream socket; read at the other end untimed",
        source: "own: one half of unix.transfer, for applications that are at one end",
        prepare: send,
    },
    Row {
        quick: &[
            "unix.receive{size=64B|4KiB|64KiB,buffer=reused}",
            "unix.receive{size=4KiB|64KiB,buffer=fresh}",
        ],
        full: &[],
        cost: Per::ByteOfSize,
        calls: &["read"],
        about: "`read` from a Unix stream socket of bytes that are already in its queue",
        source: "own: one half of unix.transfer, for applications that are at one end",
        prepare: receive,
    },
    Row {
        quick: &["udp.send{size=64B|4KiB|32KiB}"],
        full: &[],
        cost: Per::ByteOfSize,
        calls: &["write"],
        about: "`write` of a datagram to a connected UDP socket over loopback, with its way into the peer's \
                queue; read there untimed",
        source: "own: one half of udp.round_trip, without the wake-up",
        prepare: send,
    },
    Row {
        quick: &["udp.receive{size=64B|4KiB|32KiB}"],
        full: &[],
        cost: Per::ByteOfSize,
        calls: &["read"],
        about: "`read` from a UDP socket of a datagram that is already in its queue",
        source: "own: one half of udp.round_trip, without the wake-up",
        prepare: receive,
    },
];

/// Bytes of the longest batch, and the size of the kernel's buffer that is requested for it: a millisecond of
/// the fastest transfers.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Pieces of the longest batch: a millisecond of the smallest transfers.
const PIECES_MAX: usize = 1024;

/// Prepares `write` of one piece.
fn send(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Steps::of(Send(OneWay::of(id, setting)?))))
}

/// Prepares `read` of one piece that was written before.
fn receive(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Steps::of(Receive(OneWay::of(id, setting)?))))
}

/// A channel in one direction, with a buffer for several pieces.
struct OneWay {
    input: OwnedFd,
    output: OwnedFd,
    pieces: Pieces,
    /// The bytes of the untimed half.
    untimed: Vec<u8>,
    /// Number of pieces that the buffer holds for certain.
    longest: u64,
}

impl OneWay {
    fn of(id: &PrimitiveId, setting: &mut Setting) -> Result<Self, Refusal> {
        let size_max = if id.family() == "udp" { Size(BYTES_MAX.into()) } else { Size::mib(1) };
        let size = limit::size(id, Size(1)..=size_max)?;
        let (input, output) = match id.family() {
            "pipe" => pipe(),
            "unix" => unix(),
            _ => udp(),
        }?;
        // A full or an empty buffer is an error. Waiting would not end, because both ends are here.
        for end in [&input, &output] {
            rustix::io::ioctl_fionbio(end, true).map_err(io::Error::from)?;
        }
        let pieces = Pieces::of(id, setting)?;
        let mut one_way = Self { input, output, pieces, untimed: vec![0; size], longest: 0 };
        // Half of what fitted once: the kernel's own structures in the buffer do not always take as much.
        one_way.longest = one_way.fitting()? / 2;
        if one_way.longest >= 2 {
            return Ok(one_way);
        }
        Err(Refusal::Unavailable(format!(
            "batches of two pieces of {} do not fit into the buffer that this user may have; choose a smaller \
             size, or run as root",
            Size(size as u64)
        )))
    }

    /// Returns the number of pieces that fit into the buffer, at most those of twice the longest batch.
    fn fitting(&mut self) -> io::Result<u64> {
        let size = self.untimed.len();
        for _ in 0..2 * (BATCH_BYTES_MAX / size).clamp(2, PIECES_MAX) {
            match rustix::io::write(&self.output, &self.untimed) {
                Ok(written) if written == size => {}
                // A piece that does not fit as a whole.
                Ok(_) | Err(rustix::io::Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        // A datagram that does not fit is dropped without an error, so only what arrives counts.
        Ok(self.drain()? / size as u64)
    }

    /// Empties the buffer. Returns the bytes that were in it.
    fn drain(&mut self) -> io::Result<u64> {
        let mut drained = 0;
        loop {
            match rustix::io::read(&self.input, &mut self.untimed) {
                Ok(got) if got > 0 => drained += got as u64,
                Ok(_) => return Err(io::Error::other("the channel has ended")),
                Err(rustix::io::Errno::AGAIN) => return Ok(drained),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Empties the buffer. Fails unless this number of pieces was in it.
    fn drain_pieces(&mut self, due: u64) -> io::Result<()> {
        let (bytes, due) = (self.drain()?, due * self.untimed.len() as u64);
        if bytes == due {
            Ok(())
        } else {
            Err(io::Error::other(format!("the channel contained {bytes} bytes instead of {due}")))
        }
    }
}

/// Bytes that a new pipe holds.
const PIPE_BYTES: usize = 64 << 10;

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (input, output) = one_pipe()?;
    // The most that this user may have: the kernel rejects more. If it rejects all, the pipe keeps its size.
    let mut size = BATCH_BYTES_MAX;
    while size > PIPE_BYTES && enlarge_pipe(output.as_fd(), size).is_err() {
        size /= 2;
    }
    Ok((input, output))
}

fn unix() -> io::Result<(OwnedFd, OwnedFd)> {
    let (output, input) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // If this fails, the buffer holds fewer pieces.
    let _ = enlarge_sender(output.as_fd(), BATCH_BYTES_MAX);
    Ok((input, output))
}

fn udp() -> io::Result<(OwnedFd, OwnedFd)> {
    let (output, input) = udp_pair()?;
    // As above.
    let _ = enlarge_receiver(input.as_fd(), BATCH_BYTES_MAX);
    Ok((input.into(), output.into()))
}

/// Writes pieces; a batch is read after it.
struct Send(OneWay);

impl Step for Send {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let piece = self.0.pieces.next();
        // SAFETY: the pointer and the length are those of a slice.
        let sent = unsafe { libc::write(self.0.output.as_raw_fd(), piece.as_ptr().cast(), piece.len()) };
        expect("write", sent, piece.len())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.0.drain_pieces(operations)
    }

    fn max_batch(&self) -> u64 {
        self.0.longest
    }
}

/// Reads pieces; a batch is written before it.
struct Receive(OneWay);

impl Step for Receive {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            let sent = rustix::io::write(&self.0.output, &self.0.untimed)?;
            expect("write", sent.cast_signed(), self.0.untimed.len())?;
        }
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let piece = self.0.pieces.next();
        // SAFETY: the pointer and the length are those of a slice that is borrowed mutably.
        let got = unsafe { libc::read(self.0.input.as_raw_fd(), piece.as_mut_ptr().cast(), piece.len()) };
        expect("read", got, piece.len())
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        self.0.drain_pieces(0)
    }

    fn max_batch(&self) -> u64 {
        self.0.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::kernel::set_option;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    fn a_channel((input, output): (OwnedFd, OwnedFd), size: usize) -> OneWay {
        for end in [&input, &output] {
            rustix::io::ioctl_fionbio(end, true).unwrap();
        }
        let pieces = Pieces::reused(size, &mut Pcg64Mcg::seed_from_u64(1)).unwrap();
        OneWay { input, output, pieces, untimed: vec![0; size], longest: 2 }
    }

    #[test]
    fn only_whole_pieces_that_arrive_count_as_fitting() {
        let (input, output) = one_pipe().unwrap();
        enlarge_pipe(output.as_fd(), 64 << 10).unwrap();
        let mut pipe = a_channel((input, output), 20 << 10);
        assert_eq!(pipe.fitting().unwrap(), 3, "a fourth piece of 20 KiB does not fit into 64 KiB");
        let (output, input) = udp_pair().unwrap();
        set_option(input.as_fd(), (libc::SOL_SOCKET, libc::SO_RCVBUF), 64 << 10).unwrap();
        let mut udp = a_channel((input.into(), output.into()), 32 << 10);
        let fitting = udp.fitting().unwrap();
        assert!((1..=4).contains(&fitting), "{fitting} datagrams of 32 KiB fit into twice 64 KiB");
    }

    #[test]
    fn bytes_that_are_missing_or_left_over_are_an_error() {
        let mut send = Send(a_channel(unix().unwrap(), 100));
        send.step().unwrap();
        let error = send.disarm(2).unwrap_err().to_string();
        assert_eq!(error, "the channel contained 100 bytes instead of 200");
        let mut receive = Receive(a_channel(unix().unwrap(), 100));
        receive.arm(2).unwrap();
        receive.step().unwrap();
        let error = receive.disarm(2).unwrap_err().to_string();
        assert_eq!(error, "the channel contained 100 bytes instead of 0");
        receive.arm(1).unwrap();
        receive.step().unwrap();
        receive.disarm(1).unwrap();
    }
}
