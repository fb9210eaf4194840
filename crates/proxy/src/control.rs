//! The control law at work: it gets the signal of each period, and sets the limit of the next one.
//!
//! If the law fails, its last limit stays. Without a limit, a failure in overload would let everything in.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use assay_reflect::Signal;
use assay_reflect::law::{Controller, Decision, Law, Limit, Tuning};

/// A law, and what became of it.
#[derive(Debug)]
pub struct Control {
    law: &'static Law,
    /// `None` after it has failed.
    controller: Option<Box<dyn Controller>>,
    limit: Limit,
    /// When the period ends.
    due: Duration,
    course: Course,
}

/// What a law made of one period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// When the period ended, since the beginning.
    pub end: Duration,
    /// The limit in it.
    pub limit: Limit,
    /// What the server did.
    pub signal: Signal,
    /// The limit after it, and why.
    pub decision: Decision,
}

/// The limits so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Course {
    /// The lowest one.
    pub lowest: Limit,
    /// The highest one.
    pub highest: Limit,
    /// The last one.
    pub last: Limit,
    /// Times that it changed.
    pub changes: u64,
    /// Whether the law has failed.
    pub has_failed: bool,
}

impl Control {
    /// Begins with the first limit of the law.
    #[must_use]
    pub fn new(law: &'static Law, tuning: Tuning) -> Self {
        let limit = tuning.start;
        Self {
            law,
            controller: Some((law.new)(tuning)),
            limit,
            due: law.period,
            course: Course { lowest: limit, highest: limit, last: limit, changes: 0, has_failed: false },
        }
    }

    /// Whether the period is over.
    #[must_use]
    pub fn is_due(&self, at: Duration) -> bool {
        at >= self.due
    }

    /// Takes the signal of the period that ends now.
    pub fn update(&mut self, at: Duration, signal: Signal) -> Moment {
        self.due = at + self.law.period;
        let decision = self.decide(&signal);
        let moment = Moment { end: at, limit: self.limit, signal, decision };
        self.limit = decision.limit;
        self.course.add(decision.limit);
        moment
    }

    /// Returns the limits so far.
    #[must_use]
    pub fn course(&self) -> Course {
        self.course
    }

    fn decide(&mut self, signal: &Signal) -> Decision {
        let last = Decision { limit: self.limit, reason: "the law has failed; its last limit stays" };
        let Some(controller) = &mut self.controller else { return last };
        // It is not used again if it panics.
        catch_unwind(AssertUnwindSafe(|| controller.update(signal))).unwrap_or_else(|_| {
            self.controller = None;
            self.course.has_failed = true;
            last
        })
    }
}

impl Course {
    fn add(&mut self, limit: Limit) {
        self.changes += u64::from(limit != self.last);
        self.lowest = self.lowest.min(limit);
        self.highest = self.highest.max(limit);
        self.last = limit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Halves the limit in each period, and fails at a limit of two.
    #[derive(Debug)]
    struct Halves(Limit);

    impl Controller for Halves {
        fn update(&mut self, _signal: &Signal) -> Decision {
            assert!(self.0.units() > 2, "a failure for a test");
            self.0 = Limit::nearest(f64::from(self.0.units()) / 2.0);
            Decision { limit: self.0, reason: "halves" }
        }
    }

    static HALVES: Law = Law {
        name: "halves",
        about: "",
        period: Duration::from_millis(100),
        new: |tuning| Box::new(Halves(tuning.start)),
    };

    #[test]
    fn a_law_that_fails_leaves_its_last_limit() {
        let ms = Duration::from_millis;
        let mut control = Control::new(&HALVES, Tuning { start: Limit::nearest(8.0), gain: 1.0 });
        assert!(!control.is_due(ms(99)) && control.is_due(ms(100)));
        let mut limits = |end| {
            let moment = control.update(ms(end), Signal::default());
            (moment.limit.units(), moment.decision.limit.units(), moment.decision.reason)
        };
        assert_eq!(limits(120), (8, 4, "halves"));
        assert_eq!(limits(230), (4, 2, "halves"));
        let failed = "the law has failed; its last limit stays";
        assert_eq!([limits(330), limits(430)], [(2, 2, failed); 2]);
        assert!(!control.is_due(ms(529)) && control.is_due(ms(530)));
        let Course { lowest, highest, last, changes, has_failed } = control.course();
        assert_eq!([lowest, highest, last].map(Limit::units), [2, 8, 2]);
        assert_eq!((changes, has_failed), (2, true));
    }
}
