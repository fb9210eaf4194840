//! The reflection facility (Fowler et al., section 2): counts of what a process, a control group or the whole
//! machine accomplishes, and of what that costs it.
//!
//! Each provider reads one interface of the kernel, or a counter of the application, and may be unavailable,
//! or become so; the others do not depend on it. All counts are totals, so that a reading that comes late
//! loses nothing.

mod counter;
mod floating_point;
mod pressure;
mod processor;
mod rarely;
mod run_queue;
mod transfer;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, io};

use assay_process::accounting::own_cpu_ns;
use assay_process::clock::now;
use assay_process::kernel_event::KernelEvent;
use assay_process::{Cgroup, Reread, is_gone};
use assay_quantity::Unit;

use rustix::thread::{Timespec, nanosleep};

pub(crate) use counter::Instructions;
pub use floating_point::NAME as FLOATING_POINT;
pub use processor::GroupTime;
use rarely::Rarely;

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measure {
    /// Its name.
    pub name: Cow<'static, str>,
    /// The unit of its totals: nanoseconds, bytes, or a count.
    pub unit: Unit,
    /// What it is a measure of.
    pub side: Side,
    /// What one unit of it is called, such as "request"; `None` if it has no name.
    pub each: Option<Cow<'static, str>>,
    /// One sentence.
    pub about: &'static str,
}

impl Measure {
    /// A measure of useful work.
    #[must_use]
    pub const fn productivity(name: &'static str, unit: Unit, about: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), unit, side: Side::Productivity, each: None, about }
    }

    /// A measure of what the work costs.
    #[must_use]
    pub const fn overhead(name: &'static str, unit: Unit, about: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), unit, side: Side::Overhead, each: None, about }
    }

    /// An event of the kernel as a measure: the paper's programmed hooks.
    #[must_use]
    pub fn of(event: &KernelEvent, side: Side) -> Self {
        let (unit, about) = if event.is_time() {
            (Unit::Nanoseconds, "time that this tracepoint of the kernel reports")
        } else if event.is_function() {
            (Unit::Count, "calls of this function of the kernel")
        } else {
            (Unit::Count, "passes of this tracepoint of the kernel")
        };
        Self { name: Cow::Owned(event.to_string()), unit, side, each: None, about }
    }

    /// Whether it is an event of the kernel. The others have names without a colon.
    #[must_use]
    pub fn is_kernel_event(&self) -> bool {
        self.name.contains(':')
    }
}

/// Reads one interface.
pub trait Source: fmt::Debug {
    /// Appends the totals so far, one for each measure of the provider; `None` if it cannot be read now, in
    /// which case a later total includes it.
    fn read(&mut self, totals: &mut Vec<Option<u64>>) -> io::Result<()>;

    /// Prepares the last reading, so that it includes what the others leave out. It may wait, at most a few
    /// seconds.
    fn complete(&mut self) {}

    /// Whether it reads thread by thread.
    fn is_dear(&self) -> bool {
        false
    }
}

/// Measures that the caller provides, as those of a server that the facility has no client of.
#[derive(Debug)]
pub struct Provided {
    /// They have other names than the [`measures`] of the facility.
    pub measures: &'static [Measure],
    /// Reads them.
    pub source: Box<dyn Source>,
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
    Measure::productivity(
        "progress",
        Unit::Count,
        "units of work that the application finished, by its own count",
    ),
    Measure::overhead("failures", Unit::Count, "units of work that failed, by the application's own count"),
];

/// They are counted only if that is asked for, because other counters of the processor may then have to take
/// turns.
static OPERATIONS: [Measure; 1] = [Measure::productivity(
    FLOATING_POINT,
    Unit::Count,
    "floating-point operations that the processors retired",
)];

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

/// What is counted if it is asked for.
#[derive(Debug, Default)]
pub struct Request {
    /// Progress counters of the application, which are added up.
    pub progress: Vec<PathBuf>,
    /// Further measures.
    pub provided: Vec<Provided>,
    /// Events of the kernel, each once.
    pub events: Vec<(KernelEvent, Side)>,
    /// Floating-point operations.
    pub floating_point: bool,
}

/// Returns every measure but the events of the kernel and what the caller provides, those of the application
/// first.
pub fn measures() -> impl Iterator<Item = &'static Measure> {
    let others = PROVIDERS.iter().flat_map(|provider| provider.measures);
    PROGRESS.iter().chain(others).chain(&OPERATIONS)
}

