//! The table of the mapping: the primitive for each combination of call, descriptor and condition.
//!
//! Only the lookup below reads the rows. State of earlier calls is passed to the conditions as
//! [`Circumstances`]; the matched row determines how a call changes that state.

use crate::{
    descriptor::Descriptor,
    record::{Abi, Call},
};

/// Device number of `/dev/null` in the kernel: major 1, minor 3.
pub(super) const NULL_DEVICE: u64 = 1 << 20 | 3;
const AT_EMPTY_PATH: u64 = 0x1000;
const ENOENT: u16 = 2;
const EAGAIN: u16 = 11;
const IPPROTO_TCP: u32 = 6;
const TCP_CORK: u32 = 3;

/// One row of the mapping.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Names of the calls.
    pub calls: &'static [&'static str],
    /// Kind of descriptor that the call used.
    pub on: On,
    /// Additional condition.
    pub when: When,
    /// Primitive that represents the call, without `size` and `buffer`.
    pub primitive: &'static str,
    /// How the primitive represents the call.
    pub role: Role,
}

/// Kind of descriptor that a rule requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Any descriptor, or none.
    Any,
    /// A regular file.
    File,
    /// TCP.
    Tcp,
    /// `/dev/null`.
    Null,
}

/// Condition on a call's result or arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// It succeeded.
    Succeeded,
    /// It failed with `ENOENT`.
    Missing,
    /// It failed with `EAGAIN`: it would have had to wait.
    WouldBlock,
    /// It succeeded, and its fourth argument has `AT_EMPTY_PATH`.
    EmptyPath,
    /// It created a process, not a thread.
    MadeProcess,
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
    /// One operation per call; its size is the result.
    Sized,
    /// One operation per call; its size is the result, and the reuse of its buffer is distinguished.
    Buffered,
    /// One operation per call; its size is the number of bytes that the cork held back.
    HeldBack,
    /// Part of an operation that another call represents: no operation of its own.
    Within,
}

macro_rules! rules {
    ($($calls:tt $on:ident $when:ident => $primitive:literal $role:ident,)+) => {
        &[$(Rule {
            calls: &$calls, on: On::$on, when: When::$when, primitive: $primitive, role: Role::$role,
        },)+]
    };
}

/// The mapping. A failed call matches only a row whose condition is its error.
pub const RULES: &[Rule] = rules! {
    ["write", "writev", "sendto", "sendmsg"] Tcp Corked => "tcp.writev_corked" Sized,
    ["sendfile"] Tcp Corked => "tcp.sendfile_corked" Sized,
    ["setsockopt"] Tcp Uncorks => "tcp.uncork" HeldBack,
    ["setsockopt"] Tcp Corks => "socket.setsockopt" Operation,
    ["read", "recvfrom", "recvmsg", "readv"] Tcp Succeeded => "tcp.receive" Buffered,
    ["read", "recvfrom", "recvmsg", "readv"] Tcp WouldBlock => "tcp.receive_empty" Operation,
    ["write", "sendto", "sendmsg"] Tcp Succeeded => "tcp.send" Buffered,
    ["writev"] Tcp Succeeded => "tcp.writev" Sized,
    ["sendfile"] Tcp Succeeded => "tcp.sendfile" Sized,
    ["accept", "accept4"] Tcp Succeeded => "tcp.accept" Operation,
    ["connect"] Tcp Succeeded => "tcp.connect" Operation,
    ["close"] Tcp Succeeded => "tcp.close" Operation,
    ["read", "pread64"] File Succeeded => "file.read" Buffered,
    ["write", "pwrite64"] File Succeeded => "file.write" Buffered,
    ["write"] Null Succeeded => "null.write" Sized,
    ["open", "openat", "openat2"] File Succeeded => "file.open_close" Operation,
    ["close"] File Succeeded => "file.open_close" Within,
    ["open", "openat", "openat2"] Any Missing => "file.open_missing" Operation,
    ["newfstatat", "statx"] Any EmptyPath => "file.fstat" Operation,
    ["fstat"] Any Succeeded => "file.fstat" Operation,
    ["stat", "lstat", "newfstatat", "statx"] Any Succeeded => "file.stat" Operation,
    ["epoll_wait", "epoll_pwait", "epoll_pwait2"] Any Succeeded => "epoll.wait_ready" Operation,
    ["epoll_ctl"] Any Succeeded => "epoll.ctl" Operation,
    ["setsockopt"] Any Succeeded => "socket.setsockopt" Operation,
    ["rt_sigaction"] Any Succeeded => "signal.install" Operation,
    ["clock_gettime"] Any Succeeded => "clock.gettime" Operation,
    ["getppid"] Any Succeeded => "call.null" Operation,
    ["fork", "vfork", "clone", "clone3"] Any MadeProcess => "process.fork_exit" Operation,
    ["exit_group"] Any Ended => "process.fork_exit" Within,
    // The trace does not contain how the program is linked; nearly all programs are dynamic.
    ["execve", "execveat"] Any Succeeded => "process.exec{link=dynamic}" Operation,
};

impl Rule {
    /// Returns the first matching row for `call`; `None` if there is none, or for a call that is not of the
    /// native table.
    pub(super) fn of(call: &Call, circumstances: Circumstances) -> Option<&'static Self> {
        let name = call.name();
        RULES
            .iter()
            .filter(|_| call.abi == Abi::Native)
            .find(|rule| rule.calls.contains(&&*name) && rule.fits(call, circumstances))
    }

    fn fits(&self, call: &Call, circumstances: Circumstances) -> bool {
        let on = match self.on {
            On::Any => true,
            On::File => call.descriptor == Descriptor::File,
            On::Tcp => call.descriptor.is_tcp(),
            On::Null => call.descriptor == Descriptor::CharacterDevice && call.inode == NULL_DEVICE,
        };
        let Circumstances { made, end, cork } = circumstances;
        let ended = end == End::OfThread;
        let succeeded = !ended && call.errno().is_none();
        // The flags of statx are in a different argument than those of newfstatat.
        let flags = if call.name() == "statx" { call.args[2] } else { call.args[3] };
        on && match self.when {
            When::Succeeded => succeeded,
            When::Missing => !ended && call.errno() == Some(ENOENT),
            When::WouldBlock => !ended && call.errno() == Some(EAGAIN),
            When::EmptyPath => succeeded && flags & AT_EMPTY_PATH != 0,
            When::MadeProcess => succeeded && made == Some(Made::Process),
            When::Ended => ended,
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
    Process,
    Thread,
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
