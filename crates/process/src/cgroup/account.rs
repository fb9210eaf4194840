//! The CPU time of programs, counted by a control group of their own (`cpu.stat` of cgroups(7), version 2).
//! The kernel adds up the time of all tasks of the group, those that have ended included, and divides the sum
//! into user and system time. `/proc/PID/stat` divides the time of each process by that process's own clock
//! ticks: of a process that ended before its first tick, all time is user time.
//!
//! The group is threaded: the calling thread enters it for the time of a spawn, and the program inherits it.
//! To move the calling thread takes some microseconds. To move a process, the kernel waits for an RCU grace
//! period under a lock: 7 to 19 ms in 20 moves on Linux 6.18.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use thiserror::Error;

use super::{cpu_times_ns, own_cgroup};
use crate::accounting::thread_cpu_ns;

/// Prefix of the names of the groups, before the process id.
const NAME: &str = "assay-cpu-";

/// Maximum number of attempts, a millisecond apart, to remove a group. A task may leave its group only after
/// its end was reported.
const REMOVALS: u32 = 100;

/// A control group that counts the CPU time of the programs that are spawned in it.
#[derive(Debug)]
pub struct CpuAccount {
    path: PathBuf,
    /// Its `cgroup.threads`.
    inside: File,
    /// The `cgroup.threads` of the group of this process.
    outside: File,
    /// Its directory, locked: an unlocked group belongs to no process and may be removed.
    _lock: File,
    /// CPU time of the threads that entered it, ns.
    entered_ns: AtomicU64,
}

/// CPU time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuUsed {
    /// In user mode, ns.
    pub user_ns: u64,
    /// In the kernel, ns.
    pub system_ns: u64,
}

