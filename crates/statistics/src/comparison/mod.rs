//! One primitive on two machines: by what factor do the costs differ, and is that more than chance?
//!
//! From the values of independent processes: the ratio of the two trimmed means with Welch and Yuen's test on
//! a logarithmic scale (Yuen, Biometrika 61, 1974; Welch, Biometrika 34, 1947). From published estimates: a
//! propagation of their intervals. From processes measured alternately: the trimmed mean of their ratios
//! ([`paired`]). [`family`] corrects the comparisons of many primitives by Holm's method, and [`factor`]
//! finds what all of them have in common. The caller leaves out disturbed batches ([`crate::sift`]).

pub mod factor;
pub mod family;
pub mod paired;

use assay_quantity::{Estimate, Interval, Method, Pair, Unit};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use crate::estimator::{CONFIDENCE, NoEstimate, Trimmed, real, students_t};

/// By what factor two costs differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Cost of b over cost of a.
    pub estimate: Estimate,
    /// Probability of a ratio at least as far from 1 if the costs are equal. `None` if the sampling error of
    /// a figure is unknown (printed figures) or has no such distribution (minima).
    pub p: Option<f64>,
    /// Cliff's delta: the share of all pairs of values in which b is higher, less the share in which it is
    /// lower. From -1 to 1; 0 if neither side tends to be higher. A ratio close to 1 with a delta close to 1
    /// is a small difference that every process shows. `None` without values and for pairs ([`paired`]).
    pub effect: Option<f64>,
}

/// Why two costs have no ratio.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum NoComparison {
    /// One side has no estimate.
    #[error("one side has no estimate: {0}")]
    NoEstimate(#[from] NoEstimate),
    /// A cost of zero or less.
    #[error("a cost of {0} has no ratio")]
    NotPositive(f64),
    /// An interval that reaches zero: it excludes no factor.
    #[error("an interval that begins at {0} has no ratio")]
    Unbounded(f64),
    /// Too few pairs of values.
    #[error("a ratio needs at least 2 pairs of values, but there are {0}")]
    TooFewPairs(usize),
    /// Different units.
    #[error("{0} cannot be compared with {1}")]
    Units(Unit, Unit),
}

/// Compares values of independent processes: the ratio of the trimmed means, its interval and its p-value.
///
/// The logarithm of the ratio is normal to the first order of the relative standard errors (the delta
/// method). The sides differ in spread and number of processes, so the degrees of freedom are Welch's. In
/// simulations with 8 to 40 processes of normal and lognormal noise of 1 to 20 %, equal or four times as wide
/// on one side, intervals of 95 % contain the true ratio in 93 to 97 % of trials. [`compare_estimates`] makes
/// the same test of two trimmed means, so a file is as good as the values behind it.
///
/// Number of processes on each side that find a slowdown of 2 % in 90 % of trials: 8 if the noise between
/// processes is 1 %, 58 if it is 3 %, 158 if it is 5 %. Among 40 primitives, corrected for their number by
/// Holm's method: 17, 112 and 305.
///
/// # Errors
/// [`NoComparison`] if a side has fewer than two values or a cost that is not positive.
pub fn compare(values: Pair<&[f64]>) -> Result<Ratio, NoComparison> {
    compare_steps(values, Pair { a: 0.0, b: 0.0 })
}

/// Compares values of independent runs that are multiples of a `step` on each side, such as counts: like
/// [`compare`], but the standard error of a single value is at least a step. Small counts are often equal by
/// chance, and seem to have no error: if a count is 5 or 6 with equal probability, three runs of each side
/// are 5 5 5 and 6 6 6 in 3 % of cases.
///
/// # Errors
/// Those of [`compare`].
pub fn compare_steps(values: Pair<&[f64]>, step: Pair<f64>) -> Result<Ratio, NoComparison> {
    let log = |values: &[f64], step: f64| {
        let trimmed = Trimmed::of(values)?;
        let least = step / (trimmed.freedom + 1.0).sqrt();
        Log::of(Trimmed { standard_error: trimmed.standard_error.max(least), ..trimmed })
    };
    let logs = Pair { a: log(values.a, step.a)?, b: log(values.b, step.b)? };
    let runs = values.a.len().min(values.b.len());
    Ok(Ratio { effect: Some(cliffs_delta(values)), ..welch(logs, runs) })
}

