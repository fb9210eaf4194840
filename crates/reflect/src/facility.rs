//! The reflection facility (Fowler et al., section 2): counts of what a process, a control group or the whole
//! machine accomplishes, and of what that costs it.
//!
//! Each provider reads one interface of the kernel, or a counter of the application, and may be unavailable;
//! the others do not depend on it. All counts are totals, so that a reading that comes late loses nothing.

mod counter;
mod pressure;
mod processor;
mod run_queue;
mod transfer;

use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{fmt, io};

use assay_process::Cgroup;
use assay_process::accounting::own_cpu_ns;
use assay_process::clock::now;
use assay_quantity::Unit;

use rustix::thread::{Timespec, nanosleep};

use crate::progress::{NoProgress, Progress};

/// What is observed.
#[derive(Debug)]
pub enum Subject {
    /// The whole machine.
    Machine,
    /// All threads of a process, without its children.
    Process(i32),
    /// All tasks of a control group and of the groups below it.
    Group(Cgroup),
}

/// The axis of figure 1 of the paper that a measure belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Useful work.
    Productivity,
    /// What the work costs.
    Overhead,
}

/// Something that is counted.
#[derive(Debug, PartialEq, Eq)]
pub struct Measure {
    /// Its name.
    pub name: &'static str,
    /// The unit of its totals: nanoseconds, bytes, or a count.
    pub unit: Unit,
    /// What it is a measure of.
    pub side: Side,
    /// One sentence.
    pub about: &'static str,
}

const fn productivity(name: &'static str, unit: Unit, about: &'static str) -> Measure {
    Measure { name, unit, side: Side::Productivity, about }
}

const fn overhead(name: &'static str, unit: Unit, about: &'static str) -> Measure {
    Measure { name, unit, side: Side::Overhead, about }
}

/// Reads one interface.
trait Source: fmt::Debug {
    /// Appends the totals so far, one for each measure of the provider; `None` if reading it now would cost
    /// too much, in which case a later total includes it.
    fn read(&mut self, totals: &mut Vec<Option<u64>>) -> io::Result<()>;
}

/// A source that can be opened, or a reason why not.
type Opened = Result<Box<dyn Source>, String>;

/// The measures of one interface, and how it is opened.
struct Provider {
    measures: &'static [Measure],
    open: fn(&Subject) -> Opened,
}

/// Units that an application counts itself: the paper's shared variable.
static PROGRESS: [Measure; 2] = [
    productivity("progress", Unit::Count, "units of work that the application finished, by its own count"),
    overhead("failures", Unit::Count, "units of work that failed, by the application's own count"),
];

/// All others.
static PROVIDERS: [&Provider; 12] = [
    &counter::INSTRUCTIONS,
    &processor::PROCESSOR,
    &transfer::STORAGE,
    &transfer::NETWORK,
    &run_queue::WAIT,
    &pressure::PRESSURE,
    &counter::SWITCHES,
    &counter::FAULTS,
    &counter::INTERRUPTS,
    &counter::CYCLES,
    &counter::CACHE_MISSES,
    &counter::TLB_MISSES,
];

/// Returns every measure, those of productivity and of the application first.
pub fn measures() -> impl Iterator<Item = &'static Measure> {
    PROGRESS.iter().chain(PROVIDERS.iter().flat_map(|provider| provider.measures))
}

/// A measure that cannot be had here.
#[derive(Debug)]
pub struct Unavailable {
    /// Which.
    pub measure: &'static Measure,
    /// Why.
    pub reason: String,
}

