//! The control laws: how many units of work may be in flight, from what the server did with the last limit.
//!
//! A law is pure: it has no clock, no randomness and no input but the signals. [`LAWS`] lists them, one file
//! each. The owner of a gate, or of a simulated one, calls [`Controller::update`] once in each period of the
//! law.

mod aimd;
mod fixed;
mod gradient2;
mod knee;
mod paper2003;
mod vegas;

use std::fmt;
use std::time::Duration;

use crate::Signal;
use crate::advice::{Advice, Bound};

/// A control law at work.
pub trait Controller: fmt::Debug {
    /// Takes the signal of a period, and returns the limit of the next one.
    fn update(&mut self, signal: &Signal) -> Decision;
}

/// A limit, and the reason for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Units of work that may be in flight.
    pub limit: Limit,
    /// Why: what the law is doing, in a few words.
    pub reason: &'static str,
}

impl Decision {
    /// Clamps the limit of a law that has fractions of a unit, and returns the nearest one.
    fn nearest(limit: &mut f64, reason: &'static str) -> Self {
        *limit = limit.clamp(1.0, f64::from(Limit::HIGHEST));
        Self { limit: Limit::nearest(*limit), reason }
    }
}

/// A number of units of work that may be in flight. Invariant: from 1 to [`Limit::HIGHEST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limit(u32);

impl Limit {
    /// The highest limit: no server has more connections or threads.
    pub const HIGHEST: u32 = 1 << 16;

    /// No limit: more than can be in flight.
    pub const NONE: Self = Self(Self::HIGHEST);

    /// Returns the nearest limit to a number; the lowest for what is no number.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
    pub fn nearest(number: f64) -> Self {
        let number = if number.is_nan() { 1.0 } else { number };
        Self(number.round().clamp(1.0, f64::from(Self::HIGHEST)) as u32)
    }

    /// Returns the number of units.
    #[must_use]
    pub fn units(self) -> u32 {
        self.0
    }

    pub(crate) fn real(self) -> f64 {
        f64::from(self.0)
    }
}

/// How a law begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tuning {
    /// Its first limit.
    pub start: Limit,
    /// Factor of the steps of the law: 1, except in tests of its margin.
    pub gain: f64,
}

impl Tuning {
    /// Where a law begins with work of which this is known: with a unit for each processor, and with one if
    /// a single unit may take all of the memory's bandwidth.
    #[must_use]
    pub fn advised(advice: &Advice, processors: usize) -> Self {
        let units = match advice.bound {
            Bound::Bandwidth => 1,
            Bound::Unknown => u32::try_from(processors).unwrap_or(Limit::HIGHEST),
        };
        Self { start: Limit::nearest(f64::from(units)), gain: 1.0 }
    }
}

/// A law that can be chosen.
#[derive(Debug)]
pub struct Law {
    /// Its name.
    pub name: &'static str,
    /// What it does, one sentence.
    pub about: &'static str,
    /// Time between two signals.
    pub period: Duration,
    /// Makes a controller.
    pub new: fn(Tuning) -> Box<dyn Controller>,
}

/// Time between two signals of the laws that act on single periods: a few hundred units of a server that
/// finishes thousands in a second, and a tenth of the time in which a user notices a stall.
const PERIOD: Duration = Duration::from_millis(100);

/// Every law.
pub static LAWS: [Law; 6] = [
    Law {
        name: "fixed",
        about: "The first limit, always.",
        period: PERIOD,
        new: |tuning| Box::new(fixed::Fixed::new(tuning)),
    },
    Law {
        name: "paper2003",
        about: "More if productivity and overhead rise, less if overhead rises and productivity does not; on \
                averages of 60 s.",
        period: Duration::from_secs(1),
        new: |tuning| Box::new(paper2003::Paper2003::new(tuning)),
    },
    Law {
        name: "aimd",
        about: "One more in each period, a tenth less if units fail or take twice as long as at best.",
        period: PERIOD,
        new: |tuning| Box::new(aimd::Aimd::new(tuning)),
    },
    Law {
        name: "vegas",
        about: "Holds the queue inside the server, estimated from the lowest latency, between two bounds.",
        period: PERIOD,
        new: |tuning| Box::new(vegas::Vegas::new(tuning)),
    },
    Law {
        name: "gradient2",
        about: "Scales the limit by the ratio of the long-term to the present latency.",
        period: PERIOD,
        new: |tuning| Box::new(gradient2::Gradient2::new(tuning)),
    },
    Law {
        name: "knee",
        about: "Searches the lowest limit with the highest productivity by paired tests, and binds only where \
                a higher one does harm.",
        period: PERIOD,
        new: |tuning| Box::new(knee::Knee::new(tuning)),
    },
];

impl Law {
    /// Returns the law of a limit that is chosen by hand.
    #[must_use]
    pub fn fixed() -> &'static Law {
        &LAWS[0]
    }

    /// Finds a law by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Law> {
        LAWS.iter().find(|law| law.name == name)
    }
}
