//! Calls on descriptors without blocking that fail with `EAGAIN`, because nothing waits to be read or
//! accepted: how event loops find the end of what has arrived.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use assay_quantity::PrimitiveId;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::expect_error;
use crate::primitive::kit::duplex::one_pipe;
use crate::primitive::kit::socket::Listener;
use crate::primitive::kit::udp_pair::udp_pair;

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["tcp.receive_empty"],
        full: &[],
        cost: Per::Operation,
        calls: &["read"],
        about: "`read` from a non-blocking TCP socket with an empty queue, which fails with `EAGAIN`",
        source: "own: how event-driven servers find the end of a request's bytes",
        prepare: receive,
    },
    Row {
        quick: &["unix.receive_empty"],
        full: &[],
        cost: Per::Operation,
        calls: &["read"],
        about: "`read` from a non-blocking Unix stream socket with an empty queue, which fails with `EAGAIN`",
        source: "own: how event-driven servers find the end of a request's bytes",
        prepare: receive,
    },
    Row {
        quick: &["udp.receive_empty"],
        full: &[],
        cost: Per::Operation,
        calls: &["read"],
        about: "`read` from a non-blocking UDP socket with an empty queue, which fails with `EAGAIN`",
        source: "own: how servers of datagrams find that all have been read",
        prepare: receive,
    },
    Row {
        quick: &["pipe.read_empty"],
        full: &[],
        cost: Per::Operation,
        calls: &["read"],
        about: "`read` from a non-blocking pipe without bytes, which fails with `EAGAIN`",
        source: "own: how event loops empty the pipe that wakes them",
        prepare: receive,
    },
    Row {
        quick: &["tcp.accept_empty"],
        full: &[],
        cost: Per::Operation,
        calls: &["accept4"],
        about: "`accept4` on a non-blocking TCP listener without waiting connections, which fails with \
                `EAGAIN`",
        source: "own: how servers find that all connections have been accepted",
        prepare: accept,
    },
];

/// Bytes that a `read` requests, as servers do for a request.
const REQUESTED: usize = 4096;

/// Prepares `read` from a channel whose other end sends nothing.
fn receive(id: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let (input, output) = open(id.family())?;
    rustix::io::ioctl_fionbio(&input, true).map_err(io::Error::from)?;
    let mut into = [0; REQUESTED];
    Ok(Prepared::repeat(move || {
        let _open = &output;
        read_empty(input.as_fd(), &mut into)
    }))
}

/// Opens a channel. Returns the end to read from, and the other one.
fn open(family: &str) -> io::Result<(OwnedFd, OwnedFd)> {
    match family {
        "tcp" => Listener::open(1)?.pair(),
        "unix" => Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?),
        "udp" => udp_pair().map(|(here, there)| (here.into(), there.into())),
        _ => one_pipe(),
    }
}

/// Calls `read`, which must fail because nothing waits.
#[inline]
fn read_empty(input: BorrowedFd<'_>, into: &mut [u8; REQUESTED]) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of an array that is borrowed mutably.
    let got = unsafe { libc::read(input.as_raw_fd(), into.as_mut_ptr().cast(), into.len()) };
    expect_error("read", got, libc::EAGAIN)
}

/// Prepares `accept4` on a listener that no client connects to.
fn accept(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let listener = Listener::open(1)?;
    Ok(Prepared::repeat(move || expect_error("accept4", listener.accepted(), libc::EAGAIN)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitive::kit::socket::write;
    use rustix::event::{PollFd, PollFlags, poll};

    #[test]
    fn a_read_is_empty_only_without_bytes_and_while_the_other_end_is_open() {
        for family in ["tcp", "unix", "pipe"] {
            let (input, output) = open(family).unwrap();
            rustix::io::ioctl_fionbio(&input, true).unwrap();
            let mut into = [0; REQUESTED];
            read_empty(input.as_fd(), &mut into).unwrap();
            write(&output, b"bytes").unwrap();
            drop(output);
            for due in ["read returned 5, but must fail", "read returned 0, but must fail"] {
                poll(&mut [PollFd::new(&input, PollFlags::IN)], None).unwrap();
                let error = read_empty(input.as_fd(), &mut into).unwrap_err().to_string();
                assert!(error.starts_with(due), "{family}: {error}");
            }
        }
    }
}