/// A measure that cannot be had here.
#[derive(Debug)]
pub struct Unavailable {
    /// Which.
    pub measure: Measure,
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
    /// An event of the kernel cannot be counted.
    #[error("cannot count {event}: {reason}")]
    Event {
        /// Its name.
        event: KernelEvent,
        /// Why.
        reason: String,
    },
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
    measures: Vec<Measure>,
    readers: Vec<Reader>,
    rarely: Rarely,
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
    /// Number of its measures.
    measures: usize,
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
    /// Opens every provider that is available for the subject, and what is requested. Counting begins now.
    ///
    /// # Errors
    /// If a progress counter or an event of the kernel cannot be opened, or the subject does not exist.
    pub fn open(subject: &Subject, request: Request) -> Result<Self, NoFacility> {
        let opened = now();
        let mut facility = Self {
            measures: Vec::new(),
            readers: Vec::new(),
            rarely: Rarely::default(),
            unavailable: Vec::new(),
            advice: Vec::new(),
            opened,
            own_ns: own_cpu_ns()?,
            read: opened,
            totals: Vec::new(),
        };
        let counters = request.progress.iter().map(|path| Observed::open(path));
        let counters = counters.collect::<Result<Vec<_>, _>>()?;
        facility.advice = counters.iter().map(Observed::advice).collect();
        let counted: Opened = if counters.is_empty() {
            Err("no progress counter of the application was given".to_owned())
        } else {
            Ok(Box::new(Counted(counters)))
        };
        let mut progress = PROGRESS.clone();
        progress[0].each = common_unit(&facility.advice).map(Cow::Owned);
        facility.add(&progress, counted);
        for Provided { measures, source } in request.provided {
            facility.add(measures, Ok(source));
        }
        for provider in PROVIDERS {
            facility.add(provider.measures, (provider.open)(subject));
        }
        let floating_point = if request.floating_point {
            floating_point::open(subject)
        } else {
            Err("they were not asked for; give them as --productivity".to_owned())
        };
        facility.add(&OPERATIONS, floating_point);
        for (event, side) in request.events {
            let opened = counter::of_kernel(subject, &event);
            if opened.is_err() {
                // The reason may be that the subject does not exist.
                facility.period()?;
            }
            let measure = Measure::of(&event, side);
            let source = opened.map_err(|reason| NoFacility::Event { event, reason })?;
            facility.add(&[measure], Ok(source));
        }
        facility.period()?;
        Ok(facility)
    }

    fn add(&mut self, measures: &[Measure], opened: Opened) {
        match opened {
            Ok(source) => {
                self.measures.extend_from_slice(measures);
                self.readers.push(Reader { measures: measures.len(), source: Some(source) });
            }
            Err(reason) => self.unavailable.extend(unavailable(measures, &reason)),
        }
    }

    /// The measures that were available at the beginning.
    #[must_use]
    pub fn measures(&self) -> &[Measure] {
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

    /// Returns what was counted since the last period, with what most periods leave out because it takes long
    /// to read.
    ///
    /// # Errors
    /// As of [`Facility::period`].
    pub fn whole_period(&mut self) -> Result<Period, Ended> {
        self.rarely = Rarely::default();
        self.readers
            .iter_mut()
            .filter_map(|reader| reader.source.as_mut())
            .for_each(|source| source.complete());
        self.period()
    }

    /// Returns what was counted since the last period.
    ///
    /// # Errors
    /// [`Ended`]. A provider that fails for another reason becomes unavailable.
    pub fn period(&mut self) -> Result<Period, Ended> {
        let mut totals = Vec::with_capacity(self.measures.len());
        let at = now();
        let reads_dear = self.rarely.is_due(at);
        for reader in &mut self.readers {
            let begin = totals.len();
            let end = begin + reader.measures;
            let read = match &mut reader.source {
                Some(source) if !source.is_dear() => source.read(&mut totals),
                Some(source) if reads_dear => self.rarely.read(&mut **source, &mut totals),
                _ => Ok(()),
            };
            if let Err(error) = read {
                // This one exists for every subject, for as long as the subject does.
                if self.measures[begin] == processor::PROCESSOR.measures[0] && is_gone(&error) {
                    return Err(Ended);
                }
                totals.truncate(begin);
                reader.source = None;
                self.unavailable.extend(unavailable(&self.measures[begin..end], &error.to_string()));
            }
            totals.resize(end, None);
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

/// The name of a unit of progress, if all counters give it the same one.
fn common_unit(advice: &[Option<Advice>]) -> Option<String> {
    let mut names = advice.iter().map(|advice| advice.as_ref().map_or("", |advice| &advice.unit));
    let first = names.next().filter(|name| !name.is_empty())?;
    names.all(|name| name == first).then(|| first.to_owned())
}

/// The measures of a provider with one reason.
fn unavailable(measures: &[Measure], reason: &str) -> impl Iterator<Item = Unavailable> {
    measures.iter().map(move |measure| Unavailable { measure: measure.clone(), reason: reason.to_owned() })
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
