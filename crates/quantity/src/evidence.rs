//! Evidence about a sample: raw readings of the machine around the sample and around its batches.
//!
//! `bench` takes the readings and `store` keeps them as they are. `statistics` judges them whenever they are
//! needed, so that a changed threshold applies to the whole history.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Width of the core after each batch: independent additions in the time of a dependent one. A core completes
/// fewer of them while another of its hardware threads is busy.
pub const CORE_WIDTH: &str = "core_width";

/// One cycle of the core's clock after each batch, ns.
pub const CYCLE_NS: &str = "cycle_ns";

/// Time to write-protect a page, make it writable again and write to it before the sample began, ns: how long
/// the processor takes to change a translation.
pub const MPROTECT_NS: &str = "mprotect_ns";

/// Runnable tasks other than the sample's own, per processor of the machine, at the beginning and at the end
/// of the sample.
pub const RUNNABLE_ELSEWHERE: &str = "runnable_elsewhere";

/// Share of the sample's time in which some task of the machine waited for memory (pressure stall
/// information).
pub const MEMORY_PRESSURE: &str = "memory_pressure";

/// Share of the sample's time that its processors spent in interrupts, counted in ticks of 10 ms.
pub const INTERRUPTS: &str = "interrupts";

/// Share of the sample's time that the hypervisor took from its processors, counted in ticks of 10 ms.
pub const STOLEN: &str = "stolen";

/// Involuntary context switches during the sample.
pub const INVOLUNTARY_SWITCHES: &str = "involuntary_switches";

/// Page faults during the sample that waited for a disk.
pub const MAJOR_FAULTS: &str = "major_faults";

/// Share of the time between the readings around each batch in which none of its tasks ran, if one of them
/// always should: they waited in a run queue or for a disk, or the hypervisor ran something else. Below 0 if
/// the kernel charged processor time of before.
pub const NOT_RUN: &str = "not_run";

/// Share of the time between the readings around each batch that its tasks waited in run queues, the sum over
/// the tasks, if they sleep on purpose or wait for each other.
pub const QUEUED: &str = "queued";

/// Share of the time of each batch that it lost, as judged when the sample was taken: in stores of formats 1
/// and 2, which have neither [`NOT_RUN`] nor [`QUEUED`].
pub const LOST: &str = "lost";

/// Readings by kind, each in the order in which they were taken.
///
/// The name of a kind ends in the unit of its readings unless they are numbers or shares. [`NOT_RUN`],
/// [`QUEUED`] and [`LOST`] have one reading for each batch: of the sample's observations, then of its
/// baseline. A kind that was not observed has no readings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Evidence(BTreeMap<Cow<'static, str>, Vec<f64>>);

impl Evidence {
    /// Adds a reading.
    pub fn add(&mut self, kind: &'static str, reading: f64) {
        self.0.entry(Cow::Borrowed(kind)).or_default().push(reading);
    }

    /// Adds readings that were taken later.
    pub fn append(&mut self, later: Self) {
        for (kind, readings) in later.0 {
            self.0.entry(kind).or_default().extend(readings);
        }
    }

    /// The readings of one kind; empty if it was not observed.
    #[must_use]
    pub fn of(&self, kind: &str) -> &[f64] {
        self.0.get(kind).map_or(&[], Vec::as_slice)
    }

    /// Every observed kind with its readings, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[f64])> {
        self.0.iter().map(|(kind, readings)| (kind.as_ref(), readings.as_slice()))
    }
}

impl<K: Into<Cow<'static, str>>> FromIterator<(K, Vec<f64>)> for Evidence {
    fn from_iter<I: IntoIterator<Item = (K, Vec<f64>)>>(kinds: I) -> Self {
        let observed = kinds.into_iter().filter(|(_, readings)| !readings.is_empty());
        Self(observed.map(|(kind, readings)| (kind.into(), readings)).collect())
    }
}
