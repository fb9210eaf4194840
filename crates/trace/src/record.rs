//! Records: the events of a program as seen by the kernel, in the form that the views process.
//!
//! Recorders write records in the layout of [`crate::container::layout`]; these types are the decoded form.
//! All times are nanoseconds of `CLOCK_MONOTONIC` in 64 bits, because a call may last longer than the 4.29 s
//! that 32 bits can represent.

use std::borrow::Cow;

use crate::{descriptor::Descriptor, syscall};

/// One item of a trace, in time order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// An event, and the contents of arguments if it is a call that returned.
    Record(Record, Vec<Content>),
    /// Records of one CPU are missing between its previous entry and this one.
    Lost(Lost),
}

/// A path or a socket address in the memory of the program, to which an argument of a call points; see
/// [`syscall::Pointers`]. It was read when the call returned. A call whose memory could not be read has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Position of the argument.
    pub argument: u8,
    /// True if the memory contains more than `bytes`.
    pub is_cut: bool,
    /// A path without its terminator, or a `struct sockaddr` as the kernel defines it.
    pub bytes: Vec<u8>,
}

/// A gap in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Time at which the gap had ended or was still growing.
    pub time_ns: u64,
    /// CPU whose records are missing.
    pub cpu: u16,
    /// Number of missing records.
    pub records: u64,
}

/// One event of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Start, in ns of the monotonic clock.
    pub begin_ns: u64,
    /// Process (thread group).
    pub process: u32,
    /// Thread.
    pub thread: u32,
    /// CPU on which the event ended.
    pub cpu: u16,
    /// Records lost on that CPU between the previous kept one and this one.
    pub lost_before: u32,
    /// The event.
    pub event: Event,
}

/// Kind of event, with its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A system call that returned.
    Call(Call),
    /// A system call that had not returned when its thread ended (`exit_group` never returns) or when the
    /// recorder stopped. Its `result` is 0 and has no meaning.
    Unfinished(Call),
    /// A page fault. Its duration is unknown: no tracepoint reports it. One that occurs during a call also
    /// counts in [`Call::faults`].
    PageFault {
        /// Faulting address.
        address: u64,
        /// Error code of the processor.
        error: u64,
        /// True if the fault occurred in user mode, false if inside the kernel.
        user: bool,
        /// What is mapped at the address; `None` if it was not recorded.
        area: Option<Area>,
    },
    /// The thread was off the CPU outside a call: preempted, or stopped by a page fault.
    OffCpu {
        /// Time not runnable, ns.
        blocked_ns: u64,
        /// Time runnable but not running, ns.
        waiting_ns: u64,
    },
    /// The thread created another thread.
    Fork {
        /// Process of the new thread: a new one, unless it is a thread of the same process.
        child_process: u32,
        /// The new thread.
        child_thread: u32,
        /// The memory of the new thread; `None` if it was not recorded.
        memory: Option<Memory>,
    },
    /// The process executes another program from here on, in one thread, whose number is that of the process.
    Exec {
        /// Path of the program, truncated to 47 bytes.
        path: ExecPath,
    },
    /// The thread ended. Other events of it may follow while the kernel removes it.
    Exit {
        /// Exit code as `wait` reports it.
        code: i64,
        /// True if it was the last thread of its process.
        whole_process: bool,
    },
}

/// What is mapped at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// Nothing yet: the fault extends a stack, or is an error.
    Nothing,
    /// Anonymous memory.
    Anonymous,
    /// A private mapping of a file: the first write to a page copies it.
    PrivateFile,
    /// A shared mapping of a file, or anonymous memory that processes share.
    Shared,
}

/// The memory of a new thread or process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// A copy of the memory of the parent.
    Copied {
        /// Anonymous memory of the parent that is present, in bytes. Each processor adds its
        /// changes to the count in steps of 32 pages, or of two pages for each processor of the
        /// machine if that is more; what it has not yet added is not in the number.
        anonymous_bytes: u64,
    },
    /// The memory of the parent itself: that of a thread, or of a child of `vfork`.
    Borrowed,
}

