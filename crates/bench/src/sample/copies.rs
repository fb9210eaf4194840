//! Copies of a benchmark that run at the same time (thesis, section 4.3): the cost of one operation while
//! others do the same.
//!
//! The measuring process forks the other copies. Each prepares its own benchmark from its own seed, reports
//! that it is at work, and then repeats batches until it is killed. Only the measuring process is timed.
//! Every sample chooses its processor again, so that the samples cover all processors.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};

use assay_process::cpus;
use assay_quantity::{Key, PrimitiveId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};

use super::harness::{self, Schedule};
use crate::benchmark::{Prepared, Refusal};
use crate::platform::clock::Source;
use crate::platform::kernel;
use crate::platform::partner::Partner;

/// The copies other than this process. Dropping it ends them.
pub(crate) struct Copies {
    partners: Vec<Partner>,
    /// Whether copies share processors, or may do so: waiting for another is then part of the figure.
    pub(crate) crowded: bool,
}

/// The number of copies and their processors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crowd<'a> {
    /// Number of copies, including this process.
    pub(crate) copies: u64,
    /// Processors that they may use.
    pub(crate) cpus: &'a [usize],
    /// The processor of this process.
    pub(crate) own: usize,
    /// Whether the scheduler chooses the processors.
    pub(crate) free: bool,
}

impl<'a> Crowd<'a> {
    /// Returns the copies that an id requests; `own` is the processor of this process.
    pub(crate) fn of(id: &PrimitiveId, cpus: &'a [usize], own: usize) -> Result<Self, Refusal> {
        let copies = id.number(Key::Copies).unwrap_or(1);
        if copies > 1 && [Key::From, Key::To].into_iter().any(|key| id.number(key).is_some()) {
            return Err(Refusal::Unavailable(format!(
                "all copies of {id} would run on the processors given by from and to; use one copy"
            )));
        }
        Ok(Self { copies, cpus, own, free: id.word(Key::Placement) == "free" })
    }
}

/// Maximum number of copies per processor: more would measure only the scheduler.
const COPIES_PER_CPU: u64 = 64;

impl Copies {
    /// Starts the other copies, and returns when all of them are at work. `prepare` receives the number of
    /// the copy, its processor, and a second processor for a partner of the copy, if there is one.
    pub(crate) fn start(
        crowd: Crowd<'_>,
        clock: Source,
        schedule: Schedule,
        prepare: &dyn Fn(u64, usize, Option<usize>) -> Result<Prepared, Refusal>,
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
                let work = || -> Result<Infallible, Refusal> {
                    if free {
                        cpus::allow(cpus)?;
                    }
                    let mut prepared = prepare(copy, *cpu, second(cpus, *cpu))?;
                    let mut at_work = || Report::AtWork.write_to(&report);
                    Ok(harness::go_on(&clock, schedule, prepared.operation.as_mut(), &mut at_work)?)
                };
                let Err(refusal) = work();
                // If the report is lost, the measuring process detects that the copy has ended.
                let _ = Report::from(refusal).write_to(&report);
                libc::EXIT_FAILURE
            })?);
        }
        wait_for(ready, &partners)?;
        let crowded = copies > 1 && (free || copies > cpus.len() as u64);
        Ok(Self { partners, crowded })
    }

    /// Returns the number of other copies.
    pub(crate) fn beside(&self) -> u64 {
        self.partners.len() as u64
    }

    /// Fails if one of them has ended: the figure would be for fewer copies.
    pub(crate) fn check_running(&self) -> io::Result<()> {
        check_running(&self.partners)
    }
}

/// Returns a second processor: the next one, so that the partners are distributed like the copies.
fn second(cpus: &[usize], cpu: usize) -> Option<usize> {
    let place = cpus.iter().position(|own| *own == cpu)?;
    cpus.iter().cycle().nth(place + 1).copied().filter(|other| *other != cpu)
}

/// A report of a copy, as a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
enum Report {
    AtWork,
    Unavailable(String),
    Failed(String),
}

impl From<Refusal> for Report {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unavailable(reason) => Self::Unavailable(reason),
            Refusal::Failed(_) => Self::Failed(refusal.to_string()),
        }
    }
}

