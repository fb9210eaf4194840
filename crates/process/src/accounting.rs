//! The kernel's accounting of running and waiting tasks: `schedstat`, `/proc/stat`, `/proc/pressure`,
//! `getrusage` and the processor-time clocks, as plain numbers.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::{fs, io};

use crate::named;
use crate::processes::{Process, is_gone, threads};

/// The `schedstat` of the calling thread.
pub const OWN_SCHEDSTAT: &str = "/proc/thread-self/schedstat";

/// The scheduler statistics of a thread, or the sum over several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Schedstat {
    /// Time on a processor, ns.
    pub ran_ns: u64,
    /// Time in a run queue, ns.
    pub waited_ns: u64,
    /// Number of times it was given a processor.
    pub turns: u64,
}

impl Schedstat {
    /// Reads an open `/proc/.../schedstat` from its beginning.
    ///
    /// # Errors
    /// If it cannot be read, or does not have the format of proc(5).
    pub fn read(file: &File) -> io::Result<Self> {
        let mut line = [0; 96];
        let length = file.read_at(&mut line, 0)?;
        Self::parse(&line[..length])
    }

    /// Adds up the living threads of a process. Threads that end during the call are left out.
    ///
    /// # Errors
    /// If `/proc` cannot be read, or the kernel does not provide the file.
    pub fn of_threads(pid: i32) -> io::Result<Self> {
        let mut sum = Self::default();
        let threads = match threads(pid) {
            Ok(threads) => threads,
            Err(error) if is_gone(&error) => return Ok(sum),
            Err(error) => return Err(error),
        };
        for thread in threads {
            let read = fs::read(format!("/proc/{pid}/task/{thread}/schedstat"));
            match read.and_then(|line| Self::parse(&line)) {
                Ok(thread) => {
                    sum.ran_ns += thread.ran_ns;
                    sum.waited_ns += thread.waited_ns;
                    sum.turns += thread.turns;
                }
                // If the kernel has no such file at all, a missing one does not mean that the thread has
                // ended.
                Err(error) if is_gone(&error) && fs::exists(OWN_SCHEDSTAT).is_ok_and(|exists| exists) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sum)
    }

    /// Reads `RAN_NS WAITED_NS TURNS` (proc(5)).
    fn parse(line: &[u8]) -> io::Result<Self> {
        let text = String::from_utf8_lossy(line);
        let mut numbers = text.split_ascii_whitespace().map(str::parse);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(ran_ns)), Some(Ok(waited_ns)), Some(Ok(turns))) => Ok(Self { ran_ns, waited_ns, turns }),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("schedstat reads '{}'", text.trim_end()),
            )),
        }
    }
}

/// Whether the kernel counts the time in the run queue. Without `CONFIG_SCHED_INFO` the file is missing; if
/// the accounting is disabled, it contains zeros.
#[must_use]
pub fn has_run_queue_delay() -> bool {
    fs::read(OWN_SCHEDSTAT).is_ok_and(|line| tells_delay(&line))
}

fn tells_delay(own_schedstat: &[u8]) -> bool {
    // The thread that reads this line has run at least once.
    Schedstat::parse(own_schedstat).is_ok_and(|own| own.turns > 0)
}

/// Ticks of `/proc/stat` that are not charged to any process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ticks {
    /// In interrupts and softirqs.
    pub interrupts: u64,
    /// Taken by the hypervisor.
    pub stolen: u64,
}

impl std::iter::Sum for Ticks {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |a, b| Self {
            interrupts: a.interrupts + b.interrupts,
            stolen: a.stolen + b.stolen,
        })
    }
}

/// `/proc/stat` at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat(String);

