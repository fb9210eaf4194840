//! The system calls of an event loop besides transfers: waiting, registration, and setting options.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use assay_quantity::PrimitiveId;
use rand::RngExt;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::net::sockopt::{set_tcp_nodelay, tcp_nodelay};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::{check, expect, set_option};
use crate::primitive::kit::socket::{Listener, NO_DELAY};
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["epoll.wait_ready"],
        full: &[],
        cost: Per::Operation,
        calls: &["epoll_wait", "epoll_pwait"],
        about: "`epoll_wait` for up to 64 events with its one descriptor ready",
        source: "own: event loops",
        prepare: wait_ready,
    },
    Row {
        quick: &["epoll.ctl"],
        full: &[],
        cost: Per::Operation,
        calls: &["epoll_ctl"],
        about: "`epoll_ctl` of a TCP socket, alternately `ADD` and `DEL`, as for every connection of a \
                server",
        source: "own: event loops",
        prepare: control,
    },
    Row {
        quick: &["socket.setsockopt"],
        full: &[],
        cost: Per::Operation,
        calls: &["setsockopt"],
        about: "`setsockopt(TCP_NODELAY)` on an established connection",
        source: "own: an option that servers set on every connection",
        prepare: set_socket_option,
    },
];

/// Maximum number of events that one wait returns, as requested by servers.
pub(super) const EVENTS: usize = 64;

pub(super) const NO_EVENT: libc::epoll_event = libc::epoll_event { events: 0, u64: 0 };

/// `epoll_wait` on one descriptor, which is ready.
fn wait_ready(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
    // A counter that is not zero stays ready until it is read.
    let ready = eventfd(1, EventfdFlags::CLOEXEC).map_err(io::Error::from)?;
    let token: u64 = setting.rng.random();
    epoll::add(&poll, &ready, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
        .map_err(io::Error::from)?;
    let mut events = [NO_EVENT; EVENTS];
    Ok(Prepared::repeat(move || {
        let _open = &ready;
        events[0].u64 = !token;
        wait(&poll, &mut events, 1)?;
        if events[0].u64 == token {
            Ok(())
        } else {
            Err(io::Error::other("epoll_wait returned a wrong event"))
        }
    }))
}

/// Calls `epoll_wait`, which must return `due` events immediately.
#[inline]
pub(super) fn wait(poll: &OwnedFd, events: &mut [libc::epoll_event; EVENTS], due: usize) -> io::Result<()> {
    // SAFETY: the kernel writes at most 64 events into an array of 64.
    let found = unsafe { libc::epoll_wait(poll.as_raw_fd(), events.as_mut_ptr(), 64, 0) };
    expect("epoll_wait", found as isize, due)
}

/// One `epoll_ctl`. Half of them add a TCP socket, half of them remove it again, as a server does once for
/// every connection.
fn control(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
    let (socket, peer) = Listener::open(1)?.pair()?;
    let interest = libc::EPOLLIN.cast_unsigned() | libc::EPOLLRDHUP.cast_unsigned();
    let event = libc::epoll_event { events: interest, u64: setting.rng.random() };
    Ok(Prepared::alone(Steps::of(Control { poll, socket, peer, event, next: libc::EPOLL_CTL_ADD })))
}

struct Control {
    poll: OwnedFd,
    socket: OwnedFd,
    peer: OwnedFd,
    event: libc::epoll_event,
    next: libc::c_int,
}

impl Control {
    #[inline]
    fn control(&mut self, change: libc::c_int) -> io::Result<()> {
        let (poll, socket) = (self.poll.as_raw_fd(), self.socket.as_raw_fd());
        // SAFETY: the pointer is to a field that outlives the call.
        check("epoll_ctl", unsafe { libc::epoll_ctl(poll, change, socket, &raw mut self.event) }).map(drop)
    }
}

impl Step for Control {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.control(self.next)?;
        self.next = if self.next == libc::EPOLL_CTL_ADD { libc::EPOLL_CTL_DEL } else { libc::EPOLL_CTL_ADD };
        Ok(())
    }

    /// Checks that the kernel executes the calls: the socket, now readable, is not found before it is added,
    /// is found while it is registered, and is not found after it is removed.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        let mut events = [NO_EVENT; EVENTS];
        rustix::io::write(&self.peer, &[1])?;
        wait(&self.poll, &mut events, 0)?;
        self.control(libc::EPOLL_CTL_ADD)?;
        wait(&self.poll, &mut events, 1)?;
        self.control(libc::EPOLL_CTL_DEL)?;
        wait(&self.poll, &mut events, 0)?;
        rustix::io::read(&self.socket, &mut [0])?;
        let (found, token) = (events[0].u64, self.event.u64);
        if found == token { Ok(()) } else { Err(io::Error::other("epoll_wait returned a wrong event")) }
    }

    fn granule(&self) -> u64 {
        2
    }
}

/// `setsockopt(TCP_NODELAY)` on an established connection.
fn set_socket_option(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let (socket, peer) = Listener::open(1)?.pair()?;
    Ok(Prepared::alone(Steps::of(SetOption { socket, _peer: peer })))
}

struct SetOption {
    socket: OwnedFd,
    _peer: OwnedFd,
}

impl Step for SetOption {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        Ok(set_tcp_nodelay(&self.socket, false)?)
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        set_option(self.socket.as_fd(), NO_DELAY, 1)
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        if tcp_nodelay(&self.socket)? {
            Ok(())
        } else {
            Err(io::Error::other("setsockopt did not set TCP_NODELAY"))
        }
    }
}
