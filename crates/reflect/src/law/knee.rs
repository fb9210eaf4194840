//! The law that `assay` recommends: it searches the peak of the measured productivity over the logarithm of
//! the limit, by sequential tests, and of limits that are as good it takes the lowest.
//!
//! Productivity as a function of the limit has a peak, or a plateau, whose place is unknown and moves; behind
//! it the sign of the gain changes, so that no linear controller on productivity is stable on both sides, and
//! there is no latency that could be a set point. The law has four stages:
//!
//! - [`Survey`] measures limits that differ by a factor of four, upward from the present one and downward
//!   from a quarter of what is in flight, until the lower end is worse than the best and the upper one is
//!   likely so, or they cannot be reached;
//! - [`Refine`] begins at the lowest limit that may be as good as the best, compares it with its neighbours
//!   in pairs, with steps that shrink, and moves to a higher one only if it is better, to a lower one if it
//!   is as good (the lowest multiprogramming level without a loss, Schroeder et al. 2006);
//! - `Hold` keeps the limit until the productivity changes ([`Watch`]);
//! - `Open` is the stage while no higher limit does harm: the limit is twice the most that was in flight, and
//!   does not bind. It ends if the limit is reached, or if productivity falls while the number in flight does
//!   not: the region of the paper's figure 1 in which a server thrashes, with the time of a unit as overhead.
//!
//! Stability: a sample belongs to a limit if the number in flight is that of the limit and no older unit is
//! left, so that late signals and long transactions make the law slower and not unstable; no step depends on
//! the size of a difference, so that noise costs time and has no gain. Where a survey ends, and which limit
//! is compared first, may be due to noise; the comparisons correct it as far as each step shows. A survey
//! ends after a number of samples that is bounded, and only a change of the productivity ends `Hold`, or a
//! long hang. A change that leaves the productivity at the limit as it was is not noticed.
//!
//! A stall of the whole server, such as that of a deadlock, is a cost of the limit at which it began: but for
//! the first period, nothing is decided in one in which no unit was finished. If there are more of them than
//! a stall has, the server hangs. It is assumed that the limit is not the cause, unless the server hangs
//! again within a minute, or for about ten seconds while the limit binds: then others are tried.

mod noise;
mod refine;
mod survey;
mod tally;
mod watch;

use std::time::Duration;

use super::{Controller, Decision, Limit, Tuning};
use crate::Signal;

use self::noise::Noise;
use self::refine::Refine;
use self::survey::Survey;
use self::tally::Tally;
use self::watch::{Change, Watch};

/// Share of the time in flight that is spent waiting inside the server below which it is not saturated.
const SATURATED: f64 = 0.25;

/// Longest time to wait for units of the last limit: twice PostgreSQL's `deadlock_timeout`. A unit that takes
/// longer is no consequence of the limit.
const LONGEST: Duration = Duration::from_secs(2);

/// Largest part of a productivity that is not missed: ties are closer, and go to the lower limit.
const TIE: f64 = 0.03;

/// Units in flight or waiting, on average, from which there is load.
const WAITING: f64 = 0.5;

/// Seeks the lowest limit with the highest productivity.
#[derive(Debug)]
pub struct Knee {
    limit: Limit,
    gain: f64,
    stage: Stage,
    settling: Settling,
    noise: Noise,
    /// Of the productivity at the limit that is held, or while no limit binds.
    watch: Watch,
}

/// What the law is doing.
#[derive(Debug)]
enum Stage {
    Begin,
    Survey(Survey),
    Refine(Refine),
    Hold,
    Open,
}

/// Which way a limit goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// The signal of a server that has settled at a limit.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Units per second, above zero.
    productivity: f64,
    /// Whether no unit was finished.
    is_empty: bool,
    /// Units in flight.
    in_flight: f64,
    /// Units in flight and waiting.
    demand: f64,
    /// Whether as many are in flight as the limit allows, or some wait.
    is_reached: bool,
}

