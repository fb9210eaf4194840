//! Finds the processes that belong together, and kills all of them.

use std::collections::HashSet;
use std::time::Duration;
use std::{fs, io, thread};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::clock::{BRIEFLY, now};
use crate::processes::{Process, all, parse};

/// Time limit for a process to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// The living processes of group `group`, without its leader, those of `known` that are still alive, and the
/// descendants of all of `known`.
pub(crate) fn members(group: i32, known: &[Process]) -> io::Result<Vec<Process>> {
    let all = all()?;
    let family = family(&all, known);
    let belongs = |process: &Process| process.group == group || family.contains(&process.pid);
    Ok(all.into_iter().filter(|p| p.is_alive() && p.pid != group && belongs(p)).collect())
}

/// Returns the living descendants of processes.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn descendants(roots: &[Process]) -> io::Result<Vec<Process>> {
    let all = all()?;
    let family = family(&all, roots);
    let is_root = |process: &Process| roots.iter().any(|root| root.is(process));
    Ok(all.into_iter().filter(|p| p.is_alive() && family.contains(&p.pid) && !is_root(p)).collect())
}

/// The ids of those of `known` that still exist, and of their descendants.
fn family(all: &[Process], known: &[Process]) -> HashSet<i32> {
    let is_known = |process: &&Process| known.iter().any(|other| other.is(process));
    let mut family: HashSet<i32> = all.iter().filter(is_known).map(|process| process.pid).collect();
    // A child can precede its parent in the list: repeat until nothing is added.
    loop {
        let before = family.len();
        for process in all {
            if family.contains(&process.parent) {
                family.insert(process.pid);
            }
        }
        if family.len() == before {
            return family;
        }
    }
}

/// Kills these processes and all their descendants.
///
/// # Errors
/// The error of the first one that cannot be killed; all others are killed.
pub(crate) fn kill(roots: &[Pid]) -> io::Result<()> {
    let mut killed = Ok(());
    for pid in stopped(roots) {
        killed = killed.and(ignore_gone(kill_process(pid, Signal::KILL)));
    }
    killed
}

/// Stops these processes and all their descendants, from the top. A stopped process starts no further
/// children, does not end, and reaps none, so that no process escapes and no id is reused.
///
/// A process that receives the signal while it forks may have one more child. So this repeats until all have
/// stopped: with a single pass, one of 30 shells that were starting processes left one behind.
fn stopped(roots: &[Pid]) -> Vec<Pid> {
    let mut family = roots.to_vec();
    let deadline = now() + STOP_PATIENCE;
    loop {
        let mut all_still = true;
        let mut next = 0;
        while let Some(&pid) = family.get(next) {
            next += 1;
            // A process that may not be stopped may not be killed either, and its descendants are left to it.
            if kill_process(pid, Signal::STOP).is_err() {
                continue;
            }
            // Wait before reading its children, so that no further ones appear.
            all_still &= is_still(pid);
            let new: Vec<Pid> = children(pid).into_iter().filter(|child| !family.contains(child)).collect();
            family.extend(new);
        }
        if all_still || now() >= deadline {
            return family;
        }
        thread::sleep(BRIEFLY);
    }
}

/// Whether no thread of a process can start another process: all are stopped, have ended, or wait inside the
/// kernel, for example for a child of `vfork`.
fn is_still(pid: Pid) -> bool {
    threads(pid)
        .filter_map(|thread| parse(&fs::read(thread.join("stat")).ok()?))
        .all(|thread| thread.is_still())
}

/// The kernel lists children by the thread that forked them.
fn children(pid: Pid) -> Vec<Pid> {
    let mut children = Vec::new();
    for thread in threads(pid) {
        // A thread that has ended has no children.
        let list = fs::read_to_string(thread.join("children")).unwrap_or_default();
        children.extend(list.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)));
    }
    children
}

fn threads(pid: Pid) -> impl Iterator<Item = std::path::PathBuf> {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    threads.into_iter().flatten().flatten().map(|thread| thread.path())
}

/// Ignores the error of a signal to a process that has ended.
pub(crate) fn ignore_gone(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Err(Errno::SRCH) => Ok(()),
        other => Ok(other?),
    }
}
