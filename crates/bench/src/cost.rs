//! From raw samples to the machine vector (thesis, section 4.1).
//!
//! `quantity` computes; this module knows how many bytes an operation of each benchmark moves and hands
//! over the right values. The history calls it again for old samples whenever it is asked.

use std::collections::BTreeMap;

use assay_quantity::{
    Cost, Description, Machine, PrimitiveId, Sample, Statistic, Unmeasured, Verdict, estimate,
};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::plan::Finding;
use crate::table;

/// Samples that give no cost.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NoMachineCost {
    /// An id that the catalogue has not.
    #[error("no benchmark is called {0}; see 'assay bench --list'")]
    Unknown(PrimitiveId),
    /// Too few samples with a cost.
    #[error("{given} of {samples} samples gave a cost{}: {reason}", last.as_ref().map_or(String::new(), |l| format!(", the last without one because {l}")))]
    NoEstimate {
        /// Samples with a cost.
        given: usize,
        /// All samples.
        samples: usize,
        /// Why the last one without a cost had none.
        last: Option<String>,
        /// What the estimator lacks.
        reason: estimate::NoEstimate,
    },
}

/// The cost of a primitive from its samples: the statistic over processes, in the unit of the
/// catalogue. `rejected` is the number of processes that gave no sample at all.
///
/// # Errors
/// [`NoMachineCost`] when fewer than two samples determine a cost.
pub fn cost_of(
    primitive: &PrimitiveId,
    samples: &[Sample],
    rejected: usize,
    statistic: Statistic,
) -> Result<Cost, NoMachineCost> {
    let benchmark = table::find(primitive).ok_or_else(|| NoMachineCost::Unknown(primitive.clone()))?;
    let mut values = Vec::with_capacity(samples.len());
    let mut origins = Vec::with_capacity(samples.len());
    let mut last = None;
    for sample in samples {
        match sample.cost_ns() {
            Ok(cost_ns) => {
                values.push(cost_ns / per(benchmark.bytes));
                origins.push(sample);
            }
            Err(reason) => last = Some(reason.to_string()),
        }
    }
    let (given, unit) = (values.len(), benchmark.unit);
    // The bootstrap of the minimum is the same whenever the same samples are asked.
    let mut rng = Pcg64Mcg::seed_from_u64(samples.first().map_or(0, |sample| sample.seed));
    let estimate = statistic.of(&values, unit, &mut rng).map_err(|reason| NoMachineCost::NoEstimate {
        given,
        samples: samples.len(),
        last,
        reason,
    })?;
    // Disturbance that fell on the shorter batches, or on the baseline that is subtracted, makes a cost too
    // low: such a value is no floor of the machine.
    let undisturbed = |sample: &Sample| {
        !matches!(Verdict::judge(&estimate, std::slice::from_ref(sample)), Verdict::Contaminated(_))
    };
    let floor = values.iter().zip(origins).filter(|(_, sample)| undisturbed(sample)).map(|(value, _)| *value);
    Ok(Cost {
        estimate,
        minimum: floor.reduce(f64::min),
        rejected: rejected + samples.len() - given,
        verdict: Some(Verdict::judge(&estimate, samples)),
    })
}

#[expect(clippy::cast_precision_loss, reason = "an operation moves far fewer than 2^52 bytes")]
fn per(bytes: Option<u64>) -> f64 {
    bytes.map_or(1.0, |bytes| bytes as f64)
}

/// The machine vector of a run.
#[must_use]
pub fn machine(
    name: String,
    source: String,
    description: Description,
    findings: &[Finding],
    statistic: Statistic,
) -> Machine {
    let mut costs = BTreeMap::new();
    let mut unmeasured = Vec::new();
    for finding in findings {
        match finding {
            Finding::Unmeasured(missing) => unmeasured.push(missing.clone()),
            Finding::Measured(measured) => {
                let primitive = measured.primitive.clone();
                match cost_of(&primitive, &measured.samples, measured.rejected.len(), statistic) {
                    Ok(cost) => {
                        costs.insert(primitive, cost);
                    }
                    Err(reason) => unmeasured.push(Unmeasured { primitive, reason: reason.to_string() }),
                }
            }
        }
    }
    Machine { name, source, description, costs, unmeasured }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Measured;
    use assay_quantity::{Contamination, Observation, Unit};

    fn sample(cost_ns: f64) -> Sample {
        let observations = vec![
            Observation { operations: 10, elapsed_ns: 5.0 + 10.0 * cost_ns },
            Observation { operations: 20, elapsed_ns: 5.0 + 20.0 * cost_ns },
        ];
        Sample { observations, ..Sample::default() }
    }

    #[test]
    fn a_transfer_costs_per_byte_and_a_call_per_call() {
        let samples = [sample(4096.0), sample(4096.0), sample(-3.0)];
        let transfer = cost_of(
            &"tcp.transfer{size=4KiB,buffer=reused}".parse().unwrap(),
            &samples,
            1,
            Statistic::TrimmedMean,
        )
        .unwrap();
        assert!((transfer.estimate.point - 1.0).abs() < 1e-9);
        assert_eq!(transfer.estimate.unit, Unit::NanosecondsPerByte);
        assert_eq!(transfer.rejected, 2, "the impossible sample and the process without one");
        let call = cost_of(&"call.null".parse().unwrap(), &samples, 0, Statistic::TrimmedMean).unwrap();
        assert!((call.estimate.point - 4096.0).abs() < 1e-9);
        assert_eq!(call.minimum.map(f64::round), Some(4096.0));
    }

    #[test]
    fn the_minimum_is_the_lowest_of_the_processes_that_nobody_disturbed() {
        let stolen = |cost_ns, stolen_ns| Sample {
            contamination: Contamination { wall_ns: 1000.0, stolen_ns, ..Contamination::default() },
            ..sample(cost_ns)
        };
        let minimum = |samples: &[Sample]| {
            cost_of(&"call.null".parse().unwrap(), samples, 0, Statistic::TrimmedMean).unwrap().minimum
        };
        let samples = [stolen(100.0, 0.0), stolen(90.0, 40.0), stolen(3.0, 60.0), stolen(80.0, 500.0)];
        assert_eq!(minimum(&samples).map(f64::round), Some(90.0));
        assert_eq!(minimum(&samples[2..]), None);
    }

    #[test]
    fn what_has_no_estimate_is_unmeasured_with_its_reason_and_never_missing() {
        let primitive: PrimitiveId = "call.null".parse().unwrap();
        let measured = Measured {
            primitive: primitive.clone(),
            unit: Unit::Nanoseconds,
            samples: vec![sample(3.0), sample(-1.0)],
            rejected: vec![],
        };
        let machine = machine(
            "m".into(),
            "s".into(),
            Description::default(),
            &[Finding::Measured(measured)],
            Statistic::TrimmedMean,
        );
        assert!(machine.costs.is_empty());
        assert_eq!(machine.unmeasured[0].primitive, primitive);
        assert!(machine.unmeasured[0].reason.contains("1 of 2 samples"), "{}", machine.unmeasured[0].reason);
    }
}