/// Why nothing can be observed.
#[derive(Debug, thiserror::Error)]
pub enum NoFacility {
    /// A progress counter cannot be opened.
    #[error(transparent)]
    Progress(#[from] NoProgress),
    /// A provider that was available cannot be read.
    #[error("cannot read what the kernel counts: {0}")]
    Read(#[from] io::Error),
}

/// The open providers of a subject.
#[derive(Debug)]
pub struct Facility {
    measures: Vec<&'static Measure>,
    sources: Vec<Box<dyn Source>>,
    unavailable: Vec<Unavailable>,
    opened: Instant,
    /// Processor time of this process before.
    own_ns: u64,
    read: Instant,
    /// The last total of each measure that was read.
    totals: Vec<Option<u64>>,
}

/// What was counted between two readings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Period {
    /// Time between them.
    pub length: Duration,
    /// One for each of [`Facility::measures`]; `None` for what was not read: a later period includes it.
    pub counts: Vec<Option<u64>>,
}

impl Facility {
    /// Opens every provider that is available for the subject, and the progress counters of its application,
    /// which are added up. Counting begins now.
    ///
    /// # Errors
    /// If a progress counter cannot be opened, or the subject has ended.
    pub fn open(subject: &Subject, progress: &[PathBuf]) -> Result<Self, NoFacility> {
        let opened = now();
        let mut facility = Self {
            measures: Vec::new(),
            sources: Vec::new(),
            unavailable: Vec::new(),
            opened,
            own_ns: own_cpu_ns()?,
            read: opened,
            totals: Vec::new(),
        };
        let counters: Vec<Progress> =
            progress.iter().map(|path| Progress::open(path)).collect::<Result<_, _>>()?;
        let counted: Opened = if counters.is_empty() {
            Err("no progress counter of the application was given".to_owned())
        } else {
            Ok(Box::new(Counted(counters)))
        };
        facility.add(&PROGRESS, counted);
        for provider in PROVIDERS {
            facility.add(provider.measures, (provider.open)(subject));
        }
        facility.period()?;
        Ok(facility)
    }

    fn add(&mut self, measures: &'static [Measure], opened: Opened) {
        match opened {
            Ok(source) => {
                self.measures.extend(measures);
                self.sources.push(source);
            }
            Err(reason) => {
                let all = measures.iter().map(|measure| Unavailable { measure, reason: reason.clone() });
                self.unavailable.extend(all);
            }
        }
    }

    /// The measures that are available.
    #[must_use]
    pub fn measures(&self) -> &[&'static Measure] {
        &self.measures
    }

    /// Those that are not.
    #[must_use]
    pub fn unavailable(&self) -> &[Unavailable] {
        &self.unavailable
    }

    /// Returns what was counted since the last period.
    ///
    /// # Errors
    /// If a total cannot be read; see [`has_ended`].
    pub fn period(&mut self) -> io::Result<Period> {
        let mut totals = Vec::with_capacity(self.measures.len());
        let at = now();
        for source in &mut self.sources {
            source.read(&mut totals)?;
        }
        self.totals.resize(totals.len(), None);
        let counts = self.totals.iter_mut().zip(totals).map(|(last, total)| {
            let total = total?;
            Some(total.saturating_sub(last.replace(total)?))
        });
        let counts = counts.collect();
        let length = at.saturating_duration_since(std::mem::replace(&mut self.read, at));
        Ok(Period { length, counts })
    }

    /// Processor time that this process has used since the facility was opened.
    ///
    /// # Errors
    /// If the kernel does not permit to read the clock.
    pub fn own_time(&self) -> io::Result<Duration> {
        Ok(Duration::from_nanos(own_cpu_ns()?.saturating_sub(self.own_ns)))
    }

    /// Sleeps until the next multiple of `period` since the facility was opened, or until a signal arrives.
    pub fn sleep(&self, period: Duration) {
        let passed = now().saturating_duration_since(self.opened).as_nanos();
        let left = period.as_nanos() - passed % period.as_nanos().max(1);
        let left = Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX));
        if let Ok(left) = Timespec::try_from(left) {
            // It returns early if a signal arrives, unlike the function of the standard library.
            let _ = nanosleep(&left);
        }
    }
}

/// Whether an error of [`Facility::read`] means that the process has ended or the group was removed.
#[must_use]
pub fn has_ended(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::NOENT, Errno::SRCH, Errno::NODEV]
        .map(|errno| Some(errno.raw_os_error()))
        .contains(&error.raw_os_error())
}

/// Progress counters of an application.
#[derive(Debug)]
struct Counted(Vec<Progress>);

impl Source for Counted {
    fn read(&mut self, totals: &mut Vec<Option<u64>>) -> io::Result<()> {
        let (mut finished, mut failed) = (0, 0);
        for counter in &self.0 {
            let units = counter.read()?;
            finished += units.finished;
            failed += units.failed;
        }
        totals.extend([Some(finished), Some(failed)]);
        Ok(())
    }
}
