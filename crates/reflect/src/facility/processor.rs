//! Processor time, and the mode in which it was spent.

use std::io;
use std::time::Duration;

use assay_process::accounting::{Stat, process_cpu_ns};
use assay_process::{Cgroup, Process, Reread, cpu_times_ns};
use assay_quantity::Unit;

use super::{Measure, Provider, Source, Subject, opened};

/// The user time is the paper's percentage in user mode. It also rises where threads spin.
pub static PROCESSOR: Provider = Provider {
    measures: &[
        Measure::productivity("user time", Unit::Nanoseconds, "processor time in user mode"),
        Measure::overhead("system time", Unit::Nanoseconds, "processor time in the kernel"),
        Measure::overhead("processor time", Unit::Nanoseconds, "time on a processor, in both modes"),
    ],
    open: |subject| match subject {
        Subject::Machine => Ok(Box::new(OfMachine)),
        Subject::Process(pid) => Ok(Box::new(OfProcess(*pid))),
        Subject::Group(group) => Ok(Box::new(OfGroup::open(group)?)),
    },
};

/// `/proc/stat`, in steps of a clock tick.
#[derive(Debug)]
struct OfMachine;

impl Source for OfMachine {
    fn read(&mut self, totals: &mut Vec<Option<u64>>) -> io::Result<()> {
        let (user, system) =
            Stat::read()?.busy().ok_or_else(|| io::Error::other("/proc/stat has an unknown form"))?;
        totals.extend([user, system, user + system].map(|ticks| Some(ns(ticks))));
        Ok(())
    }
}

/// The clock of a process, which is exact, and `/proc/PID/stat`, where the kernel splits its time in steps of
/// a clock tick.
#[derive(Debug)]
struct OfProcess(i32);

impl Source for OfProcess {
    fn read(&mut self, totals: &mut Vec<Option<u64>>) -> io::Result<()> {
        let process = Process::read(self.0)?.filter(Process::is_alive).ok_or(rustix::io::Errno::SRCH)?;
        let total_ns = process_cpu_ns(self.0)?;
        totals.extend([ns(process.user_ticks), ns(process.system_ticks), total_ns].map(Some));
        Ok(())
    }
}

/// A time in clock ticks.
fn ns(ticks: u64) -> u64 {
    ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second())
}

/// `cpu.stat` of a control group.
#[derive(Debug)]
struct OfGroup(Reread);

impl OfGroup {
    fn open(group: &Cgroup) -> Result<Self, String> {
        opened(&group.path().join("cpu.stat")).map(Self)
    }

    /// User time, system time and their sum in nanoseconds; `None` for what the kernel does not say.
    fn times(&mut self) -> io::Result<[Option<u64>; 3]> {
        Ok(cpu_times_ns(self.0.text()?))
    }
}

impl Source for OfGroup {
    fn read(&mut self, totals: &mut Vec<Option<u64>>) -> io::Result<()> {
        totals.extend(self.times()?);
        Ok(())
    }
}

/// The processor time of a control group and the groups below it, for a law.
#[derive(Debug)]
pub struct GroupTime {
    group: Cgroup,
    /// `None` after a failure: the group may have been made anew, as with a restart of the server.
    file: Option<OfGroup>,
    last_ns: Option<u64>,
}

impl GroupTime {
    /// Begins to count.
    ///
    /// # Errors
    /// If the kernel does not count it.
    pub fn open(group: Cgroup) -> Result<Self, NoTime> {
        let mut file = OfGroup::open(&group).map_err(NoTime)?;
        let [_, _, last_ns] = file.times().map_err(|error| NoTime(error.to_string()))?;
        if last_ns.is_none() {
            return Err(NoTime("the kernel does not count the processor time of control groups".to_owned()));
        }
        Ok(Self { group, file: Some(file), last_ns })
    }

    /// Returns the time since the last call; `None` if one of the two readings failed.
    pub fn since_last(&mut self) -> Option<Duration> {
        let mut file = self.file.take().or_else(|| OfGroup::open(&self.group).ok());
        let now_ns = file.as_mut().and_then(|file| file.times().ok()?[2]);
        self.file = file.filter(|_| now_ns.is_some());
        let last_ns = std::mem::replace(&mut self.last_ns, now_ns);
        now_ns?.checked_sub(last_ns?).map(Duration::from_nanos)
    }
}

/// The kernel does not count the processor time.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoTime(String);