impl Stat {
    /// Reads `/proc/stat`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read() -> io::Result<Self> {
        fs::read_to_string("/proc/stat").map(Self)
    }

    /// The line of one processor: `cpu0 user nice system idle iowait irq softirq steal ...` (proc(5)). `None`
    /// if the kernel does not count them.
    #[must_use]
    pub fn ticks(&self, cpu: usize) -> Option<Ticks> {
        let name = format!("cpu{cpu}");
        let line = self.0.lines().find(|line| line.split(' ').next() == Some(&name))?;
        let ticks: Vec<u64> = line.split_ascii_whitespace().skip(1).map_while(|n| n.parse().ok()).collect();
        Some(Ticks { interrupts: ticks.get(5)? + ticks.get(6)?, stolen: *ticks.get(7)? })
    }

    /// Processor time of all processors together, as [`Stat::ticks`] in clock ticks: in user mode, and in the
    /// kernel with interrupts.
    #[must_use]
    pub fn busy(&self) -> Option<(u64, u64)> {
        let line = self.0.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_ascii_whitespace().map_while(|n| n.parse().ok()).collect();
        // user nice system idle iowait irq softirq
        Some((ticks.first()? + ticks.get(1)?, ticks.get(2)? + ticks.get(5)? + ticks.get(6)?))
    }

    /// Interrupts since boot.
    #[must_use]
    pub fn interrupts(&self) -> Option<u64> {
        self.0.lines().find_map(|line| line.strip_prefix("intr ")?.split(' ').next()?.parse().ok())
    }

    /// Runnable tasks of the whole machine, the reader among them.
    #[must_use]
    pub fn runnable(&self) -> Option<u64> {
        self.0.lines().find_map(|line| line.strip_prefix("procs_running ")?.trim().parse().ok())
    }

    /// Processors that are online.
    #[must_use]
    pub fn cpus(&self) -> u64 {
        let is_cpu = |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| !rest.starts_with(' '));
        self.0.lines().filter(is_cpu).count() as u64
    }
}

/// Whether a task is running or waits for a processor.
#[must_use]
pub fn is_runnable(pid: i32) -> bool {
    matches!(Process::read(pid), Ok(Some(process)) if process.is_runnable())
}

/// Time since boot in which some task waited for memory, ns; `None` if the kernel does not count it.
#[must_use]
pub fn memory_stalled_ns() -> Option<f64> {
    stalled_ns(&fs::read_to_string("/proc/pressure/memory").ok()?)
}

/// Parses the time in which some task was stalled, ns, in a file of `/proc/pressure` or of a control group.
#[must_use]
pub fn stalled_ns(pressure: &str) -> Option<f64> {
    let line = pressure.lines().find(|line| line.starts_with("some "))?;
    let us = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
    us.parse().ok().map(|us: f64| us * 1000.0)
}

/// The threads or processes of [`usage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// All threads of this process.
    Process,
    /// The calling thread.
    Thread,
    /// The children that this process has waited for.
    Children,
}

/// Resource usage (getrusage(2)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time, ns.
    pub cpu_ns: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
}

/// Returns the usage so far of this process, of the calling thread, or of the children.
///
/// # Errors
/// If `getrusage` fails.
pub fn usage(who: Who) -> io::Result<Usage> {
    let who = match who {
        Who::Process => libc::RUSAGE_SELF,
        Who::Thread => libc::RUSAGE_THREAD,
        Who::Children => libc::RUSAGE_CHILDREN,
    };
    // SAFETY: `rusage` is numbers only, so zeroes are a value of it, and the call fills it.
    let (result, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::getrusage(who, &raw mut usage), usage)
    };
    done("getrusage", result)?;
    let ns = |time: libc::timeval| unsigned(time.tv_sec) * 1_000_000_000 + unsigned(time.tv_usec) * 1000;
    Ok(Usage {
        cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime),
        minor_faults: unsigned(usage.ru_minflt),
        major_faults: unsigned(usage.ru_majflt),
        voluntary_switches: unsigned(usage.ru_nvcsw),
        involuntary_switches: unsigned(usage.ru_nivcsw),
    })
}

