//! The other process of a benchmark that needs two.

use std::io;

use crate::kernel;

/// A forked process that ends with this value (and with its parent, should that be killed).
#[derive(Debug)]
pub(crate) struct Partner {
    pid: libc::pid_t,
}

impl Partner {
    /// Forks a process, binds it to `cpu`, and runs `body` in it until that returns an exit status.
    ///
    /// `body` must restrict itself to system calls: it runs in a copy of one thread.
    pub(crate) fn fork(cpu: usize, body: impl FnOnce() -> libc::c_int) -> io::Result<Self> {
        let parent = rustix::process::getpid();
        // SAFETY: the child makes system calls only and leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        if kernel::check("fork", pid)? > 0 {
            return Ok(Self { pid });
        }
        let ready = kernel::die_with_parent().and_then(|()| kernel::pin(cpu));
        // A parent that ended before the kernel was asked sends no signal any more.
        let orphaned = rustix::process::getppid() != Some(parent);
        let status = if ready.is_ok() && !orphaned { body() } else { libc::EXIT_FAILURE };
        // SAFETY: ends this process without running anything of the parent's.
        unsafe { libc::_exit(status) }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> libc::pid_t {
        self.pid
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        // SAFETY: the pid is that of our own child, not yet waited for, so it names no other process.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}
