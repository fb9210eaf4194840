//! Installing a signal handler, and a signal's way to it (lmbench, 1996, section 6.4).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use assay_quantity::PrimitiveId;

use crate::benchmark::{Operation, Prepared, Refusal, Setting};
use crate::kernel::check;
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        ids: &["signal.install"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["rt_sigaction"],
        about: "sigaction that installs a handler",
        source: "lmbench 1996, section 6.4",
        prepare: install,
    },
    Row {
        ids: &["signal.deliver"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["kill"],
        about: "kill to this process, the handler, and the return from it",
        source: "lmbench 1996, section 6.4",
        prepare: deliver,
    },
];

static DELIVERED: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    DELIVERED.fetch_add(1, Ordering::Relaxed);
}

fn action() -> libc::sigaction {
    let handler: extern "C" fn(libc::c_int) = count;
    // SAFETY: zeroes are a value of `sigaction`: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action
}

fn install_action(action: &libc::sigaction) -> io::Result<()> {
    // SAFETY: the handler only adds to an atomic, which is allowed in a signal handler.
    check("sigaction", unsafe { libc::sigaction(libc::SIGUSR1, action, std::ptr::null_mut()) }).map(drop)
}

/// One `sigaction` that installs a handler.
fn install(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let action = action();
    Ok(Prepared::repeat(move || install_action(&action)))
}

/// `kill` to this process, the handler, and the return from it.
fn deliver(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    install_action(&action())?;
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
            // SAFETY: sends a signal, for which there is a handler, to this process.
            check("kill", unsafe { libc::kill(self.own, libc::SIGUSR1) })?;
        }
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let delivered = DELIVERED.load(Ordering::Relaxed) - self.before;
        if delivered == operations {
            Ok(())
        } else {
            Err(io::Error::other(format!("{operations} signals were sent and {delivered} handled")))
        }
    }
}
