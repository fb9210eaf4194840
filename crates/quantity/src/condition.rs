//! What a machine was like while a sample was taken, and what it was like during a run.

use std::fmt;

/// What the machine was like while a sample was taken: raw evidence, never a reason to leave the sample out.
///
/// The description of a machine is made of these, and typical costs include their effect: an application on
/// this machine runs under the same conditions. A field is `None` if it was not observed or the kernel does
/// not count it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Condition {
    /// Independent additions in the time of a dependent one: how wide the core was, the median of one look
    /// after each batch. A core completes fewer of them while another of its hardware threads is busy.
    pub core_width: Option<f64>,
    /// The widest of the same looks.
    pub core_width_max: Option<f64>,
    /// One cycle of the core's clock, the median of the same looks, ns.
    pub cycle_ns: Option<f64>,
    /// Time to write-protect a page, make it writable again and write to it, measured before the sample
    /// began, ns: how long the processor takes to change a translation.
    pub mprotect_ns: Option<f64>,
    /// Runnable tasks other than the sample's own, per processor of the machine: the lesser of the counts at
    /// the beginning and at the end of the sample.
    pub runnable_elsewhere: Option<f64>,
    /// Share of the sample's time in which some task of the machine waited for memory (pressure stall
    /// information).
    pub memory_pressure: Option<f64>,
    /// Share of the sample's time that its processors spent in interrupts, counted in ticks of 10 ms.
    pub interrupts: Option<f64>,
    /// Share of the sample's time that the hypervisor took from its processors, counted in ticks of 10 ms.
    pub stolen: Option<f64>,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
}

/// What a machine was like during a whole run, as far as its costs are compared with those of another run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Conditions {
    /// Share of the samples during which another hardware thread of the core was busy; `None` if not
    /// observed.
    pub shared: Option<f64>,
    /// Clock cycle of the core in the median sample, ns; `None` if not observed.
    pub cycle_ns: Option<f64>,
}

/// One aspect of a [`Condition`], named as in the description of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aspect {
    /// Whether another hardware thread of the core was busy.
    CoreSharing,
    /// Length of a clock cycle.
    CoreClock,
    /// Time to change the protection of a page.
    Mprotect,
    /// Runnable tasks other than the sample's own.
    TasksElsewhere,
    /// Tasks that waited for memory.
    MemoryPressure,
    /// Time in interrupts.
    Interrupts,
    /// Time that the hypervisor took.
    StolenTime,
    /// Involuntary context switches.
    Preemption,
    /// Page faults that waited for a disk.
    MajorFaults,
}

/// An aspect, its name, and its value in a condition.
type Row = (Aspect, &'static str, fn(&Condition) -> Option<f64>);

const ASPECTS: [Row; 9] = [
    (Aspect::CoreSharing, "core sharing", |seen| seen.core_width),
    (Aspect::CoreClock, "core clock", |seen| seen.cycle_ns),
    (Aspect::Mprotect, "page protection change", |seen| seen.mprotect_ns),
    (Aspect::TasksElsewhere, "tasks elsewhere", |seen| seen.runnable_elsewhere),
    (Aspect::MemoryPressure, "memory pressure", |seen| seen.memory_pressure),
    (Aspect::Interrupts, "interrupts", |seen| seen.interrupts),
    (Aspect::StolenTime, "stolen time", |seen| seen.stolen),
    (Aspect::Preemption, "preemption", |seen| count(seen.involuntary_switches)),
    (Aspect::MajorFaults, "major faults", |seen| count(seen.major_faults)),
];

#[expect(clippy::unnecessary_wraps, clippy::cast_precision_loss, reason = "a row of the table; few events")]
fn count(events: u64) -> Option<f64> {
    Some(events as f64)
}

impl Aspect {
    /// Every aspect, in the order of precedence if several explain a cost equally well.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        ASPECTS.iter().map(|(aspect, ..)| *aspect)
    }

    /// Its name in reports and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Its value in a condition; `None` if it was not observed.
    #[must_use]
    pub fn of(self, condition: &Condition) -> Option<f64> {
        self.row().2(condition)
    }

    /// The aspect of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ASPECTS.iter().find(|(_, own, _)| *own == name).map(|(aspect, ..)| *aspect)
    }

    fn row(self) -> &'static Row {
        ASPECTS.iter().find(|(aspect, ..)| *aspect == self).expect("every aspect has a row")
    }
}

impl fmt::Display for Aspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_aspect_has_a_name_of_its_own() {
        for (aspect, name, _) in ASPECTS {
            assert_eq!((aspect.name(), Aspect::named(name)), (name, Some(aspect)));
        }
        assert_eq!(Aspect::named("weather"), None);
    }
}
