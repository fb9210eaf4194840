//! The productivity of a server by its load (Fowler et al., *Using Performance Reflection in Systems
//! Software*, HotOS 2003, section 1): how much it finishes with so many units in flight. Where nothing limits
//! these, clients change the load themselves, and a server past its peak shows as lower productivity under a
//! higher load.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Signal;
use crate::signal::count;

/// What was observed so far.
#[derive(Debug, Clone, Default)]
pub struct Curve(BTreeMap<u32, Point>);

/// Periods with about the same number of units in flight, together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The lowest mean number of units in flight of these periods: zero, or a power of two.
    pub least: u64,
    /// A number that all of them are below: the next power of two.
    pub below: u64,
    /// The sum of their lengths.
    pub time: Duration,
    /// Units that finished.
    pub finished: u64,
    /// Units that failed.
    pub failed: u64,
    /// Time in flight of all units that ended, in seconds.
    latency_s: f64,
}

impl Curve {
    /// Adds a period.
    pub fn add(&mut self, signal: &Signal) {
        // Units are fewer than 2^32.
        let mut exponent = 0;
        while exponent < 32 && signal.in_flight >= count(1 << exponent) {
            exponent += 1;
        }
        let least = if exponent == 0 { 0 } else { 1 << (exponent - 1) };
        let (below, time) = (1 << exponent, Duration::ZERO);
        let point = Point { least, below, time, finished: 0, failed: 0, latency_s: 0.0 };
        let point = self.0.entry(exponent).or_insert(point);
        point.time += signal.period;
        point.finished += signal.finished;
        point.failed += signal.failed;
        let mean_s = signal.latency.map_or(0.0, |latency| latency.as_secs_f64());
        point.latency_s += mean_s * count(signal.finished + signal.failed);
    }

    /// Returns its points, from the lowest load to the highest.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.0.values()
    }
}

impl Point {
    /// Returns the units that finished per second.
    #[must_use]
    pub fn productivity(&self) -> f64 {
        self.per_second(self.finished)
    }

    /// Returns the units that failed per second.
    #[must_use]
    pub fn failures(&self) -> f64 {
        self.per_second(self.failed)
    }

    fn per_second(&self, units: u64) -> f64 {
        let seconds = self.time.as_secs_f64();
        if seconds > 0.0 { count(units) / seconds } else { 0.0 }
    }

    /// Returns the mean time in flight of a unit; `None` if none ended.
    #[must_use]
    pub fn latency(&self) -> Option<Duration> {
        let ended = self.finished + self.failed;
        (ended > 0).then(|| Duration::from_secs_f64(self.latency_s / count(ended)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_with_about_the_same_load_are_taken_together() {
        let ms = Duration::from_millis;
        let mut curve = Curve::default();
        for (length, in_flight, finished, failed, latency) in [
            (100, 0.0, 0, 0, None),
            (300, 4.0, 10, 0, Some(2)),
            (100, 7.9, 20, 10, Some(6)),
            (100, 0.9, 0, 0, None),
            (100, 8.0, 1, 0, Some(50)),
        ] {
            curve.add(&Signal {
                period: ms(length),
                finished,
                failed,
                in_flight,
                latency: latency.map(ms),
                ..Signal::default()
            });
        }
        let points = curve.points().map(|point| {
            (point.least, point.below, point.time, point.productivity(), point.failures(), point.latency())
        });
        assert_eq!(
            points.collect::<Vec<_>>(),
            [
                (0, 1, ms(200), 0.0, 0.0, None),
                (4, 8, ms(400), 75.0, 25.0, Some(ms(5))),
                (8, 16, ms(100), 10.0, 0.0, Some(ms(50))),
            ]
        );
    }
}
