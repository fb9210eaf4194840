//! Connections in both directions between two processes, of two channels or of one socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};

use crate::platform::kernel::{check, set_option};

/// Creates a pipe and returns its input and output.
pub(crate) fn one_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

/// Requests room for this many bytes in a pipe.
pub(crate) fn enlarge_pipe(output: BorrowedFd<'_>, size: usize) -> io::Result<()> {
    let size = libc::c_int::try_from(size).map_err(io::Error::other)?;
    // SAFETY: the call takes numbers only.
    check("fcntl", unsafe { libc::fcntl(output.as_raw_fd(), libc::F_SETPIPE_SZ, size) }).map(drop)
}

/// Requests room for this many sent bytes that the other end has not read.
pub(crate) fn enlarge_sender(socket: BorrowedFd<'_>, size: usize) -> io::Result<()> {
    enlarge_socket(socket, size, [libc::SO_SNDBUFFORCE, libc::SO_SNDBUF])
}

/// Requests room for this many received bytes.
pub(crate) fn enlarge_receiver(socket: BorrowedFd<'_>, size: usize) -> io::Result<()> {
    enlarge_socket(socket, size, [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF])
}

/// Sets one of two options: the first also works beyond the system's limit, but requires privileges.
fn enlarge_socket(socket: BorrowedFd<'_>, size: usize, options: [libc::c_int; 2]) -> io::Result<()> {
    /// Factor for the kernel's own structures, which it counts in addition to the bytes.
    const ROOM: usize = 2;
    let size = libc::c_int::try_from(ROOM * size).map_err(io::Error::other)?;
    let [force, plain] = options;
    set_option(socket, (libc::SOL_SOCKET, force), size)
        .or_else(|_| set_option(socket, (libc::SOL_SOCKET, plain), size))
}

/// One process's end of a connection in both directions.
pub(crate) struct End {
    input: OwnedFd,
    output: OwnedFd,
}

impl End {
    pub(crate) fn new(input: OwnedFd, output: OwnedFd) -> Self {
        Self { input, output }
    }

    pub(crate) fn of_socket(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self { input: socket.try_clone()?, output: socket })
    }

    /// The ends of two channels in opposite directions, each with an input and an output.
    pub(crate) fn of_two_channels(forth: (OwnedFd, OwnedFd), back: (OwnedFd, OwnedFd)) -> (Self, Self) {
        (Self { input: back.0, output: forth.1 }, Self { input: forth.0, output: back.1 })
    }

    /// Writes a whole message. One call is enough unless the message is longer than the kernel's buffer.
    #[inline]
    pub(crate) fn write(&self, message: &[u8]) -> io::Result<()> {
        let mut rest = message;
        while !rest.is_empty() {
            // SAFETY: the pointer and the length are those of a slice.
            let written = unsafe { libc::write(self.output.as_raw_fd(), rest.as_ptr().cast(), rest.len()) };
            rest = &rest[moved("write", written)?..];
        }
        Ok(())
    }

    /// Reads a whole message.
    #[inline]
    pub(crate) fn read(&self, message: &mut [u8]) -> io::Result<()> {
        let mut rest = message;
        while !rest.is_empty() {
            // SAFETY: the pointer and the length are those of a slice that is borrowed mutably.
            let got = unsafe { libc::read(self.input.as_raw_fd(), rest.as_mut_ptr().cast(), rest.len()) };
            rest = &mut rest[moved("read", got)?..];
        }
        Ok(())
    }
}

/// Returns the number of bytes that a call moved. Fails if it moved none: the stream has ended, or the call
/// did nothing.
#[inline]
fn moved(call: &'static str, result: isize) -> io::Result<usize> {
    match usize::try_from(check(call, result)?) {
        Ok(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(nothing_moved(call)),
    }
}

#[cold]
fn nothing_moved(call: &'static str) -> io::Error {
    io::Error::other(format!("{call} moved no byte: the partner has ended"))
}
