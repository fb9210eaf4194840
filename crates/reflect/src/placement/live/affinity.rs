//! The processors that the threads of a process may use, and its pauses: changed, and restored as found.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

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
    /// By which signals reach it and no other one that has its id later.
    handle: OwnedFd,
    /// Its threads, by their ids.
    threads: HashMap<i32, Thread>,
    /// The processors that its first thread may use.
    first: CpuSet,
    /// Its descendants, which are never changed.
    children: Vec<Process>,
}

/// How a thread was found.
#[derive(Debug, Clone, Copy)]
struct Thread {
    /// Its start time: ids are reused.
    start_ticks: u64,
    /// The processor that it was on.
    on: CpuSet,
    /// Those that it may use.
    allowed: CpuSet,
}

impl Found {
    /// Reads a process.
    pub fn read(process: Process) -> io::Result<Self> {
        let pid = Pid::from_raw(process.pid).ok_or(rustix::io::Errno::SRCH)?;
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        let mut known = HashMap::new();
        for thread in threads(process.pid)? {
            match (Process::read(thread)?, affinity(thread)) {
                (Some(Process { start_ticks, processor, .. }), Ok(allowed)) => {
                    known.insert(thread, Thread { start_ticks, on: set(&[processor]), allowed });
                }
                (_, Err(error)) if !is_gone(&error) => return Err(error),
                _ => {}
            }
        }
        let first = affinity(process.pid)?;
        Ok(Self { process, handle, threads: known, first, children: descendants(&[process])? })
    }

    /// The processors of its first thread, in order.
    pub fn cpus(&self) -> Vec<usize> {
        (0..CpuSet::MAX_CPU).filter(|cpu| self.first.is_set(*cpu)).collect()
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
    pub fn move_to(&self, cpus: &CpuSet) -> io::Result<()> {
        self.change(|_, _| Ok(Some(*cpus)))
    }

    /// Moves each thread to the processor where it was found.
    pub fn move_back(&self) -> io::Result<()> {
        self.change(|thread, _| Ok(self.known(thread)?.map(|known| known.on)))
    }

    /// Lets each thread use the processors as found. A thread that is new, or one of a child that is new,
    /// gets those of the first thread if it has what it inherited: one of the sets that were `ours`.
    pub fn restore(&self, ours: &[CpuSet]) -> io::Result<()> {
        let inherited = |set: &CpuSet| ours.contains(set).then_some(self.first);
        let mut result = self.change(|thread, set| {
            Ok(self.known(thread)?.map_or_else(|| inherited(set), |known| Some(known.allowed)))
        });
        for child in descendants(&[self.process])? {
            if !self.children.iter().any(|known| known.is(&child)) {
                result = result.and(change(child.pid, |_, set| Ok(inherited(set))));
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

    /// As [`change`], if it is still there.
    fn change(&self, wanted: impl Fn(i32, &CpuSet) -> io::Result<Option<CpuSet>>) -> io::Result<()> {
        if self.is_alive()? { change(self.process.pid, wanted) } else { Ok(()) }
    }
}

/// Sets the processors of each thread of a process to what is wanted for its id and its processors now, until
/// nothing changes. Returns the first error, after all others are set.
fn change(pid: i32, wanted: impl Fn(i32, &CpuSet) -> io::Result<Option<CpuSet>>) -> io::Result<()> {
    let set = |thread| -> io::Result<bool> {
        let now = affinity(thread)?;
        let Some(next) = wanted(thread, &now)?.filter(|next| *next != now) else { return Ok(false) };
        sched_setaffinity(Pid::from_raw(thread), &next)?;
        Ok(true)
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
    Err(io::Error::other("it starts threads faster than they can be moved"))
}

/// A set of processors.
pub fn set(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    set
}

fn affinity(thread: i32) -> io::Result<CpuSet> {
    Ok(sched_getaffinity(Pid::from_raw(thread))?)
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

    #[test]
    fn threads_and_new_children_are_restored_and_earlier_children_left_alone() {
        let mut shell = Shell::start();
        let earlier = shell.children();
        let found = Found::read(shell.process()).unwrap();
        let (all, one) = (found.first, set(&found.cpus()[..1]));
        // As a server pins its workers.
        sched_setaffinity(Pid::from_raw(earlier[0].pid), &one).unwrap();
        found.move_to(&one).unwrap();
        assert_eq!(affinity(shell.process().pid).unwrap(), one);
        let both = shell.children();
        let new = both.iter().find(|child| !child.is(&earlier[0])).unwrap();
        assert_eq!(affinity(new.pid).unwrap(), one);
        found.restore(&[one]).unwrap();
        let now = [shell.process().pid, new.pid, earlier[0].pid].map(|pid| affinity(pid).unwrap());
        assert_eq!(now, [all, all, one]);
    }

    #[test]
    fn a_process_that_has_ended_needs_nothing() {
        let shell = Shell::start();
        let found = Found::read(shell.process()).unwrap();
        assert!(found.is_alive().unwrap());
        drop(shell);
        assert!(!found.is_alive().unwrap());
        let one = set(&found.cpus()[..1]);
        for result in [found.pause(), found.resume(), found.move_to(&one), found.restore(&[one])] {
            result.unwrap();
        }
    }
}
