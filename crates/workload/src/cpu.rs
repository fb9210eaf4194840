//! The CPU time of a group of processes. The total has a resolution of one nanosecond where the kernel
//! supports it: the scheduler's count of every thread (`/proc/PID/task/*/schedstat`, first field). It has
//! three limitations, described in `docs/workload.md`: a currently running thread was last counted at its
//! latest timer tick; threads and waited-for children that have ended are counted in clock ticks (10 ms); and
//! children whose parent has not waited for them are missing. The division of the total into user and system
//! time is available in clock ticks only.

use std::io;

use assay_process::Process;
use assay_process::accounting::Schedstat;
use assay_quantity::CpuTime;
use thiserror::Error;

/// The CPU time could not be read.
#[derive(Debug, Error)]
#[error("cannot read the CPU time of process {pid}: {source}")]
pub struct CpuError {
    /// The process.
    pub pid: i32,
    /// The cause.
    pub source: io::Error,
}

/// Returns the CPU time of these processes and of the children that they have waited for. A process that ends
/// meanwhile is skipped, as if it had ended before.
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
    let threads = Schedstat::of_threads(pid)?;
    let Some(process) = Process::read(pid)? else { return Ok(None) };
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
    // The ticks include threads that have ended: if they are higher, some threads have ended.
    let own_ns = threads.ran_ns.max((process.user_ticks + process.system_ticks) * tick_ns);
    let children_ticks = process.children_user_ticks + process.children_system_ticks;
    Ok(Some(CpuTime {
        total_ns: own_ns + children_ticks * tick_ns,
        queued_ns: threads.waited_ns,
        user_ticks: process.user_ticks + process.children_user_ticks,
        system_ticks: process.system_ticks + process.children_system_ticks,
    }))
}

#[cfg(test)]
mod tests {
    use assay_process::Process;
    use assay_process::accounting::thread_cpu_ns;

    use super::of;

    #[test]
    fn a_busy_process_has_used_cpu_time() {
        let own = Process::read(i32::try_from(std::process::id()).unwrap()).unwrap().unwrap();
        let before = of(&[own]).unwrap();
        let start_ns = thread_cpu_ns().unwrap();
        while thread_cpu_ns().unwrap() - start_ns < 50_000_000 {
            std::hint::spin_loop();
        }
        let used = of(&[own]).unwrap().since(&before).unwrap();
        assert!(used.total_ns >= 30_000_000, "{used:?}");
    }
}
