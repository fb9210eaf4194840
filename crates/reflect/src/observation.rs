//! What was counted of a subject so far, and the course of two of its measures: productivity and overhead.

use std::time::Duration;

use crate::facility::Period;
use crate::region::{Point, Region, region};

/// Points that are kept: those of ten minutes, if ten in a second are read.
const KEPT: usize = 6_000;

/// What was counted of one measure, up to its last reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// The count; `None` if it was never read.
    pub total: Option<u64>,
    /// Time in which it was counted.
    pub length: Duration,
    /// Productivity in that time.
    pub done: u64,
}

/// What was counted so far.
#[derive(Debug, Clone)]
pub struct Observation {
    productivity: usize,
    overhead: usize,
    length: Duration,
    periods: u64,
    counted: Vec<Counted>,
    fallen: u64,
    points: Vec<Point>,
    /// What belongs to the next point.
    next: Point,
}

impl Observation {
    /// Begins an observation of as many measures; the course is that of the two at these places.
    #[must_use]
    pub fn new(measures: usize, productivity: usize, overhead: usize) -> Self {
        Self {
            productivity,
            overhead,
            length: Duration::ZERO,
            periods: 0,
            counted: vec![Counted::default(); measures],
            fallen: 0,
            points: Vec::new(),
            next: Point::default(),
        }
    }

    /// Adds a period. A measure that was not read in it is included in a later one, and so in a later point.
    pub fn add(&mut self, period: &Period) {
        self.length += period.length;
        self.periods += 1;
        self.fallen += period.fallen;
        let [productivity, overhead] = [self.productivity, self.overhead].map(|place| period.counts[place]);
        let done =
            self.counted[self.productivity].total.unwrap_or(0).saturating_add(productivity.unwrap_or(0));
        for (counted, count) in self.counted.iter_mut().zip(&period.counts) {
            if let Some(count) = count {
                let total = counted.total.unwrap_or(0).saturating_add(*count);
                *counted = Counted { total: Some(total), length: self.length, done };
            }
        }
        self.next = self.next.with(&Point {
            length: period.length,
            productivity: productivity.unwrap_or(0),
            overhead: overhead.unwrap_or(0),
        });
        if productivity.is_some() && overhead.is_some() {
            if self.points.len() == 2 * KEPT {
                self.points.drain(..KEPT);
            }
            self.points.push(std::mem::take(&mut self.next));
        }
    }

    /// Its length.
    #[must_use]
    pub fn length(&self) -> Duration {
        self.length
    }

    /// Number of its periods.
    #[must_use]
    pub fn periods(&self) -> u64 {
        self.periods
    }

    /// What was counted of each measure.
    #[must_use]
    pub fn counted(&self) -> &[Counted] {
        &self.counted
    }

    /// Number of totals that fell, see [`Period::fallen`].
    #[must_use]
    pub fn fallen(&self) -> u64 {
        self.fallen
    }

    /// The places of the two measures of the course: productivity and overhead.
    #[must_use]
    pub fn axes(&self) -> (usize, usize) {
        (self.productivity, self.overhead)
    }

    /// When the first of [`Observation::points`] began, since the beginning.
    #[must_use]
    pub fn course_begin(&self) -> Duration {
        let lengths: Duration = self.points().iter().map(|point| point.length).sum();
        self.length.saturating_sub(self.next.length + lengths)
    }

    /// The last points of the course.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points[self.points.len().saturating_sub(KEPT)..]
    }

    /// The region that the subject is in; `None` at the beginning.
    #[must_use]
    pub fn region(&self) -> Option<Region> {
        region(&self.points)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_that_is_read_rarely_makes_fewer_points_and_loses_nothing() {
        let mut observation = Observation::new(2, 0, 1);
        for (productivity, overhead) in
            [(1, None), (2, Some(30)), (4, None), (8, None), (16, Some(50)), (32, None)]
        {
            let counts = vec![Some(productivity), overhead];
            observation.add(&Period { length: Duration::from_millis(100), counts, fallen: 0 });
        }
        let points: Vec<_> =
            observation.points().iter().map(|p| (p.length.as_millis(), p.productivity, p.overhead)).collect();
        assert_eq!(points, [(200, 3, 30), (300, 28, 50)]);
        let counted =
            |total, length_ms, done| Counted { total, length: Duration::from_millis(length_ms), done };
        assert_eq!(observation.counted(), [counted(Some(63), 600, 63), counted(Some(80), 500, 31)]);
        assert_eq!(observation.periods(), 6);
        assert_eq!(Observation::new(2, 0, 1).counted(), [counted(None, 0, 0); 2]);
    }

    #[test]
    fn an_endless_observation_keeps_the_last_points() {
        let mut observation = Observation::new(2, 0, 1);
        for number in 0..3 * KEPT as u64 {
            observation.add(&Period {
                length: Duration::from_secs(1),
                counts: vec![Some(number), Some(0)],
                fallen: 0,
            });
        }
        assert_eq!(observation.points().len(), KEPT);
        assert_eq!(observation.points()[0].productivity, 2 * KEPT as u64);
        assert_eq!(observation.course_begin(), Duration::from_secs(2 * KEPT as u64));
        assert_eq!(observation.points()[KEPT - 1].productivity, 3 * KEPT as u64 - 1);
    }
}
