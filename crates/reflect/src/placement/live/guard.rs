//! A process of our own that restores what was changed if this one is killed.

use std::io::{self, PipeReader, PipeWriter, Read, Write, pipe};
use std::time::Duration;

use assay_process::Child;
use rustix::process::{Pid, setsid};
use rustix::thread::set_name;

/// Time after which a guard hangs. On a busy machine it may wait long for a processor.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits in a process of its own until this one ends, drops it, or dismisses it.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    /// `None` after the end.
    dismissal: Option<PipeWriter>,
}

impl Guard {
    /// Starts one that calls `restore` unless it is dismissed.
    pub fn start(restore: impl FnOnce()) -> io::Result<Self> {
        let (end, dismissal) = pipe()?;
        // SAFETY: the child runs only the code below, and ends in it. It takes no lock that another thread of
        // this process can hold, but for those of the allocator, which the C library releases in the child.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let exit = Exit;
                drop(dismissal);
                // The terminal's signals are for the other one, and so is the name, by which it may be
                // killed.
                let _ = setsid();
                let _ = set_name(c"place-guard");
                if !is_dismissed(end) {
                    restore();
                }
                drop(exit);
                unreachable!("it has ended")
            }
            pid => {
                let pid = Pid::from_raw(pid).expect("fork returns -1, 0 or a process id");
                Ok(Self { child: Child::forked(pid), dismissal: Some(dismissal) })
            }
        }
    }

    /// Ends it: there is nothing left to restore.
    pub fn dismiss(mut self) {
        // If this fails, it has been killed.
        let _ = self.dismissal.take().map(|mut dismissal| dismissal.write_all(&[1]));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // It reads the end of the pipe, and restores if it was not dismissed. The child is killed after this.
        drop(self.dismissal.take());
        let _ = self.child.ends_within(PATIENCE);
    }
}

/// Ends this process when it is dropped, also by a panic, without what is registered for the end of the
/// other.
struct Exit;

impl Drop for Exit {
    fn drop(&mut self) {
        // SAFETY: it is always safe to end this process.
        unsafe { libc::_exit(0) }
    }
}

/// Waits for the dismissal, or for the end of the other process.
fn is_dismissed(mut end: PipeReader) -> bool {
    end.read_exact(&mut [0]).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_restores_unless_it_is_dismissed() {
        let directory = tempfile::tempdir().unwrap();
        let restored = directory.path().join("restored");
        let start = || Guard::start(|| std::fs::write(&restored, "").unwrap()).unwrap();
        start().dismiss();
        assert!(!restored.exists());
        drop(start());
        assert!(restored.exists());
    }

    #[test]
    fn a_panic_does_not_leave_it() {
        let directory = tempfile::tempdir().unwrap();
        let left = directory.path().join("left");
        // Without the hook of a panic, which may wait for a lock of another thread.
        let start = || Guard::start(|| std::panic::resume_unwind(Box::new(()))).unwrap();
        match std::panic::catch_unwind(start) {
            Ok(guard) => drop(guard),
            // Here is the guard itself.
            Err(_) => std::fs::write(&left, "").unwrap(),
        }
        assert!(!left.exists());
    }
}
