//! Where the instructions of a run went, and its file.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Counts;
use crate::format::{self, FormatError};

/// Largest sum of a profile, so that differences of two sums have a type.
const LARGEST: u64 = i64::MAX.unsigned_abs();

/// Marks the file and its version.
const FORMAT: &str = "assay.profile/5";

/// What the kernel does for a task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// The system call of this number; [`u16::MAX`] stands for all numbers from there on.
    Call(u16),
    /// The system calls of 32-bit programs by this way into the kernel.
    CompatibleCall(String),
    /// The exception of this name.
    Exception(String),
    /// The interrupt of this name.
    Interrupt(String),
    /// The softirq of this name.
    Softirq(String),
    /// The function of this name, from its calls to its returns.
    Function(String),
    /// A new task, from its first instruction to its program.
    Start,
    /// The work of a task of the kernel.
    Thread,
    /// Waiting for something to do.
    Idle,
    /// The ways into the kernel and out of it, before and after a service is known.
    Passage,
}

/// Instructions of a service for an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spent {
    /// The service.
    pub service: Service,
    /// How often it was entered. For [`Service::Thread`], [`Service::Idle`] and [`Service::Passage`], which
    /// have no entry, 0.
    pub calls: u64,
    /// Instructions in the kernel, without those of traps, softirqs and functions in between.
    pub instructions: u64,
    /// How long they took, if the machine's clock counts instructions.
    #[serde(deserialize_with = "Option::deserialize")]
    pub latency: Option<Latency>,
}

/// The time of calls that have begun and ended between the marks, by the machine's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// How many calls.
    pub calls: u64,
    /// From entry to return, as long as the task ran, with what interrupted it there.
    pub running_ns: u64,
    /// As long as the task waited to be woken.
    pub blocked_ns: u64,
    /// As long as the task could run, and another one did.
    pub descheduled_ns: u64,
}

impl Latency {
    /// From entry to return, of all calls together.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.running_ns + self.blocked_ns + self.descheduled_ns
    }
}

impl AddAssign for Latency {
    fn add_assign(&mut self, other: Latency) {
        self.calls += other.calls;
        self.running_ns += other.running_ns;
        self.blocked_ns += other.blocked_ns;
        self.descheduled_ns += other.descheduled_ns;
    }
}

/// The time between the marks, by the machine's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elapsed {
    /// All of it.
    pub total_ns: u64,
    /// In which the processor was halted.
    pub halted_ns: u64,
    /// Halts whose time is missing: the kernel has not read the clock afterwards, or it was behind.
    pub unknown_halts: u64,
}

/// What the processor did over the time between the marks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timeline {
    /// Length of each interval; the last one can be shorter.
    pub interval_ns: u64,
    /// The intervals, in order; at most 128.
    pub intervals: Vec<Interval>,
}

/// What the processor did in an interval of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// It executed programs.
    pub user_ns: u64,
    /// It executed the kernel.
    pub kernel_ns: u64,
    /// It was halted, or executed the kernel's waiting for something to do.
    pub idle_ns: u64,
}

impl Timeline {
    /// Most intervals: with half as many, a picture still shows a phase of 2 % of the run.
    pub(crate) const INTERVALS: usize = 128;

    /// Whether this time divides into these intervals.
    fn is_of(&self, elapsed: Elapsed) -> bool {
        let length = |interval: &Interval| sum([interval.user_ns, interval.kernel_ns, interval.idle_ns]);
        let mut left_ns = elapsed.total_ns;
        let fits = self.intervals.iter().all(|interval| {
            let expected_ns = left_ns.min(self.interval_ns);
            left_ns -= expected_ns;
            expected_ns > 0 && length(interval) == Some(expected_ns)
        });
        let idle_ns = sum(self.intervals.iter().map(|interval| interval.idle_ns));
        fits && left_ns == 0
            && self.intervals.len() <= Timeline::INTERVALS
            && idle_ns.is_some_and(|idle_ns| idle_ns >= elapsed.halted_ns)
    }
}

impl AddAssign for Interval {
    fn add_assign(&mut self, other: Interval) {
        self.user_ns += other.user_ns;
        self.kernel_ns += other.kernel_ns;
        self.idle_ns += other.idle_ns;
    }
}

/// A process under one of its names: a process that executes another program is another image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Number of the process.
    pub process: u32,
    /// Name of the task.
    pub name: String,
    /// Instructions of the program.
    pub user: u64,
    /// What the kernel did for it, by descending instructions.
    pub services: Vec<Spent>,
}