/// A system call. By default it has the number 0 and no property.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Call {
    /// Number in the call table of its binary interface.
    pub number: u16,
    /// The binary interface.
    pub abi: Abi,
    /// Arguments as passed.
    pub args: [u64; 6],
    /// Result as returned by the kernel: a negative errno if the call failed.
    pub result: i64,
    /// Kind of the descriptor that the call used or returned; see [`syscall::Rule::descriptor`].
    pub descriptor: Descriptor,
    /// Inode of the descriptor, 0 if there is none.
    pub inode: u64,
    /// Where the last packet of its TCP connection arrived; `None` if it is not on one, and if no packet had
    /// arrived or this was not recorded.
    pub peer: Option<Peer>,
    /// Time from entry to return, ns.
    pub elapsed_ns: u64,
    /// Part of `elapsed_ns`: off the CPU and not runnable.
    pub blocked_ns: u64,
    /// Part of `elapsed_ns`: runnable but not running.
    pub waiting_ns: u64,
    /// Part of the time on the CPU: interrupts that the CPU handled during the call, except network softirqs.
    pub irq_ns: u64,
    /// Part of the time on the CPU: network softirqs that ran on top of the call. A send on loopback delivers
    /// its own packets there; with a network card, packets for other programs arrive there too.
    pub softnet_ns: u64,
    /// Context switches because the thread blocked.
    pub voluntary: u32,
    /// Context switches because the thread was preempted.
    pub involuntary: u32,
    /// Page faults during the call.
    pub faults: u32,
    /// Its sleeps and wake-ups by the state of the CPU; `None` if they were not recorded (version 1).
    pub wakeups: Option<Wakeups>,
}

/// Where the last packet of a connection arrived. On loopback, a packet arrives on the CPU of its sender:
/// usually the peer, but acknowledgements that the kernel sends at once are sent on the CPU of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// On the CPU of the call.
    SameCpu,
    /// On another CPU.
    OtherCpu,
}

/// On which CPUs the thread of a call continued after its sleeps, and for which CPUs it queued the threads
/// that it woke.
///
/// A CPU is idle if it runs no thread. A wake-up in an interrupt is in no call, except one in a network
/// softirq: on loopback, a send wakes the receiver there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wakeups {
    /// Sleeps, part of [`Call::voluntary`], after which the thread continued on an idle CPU.
    pub idle_sleeps: u32,
    /// Total time that these CPUs had been idle when the thread continued, ns.
    pub idle_ns: u64,
    /// Threads that the call woke on its own CPU.
    pub woken_same: u32,
    /// Threads that it woke on another CPU, which ran another thread.
    pub woken_busy: u32,
    /// Threads that it woke on another CPU, which was idle.
    pub woken_idle: u32,
    /// Total time that these CPUs had been idle at the wake-up, ns.
    pub woken_idle_ns: u64,
}

/// Binary interface of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Abi {
    /// The 64-bit table.
    #[default]
    Native,
    /// The 32-bit table: names and rules of the native table do not apply.
    Compat,
}

/// A call on a kind of descriptor: what the views count by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallKind {
    /// The binary interface.
    pub abi: Abi,
    /// Number in its call table.
    pub number: u16,
    /// Kind of the descriptor.
    pub descriptor: Descriptor,
}

impl CallKind {
    /// Returns the name of the call; see [`call_name`].
    #[must_use]
    pub fn name(&self) -> Cow<'static, str> {
        call_name(self.abi, self.number)
    }

    /// Returns the call on its descriptor; see [`on_descriptor`].
    #[must_use]
    pub fn text(&self) -> String {
        on_descriptor(&self.name(), self.descriptor)
    }
}

impl Call {
    /// Returns the call with its kind of descriptor.
    #[must_use]
    pub fn kind(&self) -> CallKind {
        CallKind { abi: self.abi, number: self.number, descriptor: self.descriptor }
    }

    /// Returns the time off the CPU, ns.
    #[must_use]
    pub fn off_cpu_ns(&self) -> u64 {
        self.blocked_ns.saturating_add(self.waiting_ns).min(self.elapsed_ns)
    }

