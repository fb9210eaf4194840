//! Time in which threads could run and had no processor (`schedstat` of each thread; there is no such count
//! of a control group).

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use assay_process::accounting::{Schedstat, has_run_queue_delay};
use assay_process::clock::now;
use assay_process::{Cgroup, is_gone, threads};
use assay_quantity::Unit;

use super::{Measure, Provider, Source, Subject};

pub static WAIT: Provider = Provider {
    measures: &[Measure::overhead(
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
        Ok(Box::new(Threads { listed, known: HashMap::new(), total_ns: 0, last: now() }))
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
    known: HashMap<i32, Thread>,
    total_ns: u64,
    last: Instant,
}

/// A thread whose `schedstat` stays open, which makes a reading four times as fast.
#[derive(Debug)]
struct Thread {
    schedstat: File,
    /// What it had waited at the last reading; `None` before the first one. The wait between that and its end
    /// is not counted.
    waited_ns: Option<u64>,
}

impl Source for Threads {
    fn read(&mut self, totals: &mut Vec<Option<u64>>) -> io::Result<()> {
        let listed = match &self.listed {
            Listed::Process(pid) => threads(*pid)?,
            Listed::Group(group) => group.threads()?,
        };
        let passed = now().saturating_duration_since(std::mem::replace(&mut self.last, now()));
        let mut living = HashMap::with_capacity(listed.len());
        for id in listed {
            match self.wait_ns(id, passed) {
                Ok((thread, wait_ns)) => {
                    self.total_ns += wait_ns;
                    living.insert(id, thread);
                }
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.known = living;
        totals.push(Some(self.total_ns));
        Ok(())
    }

    fn is_dear(&self) -> bool {
        true
    }
}

impl Threads {
    /// Reads a thread, and returns what it waited since the last reading, so long ago.
    fn wait_ns(&mut self, id: i32, passed: Duration) -> io::Result<(Thread, u64)> {
        let known = self.known.remove(&id);
        let open = || File::open(format!("/proc/{id}/schedstat"));
        let mut thread = match known {
            Some(thread) => thread,
            None => Thread { schedstat: open()?, waited_ns: None },
        };
        let Schedstat { waited_ns, .. } = Schedstat::read(&thread.schedstat)?;
        let wait_ns = new_wait_ns(thread.waited_ns.replace(waited_ns), waited_ns, passed);
        Ok((thread, wait_ns))
    }
}

/// What a thread waited between two readings. A thread that is new has waited since the first one, unless its
/// wait is longer than that is ago: then it came from elsewhere.
fn new_wait_ns(before_ns: Option<u64>, after_ns: u64, passed: Duration) -> u64 {
    match before_ns {
        Some(before_ns) => after_ns.saturating_sub(before_ns),
        None if u128::from(after_ns) <= passed.as_nanos() => after_ns,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_counts_what_it_waited_since_the_last_reading_wherever_it_comes_from() {
        let new_ns = |before, after| new_wait_ns(before, after, Duration::from_nanos(100));
        assert_eq!([new_ns(Some(50), 70), new_ns(Some(50), 50), new_ns(Some(1000), 2000)], [20, 0, 1000]);
        // New; from another group.
        assert_eq!([new_ns(None, 100), new_ns(None, 101)], [100, 0]);
    }
}
