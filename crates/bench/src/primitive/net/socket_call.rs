//! Calls on sockets that move no bytes: creation, closing, queries.
//!
//! A new socket must have the lowest free number, as the kernel guarantees (open(2)), and after a batch that
//! number must be free again: a call that only returns success is detected.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};

use assay_quantity::PrimitiveId;

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, expect_done};
use crate::platform::kernel::{check, size_of_u32};
use crate::primitive::kit::socket::{Listener, NO_DELAY};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["tcp.socket_close"],
        full: &[],
        cost: Per::Operation,
        calls: &["socket", "close"],
        about: "creation of a TCP socket by `socket`, and `close`",
        source: "own: a connection's lifetime without the connection",
        prepare: socket_close,
    },
    Row {
        quick: &[],
        full: &["unix.socketpair_close"],
        cost: Per::Operation,
        calls: &["socketpair", "close"],
        about: "creation of two Unix stream sockets by `socketpair`, and `close` of both",
        source: "own: how a process gets a channel to its parent",
        prepare: socketpair_close,
    },
    Row {
        quick: &[],
        full: &["socket.getsockopt"],
        cost: Per::Operation,
        calls: &["getsockopt"],
        about: "`getsockopt(TCP_NODELAY)` of an established connection",
        source: "own: a query that servers make for every connection",
        prepare: ask_option,
    },
    Row {
        quick: &[],
        full: &["socket.getpeername"],
        cost: Per::Operation,
        calls: &["getpeername"],
        about: "`getpeername` of an established TCP connection",
        source: "own: a query that servers make for every connection",
        prepare: ask_peer,
    },
];

/// Prepares `socket` and `close`.
fn socket_close(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(MakeAndClose::new(|free| {
        // SAFETY: the call takes numbers only.
        let made = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
        close_as("socket", made, free)
    })))
}

/// Prepares `socketpair` and two calls of `close`.
fn socketpair_close(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(MakeAndClose::new(|free| {
        let mut made: [libc::c_int; 2] = [-1; 2];
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        // SAFETY: the kernel writes two numbers into an array of two.
        let result = unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, made.as_mut_ptr()) };
        check("socketpair", result)?;
        // Closes the second descriptor first, so that the lowest number is free again for the next pair.
        check("socketpair", made[1])?;
        close_as("socketpair", made[1], made[1])?;
        close_as("socketpair", made[0], free)
    })))
}

/// Closes the descriptor that a call has just created. Fails if it does not have the expected number.
#[inline]
fn close_as(call: &'static str, made: RawFd, number: RawFd) -> io::Result<()> {
    check(call, made)?;
    if made != number {
        return Err(io::Error::other(format!(
            "{call} returned descriptor {made}, but the lowest free one is {number}"
        )));
    }
    // SAFETY: the descriptor has just been created and is used nowhere else.
    check("close", unsafe { libc::close(made) }).map(drop)
}

/// Descriptors that are created and immediately closed; the closure receives the lowest free number.
struct MakeAndClose<F> {
    make_and_close: F,
    free: RawFd,
    done: u64,
}

impl<F: FnMut(RawFd) -> io::Result<()>> MakeAndClose<F> {
    fn new(make_and_close: F) -> Self {
        Self { make_and_close, free: -1, done: 0 }
    }
}

impl<F: FnMut(RawFd) -> io::Result<()>> Operation for MakeAndClose<F> {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.free = lowest_free()?;
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            (self.make_and_close)(self.free)?;
        }
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        let free = lowest_free()?;
        if free == self.free {
            Ok(())
        } else {
            Err(io::Error::other(format!(
                "descriptor {} was closed, but the lowest free one is {free}",
                self.free
            )))
        }
    }
}

/// Returns the number that the next descriptor gets.
fn lowest_free() -> io::Result<RawFd> {
    Ok(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?.as_raw_fd())
}

/// Prepares `getsockopt(TCP_NODELAY)` of a connection on which the option is set.
fn ask_option(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let (socket, peer) = Listener::open(1)?.pair()?;
    let (level, option) = NO_DELAY;
    Ok(Prepared::repeat(move || {
        let _open = &peer;
        let mut value: libc::c_int = 0;
        let mut length = size_of_u32::<libc::c_int>();
        // SAFETY: the pointers are to locals of the length given, which outlive the call.
        let result = unsafe {
            libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut length)
        };
        check("getsockopt", result)?;
        if value == 0 { Err(untold("getsockopt")) } else { Ok(()) }
    }))
}

/// Prepares `getpeername`, which must return the port of the other end.
fn ask_peer(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let (socket, peer) = Listener::open(1)?.pair()?;
    let port = match rustix::net::getsockname(&peer).map_err(io::Error::from)?.try_into() {
        Ok(std::net::SocketAddr::V4(address)) => address.port().to_be(),
        _ => return Err(Refusal::Failed(io::Error::other("a TCP socket over loopback has no IPv4 address"))),
    };
    Ok(Prepared::repeat(move || {
        let _open = &peer;
        // SAFETY: zeroes are a valid `sockaddr_in`.
        let mut address: libc::sockaddr_in = unsafe { MaybeUninit::zeroed().assume_init() };
        let mut length = size_of_u32::<libc::sockaddr_in>();
        // SAFETY: the pointers are to locals of the length given, which outlive the call.
        let result =
            unsafe { libc::getpeername(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut length) };
        check("getpeername", result)?;
        if address.sin_port == port { Ok(()) } else { Err(untold("getpeername")) }
    }))
}

#[cold]
fn untold(call: &str) -> io::Error {
    io::Error::other(format!("{call} succeeded, but returned a wrong value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_that_is_not_the_lowest_free_is_an_error() {
        let error = close_as("socket", 0, 7).unwrap_err().to_string();
        assert_eq!(error, "socket returned descriptor 0, but the lowest free one is 7");
        assert!(close_as("socket", -1, 7).unwrap_err().to_string().starts_with("socket: "));
    }
}
