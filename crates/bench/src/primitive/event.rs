//! What an event loop asks of the kernel besides moving bytes: waiting, registering, setting options.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use assay_quantity::PrimitiveId;
use rustix::event::{EventfdFlags, epoll, eventfd};

use super::socket::{Listener, NO_DELAY};
use crate::benchmark::{Operation, Prepared, Refusal, Setting, expect_done};
use crate::kernel::{check, expect, set_option};
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        ids: &["epoll.wait_ready"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["epoll_wait"],
        about: "epoll_wait that finds its one descriptor ready",
        source: "own: event loops",
        prepare: wait_ready,
    },
    Row {
        ids: &["epoll.ctl"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["epoll_ctl"],
        about: "epoll_ctl, half of them ADD and half of them DEL of a TCP socket",
        source: "own: event loops",
        prepare: control,
    },
    Row {
        ids: &["socket.setsockopt"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["setsockopt"],
        about: "setsockopt(TCP_NODELAY) on an established connection",
        source: "own: what servers set on every connection",
        prepare: set_socket_option,
    },
];

/// Events that one wait can return, as servers ask for.
const EVENTS: usize = 64;

/// `epoll_wait` that finds one of one descriptors ready.
fn wait_ready(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
    // A counter that is not zero stays ready, because nobody reads it.
    let ready = eventfd(1, EventfdFlags::CLOEXEC).map_err(io::Error::from)?;
    epoll::add(&poll, &ready, epoll::EventData::new_u64(1), epoll::EventFlags::IN)
        .map_err(io::Error::from)?;
    let mut events = [MaybeUninit::<libc::epoll_event>::uninit(); EVENTS];
    Ok(Prepared::repeat(move || {
        let _open = &ready;
        // SAFETY: the kernel writes at most 64 events into an array of 64.
        let found = unsafe { libc::epoll_wait(poll.as_raw_fd(), events.as_mut_ptr().cast(), 64, 0) };
        expect("epoll_wait", found as isize, 1)
    }))
}

/// One `epoll_ctl`: half of them add a TCP socket, half of them take it out again, because that is what a
/// server does once for every connection.
fn control(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
    let (socket, peer) = Listener::open(1)?.pair()?;
    Ok(Prepared::alone(Control { poll, socket, _peer: peer, done: 0 }))
}

struct Control {
    poll: OwnedFd,
    socket: OwnedFd,
    _peer: OwnedFd,
    done: u64,
}

impl Operation for Control {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        let interest = libc::EPOLLIN.cast_unsigned() | libc::EPOLLRDHUP.cast_unsigned();
        let mut event = libc::epoll_event { events: interest, u64: 1 };
        for _ in 0..operations / 2 {
            for change in [libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_DEL] {
                // SAFETY: the pointer is to a local that outlives the call.
                let result = unsafe {
                    libc::epoll_ctl(self.poll.as_raw_fd(), change, self.socket.as_raw_fd(), &raw mut event)
                };
                check("epoll_ctl", result)?;
            }
        }
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)
    }

    fn granule(&self) -> u64 {
        2
    }
}

/// `setsockopt(TCP_NODELAY)` on an established connection.
fn set_socket_option(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let (socket, peer) = Listener::open(1)?.pair()?;
    Ok(Prepared::repeat(move || {
        let _open = &peer;
        set_option(socket.as_fd(), NO_DELAY, 1)
    }))
}
