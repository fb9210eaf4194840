//! Copies of a benchmark that run at the same time (thesis, section 4.3): what one operation costs when others
//! do the same beside it.
//!
//! The process that measures forks the other copies; each prepares the benchmark for itself, from a seed of its
//! own, says that it is ready, and then does batch after batch until it is killed. Only the measuring process is
//! timed: it is placed anew for every sample, so that over the samples it has been in every place.

use std::io;
use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, pipe_with};

use crate::benchmark::{Prepared, Refusal};
use crate::clock::Source;
use crate::harness::{self, Schedule};
use crate::kernel;
use crate::partner::Partner;

/// The copies beside this process, which end when it is dropped.
pub(crate) struct Copies {
    partners: Vec<Partner>,
    /// Whether copies share processors, or may come to: waiting for another is then part of the figure.
    pub(crate) crowded: bool,
}

/// How many copies there are and where they run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crowd<'a> {
    /// All of them, this process included.
    pub(crate) copies: u64,
    /// Processors that they may use.
    pub(crate) cpus: &'a [usize],
    /// The one that this process has.
    pub(crate) own: usize,
    /// Whether the scheduler places them.
    pub(crate) free: bool,
}

/// More copies than this on one processor measure the scheduler only.
const COPIES_PER_CPU: u64 = 64;

impl Copies {
    /// Starts the others, and returns when each of them is at work. `prepare` gets the number of the copy and
    /// its processor.
    pub(crate) fn start(
        crowd: Crowd<'_>,
        clock: Source,
        schedule: Schedule,
        prepare: &dyn Fn(u64, usize) -> Result<Prepared, Refusal>,
    ) -> Result<Self, Refusal> {
        let Crowd { copies, cpus, own, free } = crowd;
        let most = COPIES_PER_CPU * cpus.len() as u64;
        if copies == 0 || copies > most {
            return Err(Refusal::Unavailable(format!("copies={copies} is not between 1 and {most}")));
        }
        let (ready, report) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let position = cpus.iter().position(|cpu| *cpu == own).unwrap_or(0);
        let places = cpus.iter().cycle().skip(position + 1);
        let mut partners = Vec::new();
        for (copy, cpu) in (1..copies).zip(places) {
            partners.push(Partner::fork(*cpu, || {
                let work = || -> Result<(), Refusal> {
                    if free {
                        kernel::allow(cpus)?;
                    }
                    let mut prepared = prepare(copy, *cpu)?;
                    let mut at_work = || rustix::io::write(&report, &[1]).map(drop).map_err(io::Error::from);
                    harness::go_on(&clock, schedule, prepared.operation.as_mut(), &mut at_work)?;
                    Ok(())
                };
                i32::from(work().is_err())
            })?);
        }
        drop(report);
        wait_for(&ready, copies - 1)?;
        let crowded = copies > 1 && (free || copies > cpus.len() as u64);
        Ok(Self { partners, crowded })
    }

    /// How many there are.
    pub(crate) fn beside(&self) -> u64 {
        self.partners.len() as u64
    }

    /// That none of them has ended: a figure beside fewer copies would be the wrong one.
    pub(crate) fn check_running(&self) -> io::Result<()> {
        for partner in &self.partners {
            if has_ended(partner)? {
                return Err(io::Error::other("a copy ended before the measurement did"));
            }
        }
        Ok(())
    }
}

/// Whether a child has ended; it is left to be waited for.
fn has_ended(partner: &Partner) -> io::Result<bool> {
    let id = libc::id_t::try_from(partner.pid()).map_err(io::Error::other)?;
    // SAFETY: zeroes are a value of `siginfo_t`, which the call fills; 0 in it means that nobody has ended.
    unsafe {
        let mut ended: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        kernel::check("waitid", libc::waitid(libc::P_PID, id, &raw mut ended, options))?;
        Ok(ended.si_pid() != 0)
    }
}

/// Waits until so many copies have said that they are at work.
fn wait_for(ready: &OwnedFd, copies: u64) -> io::Result<()> {
    for _ in 0..copies {
        if rustix::io::read(ready, &mut [0])? == 0 {
            return Err(io::Error::other("a copy could not be prepared"));
        }
    }
    Ok(())
}