    /// Returns the time on the CPU, including interrupts, ns.
    #[must_use]
    pub fn on_cpu_ns(&self) -> u64 {
        self.elapsed_ns - self.off_cpu_ns()
    }

    /// Returns the time that the kernel worked for this call, ns: on the CPU and not in an interrupt. Network
    /// softirqs are included: a send causes them, and a measurement of a send includes them.
    #[must_use]
    pub fn kernel_ns(&self) -> u64 {
        self.on_cpu_ns().saturating_sub(self.irq_ns)
    }

    /// Returns the errno if the call failed.
    #[must_use]
    pub fn errno(&self) -> Option<u16> {
        (-4095..0).contains(&self.result).then(|| u16::try_from(-self.result).unwrap_or(u16::MAX))
    }

    /// Returns the name of the call; see [`call_name`].
    #[must_use]
    pub fn name(&self) -> Cow<'static, str> {
        self.kind().name()
    }

    /// Returns the rule for the call.
    #[must_use]
    pub fn rule(&self) -> syscall::Rule {
        match self.abi {
            Abi::Native => syscall::rule(self.number),
            Abi::Compat => syscall::Rule::PLAIN,
        }
    }

    /// Returns the number of bytes moved if the call succeeded and its result counts bytes.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        match self.rule().result {
            syscall::Outcome::Bytes(_) => u64::try_from(self.result).ok(),
            syscall::Outcome::Descriptor | syscall::Outcome::Other => None,
        }
    }
}

/// Returns the name of a call, `read`; `call 600` or `compat call 3` if the native table contains no name for
/// it.
#[must_use]
pub fn call_name(abi: Abi, number: u16) -> Cow<'static, str> {
    match (abi, syscall::name(number)) {
        (Abi::Native, Some(name)) => name.into(),
        (Abi::Native, None) => format!("call {number}").into(),
        (Abi::Compat, _) => format!("compat call {number}").into(),
    }
}

/// Returns a call on a kind of descriptor, `read tcp4`; the name alone if it has none.
#[must_use]
pub fn on_descriptor(name: &str, descriptor: Descriptor) -> String {
    match descriptor {
        Descriptor::None => name.to_owned(),
        descriptor => format!("{name} {descriptor}"),
    }
}

/// Returns the name of an errno, `ENOENT`; `errno 600` if it has none.
#[must_use]
pub fn errno_name(errno: u16) -> Cow<'static, str> {
    match syscalls::Errno::new(i32::from(errno)).name() {
        Some(name) => name.into(),
        None => format!("errno {errno}").into(),
    }
}

impl Record {
    /// Returns the end time, ns. A trace is sorted by it.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        let elapsed_ns = match self.event {
            Event::Call(call) | Event::Unfinished(call) => call.elapsed_ns,
            Event::OffCpu { blocked_ns, waiting_ns } => blocked_ns.saturating_add(waiting_ns),
            Event::PageFault { .. } | Event::Fork { .. } | Event::Exec { .. } | Event::Exit { .. } => 0,
        };
        self.begin_ns.saturating_add(elapsed_ns)
    }
}

/// Path of a program as recorded by the kernel: up to 47 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecPath(pub(crate) [u8; 48]);

impl ExecPath {
    /// Returns the beginning of a path, as the kernel records it.
    pub(crate) fn of(path: &[u8]) -> Self {
        let mut bytes = [0; 48];
        let length = path.len().min(bytes.len() - 1);
        bytes[..length].copy_from_slice(&path[..length]);
        Self(bytes)
    }

    /// Returns the recorded bytes of the path.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        &self.0[..end]
    }

    /// Returns true if the path has no room for its end, so that it may be longer.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.bytes().len() + 1 >= self.0.len()
    }

    /// Returns the path, with dots if it may be longer; replaces bytes that are not UTF-8.
    #[must_use]
    pub fn to_text(&self) -> String {
        let rest = if self.is_cut() { "..." } else { "" };
        format!("{}{rest}", String::from_utf8_lossy(self.bytes()))
    }
}
