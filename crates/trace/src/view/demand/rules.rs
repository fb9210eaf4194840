//! The rules of the mapping: the primitive for each combination of call, descriptor and condition.
//!
//! The rows are in [`table`](super::table), and only the lookup below reads them. State of earlier calls is
//! passed to the conditions as [`Circumstances`]; the matched row determines how a call changes that state.

use std::sync::LazyLock;

use super::table::RULES;
use crate::{
    descriptor::Descriptor,
    record::{Abi, Call, Peer},
    syscall::{self, CALLS},
};

/// Device number of `/dev/null` in the kernel: major 1, minor 3.
pub(super) const NULL_DEVICE: u64 = 1 << 20 | 3;
/// Device number of `/dev/zero`: major 1, minor 5.
pub(super) const ZERO_DEVICE: u64 = 1 << 20 | 5;
const ENOENT: u16 = 2;
const EAGAIN: u16 = 11;
const ENOTDIR: u16 = 20;
const EINVAL: u16 = 22;
const EINPROGRESS: u16 = 115;
const IPPROTO_TCP: u32 = 6;
const TCP_CORK: u32 = 3;

/// One row of the mapping.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Names of the calls.
    pub calls: &'static [&'static str],
    /// Kind of descriptor that the call used.
    pub on: On,
    /// How it ended, and the state that it found.
    pub when: When,
    /// Condition on one of its arguments.
    pub with: Option<Argument>,
    /// Primitive that represents the call, without its `size` and `buffer`.
    pub primitive: &'static str,
    /// How the primitive represents the call.
    pub role: Role,
}

/// A condition on an argument: its bits in `mask` are `value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argument {
    /// Position of the argument, from 0.
    pub at: usize,
    /// The bits that count.
    pub mask: u64,
    /// Their value.
    pub value: u64,
    /// Name of the value.
    pub name: &'static str,
}

/// Kind of descriptor that a rule requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Any descriptor, or none.
    Any,
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A character device.
    Device,
    /// `/dev/null`.
    Null,
    /// `/dev/zero`.
    Zero,
    /// A pipe.
    Pipe,
    /// TCP.
    Tcp,
    /// TCP, with the peer on another CPU.
    TcpElsewhere,
    /// UDP.
    Udp,
    /// A Unix stream socket.
    Unix,
    /// An event counter.
    Eventfd,
    /// A signal queue.
    Signalfd,
    /// A pidfd, or another anonymous inode.
    Anonymous,
}

/// How a call ended, and the state that it found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// It succeeded.
    Succeeded,
    /// It returned; its result says nothing about success.
    Returned,
    /// It failed with `ENOENT`, or with `ENOTDIR`: a directory of its path is a file.
    Missing,
    /// It failed with `EINVAL`.
    Invalid,
    /// It failed with `EAGAIN`: it would have had to wait.
    WouldBlock,
    /// It failed with `EINPROGRESS`: it continues without the caller.
    InProgress,
    /// It created a process with a copy of the memory.
    MadeCopy,
    /// It created a process in the memory of its parent.
    MadeBorrower,
    /// It created a thread of the same process.
    MadeThread,
    /// It ended its thread.
    Ended,
    /// It corked the connection: it set `TCP_CORK` successfully, and no bytes are held back.
    Corks,
    /// It uncorked the connection: it set `TCP_CORK` successfully, and bytes are held back.
    Uncorks,
    /// It succeeded on a corked connection.
    Corked,
}

/// How a primitive represents a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// One operation per call.
    Operation,
    /// One operation per call, of this fixed size in bytes.
    OfBytes(u64),
    /// One operation per call; its size is the result.
    Sized,
    /// One operation per call; its size is the result, and the reuse of its buffer is distinguished.
    Buffered,
    /// One operation per call; its size is the anonymous memory that it copied.
    Copied,
    /// One operation per call; its size is the number of bytes that the cork held back.
    HeldBack,
    /// Part of an operation that another call represents: no operation of its own.
    Within,
}

/// The rows of each call of the native table, in the order of the table.
static ROWS_OF_CALLS: LazyLock<Vec<Vec<&'static Rule>>> = LazyLock::new(|| {
    let mut rows = vec![Vec::new(); CALLS];
    for rule in RULES {
        for number in rule.calls.iter().filter_map(|name| syscall::number(name)) {
            rows[usize::from(number)].push(rule);
        }
    }
    rows
});

