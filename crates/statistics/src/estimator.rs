//! Estimators: from the values of independent processes to a point with an interval.
//!
//! The trimmed mean of hbench-OS (thesis, section 2.2.2) with Yuen's interval (Biometrika 61, 1974), and the
//! median with its distribution-free interval.

use assay_quantity::{Estimate, Interval, Method, Unit};
use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, StudentsT};

/// Share of the values trimmed from each end: 20 %, as in hbench-OS (its manual) and as the literature on
/// robust tests recommends for Yuen's interval. 10 % is too little for a machine on which one process in six
/// is disturbed.
pub const TRIM: f64 = 0.2;

/// Confidence of intervals.
pub const CONFIDENCE: f64 = 0.95;

/// Why values have no estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoEstimate {
    /// An interval needs at least two values.
    #[error("{0} value(s) give no interval; at least 2 are needed")]
    TooFew(usize),
    /// A value is infinite or not a number.
    #[error("a value is not a finite number")]
    NotFinite,
}

/// The trimmed mean with Yuen's interval: the standard error is that of the Winsorised variance, Student's t
/// that of the remaining values.
///
/// # Errors
/// [`NoEstimate`] for fewer than two values or one that is not finite.
pub fn trimmed_mean(values: &[f64], unit: Unit) -> Result<Estimate, NoEstimate> {
    let trimmed = Trimmed::of(values)?;
    let (point, half) = (trimmed.point, students_t(trimmed.freedom, CONFIDENCE) * trimmed.standard_error);
    let interval = Interval { low: point - half, high: point + half, confidence: CONFIDENCE };
    Ok(Estimate { point, interval, unit, method: Method::TrimmedMean, values: values.len() })
}

/// A trimmed mean, and the parts of its interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trimmed {
    /// Mean of the remaining values.
    pub point: f64,
    /// From the Winsorised variance (Yuen).
    pub standard_error: f64,
    /// Degrees of freedom of Student's t.
    pub freedom: f64,
}

impl Trimmed {
    pub fn of(values: &[f64]) -> Result<Self, NoEstimate> {
        let sorted = sorted(values)?;
        let n = sorted.len();
        let cut = trim_count(n);
        let kept = &sorted[cut..n - cut];
        let winsorised: Vec<f64> = sorted.iter().map(|v| v.clamp(kept[0], kept[kept.len() - 1])).collect();
        let centre = mean(&winsorised);
        let squares: f64 = winsorised.iter().map(|v| (v - centre).powi(2)).sum();
        let (left, freedom) = (real(kept.len()), Self::freedom(n));
        Ok(Self { point: mean(kept), standard_error: (squares / (left * freedom)).sqrt(), freedom })
    }

    /// The standard error behind the interval of a trimmed mean.
    pub fn standard_error(estimate: &Estimate) -> f64 {
        let quantile = students_t(Self::freedom(estimate.values), estimate.interval.confidence);
        estimate.interval.half_width() / quantile
    }

    /// Degrees of freedom of a trimmed mean of this number of values: one less than remain.
    pub fn freedom(values: usize) -> f64 {
        real(values - 2 * trim_count(values)) - 1.0
    }
}

/// The median with the interval of two order statistics. Below six values no pair of them reaches
/// [`CONFIDENCE`]: the interval is then the whole range, with the confidence of that range.
///
/// # Errors
/// [`NoEstimate`] for fewer than two values or one that is not finite.
pub fn median(values: &[f64], unit: Unit) -> Result<Estimate, NoEstimate> {
    let sorted = sorted(values)?;
    let n = sorted.len();
    let coverage = |k: usize| 1.0 - 2.0 * below_half(n, k);
    // The narrowest pair that reaches the confidence; pair k leaves k values outside on each side.
    let outside = (0..n / 2).take_while(|k| coverage(*k) >= CONFIDENCE).last().unwrap_or(0);
    let interval =
        Interval { low: sorted[outside], high: sorted[n - 1 - outside], confidence: coverage(outside) };
    Ok(Estimate { point: middle(&sorted), interval, unit, method: Method::Median, values: n })
}

/// Median of values that are not empty, in any order.
pub(crate) fn middle_of(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    middle(&values)
}

/// Median of values that are sorted and not empty.
pub(crate) fn middle(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    if n.is_multiple_of(2) { f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]) } else { sorted[n / 2] }
}

