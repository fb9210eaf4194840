//! Computes the machine vector from raw samples (thesis, section 4.1).
//!
//! `statistics` computes the estimates; this module passes it the values in the unit of each benchmark, which
//! depends on the number of bytes that an operation moves. The history also calls it for old samples.

use std::collections::{BTreeMap, HashMap};

use assay_quantity::{
    Cost, Description, Estimate, Evidence, Interval, Machine, Pair, PrimitiveId, Sample, Unit, Unmeasured,
};
use assay_statistics::conditions::width_alone;
use assay_statistics::disturbance::undisturbed;
use assay_statistics::estimator::NoEstimate;
use assay_statistics::outlier::outliers;
use assay_statistics::slope::linearity;
use assay_statistics::{
    Sifted, aspect, calm, conditions, cost_ns, dependence, judge, modes, sift, trimmed_mean,
};

use super::plan::Finding;
use crate::benchmark::Benchmark;
use crate::catalogue;

/// Samples that give no cost.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NoMachineCost {
    /// The id is not in the catalogue.
    #[error("unknown benchmark {0}; see 'assay bench --list'")]
    Unknown(PrimitiveId),
    /// Too few samples with a cost.
    #[error("{given} of {samples} samples gave a cost{}: {reason}", last.as_ref().map_or(String::new(), |l| format!(", the last without one because {l}")))]
    NoEstimate {
        /// Number of samples with a cost.
        given: usize,
        /// Number of all samples.
        samples: usize,
        /// The reason of the last sample without a cost.
        last: Option<String>,
        /// The error of the estimator.
        reason: NoEstimate,
    },
    /// The difference to the baseline is not positive.
    #[error("the cost is not above zero: {low:.4} to {high:.4} {}", unit.symbol())]
    NotAboveZero {
        /// Lower end of its interval.
        low: f64,
        /// Upper end.
        high: f64,
        /// Unit of both.
        unit: Unit,
    },
}

/// Returns the cost of a primitive from its samples without their disturbed batches, in the unit of the
/// catalogue. `rejected` is the number of processes without a sample; `alone` is the width of a core that no
/// other hardware thread shares ([`width_alone`]).
///
/// # Errors
/// Returns [`NoMachineCost`] if fewer than two samples determine a cost, or if it is not above zero.
pub fn cost_of(
    primitive: &PrimitiveId,
    samples: &[Sample],
    rejected: usize,
    alone: Option<f64>,
) -> Result<Cost, NoMachineCost> {
    let benchmark = catalogue::find(primitive).ok_or_else(|| NoMachineCost::Unknown(primitive.clone()))?;
    let reasons: Vec<String> =
        samples.iter().filter_map(|sample| Some(cost_ns(sample).err()?.to_string())).collect();
    let sifted = sift(samples, |sample| value_of(&benchmark, sample));
    let given = sifted.kept.len();
    let typical = typical(&sifted, benchmark.unit).map_err(|reason| NoMachineCost::NoEstimate {
        given,
        samples: samples.len(),
        last: reasons.last().cloned(),
        reason,
    })?;
    let with_disturbed = trimmed_mean(&sifted.all, benchmark.unit).ok();
    let Interval { low, high, .. } = typical.interval;
    if typical.point <= 0.0 {
        return Err(NoMachineCost::NotAboveZero { low, high, unit: benchmark.unit });
    }
    let modes = modes::several(&sifted.kept, benchmark.unit).unwrap_or_default();
    Ok(Cost {
        typical,
        calm: calm(&sifted, alone, benchmark.unit),
        again: None,
        rejected: rejected + samples.len() - given,
        batches: sifted.batches,
        disturbed: sifted.disturbed,
        outliers: outliers(&sifted.kept),
        verdict: Some(judge(&typical, with_disturbed.as_ref(), &modes, &sifted)),
        depends_on: dependence(&modes, &sifted.kept, &sifted.evidence),
        modes,
        linearity: linearity(samples),
    })
}

