//! Processes that end for certain. Every program of this crate runs in a process group of its own whose leader
//! is a watchdog: a shell that holds the reading end of a pipe from us. When we end, however we end (SIGKILL
//! included), the kernel closes the pipe and the watchdog kills the program's descendants and then the whole
//! group, itself with it. The program is in the group before its first instruction, so no moment is uncovered;
//! and since the watchdog is waited for last, the group's number cannot pass to somebody else meanwhile.
//! Only a process that leaves the group and loses all its ancestors before anybody has looked escapes: a daemon
//! that goes into the background. Servers must stay in the foreground.
//!
//! Not used, and why: PR_SET_PDEATHSIG (or `setpriv --pdeathsig`) kills one process and none of its children,
//! and fires when the *thread* ends that started it; a PID namespace changes what is measured.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_open, waitid,
};
use rustix::time::Timespec;
use thiserror::Error;

use crate::clock::now;
use crate::process::{Process, members};
use crate::workload::StopRequest;

/// The watchdog. It ignores the signals that some servers (Apache for one) send to their whole group, says that
/// it is armed, reads the main process's id, and then waits for the end of the pipe. `descendants` runs in a
/// subshell each time, which gives it variables of its own.
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

/// How long killed processes may take to vanish. Only a process that hangs inside the kernel needs longer, and
/// nothing but a report helps against that.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
}

/// How a server came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// It obeyed its stop signal; nothing was left.
    AsAsked,
    /// It had to be killed when the time of grace was over, or something of it was left.
    Killed,
}

/// Processes that could not be stopped.
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
    /// They have been sent SIGKILL and are still there.
    #[error("processes {pids:?} are still there {} s after SIGKILL; look at /proc/PID/stack", KILL_PATIENCE.as_secs())]
    Survived {
        /// Their ids.
        pids: Vec<i32>,
    },
}

/// A process group with its watchdog and, once spawned, its main process.
#[derive(Debug)]
pub(crate) struct Group {
    watchdog: Child,
    /// Never written to after the main process's id; its closing is the message.
    lifeline: ChildStdin,
    leader: Pid,
    main: Option<Child>,
    /// The main process and every other one that has been seen to belong here: one that leaves the group is found
    /// by its descent, but only before its ancestors end.
    known: Vec<Process>,
    stopped: bool,
}

impl Group {
    /// A group with an armed watchdog and nothing else in it.
    pub(crate) fn new() -> io::Result<Group> {
        let mut watchdog = Command::new("/bin/sh")
            .args(["-c", WATCHDOG])
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let leader = pid_of(&watchdog)?;
        let (Some(lifeline), Some(mut stdout)) = (watchdog.stdin.take(), watchdog.stdout.take()) else {
            return Err(io::Error::other("the watchdog has no pipes"));
        };
        // From here on `Drop` ends the watchdog, whatever fails.
        let group = Group { watchdog, lifeline, leader, main: None, known: Vec::new(), stopped: false };
        let mut armed = [0; 6];
        stdout.read_exact(&mut armed)?;
        Ok(group)
    }

    /// Starts the main process in this group.
    pub(crate) fn spawn(&mut self, command: &mut Command) -> io::Result<()> {
        let main = command.process_group(self.leader.as_raw_nonzero().get()).spawn()?;
        let main = self.main.insert(main);
        writeln!(self.lifeline, "{}", main.id())?;
        self.known.extend(self.main_process()?);
        Ok(())
    }

    /// Id of the main process.
    pub(crate) fn main(&self) -> Option<Pid> {
        self.main.as_ref().and_then(|main| pid_of(main).ok())
    }

    /// The processes of the group and all known descendants of the main process, alive, without the watchdog.
    pub(crate) fn members(&self) -> io::Result<Vec<Process>> {
        members(self.leader.as_raw_nonzero().get(), &self.known)
    }

    /// The same, remembered, so that they are found even when they have left the group and lost their ancestors.
    pub(crate) fn remember_members(&mut self) -> io::Result<Vec<Process>> {
        let members = self.members()?;
        for process in &members {
            let same = |other: &Process| (other.pid, other.start_ticks) == (process.pid, process.start_ticks);
            if !self.known.iter().any(same) {
                self.known.push(*process);
            }
        }
        Ok(members)
    }