fn sorted(values: &[f64]) -> Result<Vec<f64>, NoEstimate> {
    if values.len() < 2 {
        return Err(NoEstimate::TooFew(values.len()));
    }
    if values.iter().any(|value| !value.is_finite()) {
        return Err(NoEstimate::NotFinite);
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Ok(sorted)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / real(values.len())
}

#[expect(clippy::cast_precision_loss, reason = "numbers of processes are far below 2^52")]
pub(crate) fn real(count: usize) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a length is a length"
)]
pub(crate) fn trim_count(n: usize) -> usize {
    (TRIM * real(n)).floor() as usize
}

/// Two-sided quantile of Student's t.
pub(crate) fn students_t(freedom: f64, confidence: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(f64::midpoint(1.0, confidence)))
}

/// Probability that at most `k` of `n` values lie below the true median.
fn below_half(n: usize, k: usize) -> f64 {
    Binomial::new(0.5, n as u64).map_or(0.5, |binomial| binomial.cdf(k as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    #[test]
    fn the_trimmed_mean_and_its_interval_equal_a_computation_by_hand() {
        // Ten values, two trimmed at each end: mean of 3..=8 is 5.5. Winsorised to 3,3,3,4,5,6,7,8,8,8
        // the sum of squares is 42.5, so the standard error is sqrt(42.5 / 30) and t(5) is 2.570582.
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1000.0];
        let estimate = trimmed_mean(&values, Unit::Nanoseconds).unwrap();
        assert!((estimate.point - 5.5).abs() < 1e-12);
        assert!((estimate.interval.half_width() - 2.570_582 * (42.5f64 / 30.0).sqrt()).abs() < 1e-5);
    }

    #[test]
    fn the_median_of_six_values_spans_all_of_them_at_97_per_cent() {
        let estimate = median(&[6.0, 1.0, 2.0, 5.0, 3.0, 4.0], Unit::Nanoseconds).unwrap();
        assert!((estimate.point - 3.5).abs() < 1e-12);
        assert!((estimate.interval.low - 1.0).abs() < 1e-12 && (estimate.interval.high - 6.0).abs() < 1e-12);
        assert!((estimate.interval.confidence - (1.0 - 2.0 / 64.0)).abs() < 1e-12);
    }

    #[test]
    fn the_interval_of_a_median_of_three_values_has_a_confidence_of_75_per_cent() {
        let estimate = median(&[1.0, 2.0, 3.0], Unit::Nanoseconds).unwrap();
        assert!((estimate.interval.confidence - 0.75).abs() < 1e-12);
    }

    #[test]
    fn too_few_or_infinite_values_are_no_estimate() {
        assert_eq!(trimmed_mean(&[1.0], Unit::Nanoseconds), Err(NoEstimate::TooFew(1)));
        assert_eq!(median(&[], Unit::Nanoseconds), Err(NoEstimate::TooFew(0)));
        assert_eq!(trimmed_mean(&[1.0, f64::NAN], Unit::Nanoseconds), Err(NoEstimate::NotFinite));
    }

    /// Share of trials in which the interval covers the truth, on values that are nearly normal.
    fn coverage(interval_of: impl Fn(&[f64]) -> Interval, truth: f64) -> f64 {
        let mut rng = Pcg64::seed_from_u64(7);
        let trials = 2000u32;
        let mut covered = 0u32;
        for _ in 0..trials {
            let values: Vec<f64> =
                (0..12).map(|_| (0..12).map(|_| rng.random::<f64>()).sum::<f64>()).collect();
            let interval = interval_of(&values);
            covered += u32::from(interval.low <= truth && truth <= interval.high);
        }
        f64::from(covered) / f64::from(trials)
    }

    #[test]
    fn intervals_of_twelve_processes_cover_the_truth_about_as_often_as_they_say() {
        let yuen = coverage(|values| trimmed_mean(values, Unit::Nanoseconds).unwrap().interval, 6.0);
        assert!((0.93..=0.97).contains(&yuen), "Yuen covered {yuen}");
        let order = coverage(|values| median(values, Unit::Nanoseconds).unwrap().interval, 6.0);
        assert!((0.95..=0.98).contains(&order), "order statistics covered {order}");
    }

    proptest! {
        #[test]
        fn points_lie_in_their_intervals_and_within_the_values(values in prop::collection::vec(1.0..1e9f64, 2..40)) {
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(0.0, f64::max);
            for estimate in [trimmed_mean(&values, Unit::Nanoseconds), median(&values, Unit::Nanoseconds)] {
                let estimate = estimate.unwrap();
                prop_assert!(estimate.interval.low <= estimate.point && estimate.point <= estimate.interval.high);
                prop_assert!(low <= estimate.point * (1.0 + 1e-12) && estimate.point <= high * (1.0 + 1e-12));
            }
        }
    }
}
