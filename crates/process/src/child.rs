//! A child process that is not reaped before its handle is dropped: its exit, and the removal of all its
//! descendants.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;
use std::{fmt, io, thread};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, pidfd_open, waitid,
    waitpid,
};

use crate::clock::{BRIEFLY, now};
use crate::family;

/// Time limit for a killed process to end. Only a process that hangs inside the kernel takes longer, and that
/// can only be reported.
pub(crate) const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this status.
    Status(i32),
    /// It was killed by this signal.
    Signal(i32),
}

impl Exit {
    /// Whether it exited with status 0.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Exit::Status(0)
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

/// A child process that has not been reaped, so that its id cannot be reused.
///
/// Dropping it kills the process and all its descendants, and with [`Child::with_group`] the rest of its
/// process group. A descendant outside that group whose parent has ended before is not found and continues to
/// run; on a kernel that does not list children (`CONFIG_PROC_CHILDREN`), so does every descendant outside
/// the group.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    leads_group: bool,
}

impl Child {
    /// Takes ownership of a forked process. Nothing else may wait for it.
    #[must_use]
    pub fn forked(pid: Pid) -> Self {
        Self { pid, leads_group: false }
    }

    /// Declares the child the leader of a process group, which is killed along with it.
    #[must_use]
    pub fn with_group(mut self) -> Self {
        self.leads_group = true;
        self
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits until it ends, at most for `timeout`, or until a signal arrives. Returns whether it has ended.
    ///
    /// # Errors
    /// If the kernel lacks `pidfd_open`: before Linux 5.3, and in containers with a seccomp filter of that
    /// age.
    pub fn ends_within(&self, timeout: Duration) -> io::Result<bool> {
        let pidfd = pidfd_open(self.pid, PidfdFlags::empty())?;
        // A time that the kernel cannot represent means no limit.
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Timespec::try_from(timeout).ok().as_ref()) {
            Ok(ready) => Ok(ready == 1),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns how it ended, if it has. It remains a zombie.
    ///
    /// # Errors
    /// If `waitid` fails.
    pub fn exit(&self) -> io::Result<Option<Exit>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = retry_on_intr(|| waitid(WaitId::Pid(self.pid), options))?;
        Ok(status.map(|status| match (status.exit_status(), status.terminating_signal()) {
            (_, Some(signal)) => Exit::Signal(signal),
            (code, None) => Exit::Status(code.unwrap_or(-1)),
        }))
    }

    /// Waits for a killed process to end, at most for [`KILL_PATIENCE`].
    pub(crate) fn await_kill(&self) {
        let deadline = now() + KILL_PATIENCE;
        while matches!(self.exit(), Ok(None)) && now() < deadline {
            thread::sleep(BRIEFLY);
        }
    }
}

impl From<std::process::Child> for Child {
    fn from(child: std::process::Child) -> Self {
        Self::forked(Pid::from_child(&child))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // A process that has ended has no children, so `/proc` need not be read after every sample.
        let killed = if matches!(self.exit(), Ok(Some(_))) { Ok(()) } else { family::kill(&[self.pid]) };
        if self.leads_group {
            // The group may be empty.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        // A program of another user may not be killed, and ends by itself.
        if killed.is_ok() {
            self.await_kill();
        }
        // Waiting for a process that has not ended would hang.
        let _ = waitpid(Some(self.pid), WaitOptions::NOHANG);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::processes::Process;

    fn started(command: &mut Command) -> Child {
        Child::from(command.stdin(Stdio::null()).spawn().unwrap())
    }

    fn shell(script: &str) -> Child {
        started(Command::new("/bin/sh").args(["-c", script]))
    }

    fn exit(child: &Child) -> Exit {
        while !child.ends_within(Duration::MAX).unwrap() {}
        child.exit().unwrap().unwrap()
    }

    /// Number of processes with this argument, without zombies.
    fn with_argument(argument: &str) -> usize {
        let has = |process: &Process| {
            let line = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes())
        };
        let processes = crate::processes::all().unwrap().into_iter();
        processes.filter(|process| process.is_alive() && has(process)).count()
    }

    /// Processes do not end immediately after SIGKILL.
    fn assert_soon_gone(argument: &str) {
        let mut looks = (0..10_000).map(|_| {
            thread::sleep(Duration::from_millis(1));
            with_argument(argument)
        });
        assert!(looks.any(|left| left == 0), "{} are left", with_argument(argument));
    }

    #[test]
    fn a_child_says_how_it_ended_as_often_as_it_is_asked() {
        let child = shell("exit 3");
        assert_eq!([exit(&child), exit(&child)], [Exit::Status(3); 2]);
        assert_eq!(exit(&shell("kill -SEGV $$")), Exit::Signal(11));
        assert!(exit(&shell("true")).is_success());
        let status = |script| Command::new("/bin/sh").args(["-c", script]).status().unwrap();
        assert_eq!(Exit::from(status("exit 3")), Exit::Status(3));
        assert_eq!(Exit::from(status("kill -SEGV $$")), Exit::Signal(11));
    }

    #[test]
    fn a_child_that_runs_has_not_ended() {
        let child = shell("exec sleep 1000");
        assert!(!child.ends_within(Duration::ZERO).unwrap());
        assert_eq!(child.exit().unwrap(), None);
        let pid = child.pid().as_raw_nonzero().get();
        drop(child);
        assert_eq!(Process::read(pid).unwrap(), None);
    }

    #[test]
    fn a_dropped_child_takes_with_it_what_it_is_starting_at_the_moment() {
        let argument = format!("1000.{}", std::process::id());
        for _ in 0..10 {
            // Each in a session of its own, so that only descent connects them; at most 300 of them.
            let child = shell(&format!(
                "i=0; while [ $i -lt 300 ]; do setsid sleep {argument} & i=$((i+1)); done; wait"
            ));
            while with_argument(&argument) < 30 {
                assert_eq!(child.exit().unwrap(), None);
            }
            drop(child);
            assert_soon_gone(&argument);
        }
    }

    #[test]
    fn the_orphans_in_its_group_go_with_a_child_if_they_shall() {
        let argument = format!("1001.{}", std::process::id());
        let start = || {
            let script = format!("sleep {argument} &");
            let child = started(Command::new("/bin/sh").args(["-c", &script]).process_group(0));
            assert!(exit(&child).is_success());
            while with_argument(&argument) == 0 {}
            child
        };
        let child = start();
        let group = child.pid();
        drop(child);
        assert_eq!(with_argument(&argument), 1);
        kill_process_group(group, Signal::KILL).unwrap();
        assert_soon_gone(&argument);
        drop(start().with_group());
        assert_soon_gone(&argument);
    }
}
