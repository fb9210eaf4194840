//! Waiting for many descriptors by `select`, `poll` and `epoll`, by their number and kind (lmbench 3,
//! lat_select).
//!
//! Regular files are always ready, so a wait returns all of them. Of the connections one is ready, chosen at
//! random: a wait that returns exactly this one has checked all. Every descriptor is a separate open file or
//! connection, whereas lmbench uses duplicates of one, whose state is therefore always in the cache.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use assay_quantity::{Key, PrimitiveId};
use rand::RngExt;
use rustix::event::epoll;
use rustix::io::fcntl_dupfd_cloexec;

use super::event::{EVENTS, NO_EVENT, wait};
use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::{self, expect};
use crate::primitive::kit::limit;
use crate::primitive::kit::scratch::Scratch;
use crate::primitive::kit::socket::{Listener, reset_on_close};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["select.wait{descriptor=file|tcp,descriptors=10|100}"],
        full: &["select.wait{descriptor=file|tcp,descriptors=10|100|250|500}"],
        cost: Per::Operation,
        calls: &["select", "pselect6"],
        about: "`select` for reading, with the copy of the set that every caller makes; all files are ready, \
                but only one connection",
        source: "lmbench 3, lat_select",
        prepare: select,
    },
    Row {
        quick: &["poll.wait{descriptor=tcp,descriptors=10|100}"],
        full: &["poll.wait{descriptor=file|tcp,descriptors=10|100|250|500}"],
        cost: Per::Operation,
        calls: &["poll", "ppoll"],
        about: "`poll` for reading; all files are ready, but only one connection",
        source: "lmbench 3, lat_select, by poll",
        prepare: poll,
    },
    Row {
        quick: &["epoll.wait{descriptor=tcp,descriptors=10|100}"],
        full: &["epoll.wait{descriptor=tcp,descriptors=10|100|250|500}"],
        cost: Per::Operation,
        calls: &["epoll_wait", "epoll_pwait"],
        about: "`epoll_wait` on this number of registered connections, one of which is ready",
        source: "lmbench 3, lat_select, by epoll, which takes no regular files",
        prepare: epoll_wait,
    },
];

/// Descriptors to wait for, all below [`libc::FD_SETSIZE`], and which of them are ready.
struct Watched {
    descriptors: Vec<OwnedFd>,
    ready: Ready,
    /// The other ends of connections.
    _peers: Vec<OwnedFd>,
    _scratch: Option<Scratch>,
}

#[derive(Clone, Copy)]
enum Ready {
    All,
    /// This one, by its position.
    One(usize),
}

/// Descriptors that the process uses for other purposes.
const OTHERS: u64 = 64;

impl Watched {
    fn of(id: &PrimitiveId, setting: &mut Setting) -> Result<Self, Refusal> {
        // Descriptors of select are below FD_SETSIZE; every connection has a peer with a higher number.
        let most = (libc::FD_SETSIZE as u64 - OTHERS)
            .min(kernel::raise_descriptor_limit().saturating_sub(OTHERS) / 2);
        let count = limit::count(id, Key::Descriptors, 1..=most)?;
        if id.word(Key::Descriptor) == "file" {
            return Ok(Self::files(count, setting)?);
        }
        Ok(Self::connections(count, setting)?)
    }

    fn files(count: usize, setting: &mut Setting) -> io::Result<Self> {
        let scratch = Scratch::with_bytes(setting, 1)?;
        let open = || File::open(scratch.path()).map(OwnedFd::from);
        let descriptors = (0..count).map(|_| open()).collect::<io::Result<_>>()?;
        Ok(Self { descriptors, ready: Ready::All, _peers: Vec::new(), _scratch: Some(scratch) })
    }

    fn connections(count: usize, setting: &mut Setting) -> io::Result<Self> {
        let listener = Listener::open(1)?;
        let (mut descriptors, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (here, there) = listener.pair()?;
            reset_on_close(here.as_fd())?;
            // Moves the peer to a high number, so that the watched ends have the lowest ones.
            peers.push(fcntl_dupfd_cloexec(&there, libc::FD_SETSIZE.try_into().map_err(io::Error::other)?)?);
            descriptors.push(here);
        }
        let ready = setting.rng.random_range(0..count);
        rustix::io::write(&peers[ready], &[1])?;
        Ok(Self { descriptors, ready: Ready::One(ready), _peers: peers, _scratch: None })
    }