/// Compares two estimates whose values are not available: files and published figures.
///
/// The result for two trimmed means is that of [`compare`] for their values. Each side of any other interval
/// is treated as a quantile on the logarithmic scale: of Student's t for a median, which rests on few values,
/// of the normal distribution for others. In simulations with 40 equal primitives, Holm's method reports a
/// difference between medians of 4 to 20 processes in at most 5 % of comparisons if the noise is normal or
/// has a heavy tail, and in 7 % if one process in five takes a third longer. The rounding of a printed figure
/// is not random: it widens the interval, and there is no p-value.
///
/// # Errors
/// [`NoComparison`] if the units differ, a cost is not positive or an interval reaches zero.
pub fn compare_estimates(estimates: Pair<&Estimate>) -> Result<Ratio, NoComparison> {
    let Pair { a, b } = estimates;
    if a.unit != b.unit {
        return Err(NoComparison::Units(a.unit, b.unit));
    }
    if let (Some(log_a), Some(log_b)) = (Log::of_trimmed_mean(a), Log::of_trimmed_mean(b)) {
        return Ok(welch(Pair { a: log_a?, b: log_b? }, a.values.min(b.values)));
    }
    propagated(estimates)
}

/// Logarithm of a trimmed mean.
#[derive(Debug, Clone, Copy)]
struct Log {
    value: f64,
    error: Error,
}

impl Log {
    fn of(trimmed: Trimmed) -> Result<Self, NoComparison> {
        let Trimmed { point, standard_error, freedom } = trimmed;
        if point > 0.0 {
            Ok(Self { value: point.ln(), error: Error { standard: standard_error / point, freedom } })
        } else {
            Err(NoComparison::NotPositive(point))
        }
    }

    /// `None` for an estimate of another kind.
    fn of_trimmed_mean(estimate: &Estimate) -> Option<Result<Self, NoComparison>> {
        let usual = (estimate.interval.confidence - CONFIDENCE).abs() < 1e-9;
        if estimate.method != Method::TrimmedMean || estimate.values < 2 || !usual {
            return None;
        }
        let freedom = Trimmed::freedom(estimate.values);
        let standard_error = estimate.interval.half_width() / students_t(freedom, CONFIDENCE);
        Some(Self::of(Trimmed { point: estimate.point, standard_error, freedom }))
    }
}

/// The difference of two logarithms, each with its own standard error.
fn welch(logs: Pair<Log>, values: usize) -> Ratio {
    let difference = logs.b.value - logs.a.value;
    let error = Error::of_difference(logs.a.error, logs.b.error);
    let half = error.half_width();
    let estimate = ratio(difference, Ends { below: half, above: half }, values);
    Ratio { estimate, p: Some(error.p(difference)), effect: None }
}

/// The random error of a logarithm.
#[derive(Debug, Clone, Copy)]
struct Error {
    standard: f64,
    /// Degrees of freedom of Student's t; infinite for the normal distribution.
    freedom: f64,
}

impl Error {
    /// Of the difference of two independent quantities (Welch).
    fn of_difference(a: Self, b: Self) -> Self {
        let variance = a.standard.powi(2) + b.standard.powi(2);
        let shared = a.standard.powi(4) / a.freedom + b.standard.powi(4) / b.freedom;
        // Values that are all equal have no variance.
        let freedom = if shared > 0.0 { variance.powi(2) / shared } else { a.freedom.min(b.freedom) };
        Self { standard: variance.sqrt(), freedom }
    }

