//! Partners of a benchmark that needs several tasks: processes and threads, each bound to a processor.
//!
//! The benchmarks call this module and define the work of a partner. No partner outlives the measuring
//! process: a forked partner is killed when it is dropped or when its parent ends for any reason, and a
//! thread ends with its process.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use assay_process::cpus;

use super::kernel;

/// A forked process.
#[derive(Debug)]
pub(crate) struct Partner {
    pid: libc::pid_t,
}

impl Partner {
    /// Forks a process, binds it to `cpu`, and runs `body` in it; the return value of `body` is the exit
    /// status.
    ///
    /// `body` runs in a copy of one thread: it must not acquire a lock that another thread may hold during
    /// the fork.
    pub(crate) fn fork(cpu: usize, body: impl FnOnce() -> libc::c_int) -> io::Result<Self> {
        let parent = rustix::process::getpid();
        // SAFETY: the child runs `body`, which must satisfy the condition above, and ends with `_exit`.
        let pid = unsafe { libc::fork() };
        if kernel::check("fork", pid)? > 0 {
            return Ok(Self { pid });
        }
        // A panic must end here: the callers belong to the parent.
        let life = AssertUnwindSafe(|| live(parent, cpu, body));
        let status = catch_unwind(life).unwrap_or(libc::EXIT_FAILURE);
        // SAFETY: ends this process without running code of the parent.
        unsafe { libc::_exit(status) }
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> libc::pid_t {
        self.pid
    }
}

/// Runs `body` in a forked partner, unless it cannot be bound or its parent has already ended.
fn live(parent: rustix::process::Pid, cpu: usize, body: impl FnOnce() -> libc::c_int) -> libc::c_int {
    if kernel::die_with_parent().and_then(|()| cpus::pin(cpu)).is_err() {
        return libc::EXIT_FAILURE;
    }
    // Checked after the death signal is set: a parent that ended before sends no signal.
    if rustix::process::getppid() != Some(parent) {
        return libc::EXIT_FAILURE;
    }
    body()
}

impl Drop for Partner {
    fn drop(&mut self) {
        // SAFETY: the pid belongs to our child, which was not waited for, so it cannot identify another
        // process.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// A thread of this process. It is never joined: it runs until its process ends after the sample.
#[derive(Debug)]
pub(crate) struct PartnerThread {
    tid: libc::pid_t,
}

impl PartnerThread {
    /// Starts a thread, binds it to `cpu`, and runs `body` in it.
    pub(crate) fn spawn(cpu: usize, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        std::thread::Builder::new().spawn(move || {
            let bound = cpus::pin(cpu).map(|()| rustix::thread::gettid().as_raw_nonzero().get());
            let begins = bound.is_ok();
            // The receiver still exists: the caller waits for this message.
            let _ = sender.send(bound);
            if begins {
                body();
            }
        })?;
        let tid = receiver.recv().map_err(io::Error::other)??;
        Ok(Self { tid })
    }

    /// Returns its thread id.
    pub(crate) fn tid(&self) -> libc::pid_t {
        self.tid
    }
}

/// Number of checks of [`wait_until`], 0.1 ms apart: 2 s in total.
const LOOKS: u32 = 20_000;

/// Waits until partners are in a state. Fails if they are not within 2 s, for this reason.
pub(crate) fn wait_until(
    mut is_reached: impl FnMut() -> io::Result<bool>,
    otherwise: &'static str,
) -> io::Result<()> {
    for _ in 0..LOOKS {
        if is_reached()? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    Err(io::Error::other(format!("{otherwise} within 2 s")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;

    fn a_cpu() -> usize {
        cpus::allowed().unwrap()[0]
    }

    /// Whether a process runs, according to `/proc`. A zombie does not run.
    fn runs(pid: libc::pid_t) -> bool {
        assay_process::Process::read(pid).unwrap().is_some_and(|process| process.is_alive())
    }

    #[test]
    fn a_partner_runs_on_its_processor_and_ends_when_it_is_dropped() {
        let (input, output) = pipe().unwrap();
        let cpu = a_cpu();
        let partner = Partner::fork(cpu, || {
            let bound = cpus::allowed().is_ok_and(|cpus| cpus == [cpu]);
            let _ = rustix::io::write(&output, &[u8::from(bound)]);
            loop {
                std::thread::park();
            }
        })
        .unwrap();
        let mut answer = [0];
        assert_eq!(rustix::io::read(&input, &mut answer).unwrap(), 1);
        assert_eq!(answer, [1]);
        assert!(runs(partner.pid()));
        let pid = partner.pid();
        drop(partner);
        assert!(!runs(pid));
    }

    #[test]
    fn a_partner_that_panics_does_not_continue_as_its_parent() {
        // Without the panic hook, which would print under a lock that another test may hold.
        let partner = Partner::fork(a_cpu(), || std::panic::resume_unwind(Box::new(()))).unwrap();
        let mut status = 0;
        // SAFETY: waits for our own child; the pointer is to a local.
        let waited = unsafe { libc::waitpid(partner.pid(), &raw mut status, 0) };
        assert_eq!((waited, libc::WEXITSTATUS(status)), (partner.pid(), libc::EXIT_FAILURE));
        // The process was waited for, so there is no process to kill.
        std::mem::forget(partner);
    }

    #[test]
    fn a_partner_ends_with_a_parent_that_is_killed() {
        let (input, output) = pipe().unwrap();
        let cpu = a_cpu();
        let parent = Partner::fork(cpu, || {
            let partner = Partner::fork(cpu, || {
                loop {
                    std::thread::park();
                }
            });
            let pid = partner.as_ref().map_or(0, Partner::pid);
            let _ = rustix::io::write(&output, &pid.to_ne_bytes());
            loop {
                std::thread::park();
            }
        })
        .unwrap();
        let mut pid = [0; 4];
        assert_eq!(rustix::io::read(&input, &mut pid).unwrap(), 4);
        let pid = libc::pid_t::from_ne_bytes(pid);
        assert!(pid > 0);
        // `drop` kills it and waits; the kernel signals its children before it can be waited for.
        drop(parent);
        let looks = (0..60_000).find(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            !runs(pid)
        });
        assert!(looks.is_some(), "{pid} runs though its parent was killed");
    }

    #[test]
    fn a_thread_runs_on_its_processor() {
        let (sender, receiver) = mpsc::channel();
        let cpu = a_cpu();
        let thread = PartnerThread::spawn(cpu, move || {
            sender.send((cpus::allowed().unwrap(), rustix::thread::gettid())).unwrap();
        })
        .unwrap();
        let (cpus, tid) = receiver.recv().unwrap();
        assert_eq!((cpus, tid.as_raw_nonzero().get()), (vec![cpu], thread.tid()));
    }
}
