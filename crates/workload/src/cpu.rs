//! The CPU time of a program and of all processes that it starts. A control group counts it
//! ([`CpuAccount`]). Where no control group can be created, it is the sum over the processes in `/proc`, with
//! the limitations that `docs/workload.md` describes.

use std::io;
use std::process::Command;
use std::time::Instant;

use assay_process::accounting::Schedstat;
use assay_process::clock::now;
use assay_process::{CpuAccount, Group, NoCpuAccount, Process};
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

/// Counts the CPU time of the programs that it spawns.
#[derive(Debug)]
pub(crate) struct Counter(Result<CpuAccount, NoCpuAccount>);

impl Counter {
    /// Opens a control group, if possible.
    pub(crate) fn open() -> Self {
        Self(CpuAccount::open())
    }

    #[cfg(test)]
    pub(crate) fn without_account(reason: NoCpuAccount) -> Self {
        Self(Err(reason))
    }

    /// Returns why it reads `/proc` instead of a control group.
    pub(crate) fn not_counted(&self) -> Option<&NoCpuAccount> {
        self.0.as_ref().err()
    }

    /// Spawns the main process of `group`. Returns the time before that.
    pub(crate) fn spawn(&self, group: &mut Group, command: &mut Command) -> io::Result<Instant> {
        let mut spawn = || {
            let start = now();
            group.spawn(command).map(|()| start)
        };
        match &self.0 {
            Ok(account) => account.within(spawn)?,
            Err(_) => spawn(),
        }
    }

    /// Returns the CPU time used so far, given that of the processes ([`of`]): without a control group, that
    /// is all there is. The time in the run queue is always theirs.
    pub(crate) fn counted(&self, of_processes: CpuTime) -> io::Result<CpuTime> {
        let Ok(account) = &self.0 else { return Ok(of_processes) };
        let used = account.used()?;
        let tick_ns = tick_ns();
        Ok(CpuTime {
            total_ns: used.user_ns + used.system_ns,
            queued_ns: of_processes.queued_ns,
            user_ticks: used.user_ns / tick_ns,
            system_ticks: used.system_ns / tick_ns,
        })
    }
}

/// Returns the CPU time of these processes and of the children that they have waited for, as `/proc` contains
/// it. A process that ends meanwhile is skipped, as if it had ended before.
pub(crate) fn of(processes: &[Process]) -> Result<CpuTime, CpuError> {
    let mut sum = CpuTime::default();
    for process in processes {
        let used = one(process.pid).map_err(|source| CpuError { pid: process.pid, source })?;
        if let Some(used) = used {
            sum += used;
        }
    }
    Ok(sum)
}

fn one(pid: i32) -> io::Result<Option<CpuTime>> {
    let threads = Schedstat::of_threads(pid)?;
    let Some(process) = Process::read(pid)? else { return Ok(None) };
    let tick_ns = tick_ns();
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

fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second()
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
