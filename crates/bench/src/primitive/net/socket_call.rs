//! Calls on sockets that move no bytes: creation, closing, queries, reading from an empty queue.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use assay_quantity::PrimitiveId;

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::{check, expect_error, size_of_u32};
use crate::primitive::kit::slot::open_and_close;
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
    Row {
        quick: &["tcp.receive_empty"],
        full: &[],
        cost: Per::Operation,
        calls: &["read"],
        about: "`read` from a non-blocking TCP socket with an empty queue, which fails with `EAGAIN`",
        source: "own: how event-driven servers find the end of a request's bytes",
        prepare: receive_empty,
    },
];

/// Prepares `socket` and `close`.
fn socket_close(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes numbers only.
    Ok(open_and_close("socket", move || Ok(unsafe { libc::socket(libc::AF_INET, kind, 0) }))?)
}

/// Prepares `socketpair` and two calls of `close`.
fn socketpair_close(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    Ok(open_and_close("socketpair", move || {
        let mut made: [libc::c_int; 2] = [-1; 2];
        // SAFETY: the kernel writes two numbers into an array of two.
        check("socketpair", unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, made.as_mut_ptr()) })?;
        check("socketpair", made[1])?;
        // SAFETY: the descriptor has just been created and is used nowhere else.
        check("close", unsafe { libc::close(made[1]) })?;
        Ok(made[0])
    })?)
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
        if value == 0 { Err(wrong_value("getsockopt")) } else { Ok(()) }
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
        if address.sin_port == port { Ok(()) } else { Err(wrong_value("getpeername")) }
    }))
}

/// Bytes that a `read` requests, as servers do for a request.
const REQUESTED: usize = 4096;

/// Prepares `read` from a connection whose other end sends nothing.
fn receive_empty(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let (socket, peer) = Listener::open(1)?.pair()?;
    rustix::io::ioctl_fionbio(&socket, true).map_err(io::Error::from)?;
    let mut into = [0; REQUESTED];
    Ok(Prepared::repeat(move || {
        let _open = &peer;
        read_empty(&socket, &mut into)
    }))
}

/// Calls `read`, which must fail because the queue is empty.
#[inline]
fn read_empty(socket: &OwnedFd, into: &mut [u8; REQUESTED]) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of an array that is borrowed mutably.
    let got = unsafe { libc::read(socket.as_raw_fd(), into.as_mut_ptr().cast(), into.len()) };
    expect_error("read", got, libc::EAGAIN)
}

#[cold]
fn wrong_value(call: &str) -> io::Error {
    io::Error::other(format!("{call} succeeded, but returned a wrong value"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitive::kit::socket::write;
    use rustix::event::{PollFd, PollFlags, poll};

    #[test]
    fn a_read_is_empty_only_without_bytes_and_while_the_connection_is_open() {
        let (socket, peer) = Listener::open(1).unwrap().pair().unwrap();
        rustix::io::ioctl_fionbio(&socket, true).unwrap();
        let mut into = [0; REQUESTED];
        read_empty(&socket, &mut into).unwrap();
        write(&peer, b"bytes").unwrap();
        drop(peer);
        for due in ["read returned 5, but must fail", "read returned 0, but must fail"] {
            poll(&mut [PollFd::new(&socket, PollFlags::IN)], None).unwrap();
            let error = read_empty(&socket, &mut into).unwrap_err().to_string();
            assert!(error.starts_with(due), "{error}");
        }
    }
}
