//! The calm cost: what an operation costs while no other hardware thread of the core is busy.
//!
//! On a shared machine the typical cost of a primitive varies with the load of the neighbours, so that two
//! runs of the same software differ. The calm cost does not, and reveals smaller changes. The two answer
//! different questions: applications run at the typical cost.

use assay_quantity::{Estimate, Unit};

use crate::conditions::is_shared;
use crate::disturbance::Sifted;
use crate::estimator::median;

/// Minimum number of processes of a calm cost. With three, a comparison of 40 equal primitives would report a
/// difference in 8 % of cases (27 % if one process in five takes a third longer), with four in 5 % (7 %).
pub const PROCESSES_MIN: usize = 4;

/// The median of the processes that had their core to themselves, with its distribution-free interval.
/// `alone` is the width of such a core ([`crate::conditions::width_alone`]). `None` if fewer than
/// [`PROCESSES_MIN`] processes are known to have had it, if the values include disturbed batches, or if the
/// cost is not above zero.
///
/// Chosen by measurement: 25 runs of twelve primitives, 90 processes each, on a virtual machine where another
/// hardware thread was busy during 52 to 90 % of the samples. The costs of one of two runs were raised by 2
/// %, and the threshold of each estimate was set so that it reports a difference in 5 % of the pairs of
/// unchanged runs. The table shows how often each found the change, and the standard deviation between
/// unchanged runs (mean and median of the primitives):
///
/// | estimate | 12 processes | 40 processes | 90 processes |
/// |---|---|---|---|
/// | trimmed mean of all | 11 %, 8.8 % | 12 %, 6.6 % | 14 %, 4.9 % |
/// | lower quartile of all | 12 %, 11.6 % | 14 %, 9.3 % | 16 %, 7.7 % |
/// | minimum of all | 13 %, 6.5 % | 21 %, 2.9 % | 11 %, 2.5 % |
/// | trimmed mean of the calm ones | 1 %, 3.5 % | 18 %, 2.3 % | 45 %, 0.9 % |
/// | median of the calm ones | 1 %, 3.5 % | 36 %, 2.0 % | 55 %, 0.7 % |
///
/// With 12 processes, both runs had four calm ones in about a fifth of the pairs; the others count as not
/// found. Samples during which other tasks were runnable are included: without them the trimmed mean found
/// the change in 28 instead of 49 % with 90 processes, because some benchmarks create such tasks themselves.
#[must_use]
pub fn calm(sifted: &Sifted<'_>, alone: Option<f64>, unit: Unit) -> Option<Estimate> {
    let alone = alone.filter(|_| !sifted.is_disturbed)?;
    let all = sifted.kept.iter().zip(&sifted.evidence);
    let calm = all.filter(|(_, seen)| is_shared(seen, alone) == Some(false));
    let values: Vec<f64> = calm.map(|(value, _)| *value).collect();
    let estimate = median(&values, unit).ok()?;
    (values.len() >= PROCESSES_MIN && estimate.point > 0.0).then_some(estimate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_quantity::Evidence;
    use assay_quantity::evidence::CORE_WIDTH;

    /// Calls `calm` with these values of processes with a core of this width. The values include disturbed
    /// batches if `is_disturbed`.
    fn calm(values: &[(f64, Option<f64>)], is_disturbed: bool, alone: Option<f64>) -> Option<Estimate> {
        let evidence =
            |width: &Option<f64>| Evidence::from_iter([(CORE_WIDTH, width.iter().copied().collect())]);
        let evidence: Vec<Evidence> = values.iter().map(|(_, width)| evidence(width)).collect();
        let sifted = Sifted {
            kept: values.iter().map(|(value, _)| *value).collect(),
            evidence: evidence.iter().collect(),
            is_disturbed,
            ..Sifted::default()
        };
        super::calm(&sifted, alone, Unit::Nanoseconds)
    }

    #[test]
    fn the_calm_cost_is_the_median_of_the_processes_that_had_their_core_to_themselves() {
        let (alone, shared) = (Some(4.0), Some(2.4));
        let all = [
            (150.0, shared),
            (100.0, alone),
            (90.0, None),
            (102.0, alone),
            (160.0, shared),
            (140.0, alone),
            (101.0, alone),
        ];
        let estimate = calm(&all, false, Some(4.0)).unwrap();
        assert!((estimate.point - 101.5).abs() < 1e-12, "{estimate:?}");
        assert_eq!(estimate.values, 4);
    }

    #[test]
    fn without_four_calm_processes_or_without_undisturbed_batches_or_above_zero_there_is_no_calm_cost() {
        let alone = Some(4.0);
        let enough = [(100.0, alone), (101.0, alone), (102.0, alone), (99.0, alone)];
        assert!(calm(&enough, false, alone).is_some());
        assert_eq!(calm(&enough, false, None), None);
        assert_eq!(calm(&enough, true, alone), None);
        let three = [(100.0, alone), (101.0, alone), (103.0, alone), (102.0, Some(3.0)), (99.0, None)];
        assert_eq!(calm(&three, false, alone), None);
        let negative = [(-1.0, alone), (-2.0, alone), (-3.0, alone), (9.0, alone)];
        assert_eq!(calm(&negative, false, alone), None);
        assert_eq!(calm(&[], false, alone), None);
    }
}