/// Why there is no such group.
#[derive(Debug, Error)]
pub enum NoCpuAccount {
    /// There is no unified hierarchy.
    #[error("no unified hierarchy of control groups is mounted; mount one: mount -t cgroup2 none DIRECTORY")]
    NotMounted,
    /// The group cannot be created.
    #[error("cannot create a control group in {}: {source}", .parent.display())]
    Failed {
        /// The group of this process.
        parent: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl CpuAccount {
    /// Creates a group below the group of the calling thread. Removes those that killed processes left there.
    ///
    /// # Errors
    /// [`NoCpuAccount`].
    pub fn open() -> Result<Self, NoCpuAccount> {
        let (_, parent) = own_cgroup().ok_or(NoCpuAccount::NotMounted)?;
        Self::below(parent)
    }

    fn below(parent: PathBuf) -> Result<Self, NoCpuAccount> {
        Self::create(&parent).map_err(|source| NoCpuAccount::Failed { parent, source })
    }

    fn create(parent: &Path) -> io::Result<Self> {
        // While this lock is held, no other process removes a group between its creation and its lock. The
        // lock of the directory may be held for as long as the parent exists: it may be such a group itself.
        let creation = File::open(parent.join("cgroup.threads"))?;
        creation.lock()?;
        sweep(parent)?;
        let path = (0_u64..)
            .map(|number| parent.join(format!("{NAME}{}-{number}", std::process::id())))
            .find(|path| !path.exists())
            .expect("a process has fewer than 2^64 groups");
        fs::create_dir(&path)?;
        Self::opened(&path, parent).inspect_err(|_| remove(&path))
    }

    fn opened(path: &Path, parent: &Path) -> io::Result<Self> {
        let lock = File::open(path)?;
        lock.lock()?;
        fs::write(path.join("cgroup.type"), "threaded")?;
        let controllers = fs::read_to_string(path.join("cgroup.controllers"))?;
        if is_scheduled_apart(&controllers) {
            return Err(io::Error::other("the scheduler would treat the group as one task"));
        }
        let threads = |group: &Path| File::options().write(true).open(group.join("cgroup.threads"));
        let account = Self {
            path: path.to_owned(),
            inside: threads(path)?,
            outside: threads(parent)?,
            _lock: lock,
            entered_ns: AtomicU64::new(0),
        };
        // Fails here if a thread of this process cannot be moved.
        account.within(|| ())?;
        Ok(account)
    }

    /// Calls `spawn` on this thread while it is in the group: the processes that it starts are counted, and
    /// the CPU time of this thread is not.
    ///
    /// # Errors
    /// If the thread cannot be moved.
    pub fn within<T>(&self, spawn: impl FnOnce() -> T) -> io::Result<T> {
        // Reading the clock of a running thread charges its time so far to its present group.
        let start_ns = thread_cpu_ns()?;
        (&self.inside).write_all(b"0")?;
        let spawned = spawn();
        let end_ns = thread_cpu_ns();
        (&self.outside).write_all(b"0")?;
        self.entered_ns.fetch_add(end_ns?.saturating_sub(start_ns), Ordering::Relaxed);
        Ok(spawned)
    }

    /// CPU time of the processes started within the group so far, and of their descendants. Of a running
    /// thread, the time since its last clock tick is missing.
    ///
    /// # Errors
    /// If `cpu.stat` cannot be read or does not contain the times.
    pub fn used(&self) -> io::Result<CpuUsed> {
        let stat = fs::read_to_string(self.path.join("cpu.stat"))?;
        let [Some(user_ns), Some(system_ns), _] = cpu_times_ns(&stat) else {
            return Err(io::Error::other("cpu.stat lacks the user or system time"));
        };
        // What a thread does within the group is to start a process: system time.
        let entered_ns = self.entered_ns.load(Ordering::Relaxed);
        let rest_ns = entered_ns.saturating_sub(system_ns);
        Ok(CpuUsed {
            user_ns: user_ns.saturating_sub(rest_ns),
            system_ns: system_ns.saturating_sub(entered_ns),
        })
    }
}

impl Drop for CpuAccount {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Whether the controllers of a group, in the format of `cgroup.controllers`, divide the CPUs among groups.
fn is_scheduled_apart(controllers: &str) -> bool {
    controllers.split_ascii_whitespace().any(|controller| ["cpu", "cpuset"].contains(&controller))
}

/// Removes the groups that no process holds, with such groups below them.
fn sweep(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(NAME) {
            continue;
        }
        // Another process may remove its own group at any time.
        let Ok(directory) = File::open(entry.path()) else { continue };
        if directory.try_lock().is_ok() {
            // A group with processes cannot be removed; it stays until they have ended.
            let _ = sweep(&entry.path()).and_then(|()| fs::remove_dir(entry.path()));
        }
    }
    Ok(())
}

/// Removes a group, or leaves it to the next [`sweep`] if it still has tasks.
fn remove(path: &Path) {
    // Processes of the program may have left groups in it.
    let _ = sweep(path);
    for _ in 0..REMOVALS {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                thread::sleep(Duration::from_millis(1));
            }
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn spin_for(ns: u64) {
        let start_ns = thread_cpu_ns().unwrap();
        while thread_cpu_ns().unwrap() - start_ns < ns {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn the_time_of_processes_that_have_ended_is_counted_and_that_of_the_caller_is_not() {
        let account = CpuAccount::open().unwrap();
        let status = account
            .within(|| {
                spin_for(300_000_000);
                Command::new("true").status().unwrap()
            })
            .unwrap();
        assert!(status.success());
        spin_for(300_000_000);
        let used = account.used().unwrap();
        assert!((1..300_000_000).contains(&(used.user_ns + used.system_ns)), "{used:?}");
    }

    #[test]
    fn the_calling_thread_returns_to_its_group() {
        let groups = || fs::read_to_string("/proc/thread-self/cgroup").unwrap();
        let before = groups();
        let account = CpuAccount::open().unwrap();
        let inside = account.within(groups).unwrap();
        let name = account.path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(inside.contains(&name), "{inside}");
        assert_eq!(groups(), before);
        let path = account.path.clone();
        assert!(path.exists());
        drop(account);
        assert!(!path.exists());
    }

    #[test]
    fn a_group_that_a_killed_process_left_is_removed_and_one_in_use_is_not() {
        let used = CpuAccount::open().unwrap();
        let left = used.path.with_file_name(format!("{NAME}{}-left", std::process::id()));
        fs::create_dir_all(left.join(format!("{NAME}below"))).unwrap();
        let other = CpuAccount::open().unwrap();
        assert!(!left.exists() && used.path.exists());
        assert_ne!(used.path, other.path);
    }

    #[test]
    fn a_group_may_be_created_within_another() {
        let outer = CpuAccount::open().unwrap();
        let inner = outer.within(CpuAccount::open).unwrap().unwrap();
        assert_eq!(inner.path.parent(), Some(outer.path.as_path()));
        drop(inner);
        let outer_path = outer.path.clone();
        drop(outer);
        assert!(!outer_path.exists());
    }

    #[test]
    fn a_directory_without_control_groups_is_named() {
        let error = CpuAccount::below("/proc".into()).unwrap_err().to_string();
        assert!(error.starts_with("cannot create a control group in /proc: "), "{error}");
    }

    #[test]
    fn a_group_with_a_share_of_the_cpus_is_recognised() {
        assert!(is_scheduled_apart("cpu io\n") && is_scheduled_apart("cpuset\n"));
        assert!(!is_scheduled_apart("pids perf_event\n") && !is_scheduled_apart("\n"));
    }
}
