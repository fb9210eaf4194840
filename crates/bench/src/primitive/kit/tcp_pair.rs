//! Both ends of a TCP connection over the loopback interface, and the ways to write bytes to it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use assay_quantity::Size;

use super::scratch::CachedFile;
use super::socket::{Listener, reset_on_close, segment_bytes};
use crate::benchmark::Refusal;
use crate::platform::kernel::{check, expect, set_option};

/// A connection with both ends in this process. It is closed with a reset, so that no port stays occupied.
pub(crate) struct Wire {
    sender: OwnedFd,
    receiver: OwnedFd,
}

/// Bytes of the first segment of a `writev`: a response head.
pub(crate) const HEADER_BYTES: usize = 256;

/// Number of attempts with one batch length: the windows of both sides double with each.
const ATTEMPTS: u32 = 8;

/// Number of checks of [`Wire::check_arrived`] for expected bytes, a millisecond apart: enough for ksoftirqd,
/// and far less than the 200 ms after which the kernel itself sends corked bytes.
const LOOKS: u32 = 20;

/// The option that holds back bytes that do not fill a segment.
const CORK: (libc::c_int, libc::c_int) = (libc::IPPROTO_TCP, libc::TCP_CORK);

/// Sizes of what a connection with `TCP_CORK` holds back: fewer bytes than the 65483 of a loopback segment,
/// in no more pages than the fragments of a socket buffer can reference (17), because a second segment would
/// cause the first one to be sent.
pub(crate) const HELD_SIZES: std::ops::RangeInclusive<Size> = Size(1)..=Size::kib(62);

/// Request for the number of bytes that have not been sent (`linux/sockios.h`).
const SIOCOUTQNSD: libc::Ioctl = 0x894b;

impl Wire {
    /// Opens a new connection and requests `buffer_bytes` on both sides.
    pub(crate) fn open(buffer_bytes: i32) -> io::Result<Self> {
        let listener = Listener::with_buffers(1, Some(buffer_bytes))?;
        let (sender, receiver) = listener.pair_with_buffers(buffer_bytes)?;
        // A full buffer is an error of the benchmark. Waiting would not end, because this process is the
        // reader.
        rustix::io::ioctl_fionbio(&sender, true)?;
        reset_on_close(sender.as_fd())?;
        Ok(Self { sender, receiver })
    }

    /// Returns the same connection in the other direction.
    pub(crate) fn reversed(&self) -> io::Result<Self> {
        Ok(Self { sender: self.receiver.try_clone()?, receiver: self.sender.try_clone()? })
    }

    /// Selects Reno for congestion control.
    pub(crate) fn use_reno(&self) -> io::Result<()> {
        rustix::net::sockopt::set_tcp_congestion(&self.sender, "reno")?;
        Ok(())
    }