    /// The main process, ended or not; none before it was spawned.
    pub(crate) fn main_process(&self) -> io::Result<Option<Process>> {
        self.main().map_or(Ok(None), |pid| Process::read(pid.as_raw_nonzero().get()))
    }

    /// How the main process has ended, if it has. It is not waited for: its id stays its own.
    pub(crate) fn exit(&self) -> io::Result<Option<Exit>> {
        let Some(main) = self.main() else { return Ok(None) };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(main), options))?;
        Ok(status.map(|status| match (status.exit_status(), status.terminating_signal()) {
            (_, Some(signal)) => Exit::Signal(signal),
            (code, None) => Exit::Status(code.unwrap_or(-1)),
        }))
    }

    /// Waits at most `patience` for the main process to end and returns the moment at which it was seen to.
    pub(crate) fn wait(&self, patience: Duration) -> io::Result<Option<Instant>> {
        let Some(main) = self.main() else { return Ok(None) };
        let pidfd = pidfd_open(main, PidfdFlags::empty())?;
        let timeout = Timespec::try_from(patience).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => Ok(None),
            Ok(_) => Ok(Some(now())),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Asks the main process to stop, gives everything the time of grace, then kills what is left.
    pub(crate) fn stop(&mut self, request: StopRequest) -> Result<Stopped, StopError> {
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

    /// Kills everything at once and waits until it is gone. Says whether there was anything but the watchdog.
    pub(crate) fn kill(&mut self) -> Result<bool, StopError> {
        if self.stopped {
            return Ok(false);
        }
        let io = |action| move |source| StopError::Io { action, source };
        let deadline = now() + KILL_PATIENCE;
        let mut seen = false;
        loop {
            let left = self.remember_members().map_err(io("listing its processes"))?;
            for process in &left {
                if let Some(pid) = Pid::from_raw(process.pid) {
                    ignore_gone(kill_process(pid, Signal::KILL)).map_err(io("killing its processes"))?;
                }
            }
            ignore_gone(kill_process_group(self.leader, Signal::KILL)).map_err(io("killing its group"))?;
            if left.is_empty() {
                break;
            }
            seen = true;
            if now() >= deadline {
                return Err(StopError::Survived { pids: left.iter().map(|process| process.pid).collect() });
            }
            thread::sleep(Duration::from_millis(1));
        }
        if let Some(main) = &mut self.main {
            main.wait().map_err(io("waiting for its main process"))?;
        }
        self.watchdog.wait().map_err(io("waiting for its watchdog"))?;
        self.stopped = true;
        Ok(seen)
    }

    /// Waits until nothing is left or the deadline has passed; returns what is left.
    fn await_end(&mut self, deadline: Instant) -> Result<Vec<Process>, StopError> {
        // Servers take between one and some hundred milliseconds: look often at first, then rarely.
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
        // Whoever wants to know calls `stop` or `kill`. If this fails too, closing the lifeline, which follows,
        // makes the watchdog try.
        let _ = self.kill();
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Exit {
        match status.signal() {
            Some(signal) => Exit::Signal(signal),
            None => Exit::Status(status.code().unwrap_or(-1)),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Exit::Status(code) => write!(f, "ended with status {code}"),
            Exit::Signal(signal) => write!(f, "was killed by signal {signal}"),
        }
    }
}

fn pid_of(child: &Child) -> io::Result<Pid> {
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("a child without an id"))
}

fn ignore_gone(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Err(Errno::SRCH) => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use rustix::process::Signal;

    use super::{Exit, Group, Stopped};
    use crate::process::Process;
    use crate::workload::StopRequest;

    /// Far more time than a program needs that obeys.
    const PATIENT: StopRequest = StopRequest { signal: Signal::TERM, grace: Duration::from_secs(60) };

    /// For a program that will not obey.
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
            Some(after) => after.start_ticks != before.start_ticks || !after.alive,
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
        assert!(Process::read(group.leader.as_raw_nonzero().get()).unwrap().unwrap().alive);
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
