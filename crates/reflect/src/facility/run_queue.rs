//! Time in which threads could run and had no processor (`schedstat` of each thread).
//!
//! There is no such count of a control group, so its threads are listed and read one by one, as rarely as
//! [`SHARE`] demands.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use assay_process::Cgroup;
use assay_process::accounting::{Schedstat, has_run_queue_delay, thread_cpu_ns};
use assay_process::clock::now;
use assay_quantity::Unit;

use super::counter::threads;
use super::{Provider, Source, Subject, has_ended, overhead};

/// Largest share of a processor that the readings take: below half of what the whole facility may. Reading
/// ten threads then happens in each period of 100 ms, reading a thousand every few seconds.
const SHARE: f64 = 0.002;

pub static WAIT: Provider = Provider {
    measures: &[overhead(
        "run-queue wait",
        Unit::Nanoseconds,
        "time in which threads could run and had no processor",
    )],
    open: |subject| {
        if !has_run_queue_delay() {
            return Err("the kernel does not count it (CONFIG_SCHED_INFO)".to_owned());
        }
        let listed = match subject {
            Subject::Machine => return Err("the kernel counts it by thread; give -p or --cgroup".to_owned()),
            Subject::Process(pid) => Listed::Process(*pid),
            Subject::Group(group) => {
                Listed::Group(Cgroup::open(group.path()).map_err(|error| error.to_string())?)
            }
        };
        let threads = HashMap::new();
        Ok(Box::new(Threads { listed, threads, total_ns: 0, last: now(), cost: Duration::ZERO }))
    },
};

/// Where threads are listed.
#[derive(Debug)]
enum Listed {
    Process(i32),
    Group(Cgroup),
}

/// The threads of a subject.
#[derive(Debug)]
struct Threads {
    listed: Listed,
    /// What each thread had waited at the last reading. The wait between that and the end of a thread is not
    /// counted.
    threads: HashMap<i32, u64>,
    total_ns: u64,
    last: Instant,
    /// Processor time of the last reading.
    cost: Duration,
}

impl Source for Threads {
    fn read(&mut self, totals: &mut Vec<Option<u64>>) -> io::Result<()> {
        let passed = now().saturating_duration_since(self.last);
        if passed.mul_f64(SHARE) < self.cost {
            totals.push(None);
            return Ok(());
        }
        let begun_ns = thread_cpu_ns()?;
        self.update(passed)?;
        self.cost = Duration::from_nanos(thread_cpu_ns()?.saturating_sub(begun_ns));
        self.last = now();
        totals.push(Some(self.total_ns));
        Ok(())
    }
}

impl Threads {
    /// Reads every thread, and adds what it waited in the time that has passed since the last reading.
    fn update(&mut self, passed: Duration) -> io::Result<()> {
        let listed = match &self.listed {
            Listed::Process(pid) => threads(*pid)?,
            Listed::Group(group) => group.threads()?,
        };
        let mut read = HashMap::with_capacity(listed.len());
        for thread in listed {
            let schedstat =
                File::open(format!("/proc/{thread}/schedstat")).and_then(|file| Schedstat::read(&file));
            match schedstat {
                Ok(Schedstat { waited_ns, .. }) => read.insert(thread, waited_ns),
                Err(error) if has_ended(&error) => continue,
                Err(error) => return Err(error),
            };
        }
        let new_ns = read.iter().map(|(thread, waited_ns)| match self.threads.get(thread) {
            Some(before_ns) => waited_ns.saturating_sub(*before_ns),
            // A thread that is new has waited since then, unless it came from elsewhere.
            None if u128::from(*waited_ns) <= passed.as_nanos() => *waited_ns,
            None => 0,
        });
        self.total_ns += new_ns.sum::<u64>();
        self.threads = read;
        Ok(())
    }
}
