//! How much CPU time a family of processes has used. The total is exact to the nanosecond wherever the kernel
//! offers that: the scheduler's own count of every thread (`/proc/PID/task/*/schedstat`, first field). It lacks
//! three things, which `docs/workload.md` names: a thread that is running at this moment was last counted at
//! its latest timer tick; threads and waited-for children that have ended count in clock ticks (10 ms); and
//! children whose parent has not waited for them are gone. How the total divides into user and system time is
//! known in clock ticks only.

use std::{fs, io};

use assay_quantity::CpuTime;
use thiserror::Error;

use crate::process::{Process, is_gone};

/// CPU time that could not be read.
#[derive(Debug, Error)]
#[error("cannot read the CPU time of process {pid}: {source}")]
pub struct CpuError {
    /// The process.
    pub pid: i32,
    /// Why not.
    pub source: io::Error,
}

/// CPU time of these processes and of the children that they have waited for. A process that ends meanwhile is
/// left out, as if it had ended before.
pub(crate) fn of(processes: &[Process]) -> Result<CpuTime, CpuError> {
    let mut sum = CpuTime::default();
    for process in processes {
        let used = one(process.pid).map_err(|source| CpuError { pid: process.pid, source })?;
        if let Some(used) = used {
            sum.total_ns += used.total_ns;
            sum.queued_ns += used.queued_ns;
            sum.user_ticks += used.user_ticks;
            sum.system_ticks += used.system_ticks;
        }
    }
    Ok(sum)
}

fn one(pid: i32) -> io::Result<Option<CpuTime>> {
    let threads = threads(pid)?;
    let Some(process) = Process::read(pid)? else { return Ok(None) };
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
    // The ticks include threads that have ended: if they say more, some have.
    let own_ns = threads.on_cpu_ns.max((process.user_ticks + process.system_ticks) * tick_ns);
    let children_ticks = process.children_user_ticks + process.children_system_ticks;
    Ok(Some(CpuTime {
        total_ns: own_ns + children_ticks * tick_ns,
        queued_ns: threads.queued_ns,
        user_ticks: process.user_ticks + process.children_user_ticks,
        system_ticks: process.system_ticks + process.children_system_ticks,
    }))
}

/// What the scheduler says of one thread or of several.
#[derive(Debug, Default, PartialEq, Eq)]
struct Schedstat {
    on_cpu_ns: u64,
    queued_ns: u64,
}

/// The sum over the living threads of a process.
fn threads(pid: i32) -> io::Result<Schedstat> {
    let mut sum = Schedstat::default();
    let threads = match fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(threads) => threads,
        Err(error) if is_gone(&error) => return Ok(sum),
        Err(error) => return Err(error),
    };
    for thread in threads {
        let thread = match thread {
            Ok(thread) => thread,
            Err(error) if is_gone(&error) => continue,
            Err(error) => return Err(error),
        };
        match fs::read_to_string(thread.path().join("schedstat")) {
            Ok(text) => {
                let thread = schedstat(&text)?;
                sum.on_cpu_ns += thread.on_cpu_ns;
                sum.queued_ns += thread.queued_ns;
            }
            Err(error) if is_gone(&error) && kernel_counts_threads() => continue,
            Err(error) => return Err(error),
        }
    }
    Ok(sum)
}

/// True if this kernel keeps `schedstat` at all: only then does a missing file mean an ended thread.
fn kernel_counts_threads() -> bool {
    std::path::Path::new("/proc/self/schedstat").exists()
}

/// Reads `ON_CPU_NS QUEUED_NS TURNS`.
fn schedstat(text: &str) -> io::Result<Schedstat> {
    let mut fields = text.split_ascii_whitespace().map(str::parse);
    match (fields.next(), fields.next()) {
        (Some(Ok(on_cpu_ns)), Some(Ok(queued_ns))) => Ok(Schedstat { on_cpu_ns, queued_ns }),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("schedstat reads '{text}'"))),
    }
}

#[cfg(test)]
mod tests {
    use super::{Schedstat, of, schedstat};
    use crate::process::Process;

    #[test]
    fn a_schedstat_of_another_form_is_an_error() {
        assert_eq!(schedstat("123 4 5\n").unwrap(), Schedstat { on_cpu_ns: 123, queued_ns: 4 });
        for other in ["", "fast", "123", "-1 4 5"] {
            assert!(schedstat(other).is_err(), "{other}");
        }
    }

    #[test]
    fn a_process_that_works_has_used_cpu_time() {
        let own = Process::read(i32::try_from(std::process::id()).unwrap()).unwrap().unwrap();
        let before = of(&[own]).unwrap();
        let start = crate::clock::thread_cpu_ns();
        while crate::clock::thread_cpu_ns() - start < 50_000_000 {
            std::hint::spin_loop();
        }
        let used = of(&[own]).unwrap().since(&before).unwrap();
        assert!(used.total_ns >= 30_000_000, "{used:?}");
    }
}