/// Where the instructions between the marks went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// All instructions. They are the sum of those of the images.
    pub total: Counts,
    /// How long it took, if the machine's clock counts instructions.
    #[serde(deserialize_with = "Option::deserialize")]
    pub elapsed: Option<Elapsed>,
    /// What the processor did during that time. Its intervals add up to it.
    #[serde(deserialize_with = "Option::deserialize")]
    pub timeline: Option<Timeline>,
    /// Processes under their names, in the order of their first appearance.
    pub images: Vec<Image>,
    /// Instructions of each routine of the kernel, by name, without those of the routines that it calls.
    /// Their sum is that of the kernel; empty if routines were not observed.
    pub routines: BTreeMap<String, u64>,
    /// How often another task got the processor.
    pub switches: u64,
    /// Returns from a trap or a call that has no entry: the attribution is wrong by their number.
    pub returns_without_entry: u64,
    /// Entries that were still open when the processor had returned to the program.
    pub entries_without_return: u64,
    /// Annotated instructions whose meaning could not be read from the guest's memory: what follows each of
    /// them may belong to another task or service.
    pub unreadable: u64,
    /// What cannot be observed in this kernel, a sentence each.
    pub gaps: Vec<String>,
}

/// What is wrong with a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Contradiction(pub(crate) &'static str);

impl Profile {
    /// A profile without instructions.
    pub(crate) fn empty(gaps: Vec<String>) -> Profile {
        Profile {
            total: Counts::default(),
            elapsed: None,
            timeline: None,
            images: Vec::new(),
            routines: BTreeMap::new(),
            switches: 0,
            returns_without_entry: 0,
            entries_without_return: 0,
            unreadable: 0,
            gaps,
        }
    }

    /// Writes the profile as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        format::write(FORMAT, self)
    }

    /// Reads a profile.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn from_json(text: &str) -> Result<Profile, FormatError> {
        let profile: Profile = format::read(text, FORMAT)?;
        profile.check()?;
        Ok(profile)
    }

    /// Checks that the numbers add up, so that no sum of them overflows.
    pub(crate) fn check(&self) -> Result<(), Contradiction> {
        let spent = || self.images.iter().flat_map(|image| &image.services);
        let user = sum(self.images.iter().map(|image| image.user));
        let kernel = sum(spent().map(|spent| spent.instructions));
        let total = sum([self.total.user, self.total.kernel]);
        if (user, kernel) != (Some(self.total.user), Some(self.total.kernel)) || total.is_none() {
            return Err(Contradiction("its instructions do not add up"));
        }
        let routines = sum(self.routines.values().copied());
        if !self.routines.is_empty() && routines != Some(self.total.kernel) {
            return Err(Contradiction("its routines do not add up"));
        }
        let latencies = || spent().filter_map(|spent| spent.latency);
        let calls = sum(spent().map(|spent| spent.calls));
        if calls.is_none() || sum(latencies().map(|latency| latency.calls)).is_none() {
            return Err(Contradiction("its calls do not add up"));
        }
        let halts = self.elapsed.map_or(0, |elapsed| elapsed.unknown_halts);
        let events =
            [self.switches, self.returns_without_entry, self.entries_without_return, self.unreadable, halts];
        if sum(events).is_none() {
            return Err(Contradiction("its events do not add up"));
        }
        let parts =
            latencies().flat_map(|latency| [latency.running_ns, latency.blocked_ns, latency.descheduled_ns]);
        let is_timed = self.elapsed.is_some();
        if spent().any(|spent| spent.latency.is_some() != is_timed)
            || sum(parts).is_none()
            || self.elapsed.is_some_and(|elapsed| elapsed.halted_ns > elapsed.total_ns)
        {
            return Err(Contradiction("its times do not add up"));
        }
        let is_right = match (&self.timeline, self.elapsed) {
            (Some(timeline), Some(elapsed)) => timeline.is_of(elapsed),
            (timeline, elapsed) => timeline.is_none() && elapsed.is_none(),
        };
        if !is_right {
            return Err(Contradiction("its intervals do not add up"));
        }
        Ok(())
    }
}

/// The sum, if it is not above [`LARGEST`].
fn sum(numbers: impl IntoIterator<Item = u64>) -> Option<u64> {
    let add = |sum: u64, number| sum.checked_add(number).filter(|sum| *sum <= LARGEST);
    numbers.into_iter().try_fold(0, add)
}
