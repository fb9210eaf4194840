//! What listeners of any kind of socket offer to a benchmark of connections.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::socket::{Listener, check_sent_once, reset};

/// A listener that accepts and counts connections.
pub(crate) trait Endpoint {
    /// Connects a new socket.
    fn connect(&self) -> io::Result<OwnedFd>;

    /// Accepts a waiting connection. Fails immediately if there is none.
    fn accept(&self) -> io::Result<OwnedFd>;

    /// Waits until this number of connections waits to be accepted, if the kernel reports the number.
    fn until_waiting(&self, connections: u64) -> io::Result<()>;

    /// Checks that no connection waits.
    fn check_none_waits(&self) -> io::Result<()>;

    /// Checks that a connection was established at the first attempt.
    fn check_made(client: &OwnedFd) -> io::Result<()>;

    /// Closes a connection completely.
    fn end(client: OwnedFd) -> io::Result<()>;
}

impl Endpoint for Listener {
    #[inline]
    fn connect(&self) -> io::Result<OwnedFd> {
        Listener::connect(self)
    }

    #[inline]
    fn accept(&self) -> io::Result<OwnedFd> {
        Listener::accept(self)
    }

    fn until_waiting(&self, connections: u64) -> io::Result<()> {
        Listener::until_waiting(self, connections)
    }

    fn check_none_waits(&self) -> io::Result<()> {
        Listener::until_waiting(self, 0)
    }

    fn check_made(client: &OwnedFd) -> io::Result<()> {
        check_sent_once(client.as_fd())
    }

    fn end(client: OwnedFd) -> io::Result<()> {
        reset(client)
    }
}