    fn numbers(&self) -> impl Iterator<Item = RawFd> {
        self.descriptors.iter().map(AsRawFd::as_raw_fd)
    }

    /// The positions of the ready descriptors.
    fn ready(&self) -> std::ops::Range<usize> {
        match self.ready {
            Ready::All => 0..self.descriptors.len(),
            Ready::One(position) => position..position + 1,
        }
    }
}

/// The set of `select`, in words, as the kernel reads it.
type Set = [libc::c_ulong; libc::FD_SETSIZE / WORD_BITS];

const WORD_BITS: usize = libc::c_ulong::BITS as usize;

fn set_of(descriptors: impl Iterator<Item = RawFd>) -> io::Result<Set> {
    let mut set: Set = [0; _];
    for descriptor in descriptors {
        let bit = usize::try_from(descriptor).map_err(io::Error::other)?;
        let word =
            set.get_mut(bit / WORD_BITS).ok_or_else(|| io::Error::other("a descriptor beyond FD_SETSIZE"))?;
        *word |= 1 << (bit % WORD_BITS);
    }
    Ok(set)
}

/// Prepares `select` for reading, including the copy of the set that every caller has to make.
fn select(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let watched = Watched::of(id, setting)?;
    let asked = set_of(watched.numbers())?;
    let due =
        set_of(watched.numbers().enumerate().filter(|(at, _)| watched.ready().contains(at)).map(|(_, n)| n))?;
    let highest = watched.numbers().max().unwrap_or(0);
    Ok(Prepared::repeat(move || {
        let mut set = asked;
        let mut no_time = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let none = std::ptr::null_mut();
        // SAFETY: the set is as long as the kernel's, and the pointers are to variables that outlive the
        // call.
        let found = unsafe { libc::select(highest + 1, (&raw mut set).cast(), none, none, &raw mut no_time) };
        expect("select", found as isize, watched.ready().len())?;
        if set == due {
            Ok(())
        } else {
            Err(io::Error::other("select returned other descriptors than the ready ones"))
        }
    }))
}

/// Prepares `poll` for reading.
fn poll(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let watched = Watched::of(id, setting)?;
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut entries: Vec<libc::pollfd> = watched.numbers().map(entry).collect();
    let (first, length) = (watched.ready().start, entries.len() as libc::nfds_t);
    Ok(Prepared::repeat(move || {
        entries[first].revents = 0;
        // SAFETY: the pointer and the length are those of a vector that is borrowed mutably.
        let found = unsafe { libc::poll(entries.as_mut_ptr(), length, 0) };
        expect("poll", found as isize, watched.ready().len())?;
        if entries[first].revents == libc::POLLIN {
            Ok(())
        } else {
            Err(io::Error::other("poll returned other descriptors than the ready ones"))
        }
    }))
}

/// Prepares `epoll_wait` on registered connections.
fn epoll_wait(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let watched = Watched::of(id, setting)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
    let salt: u64 = setting.rng.random();
    for (position, descriptor) in watched.descriptors.iter().enumerate() {
        let token = epoll::EventData::new_u64(salt.wrapping_add(position as u64));
        epoll::add(&poll, descriptor, token, epoll::EventFlags::IN).map_err(io::Error::from)?;
    }
    let due = salt.wrapping_add(watched.ready().start as u64);
    let mut events = [NO_EVENT; EVENTS];
    Ok(Prepared::repeat(move || {
        events[0].u64 = !due;
        wait(&poll, &mut events, watched.ready().len())?;
        if events[0].u64 == due { Ok(()) } else { Err(io::Error::other("epoll_wait returned another event")) }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_one_bit_for_each_descriptor_and_none_beyond_its_size() {
        let set = set_of([0, 63, 64, 1023].into_iter()).unwrap();
        assert_eq!(set.iter().map(|word| word.count_ones()).sum::<u32>(), 4);
        assert_eq!((set[0], set[1], set[15]), (1 | 1 << 63, 1, 1 << 63));
        assert!(set_of([1024].into_iter()).is_err());
        assert!(set_of([-1].into_iter()).is_err());
    }
}
