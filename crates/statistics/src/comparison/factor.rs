//! What all quantities of a run have in common.
//!
//! If the neighbours of a virtual machine are busy, or its clock is slower, all calls of a program take
//! longer by about the same factor. Divided by it, the quantities of different runs differ less, and smaller
//! changes of a single one become visible.

use crate::estimator::middle_of;

/// Returns the factor of each run that is common to its quantities; `quantities` contains the values of each
/// quantity, one per run. Returns `None` if no quantity has a positive value in every run.
///
/// The factor is the median over the quantities of the distance of each to its own median over the runs, on a
/// logarithmic scale: the first step of a median polish (Tukey, Exploratory Data Analysis, 1977). Quantities
/// that changed for another reason, all in one direction, move it: by a part of the noise while they are
/// fewer than half, and by a part of their change otherwise. Leave out those that are known.
#[must_use]
pub fn common_factors(quantities: &[Vec<f64>]) -> Option<Vec<f64>> {
    let runs = quantities.iter().map(Vec::len).max().filter(|runs| *runs > 0)?;
    let logs = |values: &Vec<f64>| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
    let is_usable = |logs: &Vec<f64>| logs.len() == runs && logs.iter().all(|log| log.is_finite());
    let usable: Vec<Vec<f64>> = quantities.iter().map(logs).filter(is_usable).collect();
    if usable.is_empty() {
        return None;
    }
    let middles: Vec<f64> = usable.iter().map(|logs| middle_of(logs.clone())).collect();
    let factor = |run: usize| {
        let distances: Vec<f64> =
            usable.iter().zip(&middles).map(|(logs, middle)| logs[run] - middle).collect();
        middle_of(distances).exp()
    };
    Some((0..runs).map(factor).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantities(factors: &[f64]) -> Vec<Vec<f64>> {
        let costs = [10.0, 200.0, 3_000.0, 4.0, 50.0];
        costs.iter().map(|cost| factors.iter().map(|factor| cost * factor).collect()).collect()
    }

    fn assert_close(factors: Option<Vec<f64>>, expected: &[f64]) {
        let factors = factors.unwrap();
        assert_eq!(factors.len(), expected.len());
        for (factor, expected) in factors.iter().zip(expected) {
            assert!((factor - expected).abs() < 1e-12, "{factors:?}");
        }
    }

    #[test]
    fn the_factor_of_each_run_is_found_even_if_some_quantities_changed() {
        let mut all = quantities(&[0.8, 1.0, 1.1]);
        assert_close(common_factors(&all), &[0.8, 1.0, 1.1]);
        all[1][2] *= 7.0;
        all[3][0] /= 3.0;
        assert_close(common_factors(&all), &[0.8, 1.0, 1.1]);
    }

    #[test]
    fn a_quantity_that_has_no_logarithm_does_not_count() {
        let mut all = quantities(&[0.8, 1.0, 1.1]);
        all.push(vec![0.0, 1.0, 2.0]);
        assert_close(common_factors(&all), &[0.8, 1.0, 1.1]);
        assert_eq!(common_factors(&all[5..]), None);
    }

    #[test]
    fn nothing_has_no_common_factor() {
        assert_eq!(common_factors(&[]), None);
        assert_eq!(common_factors(&[vec![], vec![]]), None);
    }
}
