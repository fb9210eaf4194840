//! Installing a signal handler, and the delivery of a signal: one that a process sends to itself, and one
//! that a store to a read-only page causes (lmbench, 1996, section 6.4; lmbench 3, `lat_sig prot`).

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use assay_quantity::PrimitiveId;
use rand_pcg::Pcg64Mcg;
use rustix::mm::{MprotectFlags, mprotect};

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::check;
use crate::platform::layout::Buffer;
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["signal.install"],
        full: &[],
        cost: Per::Operation,
        calls: &["rt_sigaction"],
        about: "`sigaction` that installs a handler and returns the previous one",
        source: "lmbench 1996, section 6.4",
        prepare: install,
    },
    Row {
        quick: &["signal.deliver"],
        full: &[],
        cost: Per::Operation,
        calls: &["kill", "rt_sigreturn"],
        about: "`kill` to this process, the handler, and the return from it",
        source: "lmbench 1996, section 6.4",
        prepare: deliver,
    },
    Row {
        quick: &["signal.protection_fault"],
        full: &[],
        cost: Per::Operation,
        calls: &["rt_sigreturn"],
        about: "a store to a read-only page, the handler, which sets the program counter after the store, \
                and the return from it",
        source: "lmbench 3, lat_sig prot",
        prepare: protection_fault,
    },
];

static DELIVERED: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    DELIVERED.fetch_add(1, Ordering::Relaxed);
}

fn action() -> libc::sigaction {
    let handler: extern "C" fn(libc::c_int) = count;
    // SAFETY: zeroes are a valid `sigaction`: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action
}

fn install_action(signal: libc::c_int, action: &libc::sigaction) -> io::Result<()> {
    // SAFETY: the handlers of this file only do what is allowed in a signal handler.
    check("sigaction", unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) }).map(drop)
}

/// Prepares one `sigaction` that installs a handler and returns the previous one, as in lmbench.
fn install(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let restarting = libc::sigaction { sa_flags: libc::SA_RESTART, ..action() };
    Ok(Prepared::alone(Steps::of(Install { actions: [action(), restarting], next: 0 })))
}

/// Alternately installs two handlers, which differ in a flag, so that each call must return the handler of
/// the previous call.
struct Install {
    actions: [libc::sigaction; 2],
    next: usize,
}

impl Step for Install {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        install_action(libc::SIGUSR1, &self.actions[self.next ^ 1])
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let mut before = self.actions[self.next];
        // SAFETY: the handler only does what is allowed; both pointers are to values that outlive the call.
        let result = unsafe { libc::sigaction(libc::SIGUSR1, &self.actions[self.next], &raw mut before) };
        check("sigaction", result)?;
        self.next ^= 1;
        if (before.sa_flags ^ self.actions[self.next].sa_flags) & libc::SA_RESTART == 0 {
            Ok(())
        } else {
            Err(io::Error::other("sigaction returned 0, but not the previous handler"))
        }
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        // Every call has already checked the previous one.
        Ok(())
    }
}

/// Prepares `kill` to this process, the handler, and the return from it.
fn deliver(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    install_action(libc::SIGUSR1, &action())?;
    // SAFETY: the call takes no arguments and cannot fail.
    let own = unsafe { libc::getpid() };
    Ok(Prepared::alone(Deliver { own, before: 0 }))
}

struct Deliver {
    own: libc::pid_t,
    before: u64,
}

impl Operation for Deliver {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.before = DELIVERED.load(Ordering::Relaxed);
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            // SAFETY: sends a signal that has a handler to this process.
            check("kill", unsafe { libc::kill(self.own, libc::SIGUSR1) })?;
        }
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let delivered = DELIVERED.load(Ordering::Relaxed) - self.before;
        if delivered == operations {
            Ok(())
        } else {
            Err(io::Error::other(format!("{operations} signals were sent, but {delivered} were handled")))
        }
    }
}

/// Prepares one forbidden store and its signal.
///
/// The handler of lmbench returns to the store, which faults again, so that the kernel drives the loop. This
/// handler sets the program counter to the instruction after the store, as in a garbage collector or an
/// emulator, so that both the program and the handler count every store.
fn protection_fault(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Forbidden::new(&mut setting.rng)?))
}

/// The address of the forbidden stores.
static FORBIDDEN: AtomicUsize = AtomicUsize::new(0);
static FAULTS: AtomicU64 = AtomicU64::new(0);

