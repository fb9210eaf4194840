//! Connections in both directions between two processes, of two channels or of one socket.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};

use crate::platform::kernel::check;

/// Creates a pipe and returns its input and output.
pub(crate) fn one_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
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
