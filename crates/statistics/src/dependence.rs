//! What of the machine's condition a cost depends on.

use std::cmp::Ordering;

use assay_quantity::{Evidence, Mode};
use statrs::distribution::{ContinuousCDF, Normal};

use crate::aspect::{self, value};
use crate::estimator::real;

/// Probability of naming some aspect that has nothing to do with the modes: one in twenty, as usual. A
/// stricter level would find none in the dozen processes that a quick run has of a primitive.
const LEVEL: f64 = 0.05;

/// Share of the pairs of processes from different modes that an aspect must put in the order of the modes. A
/// smaller share would not predict the mode of the next process.
const ORDERED_MIN: f64 = 0.9;

/// The aspect of the machine's condition that decides the mode of a process, or goes with what decides it:
/// the clearest one that rises or falls from mode to mode. `None` if no observed aspect does. `evidence` is
/// that of the processes that gave the values.
///
/// Kendall's rank correlation of each aspect with the modes, with his variance for ties in both (Rank
/// Correlation Methods, 1970, chapter 4), and Bonferroni's correction for the number of aspects.
#[must_use]
pub fn dependence(modes: &[Mode], values: &[f64], evidence: &[&Evidence]) -> Option<String> {
    let mut sorted: Vec<(f64, &Evidence)> = values.iter().copied().zip(evidence.iter().copied()).collect();
    sorted.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut sorted = sorted.into_iter().map(|(_, evidence)| evidence);
    let groups = modes.iter().map(|mode| sorted.by_ref().take(mode.estimate.values).collect());
    clearest(&groups.collect::<Vec<_>>())
}

/// The aspect that puts the processes of these groups most clearly in the order of the groups.
fn clearest(groups: &[Vec<&Evidence>]) -> Option<String> {
    let kinds = aspect::kinds(&groups.concat());
    let trends = kinds.iter().filter_map(|kind| {
        let values = groups.iter().map(|group| group.iter().filter_map(|seen| value(seen, kind)).collect());
        Some((kind, Trend::of(&values.collect::<Vec<_>>())?))
    });
    let level = LEVEL / real(kinds.len());
    let clear = trends.filter(|(_, trend)| trend.ordered >= ORDERED_MIN && trend.p < level);
    // Of equally clear ones the first of the table.
    let clearest = clear.reduce(|best, other| if other.1.ordered > best.1.ordered { other } else { best });
    Some(aspect::name_of(clearest?.0).to_owned())
}

/// Whether values rise or fall from group to group.
struct Trend {
    /// Share of the pairs of values from different groups that are in the order of the majority; equal ones
    /// count half.
    ordered: f64,
    /// Probability of a trend as clear as this by chance, in either direction.
    p: f64,
}

impl Trend {
    /// `None` without values in two groups, or if all values are equal.
    fn of(groups: &[Vec<f64>]) -> Option<Self> {
        let order = |lower: &f64, upper: &f64| match upper.total_cmp(lower) {
            Ordering::Greater => 1.0,
            Ordering::Equal => 0.0,
            Ordering::Less => -1.0,
        };
        let (mut score, mut pairs) = (0.0_f64, 0.0);
        for (position, group) in groups.iter().enumerate() {
            for upper in groups[position + 1..].iter().flatten() {
                score += group.iter().map(|lower| order(lower, upper)).sum::<f64>();
                pairs += real(group.len());
            }
        }
        let mut all: Vec<f64> = groups.concat();
        all.sort_by(f64::total_cmp);
        let equal: Vec<f64> =
            all.chunk_by(|a, b| a.total_cmp(b).is_eq()).map(|run| real(run.len())).collect();
        let sizes: Vec<f64> = groups.iter().map(|group| real(group.len())).collect();
        let variance = variance(real(all.len()), &equal, &sizes);
        let p = 2.0 * Normal::standard().sf(score.abs() / variance.sqrt());
        (variance > 0.0).then(|| Self { ordered: f64::midpoint(1.0, score.abs() / pairs), p })
    }
}

