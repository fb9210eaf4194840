//! Compares a limit with its neighbours, in pairs, with steps that shrink.

use super::{Direction, Noise, Sample, TIE, Tally};
use crate::law::Limit;

/// Samples of one limit before those of the other: as many as the limit took to settle, in these bounds.
const DWELL: u32 = 4;
const LONGEST_DWELL: u32 = 20;

/// First step: half of that of a survey, on a logarithmic scale.
const LARGEST: f64 = 2.0;

/// Smallest step: the steps are 2, 1.4 and 1.2.
const SMALLEST: f64 = 1.15;

/// Standard errors by which a difference is clear before there are enough samples.
const CLEAR: f64 = 3.0;

/// Samples of each limit that decide, however noisy they are.
const MOST: f64 = 48.0;

/// A search for the lowest limit without a loss.
#[derive(Debug)]
pub(super) struct Refine {
    /// The best limit so far.
    home: Limit,
    /// Productivity lost by moves to lower limits that were as good, in its logarithm.
    lost: f64,
    /// Ratio of a neighbour and `home`.
    step: f64,
    /// Where the neighbour is that is compared now.
    direction: Direction,
    /// Whether the neighbour in the other direction was no better.
    failed: bool,
    /// Samples of both.
    of_home: Tally,
    of_neighbour: Tally,
    /// Whose samples are taken now, and how many were.
    side: Side,
    dwell: u32,
}

/// One of the two limits that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Home,
    Neighbour,
}

impl Refine {
    /// Begins at a limit of a survey, which was measured to lose this against the best one, in the logarithm.
    pub fn new(home: Limit, lost: f64, gain: f64) -> Self {
        Self {
            home,
            lost,
            step: LARGEST.powf(gain),
            direction: Direction::Up,
            failed: false,
            of_home: Tally::default(),
            of_neighbour: Tally::default(),
            side: Side::Home,
            dwell: 0,
        }
    }

    /// The best limit so far.
    pub fn home(&self) -> Limit {
        self.home
    }

    /// The limit whose samples are taken.
    pub fn limit(&self) -> Limit {
        match self.side {
            Side::Home => self.home,
            Side::Neighbour => self.neighbour(self.direction).unwrap_or(self.home),
        }
    }

    /// Takes a sample of a limit that has settled after some periods, and returns the next limit; `None` at
    /// the end. A limit is not left in a stall.
    pub fn add(&mut self, sample: &Sample, noise: &Noise, waited: u32) -> Option<Limit> {
        self.tally(self.side).add(sample.productivity);
        self.dwell += 1;
        if noise.is_stalled() {
            return Some(self.limit());
        }
        if let Some(difference) = self.difference(noise.deviation()) {
            if !self.conclude(difference) {
                return None;
            }
        } else if self.dwell >= waited.clamp(DWELL, LONGEST_DWELL) {
            self.dwell = 0;
            self.side = match self.side {
                Side::Home => Side::Neighbour,
                Side::Neighbour => Side::Home,
            };
        }
        Some(self.limit())
    }

    /// Forgets the samples of the present comparison.
    pub fn restart(&mut self) {
        (self.of_home, self.of_neighbour, self.dwell) = (Tally::default(), Tally::default(), 0);
    }

    /// Gives up a neighbour that the load does not reach, and returns the next limit; `None` at the end.
    pub fn skip(&mut self) -> Option<Limit> {
        self.conclude(f64::NEG_INFINITY).then(|| self.limit())
    }

    fn tally(&mut self, side: Side) -> &mut Tally {
        match side {
            Side::Home => &mut self.of_home,
            Side::Neighbour => &mut self.of_neighbour,
        }
    }

    /// How much better the neighbour is; `None` if it is not known yet.
    fn difference(&self, deviation: f64) -> Option<f64> {
        let (difference, error) = self.of_neighbour.against(&self.of_home, deviation);
        let samples = self.of_home.samples().min(self.of_neighbour.samples());
        // As many as it takes to see a difference of TIE at one and a half standard errors.
        let enough = (4.5 * (deviation / TIE).powi(2)).clamp(f64::from(DWELL), MOST);
        let is_clear = samples >= DWELL / 2 && difference.abs() > TIE + CLEAR * error;
        (is_clear || f64::from(samples) >= enough).then_some(difference)
    }

    /// Moves to the neighbour or not, and finds the next one; false if there is none.
    fn conclude(&mut self, difference: f64) -> bool {
        let neighbour = self.neighbour(self.direction);
        let lost = (self.lost - difference).max(0.0);
        let moved = match self.direction {
            Direction::Up => (difference > TIE).then_some(0.0),
            Direction::Down => (lost < TIE).then_some(lost),
        };
        match (moved, neighbour) {
            (Some(lost), Some(neighbour)) => {
                self.lost = lost;
                self.home = neighbour;
                // The neighbour in the other direction is the limit before.
                self.failed = true;
            }
            _ if self.turn() => {}
            _ => return false,
        }
        self.restart();
        self.side = Side::Home;
        self.neighbour(self.direction).is_some() || self.turn()
    }

    /// Turns around, with a smaller step if both directions have failed; false if there is none.
    fn turn(&mut self) -> bool {
        if self.failed {
            let is_next = |neighbour: Limit| neighbour.units().abs_diff(self.home.units()) == 1;
            let neighbours = [Direction::Up, Direction::Down].map(|direction| self.neighbour(direction));
            let exhausted = neighbours.into_iter().flatten().all(is_next);
            self.step = self.step.sqrt();
            if exhausted || self.step < SMALLEST {
                return false;
            }
        }
        self.failed = !self.failed;
        self.direction = match self.direction {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        };
        // Below the lowest limit, and above the highest, is none.
        self.neighbour(self.direction).is_some() || self.turn()
    }

    fn neighbour(&self, direction: Direction) -> Option<Limit> {
        let home = self.home.real();
        let neighbour = match direction {
            Direction::Up => Limit::nearest((home * self.step).max(home + 1.0)),
            Direction::Down => Limit::nearest((home / self.step).min(home - 1.0)),
        };
        (neighbour != self.home).then_some(neighbour)
    }
}