    /// Sends and drains increasingly long batches of pieces until twice `longest` arrive without a reader, or
    /// a length does not arrive in several attempts. In both cases the limit may be near, and it moves with
    /// the kernel's tuning of buffers, so half of the length that arrived is used. Returns the pieces of the
    /// longest batch, at least two; `None` if not even twice as many arrive.
    pub(crate) fn open_window(&self, size: usize, longest: usize) -> io::Result<Option<u64>> {
        let piece = vec![0; size];
        let mut pieces = 1;
        while pieces < 2 * longest {
            let next = (2 * pieces).min(2 * longest);
            let mut arrives = false;
            for _ in 0..ATTEMPTS {
                arrives = arrives || self.arrives_at_once(&piece, next)?;
            }
            if !arrives {
                break;
            }
            pieces = next;
        }
        let kept = pieces as u64 / 2;
        Ok((kept >= 2).then_some(kept))
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

    /// Sends and drains until a segment holds more than this many bytes: a connection begins with segments of
    /// half its first window.
    pub(crate) fn open_segment(&self, bytes: usize) -> Result<(), Refusal> {
        let piece = vec![0; bytes];
        for _ in 0..=ATTEMPTS {
            if segment_bytes(self.sender.as_fd())? > bytes {
                return Ok(());
            }
            self.arrives_at_once(&piece, 1)?;
        }
        Err(Refusal::Unavailable(format!(
            "no segment of the loopback interface holds more than {bytes} bytes, so TCP_CORK does not hold them \
             back"
        )))
    }

    /// Holds back bytes that do not fill a segment from now on.
    pub(crate) fn cork(&self) -> io::Result<()> {
        set_option(self.sender.as_fd(), CORK, 1)
    }

    /// Sends the bytes that were held back.
    #[inline]
    pub(crate) fn uncork(&self) -> io::Result<()> {
        set_option(self.sender.as_fd(), CORK, 0)
    }

    /// Checks that this many bytes are held back at the sender.
    pub(crate) fn check_held_back(&self, bytes: usize) -> io::Result<()> {
        let mut unsent: libc::c_int = 0;
        // SAFETY: the pointer is to a local that outlives the call.
        let result = unsafe { libc::ioctl(self.sender.as_raw_fd(), SIOCOUTQNSD, &raw mut unsent) };
        check("ioctl", result)?;
        if usize::try_from(unsent) == Ok(bytes) {
            Ok(())
        } else {
            Err(io::Error::other(format!("expected {bytes} bytes to be held back, found {unsent}")))
        }
    }

    /// Writes a piece with `write`.
    #[inline]
    pub(crate) fn write(&self, piece: &[u8]) -> io::Result<()> {
        // SAFETY: the pointer and the length are those of a slice.
        let sent = unsafe { libc::write(self.sender.as_raw_fd(), piece.as_ptr().cast(), piece.len()) };
        expect("write", sent, piece.len())
    }

    /// Writes a piece with `writev` in two segments: a header and the rest. A piece that is not longer than a
    /// header is one segment.
    #[inline]
    pub(crate) fn write_segments(&self, piece: &[u8]) -> io::Result<()> {
        let (header, body) = piece.split_at(HEADER_BYTES.min(piece.len()));
        let segment =
            |part: &[u8]| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
        let segments = [segment(header), segment(body)];
        let count = if body.is_empty() { 1 } else { 2 };
        // SAFETY: the segments describe slices that outlive the call, which only reads them.
        let sent = unsafe { libc::writev(self.sender.as_raw_fd(), segments.as_ptr(), count) };
        expect("writev", sent, piece.len())
    }

    /// Sends the next part of a file with `sendfile`.
    #[inline]
    pub(crate) fn send_file(&self, file: &mut CachedFile, size: usize) -> io::Result<()> {
        let mut at = file.advance(size);
        // SAFETY: the pointer is to a local that outlives the call.
        let sent = unsafe { libc::sendfile(self.sender.as_raw_fd(), file.descriptor(), &raw mut at, size) };
        expect("sendfile", sent, size)
    }

    /// Reads a waiting piece with `read`.
    #[inline]
    pub(crate) fn read(&self, piece: &mut [u8]) -> io::Result<()> {
        // SAFETY: the pointer and the length are those of a slice that is borrowed mutably.
        let got = unsafe { libc::read(self.receiver.as_raw_fd(), piece.as_mut_ptr().cast(), piece.len()) };
        expect("read", got, piece.len())
    }

    /// Checks that this many bytes wait at the receiver. Waits for expected bytes, because the kernel leaves
    /// their delivery to ksoftirqd under load; for 0 bytes it checks once.
    pub(crate) fn check_arrived(&self, bytes: u64) -> io::Result<()> {
        self.check_arrived_within(if bytes == 0 { 1 } else { LOOKS }, bytes)
    }

    fn check_arrived_within(&self, looks: u32, bytes: u64) -> io::Result<()> {
        let mut arrived = rustix::io::ioctl_fionread(&self.receiver)?;
        for _ in 1..looks {
            if arrived >= bytes {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
            arrived = rustix::io::ioctl_fionread(&self.receiver)?;
        }
        if arrived == bytes {
            Ok(())
        } else {
            Err(io::Error::other(format!("expected {bytes} bytes at the receiver, found {arrived}")))
        }
    }

    /// Removes this many bytes from the receiver's queue without copying them.
    pub(crate) fn drain(&self, bytes: u64) -> io::Result<()> {
        let mut left = usize::try_from(bytes).map_err(io::Error::other)?;
        while left > 0 {
            // SAFETY: for TCP, MSG_TRUNC discards the bytes and writes to no buffer (tcp(7)).
            let got =
                unsafe { libc::recv(self.receiver.as_raw_fd(), std::ptr::null_mut(), left, libc::MSG_TRUNC) };
            match usize::try_from(check("recv", got)?) {
                Ok(got) if got > 0 => left -= got.min(left),
                _ => return Err(io::Error::other(format!("the connection ended with {left} bytes missing"))),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_bytes_are_awaited_and_too_few_or_too_many_are_an_error() {
        let wire = Wire::open(1 << 16).unwrap();
        wire.check_arrived(0).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(2));
                wire.write(&[1; 100]).unwrap();
            });
            wire.check_arrived_within(60_000, 100).unwrap();
        });
        for wrong in [0, 99, 101] {
            let error = wire.check_arrived(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("expected {wrong} bytes at the receiver, found 100")), "{error}");
        }
    }
}
