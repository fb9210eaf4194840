//! What Linux tells of who ran and who waited: `schedstat`, `/proc/stat`, `getrusage` and the processor-time
//! clocks, each read and put into numbers here. What they mean is for the modules beside.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Ticks of `/proc/stat` that no process is charged with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ticks {
    pub(super) interrupts: u64,
    pub(super) stolen: u64,
}

impl std::iter::Sum for Ticks {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |a, b| Self {
            interrupts: a.interrupts + b.interrupts,
            stolen: a.stolen + b.stolen,
        })
    }
}

/// The run-queue delay of the calling thread.
pub(super) const OWN_DELAY: &str = "/proc/thread-self/schedstat";

/// Whether the kernel counts how long a thread waited in the run queue. Without `CONFIG_SCHED_INFO` the file
/// is missing, and where the accounting is off it holds zeroes. Then nothing but stolen time is known of benchmarks that
/// sleep.
#[must_use]
pub fn has_run_queue_delay() -> bool {
    std::fs::read(OWN_DELAY).is_ok_and(|line| tells_delay(&line))
}

fn tells_delay(schedstat: &[u8]) -> bool {
    // Whoever reads this line has run at least once.
    parse_schedstat(schedstat).is_some_and(|(_, times)| times > 0)
}

/// Time that a thread waited in its run queue, ns, from its open `schedstat`.
pub(super) fn waited_ns(schedstat: &File) -> io::Result<u64> {
    let mut line = [0; 96];
    let length = schedstat.read_at(&mut line, 0)?;
    parse_schedstat(&line[..length]).map(|(waited_ns, _)| waited_ns).ok_or_else(|| {
        io::Error::other("schedstat is not 'ran waited times', as it was when the watch began")
    })
}

/// Reads `ran_ns waited_ns times` (proc(5)); returns the last two.
fn parse_schedstat(line: &[u8]) -> Option<(u64, u64)> {
    let mut numbers = std::str::from_utf8(line).ok()?.split_ascii_whitespace().map(str::parse);
    let (_, waited_ns, times) = (numbers.next()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some((waited_ns, times))
}

/// Reads the time in which some task waited, ns, of a file in `/proc/pressure`.
pub(super) fn parse_stalled(pressure: &str) -> Option<f64> {
    let line = pressure.lines().find(|line| line.starts_with("some "))?;
    let us = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
    us.parse().ok().map(|us: f64| us * 1000.0)
}

/// Reads the line of one processor: `cpu0 user nice system idle iowait irq softirq steal ...` (proc(5)).
pub(super) fn parse_ticks(stat: &str, cpu: usize) -> Option<Ticks> {
    let name = format!("cpu{cpu}");
    let line = stat.lines().find(|line| line.split(' ').next() == Some(&name))?;
    let ticks: Vec<u64> = line.split_ascii_whitespace().skip(1).map_while(|n| n.parse().ok()).collect();
    Some(Ticks { interrupts: ticks.get(5)? + ticks.get(6)?, stolen: *ticks.get(7)? })
}

/// Runnable tasks of the whole machine, the reader among them, and processors (proc(5)).
pub(super) fn parse_running(stat: &str) -> Option<(u64, u64)> {
    let running = stat.lines().find_map(|line| line.strip_prefix("procs_running ")?.trim().parse().ok())?;
    let is_cpu = |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| !rest.starts_with(' '));
    Some((running, stat.lines().filter(is_cpu).count() as u64))
}

/// Whether a task is running or waits for a processor.
pub(super) fn runs(pid: libc::pid_t) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| is_runnable(&stat))
}

/// The same by its line of `/proc/PID/stat`.
fn is_runnable(stat: &str) -> bool {
    // The name before the state is in brackets, and may hold brackets itself.
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('R'))
}

/// What `getrusage` says of this process or of the children that it waited for.
pub(crate) fn usage(who: libc::c_int) -> io::Result<libc::rusage> {
    // SAFETY: `rusage` is numbers only, so zeroes are a value of it, and the call fills it.
    let (result, usage) = unsafe {
        let mut usage = std::mem::zeroed();
        (libc::getrusage(who, &raw mut usage), usage)
    };
    crate::kernel::check("getrusage", result)?;
    Ok(usage)
}

pub(super) fn usage_ns(usage: &libc::rusage) -> u64 {
    let ns = |time: libc::timeval| unsigned(time.tv_sec) * 1_000_000_000 + unsigned(time.tv_usec) * 1000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

pub(super) fn process_ns(pid: libc::pid_t) -> io::Result<u64> {
    let mut clock = 0;
    // SAFETY: the pointer is to a local that outlives the call.
    let result = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if result != 0 {
        return Err(io::Error::from_raw_os_error(result));
    }
    cpu_time_ns(clock)
}

pub(super) fn cpu_time_ns(clock: libc::clockid_t) -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local that outlives the call.
    crate::kernel::check("clock_gettime", unsafe { libc::clock_gettime(clock, &raw mut time) })?;
    Ok(unsigned(time.tv_sec) * 1_000_000_000 + unsigned(time.tv_nsec))
}

/// A count that the C interface keeps in a signed type.
pub(super) fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_schedstat_and_stat_are_read_where_proc_5_puts_them() {
        assert_eq!(parse_schedstat(b"363685 444630 7\n"), Some((444_630, 7)));
        assert_eq!(parse_schedstat(b"363685 444630"), None);
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu1 1 2 3 4 5 6 7 8 0 0\ncpu10 0 0 0 0 0 1 1 2 0 0\n";
        assert_eq!(parse_ticks(stat, 1), Some(Ticks { interrupts: 13, stolen: 8 }));
        assert_eq!(parse_ticks(stat, 10), Some(Ticks { interrupts: 2, stolen: 2 }));
        assert_eq!(parse_ticks(stat, 0), None);
    }

    #[test]
    fn neighbours_are_read_where_the_kernel_puts_them() {
        let stat = "cpu  1 2\ncpu0 1 2\ncpu1 1 2\nprocs_running 3\nprocs_blocked 0\n";
        assert_eq!(parse_running(stat), Some((3, 2)));
        assert_eq!(parse_running("cpu  1 2\n"), None);
        assert!(is_runnable("12 (a) b) R 1 2"));
        assert!(!is_runnable("12 (R) S 1 2"));
    }

    #[test]
    fn the_time_that_tasks_waited_for_memory_is_read_where_the_kernel_puts_it() {
        let pressure =
            "some avg10=0.00 avg60=0.47 avg300=0.89 total=6015319\nfull avg10=0.00 total=5632658\n";
        assert_eq!(parse_stalled(pressure), Some(6_015_319_000.0));
        assert_eq!(parse_stalled("full avg10=0.00 total=1\n"), None);
    }

    #[test]
    fn a_schedstat_of_zeroes_tells_nothing() {
        assert!(tells_delay(b"363685 0 7\n"));
        assert!(!tells_delay(b"0 0 0\n"));
        assert!(!tells_delay(b""));
    }
}