/// Returns the values that a cost is estimated from: one for each process, without its disturbed batches, in
/// the unit of the catalogue. Empty if the id is not in the catalogue.
#[must_use]
pub fn values_of(primitive: &PrimitiveId, samples: &[Sample]) -> Vec<f64> {
    let Some(benchmark) = catalogue::find(primitive) else { return Vec::new() };
    sift(samples, |sample| value_of(&benchmark, sample)).kept
}

/// Returns the typical cost only, which may be below zero. `None` if the samples determine none, or if the id
/// is not in the catalogue.
#[must_use]
pub fn typical_of(primitive: &PrimitiveId, samples: &[Sample]) -> Option<Estimate> {
    let benchmark = catalogue::find(primitive)?;
    typical(&sift(samples, |sample| value_of(&benchmark, sample)), benchmark.unit).ok()
}

fn typical(sifted: &Sifted<'_>, unit: Unit) -> Result<Estimate, NoEstimate> {
    trimmed_mean(&sifted.kept, unit)
}

/// Returns the values of the processes with the same seed in two runs measured alternately
/// ([`crate::alternate`]), in the order of the first run. Omits a pair if one process has no value or only
/// disturbed batches, or if neither value is above zero. Empty if the id is not in the catalogue.
#[must_use]
pub fn pairs_of(primitive: &PrimitiveId, samples: Pair<&[Sample]>) -> Vec<Pair<f64>> {
    let Some(benchmark) = catalogue::find(primitive) else { return Vec::new() };
    let value = |sample: &Sample| value_of(&benchmark, &undisturbed(sample)?);
    let of_b: HashMap<u64, f64> =
        samples.b.iter().filter_map(|sample| Some((sample.seed, value(sample)?))).collect();
    let pair = |sample: &Sample| Some(Pair { a: value(sample)?, b: *of_b.get(&sample.seed)? });
    samples.a.iter().filter_map(pair).filter(|pair| pair.a > 0.0 || pair.b > 0.0).collect()
}

/// Returns the cost of a sample in the unit of its benchmark; `None` if it determines no cost.
fn value_of(benchmark: &Benchmark, sample: &Sample) -> Option<f64> {
    Some(cost_ns(sample).ok()? / per(benchmark.bytes))
}

#[expect(clippy::cast_precision_loss, reason = "an operation moves far fewer than 2^52 bytes")]
fn per(bytes: Option<u64>) -> f64 {
    bytes.map_or(1.0, |bytes| bytes as f64)
}

/// Returns the machine vector of a run. Its description gets the facts about the conditions of the samples,
/// instead of those that earlier versions stored with the run.
#[must_use]
pub fn machine(name: String, source: String, mut description: Description, findings: &[Finding]) -> Machine {
    let seen = evidence(findings);
    description.facts.retain(|fact| !aspect::is_condition(&fact.name));
    description.facts.extend(aspect::facts(&seen));
    let alone = width_alone(&seen);
    let mut costs = BTreeMap::new();
    let mut unmeasured = Vec::new();
    for finding in findings {
        match finding {
            Finding::Unmeasured(missing) => unmeasured.push(missing.clone()),
            Finding::Measured(measured) => {
                let primitive = measured.primitive.clone();
                match cost_of(&primitive, &measured.samples, measured.rejected.len(), alone) {
                    Ok(cost) => {
                        costs.insert(primitive, cost);
                    }
                    Err(reason) => unmeasured.push(Unmeasured { primitive, reason: reason.to_string() }),
                }
            }
        }
    }
    Machine { name, source, description, conditions: conditions::of(&seen), costs, unmeasured }
}

