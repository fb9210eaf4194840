//! The steps of a unit of work: a call, what it was made on, how it ended, and the phase that it belongs to.

use std::sync::LazyLock;

use super::Side;
use crate::{
    descriptor::Descriptor,
    record::{Abi, Call},
    syscall::{self, CALLS, Direction, Kind},
    view::outcomes::Outcome,
};

/// A part of a unit of work, as in the decomposition of a web server (Brown 1997, section 3.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Everything from the creation of the connection to its first request.
    Connect,
    /// Transfers of the request, and other calls on the connection of a client.
    Request,
    /// Files, directories and devices, and calls with a path.
    Files,
    /// Other sockets.
    Sockets,
    /// None of the others: memory, pipes, locks, signals, processes.
    Other,
    /// Transfers of the answer, and other calls on the connection of a server.
    Answer,
    /// Writes to files after the answer began.
    Logging,
    /// Everything from the end of the connection on.
    Close,
    /// For a request: calls that wait for many descriptors, and calls that find no request or connection.
    Wait,
}

impl Phase {
    /// Returns the name for a unit of work of this side.
    #[must_use]
    pub fn name(self, side: Side) -> &'static str {
        match (self, side) {
            (Self::Connect, Side::Answers) => "accept",
            (Self::Connect, Side::Asks) => "connect",
            (Self::Request, _) => "request",
            (Self::Files, _) => "files",
            (Self::Sockets, _) => "other sockets",
            (Self::Other, _) => "other",
            (Self::Answer, _) => "answer",
            (Self::Logging, _) => "logging",
            (Self::Close, _) => "close",
            (Self::Wait, _) => "wait",
        }
    }
}

/// Calls that have the same effect in a unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Step {
    /// The part of the unit of work.
    pub phase: Phase,
    /// The call.
    pub outcome: Outcome,
}

/// What a call does on the connection of its unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It creates it.
    Opens,
    /// It moves bytes.
    Moves(Direction),
    /// It reads nothing because nothing has arrived.
    FindsNothing,
    /// It reads the end of the stream.
    FindsEnd,
    /// It shuts the connection down, closes it, or finds that it is broken.
    Ends,
    /// Something else.
    Adjusts,
}

/// What a call does, beyond its [`syscall::Rule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// It waits for one of many descriptors, or looked for a new connection and found none.
    Waits,
    Accepts,
    Connects,
    /// It creates a socket.
    Creates,
    /// It receives or sends several datagrams; its result is their number.
    MovesMany(Direction),
    Closes,
    ShutsDown,
    /// It waits until a file is on the disk.
    Syncs,
    /// It waits for another thread or wakes it.
    Locks,
    Other,
}

const CLASSES: [(Class, &[&str]); 10] = [
    (Class::Waits, &["epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6"]),
    (Class::Accepts, &["accept", "accept4"]),
    (Class::Connects, &["connect"]),
    (Class::Creates, &["socket"]),
    (Class::MovesMany(Direction::In), &["recvmmsg"]),
    (Class::MovesMany(Direction::Out), &["sendmmsg"]),
    (Class::Closes, &["close"]),
    (Class::ShutsDown, &["shutdown"]),
    (Class::Syncs, &["fsync", "fdatasync"]),
    (Class::Locks, &["futex", "futex_wait", "futex_waitv", "futex_wake", "sched_yield"]),
];

static BY_NUMBER: LazyLock<[Class; CALLS]> = LazyLock::new(|| {
    let mut by_number = [Class::Other; CALLS];
    for (class, names) in CLASSES {
        for number in names.iter().filter_map(|name| syscall::number(name)) {
            by_number[usize::from(number)] = class;
        }
    }
    by_number
});

impl Class {
    pub(super) fn of(call: &Call) -> Self {
        match Self::by_number(call.abi, call.number) {
            Self::Accepts if call.errno().is_some() => Self::Waits,
            class => class,
        }
    }

    fn by_number(abi: Abi, number: u16) -> Self {
        match BY_NUMBER.get(usize::from(number)) {
            Some(class) if abi == Abi::Native => *class,
            Some(_) | None => Self::Other,
        }
    }
}

/// Errors after which a connection is not used again.
const BROKEN: [i32; 4] = [libc::ECONNRESET, libc::ENOTCONN, libc::EPIPE, libc::ETIMEDOUT];

