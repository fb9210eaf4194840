//! The cost that a later run would measure. The interval of one run covers the variation within that run, but
//! not that the machine changes from one quarter of an hour to the next.

use assay_quantity::{Estimate, Interval, Method};

use crate::estimator::{CONFIDENCE, Trimmed, real, students_t};

/// Minimum number of earlier runs from which the variation between runs is estimated.
pub const RUNS_MIN: usize = 5;

/// Predicts the typical cost of a later run from those of this run and of earlier ones: their geometric mean
/// with a prediction interval. `None` for fewer than [`RUNS_MIN`] earlier runs, or if the interval of a cost
/// reaches zero, which has no logarithm.
///
/// The logarithms of the costs are assumed to be independent and normally distributed. The next one then lies
/// within Student's t times s √(1 + 1/k) of their mean, where k is the number of runs and s the standard
/// deviation between them (Hahn and Meeker, *Statistical Intervals*, section 4.7). s includes the average
/// uncertainty of a run about its own cost. If this run is less certain than that, the later run is assumed
/// to be as uncertain as this one.
#[must_use]
pub fn again(earlier: &[Estimate], this: &Estimate) -> Option<Estimate> {
    let runs: Vec<&Estimate> = earlier.iter().chain([this]).collect();
    if earlier.len() < RUNS_MIN || runs.iter().any(|run| run.interval.low <= 0.0) {
        return None;
    }
    let (count, freedom) = (real(runs.len()), real(runs.len() - 1));
    let mean = |of: &dyn Fn(&Estimate) -> f64| runs.iter().map(|run| of(run)).sum::<f64>() / count;
    let centre = mean(&|run| run.point.ln());
    let between = mean(&|run| (run.point.ln() - centre).powi(2)) * count / freedom;
    let within = |run: &Estimate| (Trimmed::standard_error(run) / run.point).powi(2);
    let less_known = (within(this) - mean(&within)).max(0.0);
    let half = students_t(freedom, CONFIDENCE) * ((between + less_known) * (1.0 + 1.0 / count)).sqrt();
    let interval =
        Interval { low: (centre - half).exp(), high: (centre + half).exp(), confidence: CONFIDENCE };
    let (point, unit, values) = (centre.exp(), this.unit, runs.len());
    let method = Method::MeanOfRuns;
    interval.high.is_finite().then_some(Estimate { point, interval, unit, method, values })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimator::trimmed_mean;
    use assay_quantity::Unit;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    /// A run of ten processes whose costs have this relative standard deviation.
    fn run(cost: f64, deviation: f64) -> Estimate {
        let values =
            [-1.5, -1.0, -0.7, -0.4, -0.1, 0.1, 0.4, 0.7, 1.0, 1.5].map(|z| cost * (1.0 + deviation * z));
        trimmed_mean(&values, Unit::Nanoseconds).unwrap()
    }

    #[test]
    fn four_earlier_runs_are_too_few_and_a_cost_that_may_be_zero_has_no_logarithm() {
        let mut runs = vec![run(100.0, 0.01); 5];
        assert!(again(&runs, &run(100.0, 0.01)).is_some());
        assert_eq!(again(&runs[..4], &run(100.0, 0.01)), None);
        runs[2] = run(100.0, 2.0);
        assert!(runs[2].interval.low < 0.0);
        assert_eq!(again(&runs, &run(100.0, 0.01)), None);
        assert_eq!(again(&[run(100.0, 0.01); 5], &runs[2]), None);
    }

    #[test]
    fn the_interval_of_equally_certain_runs_equals_a_computation_by_hand() {
        // Logarithms in steps of 0.01 around that of 100: the squared distances add up to 0.00175; t(5) is
        // 2.570582.
        let runs = [-0.025, -0.015, -0.005, 0.005, 0.015, 0.025_f64].map(|log| run(100.0 * log.exp(), 0.0));
        let estimate = again(&runs[..5], &runs[5]).unwrap();
        let half = 2.570_582 * (0.00175_f64 / 5.0 * 7.0 / 6.0).sqrt();
        assert!((estimate.point - 100.0).abs() < 1e-9 && estimate.values == 6, "{estimate:?}");
        assert!((estimate.interval.low - 100.0 * (-half).exp()).abs() < 1e-4, "{estimate:?}");
        assert!((estimate.interval.high - 100.0 * half.exp()).abs() < 1e-4, "{estimate:?}");
    }

    #[test]
    fn a_less_certain_run_expects_a_later_one_to_be_as_uncertain() {
        let earlier = [100.0, 101.0, 102.0, 103.0, 104.0].map(|cost| run(cost, 0.01));
        let width = |this: Estimate| again(&earlier, &this).unwrap().relative_half_width();
        let (alike, less) = (run(102.0, 0.01), run(102.0, 0.2));
        assert!(width(less) > less.relative_half_width(), "{}, {less:?}", width(less));
        assert!(less.relative_half_width() > 2.0 * width(alike), "{}, {less:?}", width(alike));
        assert!((width(run(102.0, 0.001)) - width(alike)).abs() < 1e-9);
    }

    #[test]
    fn intervals_cover_the_next_run_about_as_often_as_they_say() {
        let mut rng = Pcg64::seed_from_u64(11);
        let mut next = || {
            let normal = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
            run(100.0 * (0.03 * normal).exp(), 0.01)
        };
        let trials = 2000;
        let mut covered = 0;
        for _ in 0..trials {
            let earlier = [(); 5].map(|()| next());
            let interval = again(&earlier, &next()).unwrap().interval;
            covered += u32::from((interval.low..=interval.high).contains(&next().point));
        }
        let share = f64::from(covered) / f64::from(trials);
        assert!((0.935..=0.965).contains(&share), "{share}");
    }
}
