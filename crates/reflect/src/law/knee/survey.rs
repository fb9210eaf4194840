//! A survey: measures levels that are far apart, until both ends are known.

use std::collections::BTreeMap;

use super::{Direction, Noise, Sample, TIE, Tally};
use crate::law::Limit;

/// Ratio of neighbouring levels: five of them span what a server of a thousand connections can do.
const FACTOR: f64 = 4.0;

/// Part of a productivity by which the lower end is worse than the best level, and the most that a level may
/// lose that is taken for as good. Twice the smallest difference that is found in the samples of a level with
/// noise of a tenth.
const WORSE: f64 = 0.1;

/// Ratio of the demand and a level up to which the level is the highest one.
const HIGHEST: f64 = 1.25;

/// Fewest and most samples of a level. With the fewest, a difference is at least [`CLEAR`] standard errors.
const FEWEST: u32 = 3;
const MOST: u32 = 16;
const CLEAR: f64 = 3.0;

/// Standard errors from which a level is likely to be worse than another one: of levels that are as good, one
/// of fifteen is. A survey does not go on up behind such a level: the next one may cost seconds of a stall,
/// while what is better near the best level is found in steps.
const LIKELY: f64 = 1.5;

/// Samples after which a survey ends with what it has: of ten levels, twice what a level takes at most.
const LONGEST: u32 = 20 * MOST;

/// Levels measured so far.
#[derive(Debug)]
pub(super) struct Survey {
    factor: f64,
    first: Direction,
    /// What was in flight or could be when it began.
    from: Limit,
    at: Limit,
    measured: BTreeMap<Limit, Tally>,
    samples: u32,
    /// Whether it has begun again after a hang of the server: once, as a server may hang again and again.
    has_restarted: bool,
    /// Whether a unit was finished since it began.
    has_finished: bool,
    /// Samples of the longest stall. The levels after it are measured for that long.
    longest_stall: u32,
    /// The highest level that can be measured: what is in flight and waiting.
    demand: f64,
}

/// What follows a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Next {
    /// More samples of this level.
    Stay,
    /// Samples of another one.
    Go(Limit),
    /// A higher limit than the best one does harm.
    Collapse {
        /// The limit from which others are compared.
        home: Limit,
        /// By how much less it was measured than the best one, in the logarithm.
        lost: f64,
    },
    /// No higher limit does harm.
    NoCollapse,
}

impl Survey {
    /// Begins at a limit, and goes to higher ones first.
    pub fn up(from: Limit, gain: f64) -> Self {
        Self {
            factor: FACTOR.powf(gain),
            first: Direction::Up,
            from,
            at: from,
            measured: BTreeMap::new(),
            samples: 0,
            has_restarted: false,
            has_finished: false,
            longest_stall: 0,
            demand: 1.0,
        }
    }

    /// Begins a level below what is in flight, of which this is a sample, and goes to lower ones first. What
    /// is in flight may be a collapse: it is measured further only if this sample does not show one. An empty
    /// one shows nothing: no unit may have had the time to end.
    pub fn down(sample: &Sample, gain: f64) -> Self {
        let mut survey = Self { first: Direction::Down, ..Self::up(Limit::nearest(sample.in_flight), gain) };
        survey.take(sample);
        if sample.is_empty {
            survey.forget_first();
        }
        survey.at = survey.first_level();
        survey
    }

    /// The present level.
    pub fn at(&self) -> Limit {
        self.at
    }

    /// Takes a sample of the present level, which is not left in a stall.
    pub fn add(&mut self, sample: &Sample, noise: &Noise) -> Next {
        if !sample.is_reached {
            // A limit that is not reached is the level of what is in flight.
            self.at = self.at.min(Limit::nearest(sample.in_flight));
        }
        self.take(sample);
        self.has_finished |= !sample.is_empty;
        if self.at != self.from && !is_highest(self.from, self.demand) {
            // The load has grown: in the period of the first sample, clients may only have begun.
            self.forget_first();
        }
        self.longest_stall = self.longest_stall.max(noise.stalled());
        if noise.has_hung() && !self.has_restarted {
            return self.restart();
        }
        let deviation = noise.deviation();
        let is_measured = !noise.is_stalled() && self.is_measured(deviation);
        let next = if is_measured { self.next(deviation) } else { Next::Stay };
        match next {
            Next::Go(limit) => {
                if limit == self.from {
                    self.forget_first();
                }
                self.at = limit;
            }
            // The end of the hang may show more.
            Next::Collapse { .. } | Next::NoCollapse
                if noise.hangs() && !noise.is_long_hang() && self.has_finished =>
            {
                return Next::Stay;
            }
            _ => {}
        }
        next
    }

    /// Begins again, without what was measured before the end of a hang.
    fn restart(&mut self) -> Next {
        self.has_restarted = true;
        self.measured.clear();
        self.longest_stall = 0;
        self.at = self.first_level();
        Next::Go(self.at)
    }

