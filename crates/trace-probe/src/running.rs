//! A command that runs: how and when it ends, and that nothing of it is left when its handle goes.
//!
//! What ends it, in the order of what can go wrong: the handle is dropped, and the command goes with everything
//! below it; this process is killed, and the kernel kills the command (not what is below it).

use std::{
    fs,
    io::{self, ErrorKind},
    mem,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    process::ExitStatus,
    ptr,
    time::Duration,
};

use crate::{held::Streams, opening::clock_ns};

/// A child that runs its program. Dropped, it is killed with all its descendants, and with the rest of its process
/// group if it has one of its own ([`Streams::Null`]). A descendant whose parent had ended before and that is not of
/// that group is out of reach, and goes on.
#[derive(Debug)]
pub struct Running {
    child: Child,
    released_ns: u64,
    ended: Option<Ended>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// With which status.
    pub status: ExitStatus,
    /// Wall time from its release to its end, ns.
    pub elapsed_ns: u64,
}

impl Running {
    pub(crate) fn new(child: Child, released_ns: u64) -> Self {
        Self { child, released_ns, ended: None }
    }

    /// Its process number.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child.process.cast_unsigned()
    }

    /// Waits until it ends.
    pub fn wait(mut self) -> io::Result<Ended> {
        loop {
            if let Some(ended) = self.wait_for(Duration::MAX)? {
                return Ok(ended);
            }
        }
    }

    /// Waits until it ends, for `timeout` at most, and less if a signal comes. It keeps its number until `self` is
    /// dropped.
    pub fn wait_for(&mut self, timeout: Duration) -> io::Result<Option<Ended>> {
        if self.ended.is_none() && self.child.ends_within(timeout)? {
            let elapsed_ns = clock_ns(libc::CLOCK_MONOTONIC) - self.released_ns;
            self.ended = Some(Ended { status: self.child.status()?, elapsed_ns });
        }
        Ok(self.ended)
    }
}

/// A process of ours that has not been reaped, so that its number is its own.
#[derive(Debug)]
pub(crate) struct Child {
    process: libc::pid_t,
    pidfd: OwnedFd,
    streams: Streams,
}

impl Child {
    /// Takes charge of a process that was just forked.
    pub(crate) fn new(process: libc::pid_t, streams: Streams) -> io::Result<Self> {
        // SAFETY: two numbers; makes a descriptor or fails.
        let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
        let Ok(pidfd @ 0..) = i32::try_from(pidfd) else {
            let error = io::Error::last_os_error();
            end(process);
            return Err(error);
        };
        // SAFETY: it was just opened and belongs to nobody else.
        Ok(Self { process, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) }, streams })
    }

    pub(crate) fn process(&self) -> u32 {
        self.process.cast_unsigned()
    }

    fn ends_within(&self, timeout: Duration) -> io::Result<bool> {
        let mut end = libc::pollfd { fd: self.pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout_ms = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: one pollfd of ours, which the call fills.
        match unsafe { libc::poll(&raw mut end, 1, timeout_ms) } {
            -1 => Some(io::Error::last_os_error())
                .filter(|error| error.kind() != ErrorKind::Interrupted)
                .map_or(Ok(false), Err),
            ready => Ok(ready == 1),
        }
    }

    /// Of a process that has ended, which stays a zombie.
    fn status(&self) -> io::Result<ExitStatus> {
        // SAFETY: a plain structure, for which all zeros are a value.
        let mut end: libc::siginfo_t = unsafe { mem::zeroed() };
        let options = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: `end` is ours and the call fills it; the process is a child not yet reaped.
        if unsafe { libc::waitid(libc::P_PID, self.process(), &raw mut end, options) } == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `waitid` has filled it with the end of a child, of which the status is a part.
        let status = unsafe { end.si_status() };
        // As `wait` packs it: the code above the signal, and a bit for a dump.
        Ok(ExitStatus::from_raw(match end.si_code {
            libc::CLD_EXITED => status << 8,
            libc::CLD_DUMPED => status | 0x80,
            _ => status,
        }))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        for process in stopped_tree(self.process) {
            signal(process, libc::SIGKILL);
        }
        if self.streams == Streams::Null {
            signal(-self.process, libc::SIGKILL);
        }
        end(self.process);
    }
}

/// Stops `root` and everything below it, from the top: whoever is stopped has no more children than `/proc` then
/// says, does not end, and reaps nobody, so that nothing slips away and no number is given to another.
fn stopped_tree(root: libc::pid_t) -> Vec<libc::pid_t> {
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(&process) = tree.get(next) {
        next += 1;
        signal(process, libc::SIGSTOP);
        // Each thread has the children that it forked itself.
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for thread in threads {
            // Without /proc, or when it has been killed meanwhile, it has none.
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            tree.extend(children.split_whitespace().filter_map(|child| child.parse::<libc::pid_t>().ok()));
        }
    }
    tree
}

fn signal(process: libc::pid_t, signal: libc::c_int) {
    // SAFETY: two numbers. The process is unreaped and ours, or stopped below one that is; if it is gone, that is fine.
    unsafe { libc::kill(process, signal) };
}

/// Kills and reaps a child.
fn end(process: libc::pid_t) {
    signal(process, libc::SIGKILL);
    // SAFETY: no status is asked for; the process is a child not yet reaped.
    while unsafe { libc::waitpid(process, ptr::null_mut(), 0) } == -1
        && io::Error::last_os_error().kind() == ErrorKind::Interrupted
    {}
}