    fn half_width(self) -> f64 {
        quantile(self.freedom, CONFIDENCE) * self.standard
    }

    /// Probability of a difference at least as large, in either direction, if the truth is none.
    fn p(self, difference: f64) -> f64 {
        two_sided(difference / self.standard, |t| match StudentsT::new(0.0, 1.0, self.freedom) {
            Ok(student) if self.freedom.is_finite() => student.sf(t),
            _ => Normal::standard().sf(t),
        })
    }
}

/// Probability of both tails beyond a difference that is given in standard errors.
fn two_sided(difference: f64, tail: impl Fn(f64) -> f64) -> f64 {
    // Zero over zero: no difference.
    if difference.is_nan() { 1.0 } else { 2.0 * tail(difference.abs()) }
}

/// Distances to the two ends of a range.
#[derive(Debug, Clone, Copy, Default)]
struct Ends {
    below: f64,
    above: f64,
}

fn ratio(difference: f64, reach: Ends, values: usize) -> Estimate {
    let (low, high) = ((difference - reach.below).exp(), (difference + reach.above).exp());
    Estimate {
        point: difference.exp(),
        interval: Interval { low, high, confidence: CONFIDENCE },
        unit: Unit::Ratio,
        method: Method::Derived,
        values,
    }
}

/// The uncertainty of the logarithm of a quantity.
#[derive(Debug, Clone, Copy)]
struct Reach {
    /// Standard errors.
    chance: Ends,
    /// Degrees of freedom of `chance`, as [`Error::freedom`].
    freedom: f64,
    /// Bounds.
    rounding: Ends,
}

impl Reach {
    fn of(estimate: &Estimate) -> Result<Self, NoComparison> {
        let Interval { low, high, confidence } = estimate.interval;
        if estimate.point <= 0.0 {
            return Err(NoComparison::NotPositive(estimate.point));
        }
        if low <= 0.0 {
            return Err(NoComparison::Unbounded(low));
        }
        let ends = Ends { below: (estimate.point / low).ln(), above: (high / estimate.point).ln() };
        let is_small = estimate.method == Method::Median && estimate.values > 1;
        let freedom = if is_small { real(estimate.values) - 1.0 } else { f64::INFINITY };
        if confidence >= 1.0 {
            return Ok(Self { chance: Ends::default(), freedom, rounding: ends });
        }
        let quantile = quantile(freedom, confidence);
        let chance = Ends { below: ends.below / quantile, above: ends.above / quantile };
        Ok(Self { chance, freedom, rounding: Ends::default() })
    }

    /// The error of one side with this standard error.
    fn error(&self, standard: f64) -> Error {
        Error { standard, freedom: self.freedom }
    }
}

/// The ratio of two estimates from their intervals.
fn propagated(estimates: Pair<&Estimate>) -> Result<Ratio, NoComparison> {
    let Pair { a, b } = estimates;
    let (of_a, of_b) = (Reach::of(a)?, Reach::of(b)?);
    let difference = b.point.ln() - a.point.ln();
    // The ratio is low where b is low or a is high.
    let below = Error::of_difference(of_a.error(of_a.chance.above), of_b.error(of_b.chance.below));
    let above = Error::of_difference(of_a.error(of_a.chance.below), of_b.error(of_b.chance.above));
    let reach = Ends {
        below: below.half_width() + of_b.rounding.below + of_a.rounding.above,
        above: above.half_width() + of_b.rounding.above + of_a.rounding.below,
    };
    let mut estimate = ratio(difference, reach, a.values.min(b.values));
    let rounded = |side: &Estimate| side.interval.confidence >= 1.0;
    if rounded(a) && rounded(b) {
        estimate.interval.confidence = 1.0;
    }
    let by_chance =
        |side: &Estimate| !rounded(side) && !matches!(side.method, Method::Printed | Method::Minimum);
    let facing = if difference > 0.0 { below } else { above };
    let p = (by_chance(a) && by_chance(b)).then(|| facing.p(difference));
    Ok(Ratio { estimate, p, effect: None })
}

