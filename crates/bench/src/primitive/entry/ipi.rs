//! An interrupt that one processor sends to another, and the wait until it is handled (own; the cost of a
//! change that takes effect immediately on every processor: a new mapping of code, an expedited barrier, a
//! TLB shootdown).
//!
//! `membarrier` with `PRIVATE_EXPEDITED` interrupts every processor that runs a thread of the caller's
//! process, makes each execute a memory barrier, and returns when all have done so. The same call while that
//! thread sleeps checks the same processors and interrupts none: it is the baseline.

use std::io;
use std::rc::Rc;

use assay_quantity::PrimitiveId;

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::{check, failed};
use crate::primitive::kit::interrupts::Due;
use crate::primitive::kit::spinner::{Activity, Spinner};
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    quick: &["interrupt.ipi{cpus=different}"],
    full: &[],
    cost: Per::Operation,
    calls: &["membarrier"],
    about: "an interrupt of another processor in user mode, until it responds: `membarrier` with a thread \
            running there, less `membarrier` with the thread asleep",
    source: "own: the wait of every change that takes effect immediately on all processors",
    prepare: ipi,
}];

/// Prepares an interrupt of another processor and its response.
fn ipi(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let register = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    if register < 0 {
        let error = failed("membarrier");
        return Err(Refusal::Unavailable(format!("{error}; it needs Linux 4.14 with CONFIG_MEMBARRIER")));
    }
    let spinner = Rc::new(Spinner::start(setting)?);
    let due = Due::counted("Function call interrupts", spinner.cpu())?.ok_or_else(|| {
        Refusal::Unavailable(
            "/proc/interrupts does not count function call interrupts, so they cannot be verified".to_owned(),
        )
    })?;
    let sharing = spinner.sharing();
    let interrupting = Box::new(Steps::of(Barrier { spinner: spinner.clone(), due: Some(due) }));
    let beside_a_sleeper = Box::new(Steps::of(Barrier { spinner, due: None }));
    Ok(Prepared { operation: interrupting, baseline: Some(beside_a_sleeper), sharing })
}

#[inline]
fn membarrier(command: libc::c_int) -> libc::c_long {
    // SAFETY: the call takes integers only.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

struct Barrier {
    spinner: Rc<Spinner>,
    /// The interrupts that the other processor must take; `None` if the thread sleeps.
    due: Option<Due>,
}

impl Step for Barrier {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        match &mut self.due {
            Some(due) => {
                due.begin()?;
                // Last, because the thread can be preempted again at any time.
                self.spinner.set(Activity::Spinning)
            }
            None => self.spinner.set(Activity::Sleeping),
        }
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        check("membarrier", membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)).map(drop)
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.due.as_mut().map_or(Ok(()), |due| due.settle(operations))
    }
}
