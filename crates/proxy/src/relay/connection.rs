//! A socket that does not block: what it could not send yet, and whether there may be more to read.

use std::borrow::Cow;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

/// One side of the relay.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    /// Bytes that the kernel did not take.
    unsent: Vec<u8>,
    /// Whether there may be something to read. The kernel reports only that something has come.
    readable: bool,
    /// Whether the other end sends nothing more. The kernel reports it once, maybe with the last bytes.
    hung_up: bool,
    /// Why it has ended, if it failed.
    failure: Option<Errno>,
}

/// What a socket had.
#[derive(Debug)]
pub enum Read {
    /// This many bytes.
    Bytes(usize),
    /// Nothing yet.
    Later,
    /// Its end, or an error, after which there is nothing either.
    End,
}

/// While this much is not sent, the other side is not read.
const FULL: usize = 256 << 10;

impl Connection {
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, unsent: Vec::new(), readable: false, hung_up: false, failure: None }
    }

    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Something has come.
    pub fn set_readable(&mut self) {
        self.readable = true;
    }

    /// The other end sends nothing more than what has come.
    pub fn hang_up(&mut self) {
        self.readable = true;
        self.hung_up = true;
    }

    /// Whether the other end sends nothing more.
    pub fn is_hung_up(&self) -> bool {
        self.hung_up
    }

    /// Whether there may be something to read.
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// Returns why it has ended; `None` if the other end has closed it.
    pub fn failure(&self) -> Option<Errno> {
        self.failure
    }

    /// Whether all was sent.
    pub fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Whether the other side has to wait.
    pub fn is_full(&self) -> bool {
        self.unsent.len() >= FULL
    }

    /// Reads what there is, if there may be something.
    pub fn read(&mut self, buffer: &mut [u8]) -> Read {
        while self.readable {
            let space = buffer.len();
            match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((_, 0)) => return Read::End,
                Ok((_, length)) => {
                    // A short read takes all; the kernel reports what comes later (epoll(7)).
                    self.readable = self.hung_up || length == space;
                    return Read::Bytes(length);
                }
                Err(Errno::AGAIN) => self.readable = false,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    self.failure = Some(errno);
                    return Read::End;
                }
            }
        }
        Read::Later
    }

    /// Sends, now or later, in order.
    ///
    /// # Errors
    /// If the other end is gone.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let sent = if self.unsent.is_empty() { self.send_now(bytes)? } else { 0 };
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(())
    }

    /// Sends what was not sent yet.
    ///
    /// # Errors
    /// If the other end is gone.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        let unsent = std::mem::take(&mut self.unsent);
        let sent = self.send_now(&unsent)?;
        self.unsent = unsent;
        self.unsent.drain(..sent);
        if self.unsent.is_empty() {
            self.unsent = Vec::new();
        }
        Ok(())
    }

    /// Sends nothing more.
    pub fn end(&self) {
        // If it is not connected, it has ended.
        let _ = shutdown(&self.socket, Shutdown::Write);
    }

    /// Returns the number of bytes that the kernel took.
    fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            match send(&self.socket, &bytes[sent..], SendFlags::NOSIGNAL) {
                Ok(length) => sent += length,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(sent)
    }
}

/// What was kept of earlier readings, and the last one.
pub fn joined(kept: Vec<u8>, bytes: &[u8]) -> Cow<'_, [u8]> {
    if kept.is_empty() { Cow::Borrowed(bytes) } else { Cow::Owned([&kept, bytes].concat()) }
}