/// Two-sided quantile of Student's t; of the normal distribution for infinite degrees of freedom.
fn quantile(freedom: f64, confidence: f64) -> f64 {
    if freedom.is_finite() {
        students_t(freedom, confidence)
    } else {
        Normal::standard().inverse_cdf(f64::midpoint(1.0, confidence))
    }
}

/// Share of the pairs in which b is higher, less the share in which it is lower (Cliff, Psychological
/// Bulletin 114, 1993).
fn cliffs_delta(values: Pair<&[f64]>) -> f64 {
    let mut sorted = values.a.to_vec();
    sorted.sort_by(f64::total_cmp);
    let pairs = real(sorted.len()) * real(values.b.len());
    let lower: usize = values.b.iter().map(|b| sorted.partition_point(|a| a < b)).sum();
    let not_higher: usize = values.b.iter().map(|b| sorted.partition_point(|a| a <= b)).sum();
    (real(lower) + real(not_higher)) / pairs - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimator::{median, trimmed_mean};

    const A: [f64; 9] = [100.0, 101.0, 99.0, 100.5, 99.5, 102.0, 98.0, 100.2, 99.8];

    fn scaled(factor: f64) -> Vec<f64> {
        A.iter().map(|value| value * factor).collect()
    }

    #[test]
    fn the_ratio_and_its_interval_equal_a_computation_by_hand() {
        // Trimmed to 99, 99.5, 99.8, 100, 100.2, 100.5, 101, the mean is 100. Winsorised, the squares sum up
        // to 1 + 1 + 0.25 + 0.04 + 0 + 0.04 + 0.25 + 1 + 1 = 4.58, so the relative standard error is
        // sqrt(4.58 / (7 * 6)) / 100 on both sides; 12 degrees of freedom make a t of 2.178813.
        let ratio = compare(Pair { a: &A, b: &scaled(1.02) }).unwrap();
        let standard_error = (2.0 * 4.58f64 / 42.0).sqrt() / 100.0;
        assert!((ratio.estimate.point - 1.02).abs() < 1e-12);
        assert!((ratio.estimate.interval.high.ln() - 1.02f64.ln() - 2.178_813 * standard_error).abs() < 1e-8);
        assert!((ratio.estimate.interval.low.ln() - 1.02f64.ln() + 2.178_813 * standard_error).abs() < 1e-8);
        // t = 0.0198026 / 0.0046701 = 4.2403: 0.00115 of Student's distribution lies beyond, on both sides.
        assert!((ratio.p.unwrap() - 0.001_15).abs() < 5e-6, "{:?}", ratio.p);
    }

    #[test]
    fn exchanged_machines_have_the_inverse_ratio_and_the_opposite_effect() {
        let b = scaled(1.01);
        let there = compare(Pair { a: &A, b: &b }).unwrap();
        let back = compare(Pair { a: &b, b: &A }).unwrap();
        assert!((there.estimate.point * back.estimate.point - 1.0).abs() < 1e-12);
        assert!((there.estimate.interval.low * back.estimate.interval.high - 1.0).abs() < 1e-12);
        assert!((there.p.unwrap() - back.p.unwrap()).abs() < 1e-12);
        assert!((there.effect.unwrap() + back.effect.unwrap()).abs() < 1e-12);
    }

    #[test]
    fn the_effect_is_the_share_of_pairs_that_are_higher_less_those_that_are_lower() {
        let effect = |b: &[f64]| cliffs_delta(Pair { a: &[1.0, 2.0, 3.0], b });
        assert_eq!((effect(&[4.0, 5.0]), effect(&[0.0]), effect(&[2.0])), (1.0, -1.0, 0.0));
        assert!((effect(&[2.0, 4.0]) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn two_files_say_what_the_values_behind_them_say() {
        let b = scaled(1.013);
        let estimate = |values: &[f64]| trimmed_mean(values, Unit::Nanoseconds).unwrap();
        let of_values = compare(Pair { a: &A[..7], b: &b }).unwrap();
        let of_files = compare_estimates(Pair { a: &estimate(&A[..7]), b: &estimate(&b) }).unwrap();
        let close = |x: f64, y: f64| (x - y).abs() < 1e-9;
        assert!(close(of_values.estimate.interval.low, of_files.estimate.interval.low));
        assert!(close(of_values.p.unwrap(), of_files.p.unwrap()) && of_files.effect.is_none());
    }

    #[test]
    fn values_that_are_all_equal_differ_for_certain_or_not_at_all() {
        let (a, b) = ([5.0; 4], [6.0; 4]);
        let p = |pair: Pair<&[f64]>| compare(pair).unwrap().p.unwrap();
        assert!(p(Pair { a: &a, b: &b }) < 1e-12);
        assert!((p(Pair { a: &a, b: &a }) - 1.0).abs() < 1e-12);
    }

    fn printed(point: f64, half: f64) -> Estimate {
        let interval = Interval { low: point - half, high: point + half, confidence: 1.0 };
        Estimate { point, interval, unit: Unit::Nanoseconds, method: Method::Printed, values: 0 }
    }

    #[test]
    fn printed_figures_have_the_ratio_that_their_rounding_leaves_and_no_significance() {
        let ratio = compare_estimates(Pair { a: &printed(10.0, 0.5), b: &printed(30.0, 0.5) }).unwrap();
        assert!((ratio.estimate.interval.low - 29.5 / 10.5).abs() < 1e-12);
        assert!((ratio.estimate.interval.high - 30.5 / 9.5).abs() < 1e-12);
        assert!((ratio.estimate.interval.confidence - 1.0).abs() < 1e-12 && ratio.p.is_none());
        // Rounding is added to chance, not mixed with it.
        let measured = trimmed_mean(&scaled(0.3), Unit::Nanoseconds).unwrap();
        let mixed = compare_estimates(Pair { a: &printed(10.0, 0.5), b: &measured }).unwrap();
        assert!((mixed.estimate.interval.high - measured.interval.high / 9.5).abs() < 1e-9);
        assert!((mixed.estimate.interval.confidence - CONFIDENCE).abs() < 1e-12 && mixed.p.is_none());
    }

    #[test]
    fn medians_are_compared_by_their_intervals() {
        let medians = |factor: f64| median(&scaled(factor), Unit::Nanoseconds).unwrap();
        let equal = compare_estimates(Pair { a: &medians(1.0), b: &medians(1.0) }).unwrap();
        let slower = compare_estimates(Pair { a: &medians(1.0), b: &medians(1.1) }).unwrap();
        assert!((equal.p.unwrap() - 1.0).abs() < 1e-12 && slower.p.unwrap() < 1e-6);
        assert!(equal.estimate.interval.low < 1.0 && slower.estimate.interval.low > 1.05);
    }

    #[test]
    fn what_has_no_ratio_is_refused_with_its_reason() {
        let of = |a: Estimate, b: Estimate| compare_estimates(Pair { a: &a, b: &b }).unwrap_err().to_string();
        let per_byte = Estimate { unit: Unit::NanosecondsPerByte, ..printed(1.0, 0.5) };
        assert_eq!(of(printed(1.0, 0.5), per_byte), "ns cannot be compared with ns/B");
        assert_eq!(of(printed(1.0, 1.5), printed(1.0, 0.5)), "an interval that begins at -0.5 has no ratio");
        assert_eq!(of(printed(1.0, 0.5), printed(0.0, 0.0)), "a cost of 0 has no ratio");
        let few = compare(Pair { a: &[1.0], b: &A }).unwrap_err().to_string();
        assert_eq!(few, "one side has no estimate: 1 value(s) give no interval; at least 2 are needed");
    }
}
