//! Events that the processor or the kernel counts (`perf_event_open`), and interrupts.

use std::io;
use std::os::fd::AsFd;

use assay_process::accounting::Stat;
use assay_process::counter::{self, Count, Counter, Event, NoCounter, Reading, Scope, Target};
use assay_process::cpus::online;
use assay_process::kernel_event::{KernelEvent, Tracepoint};
use assay_process::{is_gone, threads};
use assay_quantity::Unit;

use super::{Measure, Opened, Provider, Source, Subject};

pub static INSTRUCTIONS: Provider = Provider {
    measures: &[Measure::productivity(
        "instructions",
        Unit::Count,
        "instructions that the processors retired",
    )],
    open: |subject| one(subject, counter::INSTRUCTIONS),
};

pub static CYCLES: Provider = Provider {
    measures: &[Measure::overhead(
        "cycles",
        Unit::Count,
        "cycles of the processors; per instruction, the CPI",
    )],
    open: |subject| one(subject, counter::CYCLES),
};

pub static CACHE_MISSES: Provider = Provider {
    measures: &[Measure::overhead(
        "cache misses",
        Unit::Count,
        "accesses that the last-level cache did not have",
    )],
    open: |subject| one(subject, counter::CACHE_MISSES),
};

pub static TLB_MISSES: Provider = Provider {
    measures: &[Measure::overhead(
        "TLB misses",
        Unit::Count,
        "loads whose translation the data TLB did not have",
    )],
    open: |subject| one(subject, counter::TLB_MISSES),
};

pub static FAULTS: Provider = Provider {
    measures: &[Measure::overhead("page faults", Unit::Count, "page faults, with and without I/O")],
    open: |subject| one(subject, counter::PAGE_FAULTS),
};

pub static SWITCHES: Provider = Provider {
    measures: &[Measure::overhead("context switches", Unit::Count, "context switches away from a task")],
    open: |subject| one(subject, counter::CONTEXT_SWITCHES),
};