impl Controller for Knee {
    fn update(&mut self, signal: &Signal) -> Decision {
        if matches!(self.stage, Stage::Begin) {
            // The first limit is no change: what is in flight belongs to it.
            self.settling.since = Some(LONGEST);
        }
        let reason = if signal.period.is_zero() || signal.in_flight + signal.waiting < WAITING {
            if self.noise.pause() {
                self.forget_stall();
            }
            "no load"
        } else if let Some(sample) = self.settling.read(signal, self.limit) {
            self.take(&sample, signal.contention())
        } else {
            "waits until the units of the last limit have ended"
        };
        Decision { limit: self.limit, reason }
    }
}

impl Knee {
    /// Begins at a limit.
    pub fn new(tuning: Tuning) -> Self {
        Self {
            limit: tuning.start,
            gain: tuning.gain,
            stage: Stage::Begin,
            settling: Settling::default(),
            noise: Noise::default(),
            watch: Watch::default(),
        }
    }

    fn take(&mut self, sample: &Sample, contention: Option<f64>) -> &'static str {
        self.noise.add(sample);
        if self.noise.has_hung() {
            self.forget_stall();
        }
        match &mut self.stage {
            Stage::Survey(survey) => {
                match survey.add(sample, &self.noise) {
                    survey::Next::Stay => {}
                    survey::Next::Go(limit) => self.go(limit),
                    survey::Next::Collapse { home, lost } => self.refine(home, lost),
                    survey::Next::NoCollapse => self.open(sample),
                }
                "surveys limits"
            }
            _ if self.noise.is_long_hang() && sample.is_reached => {
                // More than the limit may be in flight: they came at a higher one, in this hang.
                let in_flight = sample.in_flight.min(self.limit.real());
                let survey = Survey::down(&Sample { in_flight, ..*sample }, self.gain);
                self.survey(survey, "nothing is finished")
            }
            Stage::Begin => self.begin(sample, contention),
            _ if self.noise.hangs_rarely() => "waits for the end of a hang",
            Stage::Hold if !sample.is_reached => "the limit is not reached",
            Stage::Refine(refine) if !sample.is_reached && self.limit == refine.home() => {
                "the limit is not reached"
            }
            Stage::Refine(refine) => {
                let home = refine.home();
                if self.limit == home && self.watch.add(sample, &self.noise).is_some() {
                    return self.survey(Survey::up(home, self.gain), "productivity changed");
                }
                let next = if sample.is_reached {
                    refine.add(sample, &self.noise, self.settling.waited)
                } else if self.noise.is_stalled() {
                    Some(self.limit)
                } else {
                    refine.skip()
                };
                let moved = refine.home();
                if moved != home {
                    self.watch = Watch::default();
                }
                match next {
                    Some(limit) => self.go(limit),
                    None => self.hold(moved),
                }
                "compares two limits"
            }
            Stage::Hold => match self.watch.add(sample, &self.noise) {
                Some(_) => self.survey(Survey::up(self.limit, self.gain), "productivity changed"),
                None => "holds",
            },
            Stage::Open => self.watch_load(sample),
        }
    }

    fn begin(&mut self, sample: &Sample, contention: Option<f64>) -> &'static str {
        let is_saturated = contention.is_none_or(|share| share >= SATURATED);
        if !survey::is_highest(self.limit, sample.demand) {
            self.survey(Survey::up(self.limit, self.gain), "begins at the limit")
        } else if is_saturated {
            self.survey(Survey::down(sample, self.gain), "begins in saturation")
        } else if sample.is_empty {
            // An empty period does not show a lack of load.
            "waits for the first unit"
        } else {
            self.open(sample);
            "begins without load"
        }
    }

    /// Forgets what was measured in a stall or hang that shows nothing of the limit.
    fn forget_stall(&mut self) {
        self.watch.forget_stall();
        if let Stage::Refine(refine) = &mut self.stage {
            refine.restart();
        }
    }

    /// Watches a server whose limit does not bind.
    fn watch_load(&mut self, sample: &Sample) -> &'static str {
        match self.watch.add(sample, &self.noise) {
            Some(Change::Thrashes) => {
                let survey = Survey::down(sample, self.gain);
                self.survey(survey, "less is finished, and not less is in flight")
            }
            Some(Change::Rose | Change::Fell) => {
                self.watch = Watch::default();
                "the load changed"
            }
            None if self.noise.is_stalled() => "waits for the end of a stall",
            None if sample.is_reached => {
                self.survey(Survey::up(self.limit, self.gain), "the limit is reached")
            }
            None => {
                self.go(self.room(sample));
                "no higher limit does harm"
            }
        }
    }

    /// Goes to a limit, and waits until the server has settled there.
    fn go(&mut self, limit: Limit) {
        if limit != self.limit {
            self.limit = limit;
            self.settling = Settling::default();
            self.noise.interrupt();
        }
    }

    /// Begins a survey, and returns the reason.
    fn survey(&mut self, survey: Survey, reason: &'static str) -> &'static str {
        self.go(survey.at());
        self.stage = Stage::Survey(survey);
        reason
    }

    fn refine(&mut self, home: Limit, lost: f64) {
        let refine = Refine::new(home, lost, self.gain);
        self.go(refine.home());
        self.watch = Watch::default();
        self.stage = Stage::Refine(refine);
    }

    fn hold(&mut self, limit: Limit) {
        self.go(limit);
        self.stage = Stage::Hold;
    }

    fn open(&mut self, sample: &Sample) {
        self.go(self.room(sample));
        self.watch = Watch::default();
        self.stage = Stage::Open;
    }

    /// The limit under which twice the present demand has room.
    fn room(&self, sample: &Sample) -> Limit {
        Limit::nearest(2.0 * sample.demand).max(self.limit)
    }
}