/// Processor time of a process, ns.
///
/// # Errors
/// If the process does not exist.
pub fn process_cpu_ns(pid: i32) -> io::Result<u64> {
    let mut clock = 0;
    // SAFETY: the pointer is to a local that outlives the call.
    let result = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if result != 0 {
        return Err(io::Error::from_raw_os_error(result));
    }
    cpu_ns(clock)
}

/// Processor time of this process, ns.
///
/// # Errors
/// If the call is not permitted, for example by a seccomp filter.
pub fn own_cpu_ns() -> io::Result<u64> {
    cpu_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Processor time of the calling thread, ns.
///
/// # Errors
/// If the call is not permitted, for example by a seccomp filter.
pub fn thread_cpu_ns() -> io::Result<u64> {
    cpu_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn cpu_ns(clock: libc::clockid_t) -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local that outlives the call.
    done("clock_gettime", unsafe { libc::clock_gettime(clock, &raw mut time) })?;
    Ok(unsigned(time.tv_sec) * 1_000_000_000 + unsigned(time.tv_nsec))
}

fn done(call: &str, result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(named(call, io::Error::last_os_error())) }
}

/// A count that the C interface stores in a signed type.
fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedstat_of_another_form_is_an_error() {
        let read = Schedstat::parse(b"363685 444630 7\n").unwrap();
        assert_eq!(read, Schedstat { ran_ns: 363_685, waited_ns: 444_630, turns: 7 });
        for other in ["", "fast", "363685 444630", "-1 4 5"] {
            let error = Schedstat::parse(other.as_bytes()).unwrap_err().to_string();
            assert_eq!(error, format!("schedstat reads '{other}'"));
        }
    }

    #[test]
    fn the_threads_of_a_process_have_run_at_least_as_long_as_one_of_them() {
        let own = Schedstat::read(&File::open(OWN_SCHEDSTAT).unwrap()).unwrap();
        let all = Schedstat::of_threads(std::process::id().cast_signed()).unwrap();
        assert!(all.turns >= own.turns && all.ran_ns >= own.ran_ns, "{own:?} {all:?}");
        assert_eq!(Schedstat::of_threads(i32::MAX).unwrap(), Schedstat::default());
    }

    #[test]
    fn a_schedstat_of_zeroes_does_not_tell_delay() {
        assert!(tells_delay(b"363685 0 7\n"));
        assert!(!tells_delay(b"0 0 0\n"));
        assert!(!tells_delay(b""));
    }

    #[test]
    fn stat_is_read_where_proc_5_puts_it() {
        let stat = Stat(
            "cpu  1 20 300 9 9 4 50 9 9 9\ncpu1 1 2 3 4 5 6 7 8 0 0\ncpu10 0 0 0 0 0 1 1 2 0 0\nintr 70 1 2\n\
             procs_running 3\nprocs_blocked 0\n"
                .to_owned(),
        );
        assert_eq!(stat.ticks(1), Some(Ticks { interrupts: 13, stolen: 8 }));
        assert_eq!(stat.ticks(10), Some(Ticks { interrupts: 2, stolen: 2 }));
        assert_eq!(stat.ticks(0), None);
        assert_eq!((stat.runnable(), stat.cpus()), (Some(3), 2));
        assert_eq!((stat.busy(), stat.interrupts()), (Some((21, 354)), Some(70)));
        assert_eq!(Stat("cpu  1 2\n".to_owned()).runnable(), None);
    }

    #[test]
    fn the_time_that_tasks_waited_for_memory_is_read_where_the_kernel_puts_it() {
        let pressure =
            "some avg10=0.00 avg60=0.47 avg300=0.89 total=6015319\nfull avg10=0.00 total=5632658\n";
        assert_eq!(stalled_ns(pressure), Some(6_015_319_000.0));
        assert_eq!(stalled_ns("full avg10=0.00 total=1\n"), None);
    }

    #[test]
    fn this_thread_is_runnable_and_none_is_not() {
        assert!(is_runnable(rustix::thread::gettid().as_raw_nonzero().get()));
        assert!(!is_runnable(i32::MAX));
    }
}
