//! The processors that the threads of a process may use, their time slices, and its pauses: changed, and
//! restored as found.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use assay_process::slice::{LONGEST, set_slice, slice, usual_slice};
use assay_process::{Process, descendants, is_gone, threads};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Passes over the threads of a process, which may start others meanwhile.
const PASSES: usize = 10;

/// How a process was found.
#[derive(Debug)]
pub struct Found {
    /// The process.
    pub process: Process,
    /// Whether its time slices may be lengthened.
    pub may_lengthen: bool,
    /// By which signals reach it and no other one that has its id later.
    handle: OwnedFd,
    /// Its threads, by their ids.
    threads: HashMap<i32, Thread>,
    /// How its first thread is scheduled.
    first: Scheduling,
    /// Its descendants, which are never changed.
    children: Vec<Process>,
    /// The time slice of threads for which none was chosen.
    usual: Option<Duration>,
}

/// How a thread was found.
#[derive(Debug, Clone, Copy)]
struct Thread {
    /// Its start time: ids are reused.
    start_ticks: u64,
    /// The processor that it was on.
    on: CpuSet,
    scheduling: Scheduling,
}

/// How the kernel schedules a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scheduling {
    /// The processors that it may use.
    cpus: CpuSet,
    /// Its time slice; `None` if it has none.
    slice: Option<Duration>,
}

impl Found {
    /// Reads a process, whose time slices may be lengthened if it is a batch job and the kernel can.
    pub fn read(process: Process, is_batch: bool) -> io::Result<Self> {
        let pid = Pid::from_raw(process.pid).ok_or(rustix::io::Errno::SRCH)?;
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        let mut known = HashMap::new();
        for thread in threads(process.pid)? {
            match (Process::read(thread)?, Scheduling::of(thread)) {
                (Some(Process { start_ticks, processor, .. }), Ok(scheduling)) => {
                    known.insert(thread, Thread { start_ticks, on: set(&[processor]), scheduling });
                }
                (_, Err(error)) if !is_gone(&error) => return Err(error),
                _ => {}
            }
        }
        let first = Scheduling::of(process.pid)?;
        let (children, usual) = (descendants(&[process])?, usual_slice()?);
        let may_lengthen = is_batch && first.slice.is_some();
        Ok(Self { process, may_lengthen, handle, threads: known, first, children, usual })
    }

    /// The processors of its first thread, in order.
    pub fn cpus(&self) -> Vec<usize> {
        (0..CpuSet::MAX_CPU).filter(|cpu| self.first.cpus.is_set(*cpu)).collect()
    }

    /// The processors that its threads were on.
    pub fn on(&self) -> impl Iterator<Item = CpuSet> {
        self.threads.values().map(|thread| thread.on)
    }

    /// Whether it is still there.
    pub fn is_alive(&self) -> io::Result<bool> {
        Ok(Process::read(self.process.pid)?.is_some_and(|now| now.is(&self.process) && now.is_alive()))
    }

    /// Moves all threads to these processors.
    pub fn move_to(&self, cpus: CpuSet) -> io::Result<()> {
        self.change(|_, now| Ok(Scheduling { cpus, ..now }))
    }

    /// Moves each thread to the processor where it was found.
    pub fn move_back(&self) -> io::Result<()> {
        self.change(|thread, now| {
            Ok(self.known(thread)?.map_or(now, |known| Scheduling { cpus: known.on, ..now }))
        })
    }

    /// Gives all threads the longest time slice.
    pub fn lengthen_slices(&self) -> io::Result<()> {
        self.change(|_, now| Ok(Scheduling { slice: now.slice.map(|_| LONGEST), ..now }))
    }

    /// Undoes [`Self::lengthen_slices`].
    pub fn restore_slices(&self) -> io::Result<()> {
        self.change(|thread, now| {
            let found = self.known(thread)?.map_or(self.first, |known| known.scheduling);
            Ok(Scheduling { slice: self.slice_before(found, now), ..now })
        })
    }

