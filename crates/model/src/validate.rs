//! How good predictions are: against throughput that was really measured (thesis, section 4.3, Table 4).
//!
//! A predicted latency need not be the whole latency (the thesis, section 4.3, explains why), so two
//! things are asked: whether it ranks the machines as they are, and how far off it is after one scale
//! factor for the whole workload.

/// A throughput that was measured on a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// The machine's name.
    pub machine: String,
    /// Which load it was measured with.
    pub workload: String,
    /// Units of work per second.
    pub per_second: f64,
}

/// One machine's prediction beside its measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Validated {
    /// The machine's name.
    pub machine: String,
    /// Predicted time of one unit of work, ns.
    pub predicted_ns: f64,
    /// Measured units of work per second.
    pub measured_per_second: f64,
    /// Predicted units of work per second after scaling.
    pub predicted_per_second: f64,
    /// (predicted - measured) / measured.
    pub error: f64,
}

/// The predictions of one workload against its measurements.
#[derive(Debug, Clone, PartialEq)]
pub struct Validation {
    /// The workload.
    pub workload: String,
    /// One row for each machine, fastest measured first.
    pub rows: Vec<Validated>,
    /// Spearman's rank correlation of predicted speed and measured throughput.
    pub rank_correlation: f64,
    /// The factor from 1/latency to throughput that makes the largest relative error smallest.
    pub scale: f64,
    /// That largest relative error.
    pub largest_error: f64,
}

/// Compares predicted times (machine name, ns per unit of work) with the measurements of one workload.
/// `None` when fewer than two machines have both: one machine has no rank, and its scale fits anything.
#[must_use]
pub fn validate(
    workload: &str,
    predicted_ns: &[(String, f64)],
    measured: &[Measurement],
) -> Option<Validation> {
    let mut pairs: Vec<(&str, f64, f64)> = Vec::new();
    for (machine, time_ns) in predicted_ns {
        let found = measured.iter().find(|row| row.machine == *machine && row.workload == workload);
        pairs.extend(found.map(|row| (machine.as_str(), *time_ns, row.per_second)));
    }
    if pairs.len() < 2 {
        return None;
    }
    pairs.sort_by(|a, b| b.2.total_cmp(&a.2));
    let rate = |time_ns: f64| 1e9 / time_ns;
    // The error of machine i under the scale s is s * a_i - 1 with a_i = rate_i / measured_i. The largest
    // is smallest where the highest and the lowest a_i err by the same amount on either side.
    let ratios: Vec<f64> = pairs.iter().map(|(_, time_ns, measured)| rate(*time_ns) / measured).collect();
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(0.0, f64::max);
    let scale = 2.0 / (low + high);
    let rows = pairs
        .iter()
        .map(|(machine, time_ns, measured)| Validated {
            machine: (*machine).to_owned(),
            predicted_ns: *time_ns,
            measured_per_second: *measured,
            predicted_per_second: scale * rate(*time_ns),
            error: scale * rate(*time_ns) / measured - 1.0,
        })
        .collect();
    let speeds: Vec<f64> = pairs.iter().map(|(_, time_ns, _)| rate(*time_ns)).collect();
    let throughputs: Vec<f64> = pairs.iter().map(|(_, _, measured)| *measured).collect();
    Some(Validation {
        workload: workload.to_owned(),
        rows,
        rank_correlation: spearman(&speeds, &throughputs),
        scale,
        largest_error: (high - low) / (high + low),
    })
}

/// Rank correlation; ties share their mean rank. Zero where one side is all ties.
fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let mean = a.iter().sum::<f64>() / real(a.len());
    let covariance: f64 = a.iter().zip(&b).map(|(x, y)| (x - mean) * (y - mean)).sum();
    let spread = |ranks: &[f64]| ranks.iter().map(|x| (x - mean).powi(2)).sum::<f64>().sqrt();
    let product = spread(&a) * spread(&b);
    if product > 0.0 { covariance / product } else { 0.0 }
}

fn ranks(values: &[f64]) -> Vec<f64> {
    values
        .iter()
        .map(|value| {
            let below = values.iter().filter(|other| *other < value).count();
            let not_above = values.iter().filter(|other| *other <= value).count();
            real(below + not_above + 1) / 2.0
        })
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "numbers of machines are small")]
fn real(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(rows: &[(&str, f64)]) -> Vec<Measurement> {
        rows.iter()
            .map(|(machine, per_second)| Measurement {
                machine: (*machine).to_owned(),
                workload: "w".to_owned(),
                per_second: *per_second,
            })
            .collect()
    }

    fn predicted(rows: &[(&str, f64)]) -> Vec<(String, f64)> {
        rows.iter().map(|(machine, time_ns)| ((*machine).to_owned(), *time_ns)).collect()
    }

    #[test]
    fn times_that_are_off_by_one_factor_everywhere_have_no_error_after_scaling() {
        let validation = validate(
            "w",
            &predicted(&[("slow", 4e6), ("fast", 1e6)]),
            &measured(&[("slow", 100.0), ("fast", 400.0)]),
        )
        .unwrap();
        assert!(validation.largest_error.abs() < 1e-12);
        assert!((validation.scale - 0.4).abs() < 1e-12);
        assert_eq!(validation.rows[0].machine, "fast");
        assert!((validation.rank_correlation - 1.0).abs() < 1e-12);
    }

    #[test]
    fn no_other_scale_makes_the_largest_error_smaller() {
        let times = predicted(&[("a", 1e6), ("b", 3e6), ("c", 9e6)]);
        let rates = measured(&[("a", 500.0), ("b", 400.0), ("c", 90.0)]);
        let validation = validate("w", &times, &rates).unwrap();
        let largest = |scale: f64| {
            validation
                .rows
                .iter()
                .map(|row| (scale * 1e9 / row.predicted_ns / row.measured_per_second - 1.0).abs())
                .fold(0.0, f64::max)
        };
        assert!((largest(validation.scale) - validation.largest_error).abs() < 1e-12);
        for factor in [0.99, 0.999, 1.001, 1.01] {
            assert!(largest(validation.scale * factor) > validation.largest_error);
        }
    }

    #[test]
    fn a_reversed_ranking_correlates_at_minus_one_and_ties_share_their_rank() {
        assert!((spearman(&[1.0, 2.0, 3.0], &[9.0, 5.0, 1.0]) + 1.0).abs() < 1e-12);
        assert_eq!(ranks(&[5.0, 1.0, 5.0]), [2.5, 1.0, 2.5]);
        assert!(spearman(&[1.0, 1.0], &[1.0, 2.0]).abs() < 1e-12);
    }

    #[test]
    fn one_machine_is_no_validation() {
        assert_eq!(validate("w", &predicted(&[("a", 1.0)]), &measured(&[("a", 1.0)])), None);
        assert_eq!(validate("v", &predicted(&[("a", 1.0)]), &measured(&[("a", 1.0)])), None);
    }
}