impl Role {
    /// Returns the role of a call on a connection.
    pub(super) fn of(call: &Call) -> Self {
        let direction = match (call.rule().result, Class::of(call)) {
            (syscall::Outcome::Bytes(direction), _) | (_, Class::MovesMany(direction)) => direction,
            (_, Class::Accepts | Class::Creates | Class::Connects) => return Self::Opens,
            (_, Class::Closes | Class::ShutsDown) => return Self::Ends,
            (_, Class::Waits | Class::Syncs | Class::Locks | Class::Other) => return Self::Adjusts,
        };
        match (call.errno().map(i32::from), direction) {
            (Some(libc::EAGAIN), Direction::In) => Self::FindsNothing,
            (Some(errno), _) if BROKEN.contains(&errno) => Self::Ends,
            (Some(_), _) => Self::Adjusts,
            (None, Direction::In) if call.result == 0 && call.descriptor.is_stream() => Self::FindsEnd,
            (None, direction) => Self::Moves(direction),
        }
    }

    /// Returns whether the call reads.
    pub(super) fn reads(self) -> bool {
        matches!(self, Self::Moves(Direction::In) | Self::FindsNothing | Self::FindsEnd)
    }
}

/// What a unit of work has seen so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Its connection has had no request yet.
    Opens,
    /// Its request has not been answered.
    Asked,
    /// Its answer has begun, or it has no request and its connection has had one before.
    Answered,
    /// Its connection ends.
    Ends,
}

impl Step {
    /// Returns the step of a call on the connection itself.
    pub(super) fn on_connection(call: &Call, role: Role, side: Side, progress: Progress) -> Self {
        let phase = match (role, progress) {
            (Role::FindsNothing, _) => Phase::Wait,
            (Role::Opens, _) => Phase::Connect,
            (Role::Ends, _) | (_, Progress::Ends) => Phase::Close,
            (Role::Moves(direction), _) if direction == side.requests() => Phase::Request,
            (_, Progress::Opens) => Phase::Connect,
            (Role::FindsEnd, _) => Phase::Request,
            (Role::Moves(_), _) => Phase::Answer,
            (Role::Adjusts, _) if side == Side::Answers => Phase::Answer,
            (Role::Adjusts, _) => Phase::Request,
        };
        Self::new(call, phase)
    }

    /// Returns the step of a call that waits.
    pub(super) fn waiting(call: &Call) -> Self {
        Self::new(call, Phase::Wait)
    }

    /// Returns the step of a call by which a process closes a connection that another process keeps open.
    pub(super) fn handing_over(call: &Call, progress: Progress) -> Self {
        // The other process may already have answered.
        Self::new(call, if progress == Progress::Ends { Phase::Close } else { Phase::Connect })
    }

    /// Returns the step of another call.
    pub(super) fn beside(call: &Call, progress: Progress) -> Self {
        let phase = match (progress, Target::of(call)) {
            _ if Role::of(call) == Role::FindsNothing => Phase::Wait,
            (Progress::Ends, _) => Phase::Close,
            (Progress::Opens, _) => Phase::Connect,
            (Progress::Answered, Target::File) if writes(call) => Phase::Logging,
            (Progress::Asked | Progress::Answered, Target::File) => Phase::Files,
            (Progress::Asked | Progress::Answered, Target::Socket) => Phase::Sockets,
            (Progress::Asked | Progress::Answered, Target::Other) => Phase::Other,
        };
        Self::new(call, phase)
    }

    fn new(call: &Call, phase: Phase) -> Self {
        Self { phase, outcome: Outcome::of(call) }
    }

    /// Returns whether it depends on timing that the step occurs: a wait, or a call for a lock, which is made
    /// only if another thread has the lock or waits for it.
    pub(super) fn depends_on_timing(&self) -> bool {
        self.phase == Phase::Wait
            || Class::by_number(self.outcome.call.abi, self.outcome.call.number) == Class::Locks
    }
}

/// What a call is made on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    File,
    Socket,
    Other,
}

impl Target {
    fn of(call: &Call) -> Self {
        let takes_path = call.abi == Abi::Native && syscall::arguments(call.number).contains(&Kind::Path);
        match call.descriptor {
            Descriptor::File
            | Descriptor::Directory
            | Descriptor::CharacterDevice
            | Descriptor::BlockDevice => Self::File,
            descriptor if descriptor.is_socket() => Self::Socket,
            _ if takes_path => Self::File,
            _ if matches!(Class::of(call), Class::Creates | Class::Connects) => Self::Socket,
            _ => Self::Other,
        }
    }
}

/// Returns whether the call writes to a file, or waits until it is on the disk.
fn writes(call: &Call) -> bool {
    call.rule().result == syscall::Outcome::Bytes(Direction::Out) || Class::of(call) == Class::Syncs
}
