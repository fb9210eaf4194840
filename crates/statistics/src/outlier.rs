//! Counts outliers.
//!
//! Reports show the number next to the estimate. An outlier is a value that the machine produced, so none is
//! dropped. (Batches are left out of an estimate for evidence of disturbance, regardless of their value:
//! [`crate::sift`].)

use crate::estimator::real;

/// Distance of a fence from the nearer quartile, in interquartile ranges (Tukey, Exploratory Data Analysis,
/// 1977). Of normal noise, 0.7 % of very many values lie outside, and 3 % of twelve, whose quartiles are less
/// certain.
const FENCE: f64 = 1.5;

/// Minimum number of values.
const VALUES_MIN: usize = 4;

/// Counts the values outside Tukey's fences: more than 1.5 interquartile ranges below the first quartile or
/// above the third. The quartiles are interpolated between the two nearest values (at the ranks 1 + (n - 1)/4
/// and 1 + 3 (n - 1)/4). Fewer than four values have no outliers.
#[must_use]
pub fn outliers(values: &[f64]) -> usize {
    if values.len() < VALUES_MIN {
        return 0;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (first, third) = (quartile(&sorted, 1), quartile(&sorted, 3));
    let reach = FENCE * (third - first);
    values.iter().filter(|value| **value < first - reach || **value > third + reach).count()
}

/// The first, second or third quartile of sorted values.
fn quartile(sorted: &[f64], number: usize) -> f64 {
    let steps = number * (sorted.len() - 1);
    let (below, rest) = (sorted[steps / 4], steps % 4);
    let above = sorted[(steps / 4 + 1).min(sorted.len() - 1)];
    below + (above - below) * real(rest) / 4.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    #[test]
    fn values_beyond_the_fences_are_counted_on_both_sides_and_those_at_them_are_not() {
        // Quartiles 2 and 4: the fences are at -1 and 7.
        let inner = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(outliers(&inner), 0);
        let eight = [-1.1, 7.1, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0];
        assert_eq!((quartile(&[0.0, 1.0, 2.0, 3.0], 1), outliers(&eight)), (0.75, 2));
        let at_the_fences = [-1.0, 7.0, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0];
        assert_eq!(outliers(&at_the_fences), 0);
    }

    #[test]
    fn three_values_have_no_outliers_and_one_that_differs_from_many_equal_ones_is_one() {
        assert_eq!(outliers(&[1.0, 1.0, 900.0]), 0);
        assert_eq!(outliers(&[1.0, 1.0, 1.0, 1.0, 900.0]), 1);
    }

    #[test]
    fn three_per_cent_of_twelve_normal_values_are_outliers() {
        let mut rng = Pcg64::seed_from_u64(5);
        let trials = 3000;
        let mut normal = || (0..12).map(|_| rng.random::<f64>()).sum::<f64>();
        let all: usize = (0..trials).map(|_| outliers(&(0..12).map(|_| normal()).collect::<Vec<_>>())).sum();
        let share = real(all) / real(12 * trials);
        assert!((0.025..0.035).contains(&share), "{share}");
    }
}
