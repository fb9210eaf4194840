//! What a simulator reports.

use serde::{Deserialize, Serialize};

/// Instructions that a processor has executed, since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// At addresses of programs.
    pub user: u64,
    /// At addresses of the kernel.
    pub kernel: u64,
}

/// How far a processor has come since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moment {
    /// Instructions that it has executed.
    pub counts: Counts,
    /// If the machine's clock counts instructions, the time for which the processor has run. Repetitions of
    /// string instructions count too, and instructions that a page fault has aborted do not.
    pub ran_ns: u64,
    /// How much of that at addresses of programs.
    pub ran_user_ns: u64,
}

impl Moment {
    /// A processor that has executed this, without repetitions and page faults.
    #[must_use]
    pub fn of(counts: Counts) -> Self {
        Self { counts, ran_ns: counts.user + counts.kernel, ran_user_ns: counts.user }
    }
}

/// Name of a task, as the kernel keeps it: at most 15 bytes, then zeros.
pub type Name = [u8; 16];

/// A task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// Address of its `task_struct`, which another task may get after its end.
    pub address: u64,
    /// Number of its process; 0 for the task that runs when there is nothing to do.
    pub process: u32,
    /// Its name.
    pub name: Name,
    /// Whether it has the memory of a program. A task of the kernel can borrow that for a time.
    pub kind: Kind,
}

/// What a task runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A program, in memory of its own.
    Program,
    /// Code of the kernel only.
    Kernel,
}

/// An execution of an annotated instruction, which is not yet counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A program enters the kernel for the system call of this number; [`u16::MAX`] stands for all numbers
    /// from there on: those of x32 programs, and calls that do not exist.
    Call(u16),
    /// The processor enters the kernel for an exception, an interrupt or a call of a 32-bit program.
    Trap {
        /// Its position in [`Plan::services`](crate::Plan::services).
        service: u16,
        /// Where the processor has saved the interrupted address, on the stack.
        frame: u64,
    },
    /// The kernel finds out of what kind the last trap is.
    Kind {
        /// Position of the trap in [`Plan::services`](crate::Plan::services).
        of: u16,
        /// Position of its kind.
        is: u16,
    },
    /// The kernel calls a function that is a service by itself.
    Function {
        /// Its position in [`Plan::services`](crate::Plan::services).
        service: u16,
        /// Where the address of the caller is saved, on the stack.
        frame: u64,
    },
    /// A function of the kernel returns to the address that is saved there (`ret`). Only needed while
    /// [`Attribution::is_in_function`](crate::Attribution::is_in_function).
    Return {
        /// Where the address is saved.
        frame: u64,
    },
    /// The processor returns from a trap whose interrupted address is saved there (`iretq`); also used by the
    /// kernel to synchronise the processor with changed code, without a trap.
    ReturnToKernel {
        /// Where the address is saved.
        frame: u64,
    },
    /// The processor returns to a program (`iretq`, `sysretq`).
    ReturnToProgram,
    /// The current task has made this one, which will run later.
    New(Task),
    /// Another task runs from here on.
    Switch {
        /// State of the current task (`__state`); `TASK_DEAD` if it ends here.
        state: u32,
        /// The next task.
        to: Task,
    },
    /// The kernel wakes a task up if it is in one of some states.
    Wake {
        /// Address of the task.
        task: u64,
        /// Its state (`__state`), a bit for each reason to wait.
        state: u32,
        /// The states.
        of: u32,
    },
    /// The processor halts until the next interrupt (`hlt`).
    Halt,
    /// The instruction before has read the clock (`rdtsc`). Only needed while
    /// [`Attribution::is_halted`](crate::Attribution::is_halted).
    Clock {
        /// What it has read.
        time_ns: u64,
    },
    /// A task gets another name: a new program, or its own wish.
    Rename {
        /// Address of the task.
        task: u64,
        /// Its new name.
        name: Name,
    },
    /// A program has marked the beginning of what is observed, by [`BEGIN`](crate::BEGIN). Only the first one
    /// counts.
    Begin,
    /// A program asks for a snapshot of the counts, by [`SNAPSHOT`](crate::SNAPSHOT), under this number.
    Snapshot(u64),
    /// A program has marked its end, by [`END`](crate::END). If there are several, the last one counts.
    End,
}
