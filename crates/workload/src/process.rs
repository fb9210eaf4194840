//! Which processes there are: `/proc` read into plain values. Processes come and go while it is read; one that
//! goes is simply absent.

use std::collections::HashSet;
use std::{fs, io};

/// One process, as `/proc/PID/stat` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// Neither a zombie nor dead.
    pub(crate) alive: bool,
    /// CPU time of its threads, exited ones included, in clock ticks.
    pub(crate) user_ticks: u64,
    pub(crate) system_ticks: u64,
    /// CPU time of the children that it has waited for, in clock ticks.
    pub(crate) children_user_ticks: u64,
    pub(crate) children_system_ticks: u64,
    /// When it started, in clock ticks since boot: with `pid`, its identity.
    pub(crate) start_ticks: u64,
}

impl Process {
    /// The process `pid`, or `None` if there is none.
    pub(crate) fn read(pid: i32) -> io::Result<Option<Process>> {
        match fs::read(format!("/proc/{pid}/stat")) {
            Ok(stat) => parse(&stat).map(Some).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat has an unknown form"))
            }),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// True of the errors with which `/proc` says that a process has ended meanwhile.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// The processes, alive, of group `group`, those of `known` that still live, and the descendants of all of `known`;
/// the group's leader itself is left out.
pub(crate) fn members(group: i32, known: &[Process]) -> io::Result<Vec<Process>> {
    let all = all()?;
    let is_known = |process: &&Process| {
        known.iter().any(|other| other.pid == process.pid && other.start_ticks == process.start_ticks)
    };
    let mut family: HashSet<i32> = all.iter().filter(is_known).map(|process| process.pid).collect();
    // A child can stand before its parent in the list: repeat until nothing is added.
    loop {
        let before = family.len();
        for process in &all {
            if family.contains(&process.parent) {
                family.insert(process.pid);
            }
        }
        if family.len() == before {
            break;
        }
    }
    let belongs = |process: &Process| process.group == group || family.contains(&process.pid);
    Ok(all.into_iter().filter(|p| p.alive && p.pid != group && belongs(p)).collect())
}

fn all() -> io::Result<Vec<Process>> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid {
            processes.extend(Process::read(pid)?);
        }
    }
    Ok(processes)
}

/// Reads one line of `/proc/PID/stat`. The command's name stands in parentheses and may hold anything, so the
/// fields are counted from the last closing one.
fn parse(stat: &[u8]) -> Option<Process> {
    let open = stat.iter().position(|&byte| byte == b'(')?;
    let close = stat.iter().rposition(|&byte| byte == b')')?;
    let pid = std::str::from_utf8(&stat[..open]).ok()?.trim().parse().ok()?;
    let rest = std::str::from_utf8(&stat[close + 1..]).ok()?;
    // The state is field 3 of proc(5) and field 0 here.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse().ok();
    Some(Process {
        pid,
        alive: !matches!(*fields.first()?, "Z" | "X" | "x"),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        user_ticks: ticks(14)?,
        system_ticks: ticks(15)?,
        children_user_ticks: ticks(16)?,
        children_system_ticks: ticks(17)?,
        start_ticks: ticks(22)?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Process, parse};

    #[test]
    fn a_command_named_like_the_line_itself_is_read_right() {
        let line = b"42 (a) Z 9 (b) S 7 40 40 0 -1 4194304 100 0 0 0 11 12 13 14 20 0 1 0 555 1 2\n";
        let process = parse(line).unwrap();
        let expected = Process {
            pid: 42,
            parent: 7,
            group: 40,
            alive: true,
            user_ticks: 11,
            system_ticks: 12,
            children_user_ticks: 13,
            children_system_ticks: 14,
            start_ticks: 555,
        };
        assert_eq!(process, expected);
    }

    #[test]
    fn half_a_line_is_no_process() {
        assert_eq!(parse(b"42 (a) S 7 40"), None);
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b")("), None);
    }

    #[test]
    fn this_process_is_found_alive_and_no_process_is_none() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(Process::read(own).unwrap().unwrap().alive);
        assert_eq!(Process::read(i32::MAX).unwrap(), None);
    }
}
