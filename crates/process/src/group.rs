//! Process groups that end reliably. A program runs in a process group of its own whose leader is a watchdog:
//! a shell that holds the reading end of a pipe from this process. When this process ends for any reason
//! (SIGKILL included), the kernel closes the pipe, and the watchdog kills the descendants of the program and
//! then the whole group including itself. The program is in the group before its first instruction, so there
//! is no gap; and the watchdog is reaped last, so the id of the group is not reused. Only a process that
//! leaves the group and loses all its ancestors between two lists of the members escapes: a daemon that goes
//! into the background. Servers must stay in the foreground.
//!
//! Not used: PR_SET_PDEATHSIG (or `setpriv --pdeathsig`), which kills one process without its children, and
//! when the *thread* that started it ends; a PID namespace, which changes what is measured.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use thiserror::Error;

use crate::child::{Child, Exit, KILL_PATIENCE};
use crate::clock::now;
use crate::family::{self, ignore_gone, members};
use crate::processes::Process;

/// The watchdog. It ignores the signals that some servers (for example Apache) send to their whole group,
/// reports that it is armed, reads the id of the main process, and then waits for the end of the pipe.
/// `descendants` runs in a subshell each time, which gives it variables of its own.
const WATCHDOG: &str = r#"
trap '' HUP INT QUIT TERM USR1 USR2 ALRM WINCH
echo armed
descendants() (
    for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
        echo "$child"
        descendants "$child"
    done
)
read -r main && read -r _
for pid in $main ${main:+$(descendants "$main")}; do kill -s KILL "$pid" 2>/dev/null; done
kill -s KILL 0
"#;

/// How to stop a program before it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopRequest {
    /// Signal sent to the main process.
    pub signal: Signal,
    /// Time limit for it to stop; after that, SIGKILL is sent to everything.
    pub grace: Duration,
}

/// How a program was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// It ended after the stop signal; no process remained.
    AsAsked,
    /// It was killed after the time limit, or some of its processes remained.
    Killed,
}

/// Why processes could not be stopped.
#[derive(Debug, Error)]
pub enum StopError {
    /// Listing, signalling or waiting failed.
    #[error("cannot stop the program: {action}: {source}")]
    Io {
        /// What failed.
        action: &'static str,
        /// Why.
        source: io::Error,
    },
    /// They still exist after SIGKILL.
    #[error("processes {pids:?} still exist {} s after SIGKILL; see /proc/PID/stack", KILL_PATIENCE.as_secs())]
    Survived {
        /// Their ids.
        pids: Vec<i32>,
    },
}

/// A process group with its watchdog and, once spawned, its main process. Dropping it kills the group.
#[derive(Debug)]
pub struct Group {
    /// The pipe: the id of the main process is written to it, and then nothing; closing it triggers the
    /// watchdog.
    lifeline: Option<ChildStdin>,
    main: Option<Child>,
    // After the main process: fields are dropped in this order, and the watchdog keeps the id of the group in
    // use.
    watchdog: Child,
    is_killed: bool,
    /// The main process and every other known member: a process that leaves the group is found by its
    /// descent, but only before its ancestors end.
    known: Vec<Process>,
}

