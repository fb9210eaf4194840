//! The reflection facility (Fowler et al., section 2): counts of what a process, a control group or the whole
//! machine accomplishes, and of what that costs it.
//!
//! Each provider reads one interface of the kernel, or a counter of the application, and may be unavailable,
//! or become so; the others do not depend on it. All counts are totals, so that a reading that comes late
//! loses nothing.

mod counter;
mod pressure;
mod processor;
mod rarely;
mod run_queue;
mod transfer;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, io};

use assay_process::accounting::own_cpu_ns;
use assay_process::clock::now;
use assay_process::{Cgroup, Reread, is_gone};
use assay_quantity::Unit;

use rustix::thread::{Timespec, nanosleep};

pub(crate) use counter::Instructions;

use crate::advice::Advice;
use crate::progress::{NoProgress, Observed};

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

/// Opens a file that a kernel may lack.
fn opened(path: &Path) -> Result<Reread, String> {
    Reread::open(path).map_err(|error| format!("cannot open {}: {error}", path.display()))
}

/// The number in the line that begins with `key`.
fn number_after(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
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

/// The subject does not exist, or no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has ended")]
pub struct Ended;

/// Why nothing can be observed.
#[derive(Debug, thiserror::Error)]
pub enum NoFacility {
    /// A progress counter cannot be opened.
    #[error(transparent)]
    Progress(#[from] NoProgress),
    /// There is nothing to observe.
    #[error(transparent)]
    Ended(#[from] Ended),
    /// The clock of this process cannot be read.
    #[error("cannot read the processor time of this process: {0}")]
    Clock(#[from] io::Error),
}

/// The providers of a subject that are open.
#[derive(Debug)]
pub struct Facility {
    measures: Vec<&'static Measure>,
    readers: Vec<Reader>,
    unavailable: Vec<Unavailable>,
    advice: Vec<Option<Advice>>,
    opened: Instant,
    /// Processor time of this process at that time.
    own_ns: u64,
    read: Instant,
    /// The last total of each measure that was read.
    totals: Vec<Option<u64>>,
}

/// An open provider.
#[derive(Debug)]
struct Reader {
    measures: &'static [Measure],
    /// `None` after it has failed.
    source: Option<Box<dyn Source>>,
}

/// What was counted between two readings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Period {
    /// Time between them.
    pub length: Duration,
    /// One for each of [`Facility::measures`]; `None` for what was not read, which a later period includes,
    /// and for a provider that has failed.
    pub counts: Vec<Option<u64>>,
    /// Totals that fell, as those of a counter that begins anew. What was counted in that time is not known,
    /// and its count is `None`, too.
    pub fallen: u64,
}

impl Facility {
    /// Opens every provider that is available for the subject, and the progress counters of its application,
    /// which are added up. Counting begins now.
    ///
    /// # Errors
    /// If a progress counter cannot be opened, or the subject does not exist.
    pub fn open(subject: &Subject, progress: &[PathBuf]) -> Result<Self, NoFacility> {
        let opened = now();
        let mut facility = Self {
            measures: Vec::new(),
            readers: Vec::new(),
            unavailable: Vec::new(),
            advice: Vec::new(),
            opened,
            own_ns: own_cpu_ns()?,
            read: opened,
            totals: Vec::new(),
        };
        let counters = progress.iter().map(|path| Observed::open(path)).collect::<Result<Vec<_>, _>>()?;
        facility.advice = counters.iter().map(Observed::advice).collect();
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
                self.readers.push(Reader { measures, source: Some(source) });
            }
            Err(reason) => self.unavailable.extend(unavailable(measures, &reason)),
        }
    }

    /// The measures that were available at the beginning.
    #[must_use]
    pub fn measures(&self) -> &[&'static Measure] {
        &self.measures
    }

    /// Those that were not, and those that have become unavailable since, in that order.
    #[must_use]
    pub fn unavailable(&self) -> &[Unavailable] {
        &self.unavailable
    }

    /// Returns the advice that each progress counter had when the facility was opened.
    #[must_use]
    pub fn advice(&self) -> &[Option<Advice>] {
        &self.advice
    }

    /// Returns the name of a unit of this measure, if all progress counters give it the same one.
    #[must_use]
    pub fn unit(&self, measure: &Measure) -> Option<&str> {
        let mut names = self.advice.iter().map(|advice| advice.as_ref().map_or("", |advice| &advice.unit));
        let first = names.next().filter(|name| !name.is_empty() && *measure == PROGRESS[0])?;
        names.all(|name| name == first).then_some(first)
    }

    /// Returns what was counted since the last period.
    ///
    /// # Errors
    /// [`Ended`]. A provider that fails for another reason becomes unavailable.
    pub fn period(&mut self) -> Result<Period, Ended> {
        let mut totals = Vec::with_capacity(self.measures.len());
        let at = now();
        for reader in &mut self.readers {
            let begin = totals.len();
            let read = reader.source.as_mut().map_or(Ok(()), |source| source.read(&mut totals));
            if let Err(error) = read {
                // This one exists for every subject, for as long as the subject does.
                if std::ptr::eq(reader.measures, processor::PROCESSOR.measures) && is_gone(&error) {
                    return Err(Ended);
                }
                totals.truncate(begin);
                reader.source = None;
                self.unavailable.extend(unavailable(reader.measures, &error.to_string()));
            }
            totals.resize(begin + reader.measures.len(), None);
        }
        self.totals.resize(totals.len(), None);
        let mut fallen = 0;
        let counts = self.totals.iter_mut().zip(totals).map(|(last, total)| {
            let total = total?;
            let count = total.checked_sub(last.replace(total)?);
            fallen += u64::from(count.is_none());
            count
        });
        let counts = counts.collect();
        let length = at.saturating_duration_since(std::mem::replace(&mut self.read, at));
        Ok(Period { length, counts, fallen })
    }

    /// Time since the facility was opened.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        now().saturating_duration_since(self.opened)
    }

    /// Processor time that this process has used since the facility was opened.
    ///
    /// # Errors
    /// If the kernel does not permit to read the clock.
    pub fn own_time(&self) -> io::Result<Duration> {
        Ok(Duration::from_nanos(own_cpu_ns()?.saturating_sub(self.own_ns)))
    }

    /// Sleeps until the next multiple of `period` since the facility was opened, at most until `end`, or
    /// until a signal arrives.
    pub fn sleep(&self, period: Duration, end: Option<Duration>) {
        let elapsed = self.elapsed();
        let left = period.as_nanos() - elapsed.as_nanos() % period.as_nanos().max(1);
        let left = Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX));
        let left = end.map_or(left, |end| left.min(end.saturating_sub(elapsed)));
        if let Ok(left) = Timespec::try_from(left) {
            // It returns early if a signal arrives, unlike the function of the standard library.
            let _ = nanosleep(&left);
        }
    }
}

/// The measures of a provider with one reason.
fn unavailable(measures: &'static [Measure], reason: &str) -> impl Iterator<Item = Unavailable> {
    measures.iter().map(move |measure| Unavailable { measure, reason: reason.to_owned() })
}

/// Progress counters of an application.
#[derive(Debug)]
struct Counted(Vec<Observed>);

impl Source for Counted {
    fn read(&mut self, totals: &mut Vec<Option<u64>>) -> io::Result<()> {
        let (mut finished, mut failed) = (0, 0);
        for counter in &self.0 {
            let units = counter.read()?;
            finished = units.finished.wrapping_add(finished);
            failed = units.failed.wrapping_add(failed);
        }
        totals.extend([Some(finished), Some(failed)]);
        Ok(())
    }
}