impl Report {
    /// Writes the report with a single call, so that reports of several copies do not mix.
    fn write_to(&self, report: &OwnedFd) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        let written = rustix::io::write(report, &line)?;
        if written == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

fn check_running(partners: &[Partner]) -> io::Result<()> {
    for partner in partners {
        if has_ended(partner)? {
            return Err(io::Error::other("a copy ended before the measurement did"));
        }
    }
    Ok(())
}

/// Whether a child has ended; does not reap it.
fn has_ended(partner: &Partner) -> io::Result<bool> {
    let id = libc::id_t::try_from(partner.pid()).map_err(io::Error::other)?;
    // SAFETY: zeroes are a valid `siginfo_t`, which the call fills; a pid of 0 means that no child has ended.
    unsafe {
        let mut ended: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        kernel::check("waitid", libc::waitid(libc::P_PID, id, &raw mut ended, options))?;
        Ok(ended.si_pid() != 0)
    }
}

/// Waits until all copies have reported that they are at work.
fn wait_for(ready: OwnedFd, partners: &[Partner]) -> Result<(), Refusal> {
    let mut reports = BufReader::new(File::from(ready));
    for _ in partners {
        match next_report(&mut reports, partners)? {
            Report::AtWork => {}
            Report::Unavailable(reason) => return Err(Refusal::Unavailable(reason)),
            Report::Failed(reason) => {
                return Err(io::Error::other(format!("a copy could not be prepared: {reason}")).into());
            }
        }
    }
    Ok(())
}

/// Interval at which a wait for reports checks whether a copy has ended.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Returns the next report of any copy. A copy that ended without a report is detected by checking the
/// processes: the other copies, and the processes that they forked, keep the pipe open.
fn next_report(reports: &mut BufReader<File>, partners: &[Partner]) -> io::Result<Report> {
    while reports.buffer().is_empty() {
        // Check before reading the pipe: it then contains all reports of a copy that has ended.
        let running = check_running(partners);
        let ready = PollFd::from_borrowed_fd(reports.get_ref().as_fd(), PollFlags::IN);
        if poll(&mut [ready], Some(&LOOK))? > 0 {
            break;
        }
        running?;
    }
    let mut line = String::new();
    reports.read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEDULE: Schedule = Schedule { pairs: 1, batch_ns: 1000.0 };

    /// Starts three other copies; `prepare` receives their numbers.
    fn three_more(prepare: &dyn Fn(u64) -> Result<Prepared, Refusal>) -> Result<Copies, String> {
        let cpus = cpus::allowed().unwrap();
        let crowd = Crowd { copies: 4, cpus: &cpus, own: cpus[0], free: false };
        Copies::start(crowd, Source::MonotonicRaw, SCHEDULE, &|copy, _, _| prepare(copy))
            .map_err(|refusal| format!("{refusal:?}"))
    }

    fn works() -> Result<Prepared, Refusal> {
        Ok(Prepared::repeat(|| Ok(())))
    }

    #[test]
    fn copies_are_at_work_until_they_are_dropped() {
        let copies = three_more(&|_| works()).unwrap();
        assert_eq!(copies.beside(), 3);
        copies.check_running().unwrap();
    }

    #[test]
    fn the_reason_of_a_failed_copy_is_reported_while_the_others_continue() {
        for one in 1..4 {
            let but = |refusal: &dyn Fn() -> Refusal| {
                three_more(&|copy| if copy == one { Err(refusal()) } else { works() }).err().unwrap()
            };
            assert_eq!(
                but(&|| Refusal::Unavailable("no \"disk\"".to_owned())),
                format!("{:?}", Refusal::Unavailable("no \"disk\"".to_owned()))
            );
            let failed = but(&|| io::Error::other("no memory").into());
            assert!(failed.contains("a copy could not be prepared: no memory"), "{failed}");
        }
    }

    #[test]
    fn a_copy_that_ends_without_a_report_is_detected_while_the_others_continue() {
        for one in 1..4 {
            let silent = three_more(&|copy| {
                if copy == one {
                    // Without the panic hook, which would print under a lock that another test may hold.
                    std::panic::resume_unwind(Box::new(()));
                }
                works()
            });
            let error = silent.err().unwrap();
            assert!(error.contains("a copy ended before the measurement did"), "{error}");
        }
    }

    #[test]
    fn the_partner_of_a_copy_has_another_processor_than_the_copy() {
        let seconds = |cpus: &[usize]| cpus.iter().map(|cpu| second(cpus, *cpu)).collect::<Vec<_>>();
        assert_eq!(seconds(&[0, 1]), [Some(1), Some(0)]);
        assert_eq!(seconds(&[2, 3, 7]), [Some(3), Some(7), Some(2)]);
        assert_eq!(seconds(&[5]), [None]);
    }

    #[test]
    fn copies_of_a_primitive_with_given_processors_are_refused() {
        let crowd = |id: &str| Crowd::of(&id.parse().unwrap(), &[0, 1], 0).map(|crowd| crowd.copies);
        for id in ["cache.transfer_line{from=0,to=1,copies=2}", "memory.load_node{from=0,to=0,copies=3}"] {
            let refusal = crowd(id).unwrap_err();
            assert!(matches!(refusal, Refusal::Unavailable(_)), "{refusal:?}");
            assert!(refusal.to_string().contains("use one copy"), "{refusal}");
        }
        assert_eq!(crowd("cache.transfer_line{from=0,to=1}").unwrap(), 1);
        assert_eq!(crowd("call.null{copies=2}").unwrap(), 2);
    }
}