    /// Removes the sample with which a survey downward began, which is the only one of its level.
    fn forget_first(&mut self) {
        self.measured.retain(|level, tally| *level != self.from || tally.samples() >= FEWEST);
    }

    fn first_level(&self) -> Limit {
        match self.first {
            Direction::Up => self.from,
            Direction::Down => below(self.from, self.factor).unwrap_or(self.from),
        }
    }

    fn take(&mut self, sample: &Sample) {
        self.demand = sample.demand;
        self.samples += 1;
        self.measured.entry(self.at).or_default().add(sample.productivity);
    }

    /// Whether there are enough samples of the present level to compare it with the best other one.
    fn is_measured(&self, deviation: f64) -> bool {
        let here = &self.measured[&self.at];
        let others = self.measured.iter().filter(|(level, _)| **level != self.at).map(|(_, tally)| tally);
        let best = others.max_by(|a, b| a.mean().total_cmp(&b.mean()));
        // A survey downward goes lower whatever its first level is.
        let is_clear = best.map_or(self.first == Direction::Down, |best| {
            let (difference, error) = here.against(best, deviation);
            difference.abs() > WORSE + CLEAR * error
        });
        // As many as it takes to see a difference of WORSE at two standard errors.
        let enough = (8.0 * (deviation / WORSE).powi(2)).min(f64::from(MOST));
        here.samples() >= FEWEST.max(self.longest_stall) && (is_clear || f64::from(here.samples()) >= enough)
    }

    fn next(&self, deviation: f64) -> Next {
        let ends = [self.measured.first_key_value(), self.measured.last_key_value()];
        let ([Some((lowest, low)), Some((highest, high))], Some((best, top))) =
            (ends, self.measured.iter().max_by(|a, b| a.1.mean().total_cmp(&b.1.mean())))
        else {
            return Next::Stay;
        };
        let up = (!high.is_below(top, TIE, LIKELY, deviation) && !is_highest(*highest, self.demand))
            .then(|| Limit::nearest((highest.real() * self.factor).min(self.demand)));
        // By the part that it lacks: the logarithm of a level is beyond all errors if it was in a stall.
        let (_, error) = top.against(low, deviation);
        let has_lower_end = 1.0 - low.mean() / top.mean() > WORSE.max(CLEAR * error);
        let down = if has_lower_end { None } else { below(*lowest, self.factor) };
        // The first sample of a survey downward is the only one of its level: it is not enough to end with.
        let remeasure = (top.samples() < FEWEST).then_some(*best);
        let next = match self.first {
            Direction::Up => up.or(down),
            Direction::Down => down.or(remeasure).or(up),
        };
        match next {
            Some(limit) if self.samples < LONGEST => Next::Go(limit),
            _ => self.conclude((*best, top), (*highest, high), deviation),
        }
    }

    /// Says whether a higher limit than the best one does harm, and where to compare limits then.
    fn conclude(&self, best: (Limit, &Tally), highest: (Limit, &Tally), deviation: f64) -> Next {
        let (harm, error) = best.1.against(highest.1, deviation);
        let may_be_harmless =
            is_highest(highest.0, self.demand) && !highest.1.is_below(best.1, TIE, CLEAR, deviation);
        let (level, fewest) = if highest.1.samples() < best.1.samples() { highest } else { best };
        if !self.has_finished {
            // Of a server that hangs, nothing is known.
            Next::Collapse { home: self.from, lost: 0.0 }
        } else if may_be_harmless && harm > TIE && fewest.samples() < MOST && self.samples < LONGEST {
            Next::Go(level)
        } else if may_be_harmless && harm <= WORSE.max(error) {
            Next::NoCollapse
        } else {
            // More harm is likely, if not certain even now: a limit is the lesser risk.
            let (home, lost) = self.lowest_as_good(best, deviation);
            Next::Collapse { home, lost }
        }
    }

    /// The lowest level that may be as good as the best one, and by how much less it was measured.
    fn lowest_as_good(&self, best: (Limit, &Tally), deviation: f64) -> (Limit, f64) {
        let lower = self.measured.range(..best.0);
        let mut losses = lower.map(|(level, tally)| (*level, best.1.against(tally, deviation)));
        let as_good = losses.find(|(_, (lost, error))| *lost <= TIE.max(LIKELY * error).min(WORSE));
        as_good.map_or((best.0, 0.0), |(level, (lost, _))| (level, lost))
    }
}

/// Whether a demand has no use for a limit that is much higher than this one.
pub(super) fn is_highest(limit: Limit, demand: f64) -> bool {
    demand <= HIGHEST * limit.real() || Limit::nearest(demand) <= limit
}

/// The next level below one. Limits that are nearer than [`FACTOR`] are compared later.
fn below(level: Limit, factor: f64) -> Option<Limit> {
    (level.real() >= FACTOR).then(|| Limit::nearest(level.real() / factor))
}
