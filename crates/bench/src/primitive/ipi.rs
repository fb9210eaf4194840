//! An interrupt that one processor sends to another, and waits for (own; what a change that every processor must
//! know of at once costs: a new mapping of code, an expedited barrier, a TLB shootdown).
//!
//! `membarrier` with `PRIVATE_EXPEDITED` interrupts every processor that runs a thread of the caller's process, has
//! each do a memory barrier, and returns when all have. The same call while that thread sleeps looks at the same
//! processors and interrupts none: it is the baseline.

use std::io;
use std::rc::Rc;

use assay_quantity::PrimitiveId;

use super::interrupts;
use super::spinner::{Activity, Spinner};
use super::step::{Step, Steps};
use crate::benchmark::{Prepared, Refusal, Setting};
use crate::kernel::{check, failed};
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    ids: &["interrupt.ipi{cpus=different}"],
    profile: Profile::Quick,
    cost: Per::Operation,
    calls: &["membarrier"],
    about: "interrupt to a processor in user mode, until it has answered: membarrier with a thread running there, \
            less membarrier with the thread asleep",
    source: "own: what every change that other processors must know of at once waits for",
    prepare: ipi,
}];

/// At least one in so many operations must have interrupted the other processor. All of them do while the thread
/// runs there; that others keep it from running is contamination, which the sample's witness sees and tells.
const SHARE_MIN: u64 = 10;

/// What the interrupts are counted as.
const FUNCTION_CALLS: &str = "Function call interrupts";

/// One interrupt to another processor, and its answer.
fn ipi(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let register = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    if register < 0 {
        let error = failed("membarrier");
        return Err(Refusal::Unavailable(format!("{error}; it needs Linux 4.14 with CONFIG_MEMBARRIER")));
    }
    let spinner = Rc::new(Spinner::start(setting)?);
    if interrupts::taken(FUNCTION_CALLS, spinner.cpu())?.is_none() {
        return Err(Refusal::Unavailable(
            "/proc/interrupts does not count function call interrupts, so nothing shows that one was taken"
                .to_owned(),
        ));
    }
    let sharing = spinner.sharing();
    let barriers = |activity| {
        Box::new(Steps::of(Barrier { spinner: spinner.clone(), activity, taken_before: 0, turns_before: 0 }))
    };
    let (operation, baseline) = (barriers(Activity::Spinning), barriers(Activity::Sleeping));
    Ok(Prepared { operation, baseline: Some(baseline), sharing })
}

#[inline]
fn membarrier(command: libc::c_int) -> libc::c_long {
    // SAFETY: the call takes integers only.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

struct Barrier {
    spinner: Rc<Spinner>,
    activity: Activity,
    taken_before: u64,
    turns_before: u64,
}

impl Barrier {
    fn taken(&self) -> io::Result<u64> {
        let taken = interrupts::taken(FUNCTION_CALLS, self.spinner.cpu())?;
        taken.ok_or_else(|| io::Error::other("/proc/interrupts has lost its count of function calls"))
    }
}

impl Step for Barrier {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.spinner.set(self.activity)?;
        self.taken_before = self.taken()?;
        self.turns_before = self.spinner.turns();
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        check("membarrier", membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)).map(drop)
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        if self.activity == Activity::Sleeping {
            return Ok(());
        }
        let taken = self.taken()? - self.taken_before;
        if self.spinner.turns() == self.turns_before {
            return Err(io::Error::other("the thread on the other processor did not run"));
        }
        if taken >= operations / SHARE_MIN {
            return Ok(());
        }
        Err(io::Error::other(format!("{operations} interrupts were due and {taken} taken")))
    }
}