impl Rule {
    /// Returns the first matching row for `call`; `None` if there is none, or for a call that is not of the
    /// native table.
    pub(super) fn of(call: &Call, circumstances: Circumstances) -> Option<&'static Self> {
        if call.abi != Abi::Native {
            return None;
        }
        let rows = ROWS_OF_CALLS.get(usize::from(call.number))?;
        rows.iter().find(|rule| rule.fits(call, circumstances)).copied()
    }

    fn fits(&self, call: &Call, circumstances: Circumstances) -> bool {
        self.on.fits(call)
            && self.when.fits(call, circumstances)
            && self.with.is_none_or(|with| with.fits(call))
    }
}

impl Argument {
    fn fits(self, call: &Call) -> bool {
        call.args[self.at] & self.mask == self.value
    }
}

impl On {
    pub(super) fn fits(self, call: &Call) -> bool {
        let is_device = |number| call.descriptor == Descriptor::CharacterDevice && call.inode == number;
        match self {
            On::Any => true,
            On::File => call.descriptor == Descriptor::File,
            On::Directory => call.descriptor == Descriptor::Directory,
            On::Device => call.descriptor == Descriptor::CharacterDevice,
            On::Null => is_device(NULL_DEVICE),
            On::Zero => is_device(ZERO_DEVICE),
            On::Pipe => call.descriptor == Descriptor::Pipe,
            On::Tcp => call.descriptor.is_tcp(),
            On::TcpElsewhere => call.descriptor.is_tcp() && call.peer == Some(Peer::OtherCpu),
            On::Udp => matches!(call.descriptor, Descriptor::Udp4 | Descriptor::Udp6),
            On::Unix => call.descriptor == Descriptor::UnixStream,
            On::Eventfd => call.descriptor == Descriptor::Eventfd,
            On::Signalfd => call.descriptor == Descriptor::Signalfd,
            On::Anonymous => call.descriptor == Descriptor::Anonymous,
        }
    }
}

impl When {
    fn fits(self, call: &Call, circumstances: Circumstances) -> bool {
        let Circumstances { made, end, cork } = circumstances;
        let returned = end == End::Returned;
        let succeeded = returned && call.errno().is_none();
        let failed_with = |error| returned && call.errno() == Some(error);
        match self {
            When::Succeeded => succeeded,
            When::Returned => returned,
            When::Missing => failed_with(ENOENT) || failed_with(ENOTDIR),
            When::Invalid => failed_with(EINVAL),
            When::WouldBlock => failed_with(EAGAIN),
            When::InProgress => failed_with(EINPROGRESS),
            When::MadeCopy => succeeded && matches!(made, Some(Made::Copy { .. })),
            When::MadeBorrower => succeeded && made == Some(Made::Borrower),
            When::MadeThread => succeeded && made == Some(Made::Thread),
            When::Ended => !returned,
            When::Corks => {
                succeeded && sets_cork(call) && matches!(cork, Cork::Out | Cork::In { held_back: 0 })
            }
            When::Uncorks => succeeded && sets_cork(call) && matches!(cork, Cork::In { held_back: 1.. }),
            When::Corked => succeeded && matches!(cork, Cork::In { .. }),
        }
    }
}

/// Inputs of a condition besides the call itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances {
    pub made: Option<Made>,
    pub end: End,
    pub cork: Cork,
}

/// What a fork created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// A process with a copy of the memory.
    Copy {
        /// Bytes of anonymous memory that are copied; 0 if the record of the fork is missing.
        anonymous_bytes: u64,
    },
    /// A process in the memory of its parent.
    Borrower,
    Thread,
}

impl Made {
    pub fn anonymous_bytes(self) -> u64 {
        match self {
            Made::Copy { anonymous_bytes } => anonymous_bytes,
            Made::Borrower | Made::Thread => 0,
        }
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It returned.
    Returned,
    /// It ended with its thread.
    OfThread,
}

/// State of a connection's `TCP_CORK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cork {
    /// It is not set.
    Out,
    /// It is set, and this many bytes were written since.
    In { held_back: u64 },
}

/// Returns whether the call sets or clears `TCP_CORK`. The value of the option is behind a pointer and not in
/// the trace.
fn sets_cork(call: &Call) -> bool {
    (int(call.args[1]), int(call.args[2])) == (IPPROTO_TCP, TCP_CORK)
}

/// Returns an argument of the C type `int`; the upper half of its register is undefined.
pub(super) fn int(argument: u64) -> u32 {
    let [a, b, c, d, ..] = argument.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
