//! A quantity as far as it is known: a point, its interval, its unit and how it was made.
//!
//! `statistics` makes estimates from values. This module says what an estimate is, and how to scale and add
//! estimates.

use crate::unit::Unit;

/// The range in which a quantity may lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end, in the estimate's unit.
    pub low: f64,
    /// Upper end, in the estimate's unit.
    pub high: f64,
    /// Probability with which such intervals cover the truth; 1 for the rounding of a printed figure.
    pub confidence: f64,
}

impl Interval {
    /// Half of its width, in the estimate's unit.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// How a point was made from values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// Mean without the lowest and the highest fifth of the values, Yuen's interval.
    TrimmedMean,
    /// Median, interval from order statistics.
    Median,
    /// Smallest value, in files of earlier versions; the interval is a bootstrap's, one-sided by nature.
    Minimum,
    /// A published figure; the interval is its rounding.
    Printed,
    /// Computed from other estimates; the interval is propagated from theirs.
    Derived,
    /// Geometric mean of several runs; the interval is a prediction interval for one more run.
    MeanOfRuns,
}

impl Method {
    /// Every method with its name in files.
    pub const NAMES: [(Method, &'static str); 6] = [
        (Method::TrimmedMean, "trimmed_mean"),
        (Method::Median, "median"),
        (Method::Minimum, "minimum"),
        (Method::Printed, "printed"),
        (Method::Derived, "derived"),
        (Method::MeanOfRuns, "mean_of_runs"),
    ];

    /// Its name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(method, _)| *method == self).map_or("?", |(_, name)| name)
    }
}

/// A quantity as far as it is known, with its interval and its unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The best single value.
    pub point: f64,
    /// Its uncertainty.
    pub interval: Interval,
    /// Its unit.
    pub unit: Unit,
    /// How it was made.
    pub method: Method,
    /// Number of independent values behind it (processes, rounds); 0 if unknown.
    pub values: usize,
}

impl Estimate {
    /// Half-width of the interval over the point.
    #[must_use]
    pub fn relative_half_width(&self) -> f64 {
        self.interval.half_width() / self.point.abs()
    }

    /// The quantity times an exactly known factor, in another unit.
    #[must_use]
    pub fn scaled(&self, factor: f64, unit: Unit) -> Self {
        let (a, b) = (self.interval.low * factor, self.interval.high * factor);
        let interval = Interval { low: a.min(b), high: a.max(b), ..self.interval };
        Self { point: self.point * factor, interval, unit, ..*self }
    }

    /// The bandwidth of a cost per byte: 1 ns/B is 1 GB/s. The ends of the interval change places.
    #[must_use]
    pub fn bandwidth(&self) -> Self {
        let rate = |cost: f64| 1e9 / cost;
        let interval = Interval {
            low: rate(self.interval.high),
            high: rate(self.interval.low.max(0.0)),
            ..self.interval
        };
        Self { point: rate(self.point), interval, unit: Unit::BytesPerSecond, ..*self }
    }

    /// Sum of independent quantities in nanoseconds: half-widths add in quadrature, separately for each side.
    #[must_use]
    pub fn sum(terms: &[Estimate]) -> Self {
        let point = terms.iter().map(|term| term.point).sum::<f64>();
        let quadrature = |side: fn(&Estimate) -> f64| -> f64 {
            terms.iter().map(|term| side(term).powi(2)).sum::<f64>().sqrt()
        };
        let below = quadrature(|term| term.point - term.interval.low);
        let above = quadrature(|term| term.interval.high - term.point);
        let confidence = terms.iter().map(|term| term.interval.confidence).fold(1.0, f64::min);
        let values = terms.iter().map(|term| term.values).min().unwrap_or(0);
        Self {
            point,
            interval: Interval { low: point - below, high: point + above, confidence },
            unit: Unit::Nanoseconds,
            method: Method::Derived,
            values,
        }
    }
}