pub static INTERRUPTS: Provider = Provider {
    measures: &[Measure::overhead("interrupts", Unit::Count, "interrupts")],
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

/// Counters that cover a subject together.
#[derive(Debug)]
pub struct Counters {
    counters: Vec<Weighted>,
    /// With counters that took turns, an estimate.
    total: u64,
    is_dear: bool,
}

#[derive(Debug)]
struct Weighted {
    counter: Counter,
    last: Reading,
    /// What an event adds to the total.
    weight: u64,
}

/// Opens counters of these events, each with what one event adds to the total.
pub fn counted(subject: &Subject, events: &[(Event, u64)]) -> Result<Counters, String> {
    let cpus = || online().map_err(|error| format!("cannot list the processors: {error}"));
    let mut counters = Vec::new();
    for &(event, weight) in events {
        let mut open = |target| {
            counters.push(opened(event, target, weight).map_err(|error| error.to_string())?);
            Ok::<_, String>(())
        };
        match subject {
            Subject::Machine => cpus()?.into_iter().try_for_each(|cpu| open(Target::Processor(cpu)))?,
            Subject::Group(group) => {
                cpus()?.into_iter().try_for_each(|cpu| open(Target::Group(group.as_fd(), cpu)))?;
            }
            Subject::Process(pid) => counters.extend(of_threads(*pid, event, weight)?),
        }
    }
    Ok(Counters { counters, total: 0, is_dear: matches!(subject, Subject::Process(_)) })
}

fn one(subject: &Subject, event: Event) -> Opened {
    Ok(Box::new(counted(subject, &[(event, 1)])?))
}

/// Counters of an event of the kernel.
#[derive(Debug)]
struct OfKernel {
    counters: Counters,
    /// It exists until they are closed: fields are dropped in their order.
    _tracepoint: Tracepoint,
}

pub fn of_kernel(subject: &Subject, event: &KernelEvent) -> Opened {
    let tracepoint = event.find().map_err(|error| error.to_string())?;
    let counters = counted(subject, &[(tracepoint.event(), 1)])?;
    Ok(Box::new(OfKernel { counters, _tracepoint: tracepoint }))
}

impl Source for OfKernel {
    fn read(&mut self, totals: &mut Vec<Option<u64>>) -> io::Result<()> {
        self.counters.read(totals)
    }

    fn is_dear(&self) -> bool {
        self.counters.is_dear()
    }
}

fn opened(event: Event, target: Target, weight: u64) -> Result<Weighted, NoCounter> {
    let counter = Counter::open(event, target)?;
    match counter.scope {
        // A counter that has just been opened counts from zero.
        Scope::UserAndKernel => Ok(Weighted { counter, last: Reading::default(), weight }),
        Scope::User => Err(NoCounter::Forbidden {
            event: event.name.to_owned(),
            paranoid: 1,
            error: io::Error::from_raw_os_error(rustix::io::Errno::ACCESS.raw_os_error()),
        }),
    }
}

/// Opens a counter for each thread; those that these start later inherit theirs. A thread that another one
/// starts before that has its counter is missed: to list them again would count others twice.
fn of_threads(pid: i32, event: Event, weight: u64) -> Result<Vec<Weighted>, String> {
    let listed =
        threads(pid).map_err(|error| format!("cannot list the threads of process {pid}: {error}"))?;
    let mut counters = Vec::with_capacity(listed.len());
    for thread in listed {
        match opened(event, Target::Threads(thread), weight) {
            Ok(counter) => counters.push(counter),
            // It has ended.
            Err(NoCounter::Failed { error, .. }) if is_gone(&error) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(counters)
}

impl Source for Counters {
    fn read(&mut self, totals: &mut Vec<Option<u64>>) -> io::Result<()> {
        totals.push(self.total()?);
        Ok(())
    }

    fn is_dear(&self) -> bool {
        self.is_dear
    }
}

/// The instructions of a process.
#[derive(Debug)]
pub struct Instructions(Counters);

impl Instructions {
    /// Opens their counters, if the processor has one.
    pub fn of(pid: i32) -> Result<Self, String> {
        let counters = of_threads(pid, counter::INSTRUCTIONS, 1)?;
        Ok(Self(Counters { counters, total: 0, is_dear: true }))
    }

    /// The instructions since then; `None` if another counter had the place of this one.
    pub fn total(&mut self) -> io::Result<Option<u64>> {
        self.0.total()
    }
}

impl Counters {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate of a count")]
    fn total(&mut self) -> io::Result<Option<u64>> {
        let mut had_turn = self.counters.is_empty();
        for Weighted { counter, last, weight } in &mut self.counters {
            let reading = counter.read()?;
            let count = match reading.since(*last) {
                Count::Exact(count) => count,
                Count::Scaled { estimate, .. } => estimate as u64,
                // A later reading includes it.
                Count::NoTurn => continue,
            };
            had_turn = true;
            self.total += count * *weight;
            *last = reading;
        }
        Ok(had_turn.then_some(self.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_adds_its_weight_to_the_total() {
        let counters = |weights: &[u64]| Counters {
            counters: weights
                .iter()
                .map(|weight| opened(counter::PAGE_FAULTS, Target::ThisThread, *weight).unwrap())
                .collect(),
            total: 0,
            is_dear: false,
        };
        let (mut one, mut three) = (counters(&[1]), counters(&[1, 2]));
        let mut totals = || [&mut one, &mut three].map(|counters| counters.total().unwrap().unwrap());
        let before = totals();
        // Fresh memory from the kernel, unlike that of an allocator.
        let pages = memmap2::MmapMut::map_anon(1 << 22).unwrap();
        assert_eq!(pages.iter().step_by(4096).map(|byte| u64::from(*byte)).sum::<u64>(), 0);
        let after = totals();
        let [one, three] = [0, 1].map(|place| after[place] - before[place]);
        // To read them one after the other may touch a page of its own.
        assert!(one > 100 && three.abs_diff(3 * one) < one / 10, "{three} is not three times {one}");
    }
}
