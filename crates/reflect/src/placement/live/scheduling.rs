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

use crate::advice::Class;

/// Passes over the threads of a process, which may start others meanwhile.
const PASSES: usize = 10;

/// How a process was found.
#[derive(Debug)]
pub struct Found {
    /// The process.
    pub process: Process,
    /// By which signals reach it and no other one that has its id later.
    handle: OwnedFd,
    /// Its threads, by their ids.
    threads: HashMap<i32, Thread>,
    /// How its first thread is scheduled.
    first: Scheduling,
    /// Its descendants, which are never changed.
    children: Vec<Process>,
    /// The time slice of threads for which none was chosen; `None` if slices are left alone, because it is no
    /// batch job, or because that of its first thread cannot be chosen.
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
    /// Reads a process.
    pub fn read(process: Process, class: Class) -> io::Result<Self> {
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
        let may_lengthen = class == Class::Batch && first.slice.is_some();
        let usual = if may_lengthen { usual_slice()? } else { None };
        Ok(Self { process, handle, threads: known, first, children: descendants(&[process])?, usual })
    }

    /// Whether its time slices may be lengthened.
    pub fn may_lengthen(&self) -> bool {
        self.usual.is_some()
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

    /// Undoes [`Self::lengthen_slices`], also for new children.
    pub fn restore_slices(&self) -> io::Result<()> {
        let restored = |found, now| Scheduling { slice: self.slice_before(found, now), ..now };
        self.change_with_children(restored, |now| restored(self.first, now))
    }

    /// Lets the kernel schedule each thread as found. A thread that is new, or one of a child that is new, is
    /// scheduled as the first thread was, in so far as it has what it inherited: the longest time slice, and
    /// one of the sets of processors that were `ours`.
    pub fn restore(&self, ours: &[CpuSet]) -> io::Result<()> {
        let inherited = |now: Scheduling| Scheduling {
            cpus: if ours.contains(&now.cpus) { self.first.cpus } else { now.cpus },
            slice: self.slice_before(self.first, now),
        };
        let restored = |found, now| Scheduling { slice: self.slice_before(found, now), ..found };
        self.change_with_children(restored, inherited)
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
        // A thread that had none has got another policy since.
        let before = self.usual.and(found.slice.or(self.usual));
        if now.slice == Some(LONGEST) { before.or(now.slice) } else { now.slice }
    }

    /// Schedules each thread that was found as it is wanted for how it was and is scheduled, and each that is
    /// new, also of new children, for how it is.
    fn change_with_children(
        &self,
        known: impl Fn(Scheduling, Scheduling) -> Scheduling,
        new: impl Fn(Scheduling) -> Scheduling,
    ) -> io::Result<()> {
        let mut result = self.change(|thread, now| {
            Ok(self.known(thread)?.map_or_else(|| new(now), |found| known(found.scheduling, now)))
        });
        for child in descendants(&[self.process])? {
            if !self.children.iter().any(|known| known.is(&child)) {
                result = result.and(change(child.pid, self.usual, |_, now| Ok(new(now))));
            }
        }
        result
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

    /// Sets what is not so for a thread, also if a part of it fails, and returns whether that was something.
    fn set(self, thread: i32, usual: Option<Duration>, now: Self) -> io::Result<bool> {
        let (mut result, mut changed) = (Ok(()), false);
        if self.cpus != now.cpus {
            result = sched_setaffinity(Pid::from_raw(thread), &self.cpus).map_err(io::Error::from);
            changed = true;
        }
        if let Some(slice) = self.slice.filter(|_| self.slice != now.slice) {
            // The usual one is not chosen, so that it follows the kernel's.
            let chosen = if Some(slice) == usual { Duration::ZERO } else { slice };
            result = result.and(set_slice(thread, chosen));
            changed = true;
        }
        result.map(|()| changed)
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

        /// Starts a child.
        fn child(&mut self) -> Process {
            let children = || descendants(&[self.process()]).unwrap();
            let before = children();
            self.0.stdin.as_ref().unwrap().write_all(b"\n").unwrap();
            loop {
                std::thread::sleep(std::time::Duration::from_millis(1));
                let is_new = |child: &Process| !before.iter().any(|known| known.is(child));
                if let Some(child) = children().into_iter().find(is_new) {
                    return child;
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
        let earlier = shell.child();
        let found = Found::read(shell.process(), Class::Interactive).unwrap();
        let (all, one) = (found.first.cpus, set(&found.cpus()[..1]));
        // As a server pins its workers.
        sched_setaffinity(Pid::from_raw(earlier.pid), &one).unwrap();
        found.move_to(one).unwrap();
        assert_eq!(cpus(shell.process().pid), one);
        let new = shell.child();
        assert_eq!(cpus(new.pid), one);
        found.restore(&[one]).unwrap();
        assert_eq!([shell.process().pid, new.pid, earlier.pid].map(cpus), [all, all, one]);
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
        let found = Found::read(shell.process(), Class::Batch).unwrap();
        assert_eq!(found.may_lengthen(), usual.is_some());
        for restore in [|found: &Found| found.restore_slices(), |found: &Found| found.restore(&[])] {
            found.lengthen_slices().unwrap();
            let children = [shell.child().pid, shell.child().pid];
            assert_eq!([pid, children[0]].map(|pid| slice(pid).unwrap()), [of(LONGEST); 2]);
            choose(children[1], chosen);
            restore(&found).unwrap();
            let now = [pid, children[0], children[1]].map(|pid| slice(pid).unwrap());
            assert_eq!(now, [of(first), of(first), of(chosen)]);
        }
        // A process that is no batch job may have chosen the longest.
        let found = Found::read(shell.process(), Class::Interactive).unwrap();
        choose(pid, LONGEST);
        found.restore(&[]).unwrap();
        assert_eq!((slice(pid).unwrap(), found.may_lengthen()), (of(LONGEST), false));
    }

    #[test]
    fn a_thread_that_had_no_time_slice_gets_the_usual_one() {
        let shell = Shell::start();
        let mut found = Found::read(shell.process(), Class::Batch).unwrap();
        // As if it had had another policy.
        for thread in found.threads.values_mut() {
            thread.scheduling.slice = None;
        }
        found.lengthen_slices().unwrap();
        found.restore(&[]).unwrap();
        assert_eq!(slice(shell.process().pid).unwrap(), usual_slice().unwrap());
    }

    #[test]
    fn a_process_that_has_ended_needs_nothing() {
        let shell = Shell::start();
        let found = Found::read(shell.process(), Class::Batch).unwrap();
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
