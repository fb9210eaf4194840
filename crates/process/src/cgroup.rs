//! Control groups of the unified hierarchy (cgroups(7), version 2): what the kernel counts of all their tasks
//! together, however many there are.

mod account;

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use thiserror::Error;

pub use account::{CpuAccount, CpuUsed, NoCpuAccount};

use crate::processes::is_gone;

/// A control group.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    directory: File,
}

/// Why a path is no control group.
#[derive(Debug, Error)]
pub enum NoCgroup {
    /// There is no unified hierarchy.
    #[error("no unified hierarchy of control groups is mounted; mount one: mount -t cgroup2 none DIRECTORY")]
    NotMounted,
    /// It is something else.
    #[error("{} is no control group of the unified hierarchy; take a directory below {}", .path.display(), .mount.display())]
    Other {
        /// What was given.
        path: PathBuf,
        /// Where the hierarchy is mounted.
        mount: PathBuf,
    },
    /// It cannot be read.
    #[error("cannot open the control group {}: {source}", .path.display())]
    Failed {
        /// What was given.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Cgroup {
    /// Opens a control group by its directory, or by its path in the hierarchy, as `/proc/PID/cgroup` shows
    /// it.
    ///
    /// # Errors
    /// [`NoCgroup`].
    pub fn open(given: &Path) -> Result<Self, NoCgroup> {
        let failed = |source| NoCgroup::Failed { path: given.to_owned(), source };
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(failed)?;
        let mount = mount(&mounts).ok_or(NoCgroup::NotMounted)?;
        let in_hierarchy = mount.join(given.strip_prefix("/").unwrap_or(given));
        let is_directory = given.starts_with(&mount) || !in_hierarchy.is_dir();
        let path = if is_directory { given.to_owned() } else { in_hierarchy };
        // Of a hierarchy of version 1, a directory has the first file only.
        if !["cgroup.procs", "cgroup.controllers"].iter().all(|file| path.join(file).exists()) {
            return Err(NoCgroup::Other { path: given.to_owned(), mount });
        }
        let directory = File::open(&path).map_err(failed)?;
        Ok(Self { path, directory })
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ids of the threads in it and in the groups below it.
    ///
    /// # Errors
    /// If it cannot be read, for example because it has been removed.
    pub fn threads(&self) -> io::Result<Vec<i32>> {
        self.tasks("cgroup.threads")
    }

    /// Ids of the processes in it and in the groups below it.
    ///
    /// # Errors
    /// If it cannot be read, for example because it has been removed.
    pub fn processes(&self) -> io::Result<Vec<i32>> {
        self.tasks("cgroup.procs")
    }

    fn tasks(&self, file: &str) -> io::Result<Vec<i32>> {
        let mut tasks = Vec::new();
        let mut left = vec![self.path.clone()];
        while let Some(directory) = left.pop() {
            let is_below = directory != self.path;
            match listed(&directory.join(file), &mut tasks).and_then(|()| below(&directory, &mut left)) {
                // A group below may be removed at any time.
                Err(error) if is_below && is_gone(&error) => {}
                // The processes of threaded groups are listed in the group above them that is not threaded.
                Err(error) if is_below && error.kind() == io::ErrorKind::Unsupported => {}
                result => result?,
            }
        }
        Ok(tasks)
    }
}

impl AsFd for Cgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// Returns where the unified hierarchy is mounted, and the directory of the group of the calling thread below
/// it; `None` without such a hierarchy.
#[must_use]
pub fn own_cgroup() -> Option<(PathBuf, PathBuf)> {
    let mount = mount(&fs::read_to_string("/proc/self/mounts").ok()?)?;
    let group = mount.join(own(&fs::read_to_string("/proc/thread-self/cgroup").ok()?)?);
    Some((mount, group))
}

/// Parses the path of the caller's group relative to the mount, in the format of `/proc/PID/cgroup`.
fn own(groups: &str) -> Option<&str> {
    groups.lines().find_map(|line| line.strip_prefix("0::/"))
}

/// Parses the user time, the system time and their sum in the `cpu.stat` of a control group, in nanoseconds;
/// `None` for what the kernel does not count.
#[must_use]
pub fn cpu_times_ns(cpu_stat: &str) -> [Option<u64>; 3] {
    let ns = |key| {
        let us = cpu_stat.lines().find_map(|line| line.strip_prefix(key))?;
        us.parse::<u64>().ok().map(|us| us * 1000)
    };
    ["user_usec ", "system_usec ", "usage_usec "].map(ns)
}

/// Adds the ids in a file.
fn listed(file: &Path, tasks: &mut Vec<i32>) -> io::Result<()> {
    tasks.extend(fs::read_to_string(file)?.lines().filter_map(|line| line.parse::<i32>().ok()));
    Ok(())
}

/// Adds the directories in a directory.
fn below(directory: &Path, left: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            left.push(entry.path());
        }
    }
    Ok(())
}

/// Where the unified hierarchy is mounted, by the table of proc(5).
fn mount(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (path, kind) = (fields.next()?, fields.next()?);
        // A space in a path is written as \040.
        (kind == "cgroup2").then(|| PathBuf::from(path.replace("\\040", " ")))
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_mount_is_found_among_those_of_version_1() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ncgroup2 /my\\040groups cgroup2 rw 0 0\n";
        assert_eq!(mount(mounts), Some(PathBuf::from("/my groups")));
        assert_eq!(mount("proc /proc proc rw 0 0\n"), None);
    }

    #[test]
    fn the_own_group_and_the_times_are_read_where_the_kernel_puts_them() {
        assert_eq!(own("4:memory:/a\n0::/user.slice/b\n"), Some("user.slice/b"));
        assert_eq!(own("0::/\n"), Some(""));
        assert_eq!(own("4:memory:/a\n"), None);
        let stat = "usage_usec 30\nuser_usec 10\nsystem_usec 20\nnice_usec 0\n";
        assert_eq!(cpu_times_ns(stat), [Some(10_000), Some(20_000), Some(30_000)]);
        assert_eq!(cpu_times_ns("usage_usec 30\nuser_usec x\n"), [None, None, Some(30_000)]);
    }

    #[test]
    fn the_processes_of_a_threaded_group_are_those_of_the_group_above() {
        let account = CpuAccount::open().unwrap();
        let mut cat = Command::new("cat");
        cat.stdin(Stdio::piped());
        let mut cat = account.within(|| cat.spawn()).unwrap().unwrap();
        let processes = Cgroup::open(Path::new("/")).unwrap().processes();
        cat.kill().unwrap();
        cat.wait().unwrap();
        assert!(processes.unwrap().contains(&cat.id().cast_signed()));
    }

    #[test]
    fn a_group_has_a_directory_and_a_path_in_the_hierarchy() {
        let root = Cgroup::open(Path::new("/")).unwrap();
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        assert!(root.threads().unwrap().contains(&own));
        // The main thread of this process, and not this one.
        let processes = root.processes().unwrap();
        assert!(processes.contains(&std::process::id().cast_signed()) && !processes.contains(&own));
        let by_directory = Cgroup::open(root.path()).unwrap();
        assert_eq!(by_directory.path(), root.path());
        for other in ["/proc", "/no/such/group"] {
            let error = Cgroup::open(Path::new(other)).unwrap_err().to_string();
            let expected =
                format!("{other} is no control group of the unified hierarchy; take a directory below ");
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}