/// Waits until the server runs at a limit: until as many units are in flight, and those that were admitted
/// before have ended. If neither comes nearer, it stops waiting.
#[derive(Debug, Default)]
struct Settling {
    /// Time since the number in flight is that of the limit; `None` before.
    since: Option<Duration>,
    /// The lowest number in flight so far, and the time since it fell.
    lowest: f64,
    idle: Duration,
    /// Signals that were of no limit, or of the one before.
    waited: u32,
}

impl Settling {
    /// Returns the sample of the limit, if the signal is of it.
    fn read(&mut self, signal: &Signal, limit: Limit) -> Option<Sample> {
        // Half a unit, or a twentieth, is what the mean of a period may differ by.
        let is_exceeded = signal.in_flight > 1.05 * limit.real() + 0.5;
        let is_filled = signal.in_flight >= 0.95 * limit.real() - 0.5;
        let binds = signal.waiting > WAITING;
        // The first period may have begun at another limit, and is no sample.
        let since = (!is_exceeded && (is_filled || !binds))
            .then(|| self.since.map_or(Duration::ZERO, |since| since.saturating_add(signal.period)));
        let is_settled = since.is_some_and(|since| {
            // A unit that was admitted in the first period belongs to this limit.
            let filled = since.saturating_add(signal.period);
            !since.is_zero() && signal.oldest.is_none_or(|age| filled >= age.min(LONGEST))
        });
        self.since = since;
        if self.waited == 0 || signal.in_flight < self.lowest - WAITING {
            (self.lowest, self.idle) = (signal.in_flight, Duration::ZERO);
        } else {
            self.idle = self.idle.saturating_add(signal.period);
        }
        if !is_settled && self.idle <= LONGEST {
            self.waited = self.waited.saturating_add(1);
            return None;
        }
        Some(Sample {
            // A period without a unit is one with less than half of one.
            productivity: signal.productivity().max(0.5 / signal.period.as_secs_f64()),
            is_empty: signal.finished == 0,
            in_flight: signal.in_flight,
            demand: signal.in_flight + signal.waiting,
            is_reached: is_filled || binds,
        })
    }
}
