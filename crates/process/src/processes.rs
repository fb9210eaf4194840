//! Lists processes: `/proc` as plain values. Processes start and end while it is read; one that ends is
//! absent.

use std::{fs, io};

use rustix::io::Errno;

/// One process, as `/proc/PID/stat` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its process id.
    pub pid: i32,
    /// Process id of its parent.
    pub parent: i32,
    /// Id of its process group.
    pub group: i32,
    /// The letter of its state (proc(5)).
    pub state: u8,
    /// CPU time of its threads in user mode, exited ones included, in clock ticks.
    pub user_ticks: u64,
    /// The same in kernel mode.
    pub system_ticks: u64,
    /// CPU time in user mode of its reaped children, in clock ticks.
    pub children_user_ticks: u64,
    /// The same in kernel mode.
    pub children_system_ticks: u64,
    /// Start time, in clock ticks since boot. Together with `pid`, it identifies the process.
    pub start_ticks: u64,
    /// The processor that it was on last, or in whose queue it waits.
    pub processor: usize,
}

impl Process {
    /// Reads the process or thread `pid`; `None` if it does not exist.
    ///
    /// # Errors
    /// If `/proc` cannot be read, or does not have the format of proc(5).
    pub fn read(pid: i32) -> io::Result<Option<Process>> {
        match fs::read(format!("/proc/{pid}/stat")) {
            Ok(stat) => parse(&stat).map(Some).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat has an unknown form"))
            }),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether it is the same process: ids are reused.
    #[must_use]
    pub fn is(&self, other: &Process) -> bool {
        (self.pid, self.start_ticks) == (other.pid, other.start_ticks)
    }

    /// Whether it is neither a zombie nor dead.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Whether it is in an interruptible sleep.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.state == b'S'
    }

    /// Whether it runs or waits for a processor.
    #[must_use]
    pub fn is_runnable(&self) -> bool {
        self.state == b'R'
    }

    /// Whether it is stopped, not alive, or in an uninterruptible sleep: it does not start another process.
    pub(crate) fn is_still(&self) -> bool {
        !self.is_alive() || matches!(self.state, b'T' | b't' | b'D')
    }
}

/// Whether the error of a read from `/proc` means that the process has ended, or of one from a control group
/// that the group was removed.
#[must_use]
pub fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::SRCH, Errno::NODEV].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|errno| gone.contains(&errno))
}

/// Returns the ids of the threads of a process.
///
/// # Errors
/// If `/proc` cannot be read, for example because the process has ended: see [`is_gone`].
pub fn threads(pid: i32) -> io::Result<Vec<i32>> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

pub(crate) fn all() -> io::Result<Vec<Process>> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid {
            processes.extend(Process::read(pid)?);
        }
    }
    Ok(processes)
}

/// Parses the line of `/proc/PID/stat`. The name of the command is in parentheses and may contain anything,
/// so fields are counted from the last closing parenthesis.
pub(crate) fn parse(stat: &[u8]) -> Option<Process> {
    let open = stat.iter().position(|&byte| byte == b'(')?;
    let close = stat.iter().rposition(|&byte| byte == b')')?;
    let pid = std::str::from_utf8(&stat[..open]).ok()?.trim().parse().ok()?;
    let rest = std::str::from_utf8(&stat[close + 1..]).ok()?;
    // The state is field 3 of proc(5) and field 0 here.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse().ok();
    Some(Process {
        pid,
        state: *fields.first()?.as_bytes().first()?,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        user_ticks: ticks(14)?,
        system_ticks: ticks(15)?,
        children_user_ticks: ticks(16)?,
        children_system_ticks: ticks(17)?,
        start_ticks: ticks(22)?,
        processor: fields.get(39 - 3)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Process, parse};

    #[test]
    fn a_command_named_like_the_line_itself_is_read_right() {
        let line = b"42 (a) Z 9 (b) S 7 40 40 0 -1 4194304 100 0 0 0 11 12 13 14 20 0 1 0 555 1 2 \
            18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 0 0 0 0\n";
        let process = parse(line).unwrap();
        let expected = Process {
            pid: 42,
            parent: 7,
            group: 40,
            state: b'S',
            user_ticks: 11,
            system_ticks: 12,
            children_user_ticks: 13,
            children_system_ticks: 14,
            start_ticks: 555,
            processor: 3,
        };
        assert_eq!(process, expected);
        assert!(process.is_alive() && !process.is_runnable() && !process.is_still());
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
        assert!(Process::read(own).unwrap().unwrap().is_alive());
        assert_eq!(Process::read(i32::MAX).unwrap(), None);
    }

    #[test]
    fn states_say_what_a_process_may_still_do() {
        let line = format!("1 (a) S{}", " 1".repeat(40));
        let in_state = |state| Process { state, ..parse(line.as_bytes()).unwrap() };
        let of = |is: fn(&Process) -> bool| -> String {
            "RSDTtZXIP".chars().filter(|state| is(&in_state(u8::try_from(*state).unwrap()))).collect()
        };
        assert_eq!(of(Process::is_alive), "RSDTtIP");
        assert_eq!((of(Process::is_asleep), of(Process::is_runnable)), ("S".to_owned(), "R".to_owned()));
        assert_eq!(of(Process::is_still), "DTtZX");
    }
}
