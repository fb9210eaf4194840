//! Children that exit immediately: a comparison of the ways to create a process (lmbench, 1996, section 6.5).
//!
//! `fork` copies the address space; `vfork` and `clone3` borrow it until the child ends or executes a
//! program. After a `fork` through the C library, parent and child write to several pages, each of which is
//! a page fault; `process.bare_fork_exit` is the call alone. Every child ends with an exit status that
//! differs from the previous one, and the parent must receive this status.

use std::fs;
use std::io;

use assay_quantity::{PrimitiveId, Size};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting, Sharing};
use crate::platform::kernel::check;
use crate::primitive::kit::limit;
use crate::primitive::kit::region::Region;
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["process.fork_exit"],
        full: &[],
        cost: Per::Operation,
        calls: &["fork", "clone", "wait4"],
        about: "`fork`, `_exit` in the child, `waitpid`",
        source: "lmbench 1996, section 6.5; thesis, section 2.3",
        prepare: fork_exit,
    },
    Row {
        quick: &["process.bare_fork_exit{size=4MiB|16MiB}"],
        full: &["process.bare_fork_exit{size=4MiB|16MiB|64MiB|256MiB}"],
        cost: Per::Operation,
        calls: &["fork", "clone", "wait4"],
        about: "the same in a process with `size` bytes of anonymous memory, without the C library: the child makes \
                its single call `exit_group` and writes to no memory, so that few page faults are part of it",
        source: "own: the cost of a fork to an application whose page faults are counted by themselves",
        prepare: bare_fork_exit,
    },
    Row {
        quick: &["process.vfork_exit"],
        full: &[],
        cost: Per::Operation,
        calls: &["vfork", "clone", "wait4"],
        about: "`vfork`, `exit_group` in the child, `waitpid`: the address space is borrowed, not copied",
        source: "own: for comparison with fork",
        prepare: vfork_exit,
    },
    Row {
        quick: &["process.clone3_exit"],
        full: &[],
        cost: Per::Operation,
        calls: &["clone3", "wait4"],
        about: "`clone3` with `CLONE_VM` and `CLONE_VFORK`, `exit_group` in the child, `waitpid`",
        source: "own: for comparison with fork",
        prepare: clone3_exit,
    },
];

/// `fork`, `_exit` in the child, `waitpid` in the parent.
fn fork_exit(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    // SAFETY: the child exits immediately.
    Ok(ending(|status| fork(|| unsafe { libc::_exit(status) })))
}

/// The call `fork`, `exit_group` in the child, `waitpid` in the parent, in a process of some size.
fn bare_fork_exit(id: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, Size::mib(1)..=Size::mib(1024))?;
    let present = anonymous_bytes()?;
    let Some(rest) = size.checked_sub(present).filter(|rest| *rest > 0) else {
        return Err(Refusal::Unavailable(format!(
            "the process already has {present} bytes of anonymous memory; choose a larger size"
        )));
    };
    let memory = Region::new(rest, libc::PROT_READ | libc::PROT_WRITE)?;
    memory.touch();
    let make = bare::fork()?;
    Ok(ending(move |status| {
        // The memory lives as long as the operation.
        let _ = &memory;
        bare::make(make, bare::exit(status))
    }))
}

/// Returns the number of bytes of this process's anonymous memory that are present.
fn anonymous_bytes() -> io::Result<usize> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<usize>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other("/proc/self/status contains no RssAnon"))
}

/// Returns children that are copies of this process and only make the call `exit_group`.
pub(super) fn bare_exits() -> Result<impl Step, Refusal> {
    let make = bare::fork()?;
    Ok(Ending { make: move |status| bare::make(make, bare::exit(status)), status: 0 })
}

/// `vfork`, `exit_group` in the child, `waitpid` in the parent.
fn vfork_exit(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let make = bare::vfork()?;
    Ok(ending(move |status| bare::make(make, bare::exit(status))))
}

/// `clone3`, `exit_group` in the child, `waitpid` in the parent.
fn clone3_exit(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    bare::vfork()?;
    // SAFETY: zeroes are a valid value of `clone_args`: without a stack, the child uses the parent's, as
    // after `vfork`.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = u64::from((libc::CLONE_VM | libc::CLONE_VFORK).cast_unsigned());
    arguments.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    Ok(ending(move |status| {
        let make = bare::clone3(&arguments);
        bare::make(make, bare::exit(status))
    }))
}

/// Returns an operation that creates children, which end with the given exit status.
fn ending(make: impl FnMut(libc::c_int) -> io::Result<libc::pid_t> + 'static) -> Prepared {
    family(Ending { make, status: 0 })
}

/// Returns an operation that includes children, which inherit the processor to which this process is bound.
pub(super) fn family(step: impl Step + 'static) -> Prepared {
    let sharing = Sharing::OneCpu { partners: Vec::new() };
    Prepared { operation: Box::new(Steps::of(step)), baseline: None, sharing }
}

struct Ending<M> {
    make: M,
    status: libc::c_int,
}