    /// Lets the kernel schedule each thread as found. A thread that is new, or one of a child that is new, is
    /// scheduled as the first thread was, in so far as it has what it inherited: the longest time slice, and
    /// one of the sets of processors that were `ours`.
    pub fn restore(&self, ours: &[CpuSet]) -> io::Result<()> {
        let inherited = |now: Scheduling| Scheduling {
            cpus: if ours.contains(&now.cpus) { self.first.cpus } else { now.cpus },
            slice: self.slice_before(self.first, now),
        };
        let mut result = self.change(|thread, now| {
            Ok(self.known(thread)?.map_or_else(
                || inherited(now),
                |Thread { scheduling: found, .. }| Scheduling {
                    slice: self.slice_before(*found, now),
                    ..*found
                },
            ))
        });
        for child in descendants(&[self.process])? {
            if !self.children.iter().any(|known| known.is(&child)) {
                result = result.and(change(child.pid, self.usual, |_, now| Ok(inherited(now))));
            }
        }
        result
    }

    /// Pauses it.
    pub fn pause(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it run again.
    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        pidfd_send_signal(&self.handle, signal).map_err(io::Error::from).or_else(ignore_gone)
    }

    /// How a thread was found; `None` if it is new.
    fn known(&self, thread: i32) -> io::Result<Option<&Thread>> {
        let process = Process::read(thread)?;
        let known = self.threads.get(&thread);
        Ok(known.filter(|known| process.is_some_and(|process| process.start_ticks == known.start_ticks)))
    }

    /// The time slice of a thread before it was lengthened; one that it chose since is left.
    fn slice_before(&self, found: Scheduling, now: Scheduling) -> Option<Duration> {
        if self.may_lengthen && now.slice == Some(LONGEST) { found.slice } else { now.slice }
    }

    /// As [`change`], if it is still there.
    fn change(&self, wanted: impl Fn(i32, Scheduling) -> io::Result<Scheduling>) -> io::Result<()> {
        if self.is_alive()? { change(self.process.pid, self.usual, wanted) } else { Ok(()) }
    }
}

impl Scheduling {
    fn of(thread: i32) -> io::Result<Self> {
        Ok(Self { cpus: sched_getaffinity(Pid::from_raw(thread))?, slice: slice(thread)? })
    }

    /// Sets what is not so for a thread, and returns whether that was something.
    fn set(self, thread: i32, usual: Option<Duration>, now: Self) -> io::Result<bool> {
        if self.cpus != now.cpus {
            sched_setaffinity(Pid::from_raw(thread), &self.cpus)?;
        }
        if let Some(slice) = self.slice.filter(|_| self.slice != now.slice) {
            // The usual one is not chosen, so that it follows the kernel's.
            set_slice(thread, if Some(slice) == usual { Duration::ZERO } else { slice })?;
        }
        Ok(self != now)
    }
}

/// Schedules each thread of a process as it is wanted for its id and how it is scheduled now, until nothing
/// changes. Returns the first error, after all others are set.
fn change(
    pid: i32,
    usual: Option<Duration>,
    wanted: impl Fn(i32, Scheduling) -> io::Result<Scheduling>,
) -> io::Result<()> {
    let set = |thread| {
        let now = Scheduling::of(thread)?;
        wanted(thread, now)?.set(thread, usual, now)
    };
    for _ in 0..PASSES {
        let listed = match threads(pid) {
            Ok(listed) => listed,
            Err(error) => return ignore_gone(error),
        };
        let (mut changed, mut result) = (false, Ok(()));
        for thread in listed {
            let one = set(thread).map(|is_new| changed |= is_new);
            result = result.and(one.or_else(ignore_gone));
        }
        if result.is_err() || !changed {
            return result;
        }
    }
    Err(io::Error::other("it starts threads faster than they can be changed"))
}

/// A set of processors.
pub fn set(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    set
}