/// Returns the evidence of all samples of a run.
fn evidence(findings: &[Finding]) -> Vec<&Evidence> {
    let samples = findings.iter().filter_map(|finding| match finding {
        Finding::Measured(measured) => Some(&measured.samples),
        Finding::Unmeasured(_) => None,
    });
    samples.flatten().map(|sample| &sample.evidence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::plan::Measured;
    use assay_quantity::evidence::{INVOLUNTARY_SWITCHES, LOST};
    use assay_quantity::{Fact, Observation, Verdict};

    fn sample(cost_ns: f64) -> Sample {
        let observations = vec![batch(10, 5.0 + 10.0 * cost_ns), batch(20, 5.0 + 20.0 * cost_ns)];
        lost(observations, &[0.0; 2])
    }

    fn batch(operations: u64, elapsed_ns: f64) -> Observation {
        Observation { operations, elapsed_ns }
    }

    /// Returns a sample of these batches, which lost these shares of their time.
    fn lost(observations: Vec<Observation>, shares: &[f64]) -> Sample {
        let evidence = Evidence::from_iter([(LOST, shares.to_vec())]);
        Sample { observations, evidence, ..Sample::default() }
    }

    /// Returns a sample of the same cost with disturbed batches, which change it to `disturbed_ns` if not
    /// omitted.
    fn disturbed(cost_ns: f64, disturbed_ns: f64) -> Sample {
        let mut observations = sample(cost_ns).observations;
        let longer = 10.0 * (disturbed_ns - cost_ns);
        observations.extend([20; 4].map(|operations| batch(operations, 5.0 + 20.0 * cost_ns + longer)));
        lost(observations, &[0.0, 0.0, 0.9, 0.9, 0.9, 0.9])
    }

    #[test]
    fn a_transfer_costs_per_byte_and_a_call_per_call() {
        let samples = [sample(4096.0), sample(4096.0), sample(-3.0)];
        let transfer =
            cost_of(&"tcp.transfer{size=4KiB,buffer=reused}".parse().unwrap(), &samples, 1, None).unwrap();
        assert!((transfer.typical.point - 1.0).abs() < 1e-9);
        assert_eq!(transfer.typical.unit, Unit::NanosecondsPerByte);
        assert_eq!(transfer.rejected, 2, "the impossible sample and the process without one");
        let call = cost_of(&"call.null".parse().unwrap(), &samples, 0, None).unwrap();
        assert!((call.typical.point - 4096.0).abs() < 1e-9);
    }

    #[test]
    fn small_differences_keep_their_negative_values_and_a_mean_below_zero_is_not_a_cost() {
        let difference = |cost_ns: f64| {
            let level = sample(100.0);
            Sample { baseline: level.observations, ..sample(100.0 + cost_ns) }
        };
        let of = |values: &[f64]| {
            let samples: Vec<Sample> = values.iter().map(|value| difference(*value)).collect();
            cost_of(&"call.null".parse().unwrap(), &samples, 0, None)
        };
        let known = of(&[3.0, 4.0, -0.5, 2.0, 3.0, 4.0, 3.5, 2.5, 3.0, 4.0]).unwrap();
        assert!((known.typical.point - 3.1).abs() < 0.1 && known.rejected == 0, "{known:?}");
        let unknown = of(&[3.0, -4.0, -0.5, 2.0, -3.0, 1.0]).unwrap_err().to_string();
        assert!(unknown.contains("not above zero"), "{unknown}");
    }

    fn call_null(samples: &[Sample]) -> Cost {
        cost_of(&"call.null".parse().unwrap(), samples, 0, None).unwrap()
    }

    #[test]
    fn disturbed_batches_are_omitted_and_counted_and_reported_if_they_would_move_the_estimate() {
        let quiet: Vec<Sample> = (0..9).map(|i| sample(100.0 + f64::from(i))).collect();
        let few = call_null(&[&quiet[..], &[disturbed(104.0, 900.0), disturbed(103.0, 900.0)]].concat());
        assert_eq!((few.typical.values, few.batches, few.disturbed), (11, 30, 8));
        assert!((few.typical.point - 103.857).abs() < 1e-3, "{few:?}");
        assert_eq!(few.verdict, Some(Verdict::Steady));
        let many = call_null(&[&quiet[..], &vec![disturbed(104.0, 900.0); 6]].concat());
        assert_eq!((many.typical.values, many.batches, many.disturbed), (15, 54, 24));
        assert!((many.typical.point - 104.0).abs() < 0.1, "{many:?}");
        assert_eq!(many.verdict, Some(Verdict::Disturbed(24.0 / 54.0)));
    }

    #[test]
    fn a_process_with_only_disturbed_batches_is_counted() {
        let lost = lost(sample(900.0).observations, &[0.5; 2]);
        let cost = call_null(&[sample(100.0), lost, sample(102.0), sample(101.0)]);
        assert_eq!((cost.typical.values, cost.rejected, cost.disturbed), (3, 1, 2));
    }

    #[test]
    fn a_primitive_with_a_cost_only_without_its_disturbed_batches_is_disturbed_and_not_unmeasured() {
        // With the disturbed batches, longer batches appear to take less time.
        let samples = vec![disturbed(100.0, -100.0); 3];
        assert!(samples.iter().all(|sample| cost_ns(sample).is_err()), "{samples:?}");
        let cost = call_null(&samples);
        assert_eq!(cost.verdict, Some(Verdict::Disturbed(12.0 / 18.0)));
        assert!((cost.typical.point - 100.0).abs() < 1e-9 && cost.rejected == 0, "{cost:?}");
    }

    #[test]
    fn a_primitive_that_lost_time_in_every_batch_has_a_disturbed_typical_cost_and_no_calm_one() {
        let nothing_left = lost(sample(80.0).observations, &[0.1; 2]);
        let none = call_null(&vec![nothing_left; 3]);
        assert_eq!((none.calm, none.verdict), (None, Some(Verdict::Disturbed(1.0))));
        assert!((none.typical.point - 80.0).abs() < 1e-9, "{none:?}");
    }

    #[test]
    fn the_conditions_of_a_run_are_computed_from_its_samples_and_replace_those_that_were_stored() {
        let fact = |name: &str, value: &str| Fact { name: name.to_owned(), value: value.to_owned() };
        let stored = vec![
            fact("cpu", "X"),
            fact("preemption", "in 90 % of samples"),
            fact("noise after", "none"),
            fact("preemption while timing", "in 90 % of samples"),
        ];
        let switches = |number: f64| Sample {
            evidence: Evidence::from_iter([(INVOLUNTARY_SWITCHES, vec![number])]),
            ..sample(80.0)
        };
        let primitive = "call.null".parse().unwrap();
        let samples = vec![switches(0.0), switches(2.0)];
        let measured = Measured { primitive, unit: Unit::Nanoseconds, samples, rejected: Vec::new() };
        let description = Description { facts: stored, ..Description::default() };
        let machine = machine(String::new(), String::new(), description, &[Finding::Measured(measured)]);
        let facts = [fact("cpu", "X"), fact("noise after", "none"), fact("preemption", "in 50 % of samples")];
        assert_eq!(machine.description.facts, facts);
    }

    #[test]
    fn two_clusters_of_values_are_two_modes_and_one_odd_value_is_an_outlier() {
        let cost = |costs: &[f64]| {
            let samples: Vec<Sample> = costs.iter().map(|cost_ns| sample(*cost_ns)).collect();
            cost_of(&"call.null".parse().unwrap(), &samples, 0, None).unwrap()
        };
        let low: Vec<f64> = (0..14).map(|i| 100.0 + f64::from(i) / 8.0).collect();
        let high: Vec<f64> = (0..6).map(|i| 150.0 + f64::from(i) / 8.0).collect();
        let two = cost(&[low.clone(), high].concat());
        assert_eq!(two.verdict, Some(Verdict::Modes(2)));
        let weights: Vec<f64> = two.modes.iter().map(|mode| mode.weight).collect();
        assert_eq!((weights, two.modes[1].estimate.values), (vec![0.7, 0.3], 6));
        let odd = cost(&[low, vec![150.0]].concat());
        assert_eq!((odd.outliers, odd.modes.len(), odd.verdict), (1, 0, Some(Verdict::Steady)));
    }

    #[test]
    fn a_primitive_without_an_estimate_is_unmeasured_with_its_reason() {
        let primitive: PrimitiveId = "call.null".parse().unwrap();
        let measured = Measured {
            primitive: primitive.clone(),
            unit: Unit::Nanoseconds,
            samples: vec![sample(3.0), sample(-1.0)],
            rejected: vec![],
        };
        let machine = machine("m".into(), "s".into(), Description::default(), &[Finding::Measured(measured)]);
        assert!(machine.costs.is_empty());
        assert_eq!(machine.unmeasured[0].primitive, primitive);
        assert!(machine.unmeasured[0].reason.contains("1 of 2 samples"), "{}", machine.unmeasured[0].reason);
    }
}