/// Largest exit status: the statuses cycle from 1 to this one. Shells assign special meanings to higher ones.
const STATUSES: libc::c_int = 125;

impl<M: FnMut(libc::c_int) -> io::Result<libc::pid_t>> Step for Ending<M> {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.status = self.status % STATUSES + 1;
        let child = (self.make)(self.status)?;
        reap(child, self.status)
    }

    /// Every child has returned its status, otherwise `step` would have failed.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Waits for a child, which must end with this exit status.
#[inline]
pub(super) fn reap(child: libc::pid_t, exit_status: libc::c_int) -> io::Result<()> {
    let mut status = -1;
    // SAFETY: waits for a child of this process; the pointer is to a local.
    let ended = check("waitpid", unsafe { libc::waitpid(child, &raw mut status, 0) })?;
    if ended == child && status == exit_status << 8 {
        Ok(())
    } else {
        Err(ended_otherwise(status, exit_status))
    }
}

#[cold]
fn ended_otherwise(status: libc::c_int, wanted: libc::c_int) -> io::Error {
    io::Error::other(format!("the child ended with wait status {status:#x} instead of exit status {wanted}"))
}

/// Forks. The child continues with `life`, which makes system calls only, and has failed if `life` returns.
#[inline]
pub(super) fn fork(life: impl FnOnce()) -> io::Result<libc::pid_t> {
    // SAFETY: `life` makes system calls only, and the child never returns from here.
    let pid = check("fork", unsafe { libc::fork() })?;
    if pid == 0 {
        life();
        // SAFETY: ends the copy.
        unsafe { libc::_exit(bare::EXEC_FAILED) };
    }
    Ok(pid)
}

/// Children whose whole code is one block of machine code that accesses no memory: the call that creates the
/// child, the single call that it makes, and its exit if that call returns.
///
/// A child that runs in its parent's memory, on its stack, while the parent waits must be such a block: if it
/// returned from the function that created it, its changes of the stack would affect the parent. A child with
/// a copy of the memory causes hardly any page faults if it is one.
pub(super) mod bare {
    use std::ffi::CStr;
    use std::io;

    use crate::benchmark::Refusal;

    /// The status that shells return for a command that cannot be executed.
    pub(in super::super) const EXEC_FAILED: libc::c_int = 126;

    /// A system call: its number and its arguments.
    #[derive(Debug, Clone, Copy)]
    pub(in super::super) struct Call {
        number: libc::c_long,
        arguments: [usize; 3],
    }

    /// Returns the call that creates a child like `fork`. Fails if this file contains no code for the
    /// processor.
    pub(in super::super) fn fork() -> Result<Call, Refusal> {
        written(FORK)
    }

    /// The same as [`fork`] for `vfork`.
    pub(in super::super) fn vfork() -> Result<Call, Refusal> {
        written(VFORK)
    }

    fn written(call: Option<Call>) -> Result<Call, Refusal> {
        call.ok_or_else(|| {
            Refusal::Unavailable(
                "the code of the child is not written for this architecture; see process.fork_exit"
                    .to_owned(),
            )
        })
    }

    /// Returns a call of `clone3`. The arguments must request borrowed memory, and outlive the call.
    pub(in super::super) fn clone3(arguments: &libc::clone_args) -> Call {
        let size = size_of::<libc::clone_args>();
        Call {
            number: libc::SYS_clone3,
            arguments: [std::ptr::from_ref(arguments).expose_provenance(), size, 0],
        }
    }

    /// Returns the call that ends a process.
    pub(in super::super) fn exit(status: libc::c_int) -> Call {
        Call { number: libc::SYS_exit_group, arguments: [status.unsigned_abs() as usize, 0, 0] }
    }

    /// Returns the call that executes a program. The name and both lists, which end with null pointers, must
    /// outlive the call.
    pub(in super::super) fn execve(
        program: &CStr,
        arguments: &[*const libc::c_char],
        environment: &[*const libc::c_char],
    ) -> Call {
        let arguments = [
            program.as_ptr().expose_provenance(),
            arguments.as_ptr().expose_provenance(),
            environment.as_ptr().expose_provenance(),
        ];
        Call { number: libc::SYS_execve, arguments }
    }

    /// Creates a child by the call `child`. The child only makes the call `act`.
    #[inline]
    pub(in super::super) fn make(child: Call, act: Call) -> io::Result<libc::pid_t> {
        // SAFETY: the calls come from the functions above, whose pointers are valid. The child has a copy of
        // the memory, or this process waits until the child has left it.
        let result = unsafe { code::make(child, act) };
        if result < 0 { Err(failed(result)) } else { libc::pid_t::try_from(result).map_err(io::Error::other) }
    }

