//! What the kernel saw a program do, as the views compute with it.
//!
//! Recorders make records in the layout of [`crate::container::layout`]; these types are what that layout means.
//! All times are nanoseconds of `CLOCK_MONOTONIC` in 64 bits: a call may well last longer than the 4.29 s that 32
//! bits hold.

use std::borrow::Cow;

use crate::{descriptor::Descriptor, syscall};

/// One item of a trace, in the order of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Something happened.
    Record(Record),
    /// Records of one CPU are missing from here on back to its previous entry.
    Lost(Lost),
}

/// A gap in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// When the gap was known to have ended, or to be still growing.
    pub time_ns: u64,
    /// CPU whose records are missing.
    pub cpu: u16,
    /// How many.
    pub records: u64,
}

/// One event of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// When it began, ns of the monotonic clock.
    pub begin_ns: u64,
    /// Process (thread group).
    pub process: u32,
    /// Thread.
    pub thread: u32,
    /// CPU on which it ended.
    pub cpu: u16,
    /// Records lost on that CPU between the previous kept one and this one.
    pub lost_before: u32,
    /// What it was.
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A system call that returned.
    Call(Call),
    /// A system call that had not returned when its thread ended (`exit_group` never does), or when the recorder
    /// stopped. Its `result` is 0 and means nothing.
    Unfinished(Call),
    /// A page fault. How long it took is not known: no tracepoint tells.
    PageFault {
        /// Address that was touched.
        address: u64,
        /// The processor's error code.
        error: u64,
        /// Taken in user mode, not inside the kernel.
        user: bool,
    },
    /// The thread was off the CPU outside any call: preempted, or stopped at a page fault.
    OffCpu {
        /// Not runnable, ns.
        blocked_ns: u64,
        /// Runnable but not running, ns.
        waiting_ns: u64,
    },
    /// The thread made another one.
    Fork {
        /// Process of the new thread: its own, unless it is a thread of the same process.
        child_process: u32,
        /// The new thread.
        child_thread: u32,
    },
    /// The process runs another program from here on.
    Exec {
        /// Its path, cut after 47 bytes.
        path: ExecPath,
    },
    /// The thread ended.
    Exit {
        /// Exit code as `wait` reports it.
        code: i64,
        /// It was the last thread of its process.
        whole_process: bool,
    },
}

/// A system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Number in the table of its binary interface.
    pub number: u16,
    /// Which table that is.
    pub abi: Abi,
    /// Arguments as passed.
    pub args: [u64; 6],
    /// Result as the kernel returned it: a negative errno when it failed.
    pub result: i64,
    /// Kind of the descriptor that it worked on or returned; see [`syscall::Rule::descriptor`].
    pub descriptor: Descriptor,
    /// Inode behind the descriptor, 0 when there is none.
    pub inode: u64,
    /// From entry to return, ns.
    pub elapsed_ns: u64,
    /// Of that: off the CPU and not runnable.
    pub blocked_ns: u64,
    /// Of that: runnable but not running.
    pub waiting_ns: u64,
    /// Of the time on the CPU: interrupts handled on top of it, network softirqs not among them.
    pub irq_ns: u64,
    /// Of the time on the CPU: network softirqs on top of it. A send on loopback delivers its own packets there;
    /// with a network card, packets of others arrive there too.
    pub softnet_ns: u64,
    /// Context switches because it blocked.
    pub voluntary: u32,
    /// Context switches because it was preempted.
    pub involuntary: u32,
    /// Page faults taken inside the call.
    pub faults: u32,
}

/// Binary interface of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Abi {
    /// The 64-bit table.
    Native,
    /// The 32-bit table: names and rules of the native one do not apply.
    Compat,
}

impl Call {
    /// Time on the CPU, interrupts on top of it included, ns.
    #[must_use]
    pub fn on_cpu_ns(&self) -> u64 {
        self.elapsed_ns.saturating_sub(self.blocked_ns).saturating_sub(self.waiting_ns)
    }

    /// Time that the kernel worked for this call, ns: on the CPU and not in an interrupt. Network softirqs are in
    /// it: a send causes them, and who measures a send measures them with it.
    #[must_use]
    pub fn kernel_ns(&self) -> u64 {
        self.on_cpu_ns().saturating_sub(self.irq_ns)
    }

    /// The errno, when the call failed.
    #[must_use]
    pub fn errno(&self) -> Option<u16> {
        (-4095..0).contains(&self.result).then(|| u16::try_from(-self.result).unwrap_or(u16::MAX))
    }

    /// Its name; see [`call_name`].
    #[must_use]
    pub fn name(&self) -> Cow<'static, str> {
        call_name(self.abi, self.number)
    }

    /// What the call's number says about its arguments.
    #[must_use]
    pub fn rule(&self) -> syscall::Rule {
        match self.abi {
            Abi::Native => syscall::rule(self.number),
            Abi::Compat => syscall::Rule::PLAIN,
        }
    }

    /// Bytes that it moved, when its result counts bytes and it succeeded.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        match self.rule().result {
            syscall::Outcome::Bytes(_) => u64::try_from(self.result).ok(),
            syscall::Outcome::Descriptor | syscall::Outcome::Other => None,
        }
    }
}

/// Name of a call, `read`; `call 600` or `compat call 3` where the native table has none.
#[must_use]
pub fn call_name(abi: Abi, number: u16) -> Cow<'static, str> {
    match (abi, syscall::name(number)) {
        (Abi::Native, Some(name)) => name.into(),
        (Abi::Native, None) => format!("call {number}").into(),
        (Abi::Compat, _) => format!("compat call {number}").into(),
    }
}

impl Record {
    /// When it ended, ns: the order of a trace.
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

/// Path of a program as the kernel had it: up to 47 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecPath(pub(crate) [u8; 48]);

impl ExecPath {
    /// The path, with what is not UTF-8 replaced.
    #[must_use]
    pub fn to_text(&self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        String::from_utf8_lossy(&self.0[..end]).into_owned()
    }
}