/// Variance of Kendall's score of `n` pairs, given the sizes of the groups of equal values in either
/// coordinate.
fn variance(n: f64, ties: &[f64], others: &[f64]) -> f64 {
    let all = |ties: &[f64], term: fn(f64) -> f64| ties.iter().copied().map(term).sum::<f64>();
    let of_ties: fn(f64) -> f64 = |t| t * (t - 1.0) * (2.0 * t + 5.0);
    let in_pairs: fn(f64) -> f64 = |t| t * (t - 1.0);
    let in_threes: fn(f64) -> f64 = |t| t * (t - 1.0) * (t - 2.0);
    (of_ties(n) - all(ties, of_ties) - all(others, of_ties)) / 18.0
        + all(ties, in_pairs) * all(others, in_pairs) / (2.0 * in_pairs(n))
        + all(ties, in_threes) * all(others, in_threes) / (9.0 * in_threes(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_quantity::evidence::{CORE_WIDTH, CYCLE_NS, NOT_RUN};

    #[test]
    fn the_variance_of_two_groups_is_mann_and_whitneys() {
        // Mann and Whitney's variance for two groups: m n (N + 1 - sum(t^3 - t) / (N (N - 1))) / 12, times 4.
        let variance_of_two = |m: f64, n: f64, ties: f64| {
            m * n * (m + n + 1.0 - (ties.powi(3) - ties) / ((m + n) * (m + n - 1.0))) / 3.0
        };
        let without = variance(9.0, &[1.0; 9], &[4.0, 5.0]);
        assert!((without - variance_of_two(4.0, 5.0, 1.0)).abs() < 1e-9, "{without}");
        let with = variance(11.0, &[6.0, 1.0, 1.0, 1.0, 1.0, 1.0], &[6.0, 5.0]);
        assert!((with - variance_of_two(6.0, 5.0, 6.0)).abs() < 1e-9, "{with}");
    }

    #[test]
    fn equal_values_count_half_and_a_falling_trend_is_one() {
        let falling = Trend::of(&[vec![4.0, 4.0, 4.0], vec![3.0, 4.0]]).unwrap();
        assert!((falling.ordered - 0.75).abs() < 1e-9, "{}", falling.ordered);
        assert!(Trend::of(&[vec![4.0, 4.0], vec![4.0]]).is_none());
        assert!(Trend::of(&[vec![4.0, 5.0], vec![]]).is_none());
        assert!(Trend::of(&[]).is_none());
    }

    #[test]
    fn the_clearest_aspect_is_named_and_an_unclear_one_is_not() {
        let all = |kind: &'static str, readings: [f64; 6], clocks: [f64; 6]| -> Vec<Evidence> {
            let seen =
                |(reading, clock)| Evidence::from_iter([(kind, vec![reading]), (CYCLE_NS, vec![clock])]);
            readings.into_iter().zip(clocks).map(seen).collect()
        };
        let of = |groups: &[Vec<Evidence>]| {
            clearest(&groups.iter().map(|group| group.iter().collect()).collect::<Vec<Vec<&Evidence>>>())
        };
        let (wide, narrow) = ([4.0, 4.0, 4.1, 3.9, 4.0, 4.0], [2.9, 3.0, 2.1, 2.8, 3.4, 3.3]);
        let (fast, slow) = ([0.25, 0.25, 0.25, 0.25, 0.25, 0.5], [0.5, 0.5, 0.5, 0.5, 0.5, 0.25]);
        let group = |widths, clocks| all(CORE_WIDTH, widths, clocks);
        assert_eq!(of(&[group(wide, fast), group(narrow, slow)]).unwrap(), "core sharing");
        assert_eq!(of(&[group(narrow, fast), group(wide, fast)]).unwrap(), "core sharing");
        assert_eq!(of(&[group(wide, fast), group(wide, slow)]), None);
        assert_eq!(of(&[]), None);
        let other = |kind| of(&[all(kind, wide, fast), all(kind, narrow, fast)]);
        assert_eq!(other("weather").unwrap(), "weather", "a kind without a row");
        assert_eq!(other(NOT_RUN), None, "a disturbance is not a condition");
    }
}