    #[cold]
    fn failed(result: libc::c_long) -> io::Error {
        io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(libc::EINVAL))
    }

    #[cfg(target_arch = "x86_64")]
    const FORK: Option<Call> = Some(Call { number: libc::SYS_fork, arguments: [0; 3] });

    #[cfg(target_arch = "x86_64")]
    const VFORK: Option<Call> = Some(Call { number: libc::SYS_vfork, arguments: [0; 3] });

    #[cfg(target_arch = "aarch64")]
    const FORK: Option<Call> =
        Some(Call { number: libc::SYS_clone, arguments: [libc::SIGCHLD.unsigned_abs() as usize, 0, 0] });

    #[cfg(target_arch = "aarch64")]
    const VFORK: Option<Call> = Some(Call {
        number: libc::SYS_clone,
        arguments: [(libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD).unsigned_abs() as usize, 0, 0],
    });

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    const FORK: Option<Call> = None;

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    const VFORK: Option<Call> = None;

    #[cfg(target_arch = "x86_64")]
    mod code {
        use super::{Call, EXEC_FAILED};
        use std::arch::asm;

        /// # Safety
        /// `child` must create a child with a copy of the memory of its parent, or one that borrows it while
        /// the parent waits; `act` must be valid for the child.
        #[inline]
        pub(super) unsafe fn make(child: Call, act: Call) -> libc::c_long {
            let result;
            // SAFETY: the parent takes the jump with only those registers changed that the kernel changes;
            // the child never leaves the block.
            unsafe {
                asm!(
                    "syscall",
                    "test rax, rax",
                    "jnz 2f",
                    "mov rax, r12",
                    "mov rdi, r8",
                    "mov rsi, r9",
                    "mov rdx, r10",
                    "syscall",
                    "mov eax, {exit_group}",
                    "mov edi, {exec_failed}",
                    "syscall",
                    "2:",
                    exit_group = const libc::SYS_exit_group,
                    exec_failed = const EXEC_FAILED,
                    inlateout("rax") child.number => result,
                    in("rdi") child.arguments[0],
                    in("rsi") child.arguments[1],
                    in("rdx") child.arguments[2],
                    in("r12") act.number,
                    in("r8") act.arguments[0],
                    in("r9") act.arguments[1],
                    in("r10") act.arguments[2],
                    lateout("rcx") _,
                    lateout("r11") _,
                    options(nostack),
                );
            }
            result
        }
    }

    /// Written from the architecture manual and not yet verified on such a machine.
    #[cfg(target_arch = "aarch64")]
    mod code {
        use super::{Call, EXEC_FAILED};
        use std::arch::asm;

        /// # Safety
        /// `child` must create a child with a copy of the memory of its parent, or one that borrows it while
        /// the parent waits; `act` must be valid for the child.
        #[inline]
        pub(super) unsafe fn make(child: Call, act: Call) -> libc::c_long {
            let result;
            // SAFETY: the parent takes the branch with only the register of the result changed; the child
            // never leaves the block.
            unsafe {
                asm!(
                    "svc #0",
                    "cbnz x0, 2f",
                    "mov x8, x9",
                    "mov x0, x10",
                    "mov x1, x11",
                    "mov x2, x12",
                    "svc #0",
                    "mov x8, {exit_group}",
                    "mov x0, {exec_failed}",
                    "svc #0",
                    "2:",
                    exit_group = const libc::SYS_exit_group,
                    exec_failed = const EXEC_FAILED,
                    in("x8") child.number,
                    inlateout("x0") child.arguments[0] => result,
                    in("x1") child.arguments[1],
                    in("x2") child.arguments[2],
                    in("x3") 0,
                    in("x4") 0,
                    in("x9") act.number,
                    in("x10") act.arguments[0],
                    in("x11") act.arguments[1],
                    in("x12") act.arguments[2],
                    options(nostack),
                );
            }
            result
        }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    mod code {
        use super::Call;

        /// # Safety
        /// None: no child is created.
        pub(super) unsafe fn make(_: Call, _: Call) -> libc::c_long {
            -libc::c_long::from(libc::ENOSYS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_child_ends_with_its_status_and_leaves_the_stack_alone() {
        let canary = std::hint::black_box([7_u8; 256]);
        for make in [bare::fork().unwrap(), bare::vfork().unwrap()] {
            for status in 1..100 {
                let child = bare::make(make, bare::exit(status)).unwrap();
                reap(child, status).unwrap();
            }
        }
        assert!(canary.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn a_program_that_cannot_be_executed_ends_only_the_child() {
        let missing = [c"/no/such/program".as_ptr(), std::ptr::null()];
        let act = bare::execve(c"/no/such/program", &missing, &missing[1..]);
        let child = bare::make(bare::vfork().unwrap(), act).unwrap();
        reap(child, bare::EXEC_FAILED).unwrap();
    }

    #[test]
    fn an_unexpected_status_is_an_error() {
        // SAFETY: the child exits immediately.
        let child = fork(|| unsafe { libc::_exit(3) }).unwrap();
        let error = reap(child, 4).unwrap_err().to_string();
        assert_eq!(error, "the child ended with wait status 0x300 instead of exit status 4");
        assert!(reap(child, 3).unwrap_err().to_string().contains("waitpid"), "no child is left");
    }
}