/// A process that has ended needs nothing.
fn ignore_gone(error: io::Error) -> io::Result<()> {
    if is_gone(&error) { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A shell that starts a child for each line of its input. All end with it.
    struct Shell(Child);

    impl Shell {
        fn start() -> Self {
            let mut command = Command::new("sh");
            command.args(["-c", "while read line; do sleep 600 & done"]);
            Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
        }

        fn process(&self) -> Process {
            Process::read(self.0.id().cast_signed()).unwrap().unwrap()
        }

        /// Starts a child, and returns it with those before.
        fn children(&mut self) -> Vec<Process> {
            let children = || descendants(&[self.process()]).unwrap();
            let before = children().len();
            self.0.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
            loop {
                std::thread::sleep(std::time::Duration::from_millis(1));
                let mut now = children();
                now.sort_unstable_by_key(|child| child.start_ticks);
                if now.len() > before {
                    return now;
                }
                assert!(self.process().is_alive());
            }
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            for child in descendants(&[self.process()]).unwrap_or_default() {
                let _ = rustix::process::kill_process(Pid::from_raw(child.pid).unwrap(), Signal::KILL);
            }
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn cpus(thread: i32) -> CpuSet {
        Scheduling::of(thread).unwrap().cpus
    }

    #[test]
    fn threads_and_new_children_are_restored_and_earlier_children_left_alone() {
        let mut shell = Shell::start();
        let earlier = shell.children();
        let found = Found::read(shell.process(), false).unwrap();
        let (all, one) = (found.first.cpus, set(&found.cpus()[..1]));
        // As a server pins its workers.
        sched_setaffinity(Pid::from_raw(earlier[0].pid), &one).unwrap();
        found.move_to(one).unwrap();
        assert_eq!(cpus(shell.process().pid), one);
        let both = shell.children();
        let new = both.iter().find(|child| !child.is(&earlier[0])).unwrap();
        assert_eq!(cpus(new.pid), one);
        found.restore(&[one]).unwrap();
        assert_eq!([shell.process().pid, new.pid, earlier[0].pid].map(cpus), [all, all, one]);
    }

    #[test]
    fn time_slices_are_restored_and_those_that_were_chosen_since_left_alone() {
        let mut shell = Shell::start();
        let pid = shell.process().pid;
        // Without slices, as in kernels before 6.12, all of these are `None`.
        let usual = usual_slice().unwrap();
        let of = |time: Duration| usual.and(Some(time));
        let (first, chosen) = (Duration::from_millis(2), Duration::from_millis(4));
        let choose = |pid: i32, time: Duration| {
            if usual.is_some() {
                set_slice(pid, time).unwrap();
            }
        };
        choose(pid, first);
        let found = Found::read(shell.process(), true).unwrap();
        assert_eq!(found.may_lengthen, usual.is_some());
        found.lengthen_slices().unwrap();
        assert_eq!(slice(pid).unwrap(), of(LONGEST));
        found.restore_slices().unwrap();
        assert_eq!(slice(pid).unwrap(), of(first));
        found.lengthen_slices().unwrap();
        let children = [(); 2].map(|()| *shell.children().last().unwrap());
        choose(children[1].pid, chosen);
        found.restore(&[]).unwrap();
        let now = [pid, children[0].pid, children[1].pid].map(|pid| slice(pid).unwrap());
        assert_eq!(now, [of(first), of(first), of(chosen)]);
        // A process that is no batch job may have chosen the longest.
        let found = Found::read(shell.process(), false).unwrap();
        choose(pid, LONGEST);
        found.restore(&[]).unwrap();
        assert_eq!((slice(pid).unwrap(), found.may_lengthen), (of(LONGEST), false));
    }

    #[test]
    fn a_process_that_has_ended_needs_nothing() {
        let shell = Shell::start();
        let found = Found::read(shell.process(), true).unwrap();
        assert!(found.is_alive().unwrap());
        drop(shell);
        assert!(!found.is_alive().unwrap());
        let one = set(&found.cpus()[..1]);
        for result in [
            found.pause(),
            found.resume(),
            found.move_to(one),
            found.lengthen_slices(),
            found.restore_slices(),
            found.restore(&[one]),
        ] {
            result.unwrap();
        }
    }
}
