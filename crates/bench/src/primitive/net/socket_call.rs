//! Calls on sockets and pipes that move no bytes: creation, closing, queries.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use assay_quantity::PrimitiveId;

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::{check, own, size_of_u32};
use crate::primitive::kit::slot::open_and_close;
use crate::primitive::kit::socket::{Listener, NO_DELAY, connections_max};
use crate::primitive::kit::step::{Step, Steps};

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
        quick: &["unix.socketpair"],
        full: &[],
        cost: Per::Operation,
        calls: &["socketpair"],
        about: "creation of two Unix stream sockets by `socketpair`; closed untimed",
        source: "own: how a process gets a channel to its parent",
        prepare: socket_pairs,
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
        quick: &["pipe.create_close"],
        full: &[],
        cost: Per::Operation,
        calls: &["pipe2", "close"],
        about: "creation of a pipe by `pipe2`, and `close` of both ends",
        source: "own: how a shell connects two commands",
        prepare: create_pipe_close,
    },
    Row {
        quick: &["socket.getsockopt"],
        full: &[],
        cost: Per::Operation,
        calls: &["getsockopt"],
        about: "`getsockopt(TCP_NODELAY)` of an established connection",
        source: "own: a query that servers make for every connection",
        prepare: ask_option,
    },
    Row {
        quick: &["socket.getpeername"],
        full: &[],
        cost: Per::Operation,
        calls: &["getpeername"],
        about: "`getpeername` of an established TCP connection",
        source: "own: a query that servers make for every connection",
        prepare: ask_peer,
    },
];

/// Prepares `socket` and `close`.
fn socket_close(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes numbers only.
    Ok(open_and_close("socket", move || Ok(unsafe { libc::socket(libc::AF_INET, kind, 0) }))?)
}

/// Prepares `socketpair`.
fn socket_pairs(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Steps::of(SocketPairs { made: Vec::new(), max: connections_max() })))
}

struct SocketPairs {
    made: Vec<[OwnedFd; 2]>,
    max: u64,
}

impl Step for SocketPairs {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        // No batch allocates.
        self.made.reserve(usize::try_from(operations).map_err(io::Error::other)?);
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let mut made = [-1; 2];
        check("socketpair", socket_pair(&mut made))?;
        self.made.push([own("socketpair", made[0])?, own("socketpair", made[1])?]);
        Ok(())
    }

    /// Every call has returned two descriptors, otherwise `step` would have failed.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        self.made.clear();
        Ok(())
    }

    fn max_batch(&self) -> u64 {
        self.max
    }
}

/// Calls `socketpair` and returns its result.
#[inline]
fn socket_pair(made: &mut [RawFd; 2]) -> libc::c_int {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes two numbers into an array of two.
    unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, made.as_mut_ptr()) }
}

/// Prepares `socketpair` and two calls of `close`.
fn socketpair_close(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    open_two_and_close("socketpair", socket_pair)
}

/// Prepares `pipe2` and two calls of `close`.
fn create_pipe_close(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    // SAFETY: the kernel writes two numbers into an array of two.
    open_two_and_close("pipe2", |made| unsafe { libc::pipe2(made.as_mut_ptr(), libc::O_CLOEXEC) })
}

/// Returns an operation that creates two descriptors with a call and closes them.
fn open_two_and_close(
    call: &'static str,
    mut open: impl FnMut(&mut [RawFd; 2]) -> libc::c_int + 'static,
) -> Result<Prepared, Refusal> {
    Ok(open_and_close(call, move || {
        let mut made = [-1; 2];
        check(call, open(&mut made))?;
        check(call, made[1])?;
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

#[cold]
fn wrong_value(call: &str) -> io::Error {
    io::Error::other(format!("{call} succeeded, but returned a wrong value"))
}