impl Group {
    /// Starts a group that contains only an armed watchdog.
    ///
    /// # Errors
    /// If no process can be started.
    pub fn new() -> io::Result<Group> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", WATCHDOG])
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (lifeline, stdout) = (shell.stdin.take(), shell.stdout.take());
        let watchdog = Child::from(shell).with_group();
        let mut armed = [0; 6];
        stdout.ok_or_else(|| io::Error::other("the watchdog has no output"))?.read_exact(&mut armed)?;
        Ok(Group { lifeline, main: None, watchdog, is_killed: false, known: Vec::new() })
    }

    /// Starts the main process of the group, which has at most one.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn(&mut self, command: &mut Command) -> io::Result<()> {
        assert!(self.main.is_none(), "a group has one main process");
        let main = command.process_group(self.id()).spawn()?;
        let main = self.main.insert(Child::from(main));
        if let Some(lifeline) = &mut self.lifeline {
            writeln!(lifeline, "{}", main.pid().as_raw_nonzero())?;
        }
        self.known.extend(self.main_process()?);
        Ok(())
    }

    /// Id of the main process; `None` before it is spawned.
    #[must_use]
    pub fn main(&self) -> Option<Pid> {
        self.main.as_ref().map(Child::pid)
    }

    /// The living processes of the group and all known living descendants of the main process, without the
    /// watchdog.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn members(&self) -> io::Result<Vec<Process>> {
        members(self.id(), &self.known)
    }

    /// Like [`Group::members`], and remembers them, so that they are found even after they have left the
    /// group and lost their ancestors.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn remember_members(&mut self) -> io::Result<Vec<Process>> {
        let members = self.members()?;
        for process in &members {
            if !self.known.iter().any(|other| other.is(process)) {
                self.known.push(*process);
            }
        }
        Ok(members)
    }

    /// The main process, ended or not; `None` before it is spawned.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn main_process(&self) -> io::Result<Option<Process>> {
        self.main().map_or(Ok(None), |pid| Process::read(pid.as_raw_nonzero().get()))
    }

    /// Returns how the main process ended, if it has.
    ///
    /// # Errors
    /// If `waitid` fails.
    pub fn exit(&self) -> io::Result<Option<Exit>> {
        self.main.as_ref().map_or(Ok(None), Child::exit)
    }

    /// Waits for the main process to end, at most for `patience`, and returns the time at which it was found
    /// ended.
    ///
    /// # Errors
    /// If waiting fails.
    pub fn wait(&self, patience: Duration) -> io::Result<Option<Instant>> {
        let ended = self.main.as_ref().map_or(Ok(false), |main| main.ends_within(patience))?;
        Ok(ended.then(now))
    }

    /// Sends the stop signal to the main process, waits for all processes to end, then kills those that
    /// remain.
    ///
    /// # Errors
    /// [`StopError`]; all processes that can be killed are killed.
    pub fn stop(&mut self, request: StopRequest) -> Result<Stopped, StopError> {
        self.remember_members()
            .map_err(|source| StopError::Io { action: "listing its processes", source })?;
        if let (Some(main), Ok(None)) = (self.main(), self.exit()) {
            ignore_gone(kill_process(main, request.signal))
                .map_err(|source| StopError::Io { action: "sending the stop signal", source })?;
        }
        let left = self.await_end(now() + request.grace)?;
        let seen = self.kill()?;
        Ok(if left.is_empty() && !seen { Stopped::AsAsked } else { Stopped::Killed })
    }

    /// Kills all processes immediately and waits until they have ended. Returns whether there were any
    /// besides the watchdog.
    ///
    /// # Errors
    /// [`StopError`]; all processes that can be killed are killed.
    pub fn kill(&mut self) -> Result<bool, StopError> {
        if self.is_killed {
            return Ok(false);
        }
        let io = |action| move |source| StopError::Io { action, source };
        let deadline = now() + KILL_PATIENCE;
        let mut seen = false;
        loop {
            let left = self.remember_members().map_err(io("listing its processes"))?;
            let pids: Vec<Pid> = left.iter().filter_map(|process| Pid::from_raw(process.pid)).collect();
            let killed = family::kill(&pids);
            ignore_gone(kill_process_group(self.watchdog.pid(), Signal::KILL))
                .map_err(io("killing its group"))?;
            killed.map_err(io("killing its processes"))?;
            if left.is_empty() {
                break;
            }
            seen = true;
            if now() >= deadline {
                return Err(StopError::Survived { pids: left.iter().map(|process| process.pid).collect() });
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.is_killed = true;
        Ok(seen)
    }

    /// Its process id.
    fn id(&self) -> i32 {
        self.watchdog.pid().as_raw_nonzero().get()
    }

    /// Waits until no process remains or the deadline has passed; returns those that remain.
    fn await_end(&mut self, deadline: Instant) -> Result<Vec<Process>, StopError> {
        // Servers take between one and several hundred milliseconds: check often at first, then rarely.
        let mut pause = Duration::from_millis(1);
        loop {
            let left =
                self.members().map_err(|source| StopError::Io { action: "listing its processes", source })?;
            if left.is_empty() || now() >= deadline {
                return Ok(left);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A caller that needs the result calls `stop` or `kill`.
        if self.kill().is_err() {
            self.lifeline = None;
            self.watchdog.await_kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use rustix::process::Signal;

    use super::{Group, StopRequest, Stopped};
    use crate::child::Exit;
    use crate::processes::Process;

    /// Far more time than a program needs to stop.
    const PATIENT: StopRequest = StopRequest { signal: Signal::TERM, grace: Duration::from_secs(60) };

    /// For a program that ignores the stop signal.
    const IMPATIENT: StopRequest = StopRequest { signal: Signal::TERM, grace: Duration::from_millis(300) };

    fn running(script: &str, processes: usize) -> (Group, Vec<Process>) {
        running_until(script, |members| members.len() == processes)
    }

    fn running_until(script: &str, is_so: impl Fn(&[Process]) -> bool) -> (Group, Vec<Process>) {
        let mut group = Group::new().unwrap();
        group.spawn(Command::new("/bin/sh").args(["-c", script])).unwrap();
        loop {
            let members = group.members().unwrap();
            if is_so(&members) {
                return (group, members);
            }
            assert_eq!(group.exit().unwrap(), None, "the script has ended early");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn all_gone(processes: &[Process]) -> bool {
        processes.iter().all(|before| match Process::read(before.pid).unwrap() {
            Some(after) => !after.is(before) || !after.is_alive(),
            None => true,
        })
    }

    #[test]
    fn a_program_that_obeys_is_not_killed() {
        let (mut group, members) = running("exec sleep 1000", 1);
        assert_eq!(group.stop(PATIENT).unwrap(), Stopped::AsAsked);
        assert!(all_gone(&members));
    }

    #[test]
    fn a_program_that_ignores_its_stop_signal_is_killed_with_its_children() {
        let (mut group, members) = running("trap '' TERM; sleep 1000 & sleep 1000 & wait", 3);
        assert_eq!(group.stop(IMPATIENT).unwrap(), Stopped::Killed);
        assert!(all_gone(&members));
    }

    #[test]
    fn a_child_that_has_left_the_group_is_found_by_its_descent() {
        let (mut group, members) = running_until("setsid sleep 1000 & wait", |members| {
            members.iter().any(|process| process.group != members[0].group)
        });
        assert_eq!(group.stop(IMPATIENT).unwrap(), Stopped::Killed);
        assert!(all_gone(&members));
    }

    #[test]
    fn orphans_in_the_group_are_found_after_the_main_process_has_ended() {
        let mut group = Group::new().unwrap();
        group.spawn(Command::new("/bin/sh").args(["-c", "sleep 1000 & exit 3"])).unwrap();
        while group.exit().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(group.exit().unwrap(), Some(Exit::Status(3)));
        let orphans = group.members().unwrap();
        assert_eq!(orphans.len(), 1);
        drop(group);
        assert!(all_gone(&orphans));
    }

    #[test]
    fn a_program_that_signals_its_whole_group_does_not_disarm_the_watchdog() {
        let (mut group, members) =
            running("trap '' TERM USR1; kill -TERM 0; kill -USR1 0; sleep 1000 & wait", 2);
        assert!(Process::read(group.id()).unwrap().unwrap().is_alive());
        group.kill().unwrap();
        assert!(all_gone(&members));
    }

    #[test]
    fn stopping_twice_is_stopping_once() {
        let (mut group, _) = running("exec sleep 1000", 1);
        assert_eq!(group.stop(PATIENT).unwrap(), Stopped::AsAsked);
        assert!(!group.kill().unwrap());
    }
}
