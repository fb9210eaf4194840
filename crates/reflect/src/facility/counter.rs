//! Events that the processor or the kernel counts (`perf_event_open`), and interrupts.

use std::io;
use std::os::fd::AsFd;

use assay_process::accounting::Stat;
use assay_process::counter::{self, Count, Counter, Event, NoCounter, Reading, Scope, Target};
use assay_process::cpus::online;
use assay_process::{is_gone, threads};
use assay_quantity::Unit;

use super::rarely::Rarely;
use super::{Opened, Provider, Source, Subject, overhead, productivity};

pub static INSTRUCTIONS: Provider = Provider {
    measures: &[productivity("instructions", Unit::Count, "instructions that the processors retired")],
    open: |subject| counted(subject, counter::INSTRUCTIONS),
};

pub static CYCLES: Provider = Provider {
    measures: &[overhead("cycles", Unit::Count, "cycles of the processors; per instruction, the CPI")],
    open: |subject| counted(subject, counter::CYCLES),
};

pub static CACHE_MISSES: Provider = Provider {
    measures: &[overhead("cache misses", Unit::Count, "accesses that the last-level cache did not have")],
    open: |subject| counted(subject, counter::CACHE_MISSES),
};

pub static TLB_MISSES: Provider = Provider {
    measures: &[overhead("TLB misses", Unit::Count, "loads whose translation the data TLB did not have")],
    open: |subject| counted(subject, counter::TLB_MISSES),
};

pub static FAULTS: Provider = Provider {
    measures: &[overhead("page faults", Unit::Count, "page faults, with and without I/O")],
    open: |subject| counted(subject, counter::PAGE_FAULTS),
};

pub static SWITCHES: Provider = Provider {
    measures: &[overhead("context switches", Unit::Count, "context switches away from a task")],
    open: |subject| counted(subject, counter::CONTEXT_SWITCHES),
};

pub static INTERRUPTS: Provider = Provider {
    measures: &[overhead("interrupts", Unit::Count, "interrupts")],
    open: |subject| match subject {
        Subject::Machine => Ok(Box::new(Interrupts)),
        _ => Err("the kernel counts interrupts of the machine only; leave out -p and --cgroup".to_owned()),
    },
};

/// `/proc/stat`.
#[derive(Debug)]
struct Interrupts;

impl Source for Interrupts {
    fn read(&mut self, totals: &mut Vec<Option<u64>>) -> io::Result<()> {
        totals.push(Stat::read()?.interrupts());
        Ok(())
    }
}

/// Counters of one event that cover a subject together, each with its last reading.
#[derive(Debug)]
struct Counters {
    counters: Vec<(Counter, Reading)>,
    /// With counters that took turns, an estimate.
    total: f64,
}

fn counted(subject: &Subject, event: Event) -> Opened {
    let open = |target| opened(event, target).map_err(|error| error.to_string());
    let cpus = || online().map_err(|error| format!("cannot list the processors: {error}"));
    let counters: Result<Vec<_>, String> = match subject {
        Subject::Machine => cpus()?.into_iter().map(|cpu| open(Target::Processor(cpu))).collect(),
        Subject::Process(pid) => return Ok(Box::new(Rarely::new(of_threads(*pid, event)?))),
        Subject::Group(group) => {
            cpus()?.into_iter().map(|cpu| open(Target::Group(group.as_fd(), cpu))).collect()
        }
    };
    Ok(Box::new(Counters { counters: counters?, total: 0.0 }))
}

fn opened(event: Event, target: Target) -> Result<(Counter, Reading), NoCounter> {
    let counter = Counter::open(event, target)?;
    match counter.scope {
        // A counter that has just been opened counts from zero.
        Scope::UserAndKernel => Ok((counter, Reading::default())),
        Scope::User => Err(NoCounter::Forbidden {
            event: event.name,
            paranoid: 1,
            error: io::Error::from_raw_os_error(rustix::io::Errno::ACCESS.raw_os_error()),
        }),
    }
}

/// Opens a counter for each thread; those that these start later inherit theirs. A thread that another one
/// starts before that has its counter is missed: to list them again would count others twice.
fn of_threads(pid: i32, event: Event) -> Result<Counters, String> {
    let listed =
        threads(pid).map_err(|error| format!("cannot list the threads of process {pid}: {error}"))?;
    let mut counters = Vec::with_capacity(listed.len());
    for thread in listed {
        match opened(event, Target::Threads(thread)) {
            Ok(counter) => counters.push(counter),
            // It has ended.
            Err(NoCounter::Failed { error, .. }) if is_gone(&error) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(Counters { counters, total: 0.0 })
}

impl Source for Counters {
    fn read(&mut self, totals: &mut Vec<Option<u64>>) -> io::Result<()> {
        totals.push(self.total()?);
        Ok(())
    }
}

/// The instructions of a process.
#[derive(Debug)]
pub struct Instructions(Counters);

impl Instructions {
    /// Opens their counters, if the processor has one.
    pub fn of(pid: i32) -> Result<Self, String> {
        of_threads(pid, counter::INSTRUCTIONS).map(Self)
    }

    /// The instructions since then; `None` if another counter had the place of this one.
    pub fn total(&mut self) -> io::Result<Option<u64>> {
        self.0.total()
    }
}

impl Counters {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count far below 2^52")]
    #[expect(clippy::cast_precision_loss, reason = "a count far below 2^52")]
    fn total(&mut self) -> io::Result<Option<u64>> {
        let mut had_turns = true;
        for (counter, last) in &mut self.counters {
            let reading = counter.read()?;
            self.total += match reading.since(*last) {
                Count::Exact(count) => count as f64,
                Count::Scaled { estimate, .. } => estimate,
                Count::NoTurn => {
                    had_turns = false;
                    continue;
                }
            };
            *last = reading;
        }
        Ok(had_turns.then_some(self.total as u64))
    }
}