extern "C" fn step_over(_: libc::c_int, fault: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes pointers to both, and the signal has an address.
    let (address, context) = unsafe { ((*fault).si_addr(), &mut *context.cast::<libc::ucontext_t>()) };
    if address as usize == FORBIDDEN.load(Ordering::Relaxed) {
        FAULTS.fetch_add(1, Ordering::Relaxed);
        skip_store(context);
    } else {
        // A fault of another origin: it recurs and then ends the process.
        // SAFETY: the call is allowed in a signal handler.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
    }
}

/// Attempts a store to the address.
///
/// # Safety
/// A fault at the address must be handled by [`step_over`].
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn store(address: *mut u8) {
    // SAFETY: the store has no effect, and the handler continues at the label, whose address is in `r8`.
    unsafe {
        std::arch::asm!(
            "lea r8, [rip + 2f]",
            "mov byte ptr [{address}], 1",
            "2:",
            address = in(reg) address,
            out("r8") _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(target_arch = "x86_64")]
fn skip_store(context: &mut libc::ucontext_t) {
    let registers = &mut context.uc_mcontext.gregs;
    registers[libc::REG_RIP as usize] = registers[libc::REG_R8 as usize];
}

/// Attempts a store to the address.
///
/// # Safety
/// A fault at the address must be handled by [`step_over`].
#[cfg(target_arch = "aarch64")]
#[inline]
unsafe fn store(address: *mut u8) {
    // SAFETY: the store has no effect, and the handler continues after it.
    unsafe {
        std::arch::asm!("strb wzr, [{address}]", address = in(reg) address, options(nostack, preserves_flags));
    }
}

#[cfg(target_arch = "aarch64")]
fn skip_store(context: &mut libc::ucontext_t) {
    // Every instruction is four bytes long.
    context.uc_mcontext.pc += 4;
}

struct Forbidden {
    _buffer: Buffer,
    read_only: *mut u8,
    before: u64,
}

impl Forbidden {
    fn new(rng: &mut Pcg64Mcg) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let mut buffer = Buffer::new(2 * page, rng)?;
        let skipped = buffer.as_ptr().align_offset(page);
        let read_only = &raw mut buffer[skipped];
        // SAFETY: a whole page of our own buffer, to which no reference is created afterwards.
        unsafe { mprotect(read_only.cast(), page, MprotectFlags::READ) }?;
        FORBIDDEN.store(read_only as usize, Ordering::Relaxed);
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = step_over;
        let mut action = action();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO;
        install_action(libc::SIGSEGV, &action)?;
        Ok(Self { _buffer: buffer, read_only, before: 0 })
    }
}

impl Operation for Forbidden {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.before = FAULTS.load(Ordering::Relaxed);
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            // SAFETY: `protection_fault` has installed the handler for this address.
            unsafe { store(self.read_only) };
        }
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let faults = FAULTS.load(Ordering::Relaxed) - self.before;
        // SAFETY: the page can be read, and lives in `_buffer`.
        let stored = unsafe { self.read_only.read_volatile() } != 0;
        if faults == operations && !stored {
            return Ok(());
        }
        Err(io::Error::other(format!("{operations} stores were attempted, but {faults} faults were handled")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn a_wrong_previous_handler_is_an_error() {
        let restarting = libc::sigaction { sa_flags: libc::SA_RESTART, ..action() };
        let mut install = Install { actions: [action(), restarting], next: 0 };
        install.arm(2).unwrap();
        install.step().unwrap();
        install.step().unwrap();
        install_action(libc::SIGUSR1, &action()).unwrap();
        assert!(install.step().unwrap_err().to_string().contains("not the previous handler"));
    }

    #[test]
    fn every_forbidden_store_is_one_fault_and_a_writable_page_is_an_error() {
        let mut forbidden = Forbidden::new(&mut Pcg64Mcg::seed_from_u64(1)).unwrap();
        for operations in [1, 20] {
            forbidden.arm(operations).unwrap();
            forbidden.run(operations).unwrap();
            forbidden.disarm(operations).unwrap();
        }
        let (page, writable) = (rustix::param::page_size(), MprotectFlags::READ | MprotectFlags::WRITE);
        // SAFETY: the same page, to which no reference exists.
        unsafe { mprotect(forbidden.read_only.cast(), page, writable) }.unwrap();
        forbidden.arm(5).unwrap();
        forbidden.run(5).unwrap();
        let error = forbidden.disarm(5).unwrap_err().to_string();
        assert!(error.contains("5 stores were attempted, but 0 faults were handled"), "{error}");
    }
}
