//! Comparisons of many primitives.
//!
//! At a level of 5 %, 200 comparisons of two equal machines report ten differences. Holm's method
//! (Scandinavian Journal of Statistics 6, 1979) keeps the probability of even one false "faster" or "slower"
//! among all of them at 5 %, whether or not they depend on each other. Costs that have no single ratio,
//! because they are disturbed or have several modes, are not compared; the result contains the reason.

use std::cmp::Ordering;
use std::fmt;

use assay_quantity::{Cost, Doubt, Estimate, Method, Pair};

use super::paired::paired;
use super::{NoComparison, Ratio, compare, compare_estimates, compare_steps};
use crate::estimator::real;

/// Accepted probability of any false difference among all primitives of a comparison. (In simulations with 40
/// equal ones: 5.3 % if all noise is exactly normal, because the far tails of Yuen's test are a little light;
/// 2.6 % if one process in seven is disturbed; 4.4 % for a mixture.)
pub const FAMILY_LEVEL: f64 = 0.05;

/// Two costs count as the same if they certainly differ by less than this: half of the slowdown that twenty
/// quiet processes on each side reliably show.
pub const SAME_WITHIN: f64 = 0.01;

/// The cost of a primitive on one side.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// The estimated cost.
    pub cost: &'a Cost,
    /// The values of the processes behind it, if available.
    pub values: Option<&'a [f64]>,
}

/// How the second side compares with the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Relation {
    /// Its cost is lower, by more than chance.
    Faster,
    /// Its cost is higher, by more than chance.
    Slower,
    /// The whole interval of the ratio lies within this share of 1. This takes precedence over the other two:
    /// a difference that is certain but negligible counts as the same.
    SameWithin(f64),
    /// Neither a difference nor its absence is shown: more processes are needed.
    Indistinguishable,
    /// At least one is a printed figure: whether the interval of the ratio lies below, around or above 1. The
    /// random error of a printed figure is unknown, so there is no test.
    AsPrinted(Ordering),
    /// The two cannot be compared.
    NotComparable(Incomparable),
}

/// Why two costs cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Incomparable {
    /// At least one is doubtful.
    Doubtful(Doubt),
    /// At least one is a minimum, whose error has no known distribution.
    Minimum,
    /// They have no ratio.
    NoRatio(NoComparison),
}

/// One primitive on two sides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The ratio of the costs, if there is one, even if it is not reliable.
    pub ratio: Option<Ratio>,
    /// Its p-value, corrected for the number of primitives; `None` if it was not tested.
    pub p_adjusted: Option<f64>,
    /// The conclusion.
    pub relation: Relation,
}

/// Compares many primitives; `margin` is the share within which two costs are the same ([`SAME_WITHIN`]).
///
/// The correction counts comparable primitives only. It does not affect "same": the intervals are of 95 %
/// each, so a primitive that differs by `margin` is called the same in at most 2.5 % of cases.
#[must_use]
pub fn compare_costs(pairs: &[Pair<Side<'_>>], margin: f64) -> Vec<Comparison> {
    judge(pairs.iter().map(test).collect(), margin)
}

/// Compares many primitives that were measured alternately, each by its pairs of values; otherwise like
/// [`compare_costs`]. Costs with several modes can be compared, because both sides of a pair have them alike.
#[must_use]
pub fn compare_in_turns(primitives: &[Vec<Pair<f64>>], margin: f64) -> Vec<Comparison> {
    judge(primitives.iter().map(|pairs| tested(paired(pairs))).collect(), margin)
}

/// A quantity in independent runs of both sides.
#[derive(Debug, Clone, PartialEq)]
pub struct Runs {
    /// Its value in each run.
    pub values: Pair<Vec<f64>>,
    /// What the values of each side are multiples of; 0 if they are continuous.
    pub step: Pair<f64>,
}

/// Compares many quantities, each by its values in independent runs ([`compare_steps`]); otherwise like
/// [`compare_costs`], but without a judgement of the values: disturbed ones and several modes are compared.
#[must_use]
pub fn compare_runs(quantities: &[Runs], margin: f64) -> Vec<Comparison> {
    let compare = |runs: &Runs| compare_steps(Pair { a: &runs.values.a, b: &runs.values.b }, runs.step);
    judge(quantities.iter().map(|runs| tested(compare(runs))).collect(), margin)
}

fn tested(ratio: Result<Ratio, NoComparison>) -> Tested {
    match ratio {
        Ok(ratio) => (Some(ratio), ratio.p.ok_or(Relation::Indistinguishable)),
        Err(reason) => (None, Err(Relation::NotComparable(Incomparable::NoRatio(reason)))),
    }
}

/// The ratio, if there is one, and its p-value or the relation without one.
type Tested = (Option<Ratio>, Result<f64, Relation>);

/// Corrects the p-values for their number.
fn judge(tested: Vec<Tested>, margin: f64) -> Vec<Comparison> {
    let mut adjusted: Vec<f64> = tested.iter().filter_map(|(_, p)| p.ok()).collect();
    holm(&mut adjusted);
    let mut adjusted = adjusted.into_iter();
    let comparison = |(ratio, p): Tested| {
        let p_adjusted = p.is_ok().then(|| adjusted.next()).flatten();
        let relation = match (p, p_adjusted, &ratio) {
            (Err(untested), ..) => untested,
            (Ok(_), Some(p), Some(ratio)) => relation(&ratio.estimate, p, margin),
            _ => Relation::Indistinguishable,
        };
        Comparison { ratio, p_adjusted, relation }
    };
    tested.into_iter().map(comparison).collect()
}

fn test(pair: &Pair<Side<'_>>) -> Tested {
    let costs = [pair.a.cost, pair.b.cost];
    let ratio = match (pair.a.values, pair.b.values) {
        (Some(a), Some(b)) if costs[0].typical.unit == costs[1].typical.unit => compare(Pair { a, b }),
        _ => compare_estimates(Pair { a: &costs[0].typical, b: &costs[1].typical }),
    };
    let ratio = match ratio {
        Ok(ratio) => ratio,
        Err(reason) => return tested(Err(reason)),
    };
    let doubt = costs.into_iter().filter_map(Cost::doubt).min();
    let p = match (doubt, ratio.p) {
        (Some(doubt), _) => Err(Relation::NotComparable(Incomparable::Doubtful(doubt))),
        (None, Some(p)) => Ok(p),
        (None, None) if costs.iter().any(|cost| cost.typical.method == Method::Minimum) => {
            Err(Relation::NotComparable(Incomparable::Minimum))
        }
        (None, None) => Err(Relation::AsPrinted(as_printed(&ratio.estimate))),
    };
    (Some(ratio), p)
}

fn as_printed(ratio: &Estimate) -> Ordering {
    if ratio.interval.high < 1.0 {
        Ordering::Less
    } else if ratio.interval.low > 1.0 {
        Ordering::Greater
    } else {
        Ordering::Equal
    }
}

fn relation(ratio: &Estimate, p_adjusted: f64, margin: f64) -> Relation {
    if ratio.interval.low >= 1.0 / (1.0 + margin) && ratio.interval.high <= 1.0 + margin {
        Relation::SameWithin(margin)
    } else if p_adjusted >= FAMILY_LEVEL {
        Relation::Indistinguishable
    } else if ratio.point < 1.0 {
        Relation::Faster
    } else {
        Relation::Slower
    }
}

/// Adjusts p-values for their number by Holm's method, in place. Compare each with the level of the whole
/// family.
pub fn holm(p: &mut [f64]) {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut least = 0.0_f64;
    for (rank, position) in order.into_iter().enumerate() {
        let tests_left = real(p.len() - rank);
        least = least.max((tests_left * p[position]).min(1.0));
        p[position] = least;
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Relation::Faster => f.write_str("faster"),
            Relation::Slower => f.write_str("slower"),
            Relation::SameWithin(margin) => write!(f, "same within {} %", margin * 100.0),
            Relation::Indistinguishable => f.write_str("indistinguishable"),
            Relation::AsPrinted(Ordering::Less) => f.write_str("faster, as printed"),
            Relation::AsPrinted(Ordering::Greater) => f.write_str("slower, as printed"),
            Relation::AsPrinted(Ordering::Equal) => f.write_str("equal, as printed"),
            Relation::NotComparable(reason) => write!(f, "not comparable: {reason}"),
        }
    }
}

impl fmt::Display for Incomparable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Incomparable::Doubtful(doubt) => doubt.fmt(f),
            Incomparable::Minimum => f.write_str("a minimum"),
            Incomparable::NoRatio(reason) => reason.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimator::trimmed_mean;
    use assay_quantity::{Interval, Mode, Unit, Verdict};
    use proptest::prelude::*;

    /// Twelve values around this one, at most this many per cent away.
    fn around(point: f64, percent: f64) -> Vec<f64> {
        (0..12).map(|i| point * (1.0 + percent / 100.0 * (f64::from(i) - 5.5) / 5.5)).collect()
    }

    fn cost(values: &[f64]) -> Cost {
        Cost {
            verdict: Some(Verdict::Steady),
            ..Cost::from(trimmed_mean(values, Unit::Nanoseconds).unwrap())
        }
    }

    /// What is said of a pair that is compared alone.
    fn said(a: &Cost, b: &Cost) -> String {
        let side = |cost| Side { cost, values: None };
        compare_costs(&[Pair { a: side(a), b: side(b) }], SAME_WITHIN)[0].relation.to_string()
    }

    #[test]
    fn every_relation_has_its_word() {
        let base = cost(&around(100.0, 1.0));
        let all = [
            said(&base, &cost(&around(105.0, 1.0))),
            said(&base, &cost(&around(95.0, 1.0))),
            said(&base, &cost(&around(100.1, 1.0))),
            said(&base, &cost(&around(103.0, 20.0))),
            // Certain and negligible.
            said(&cost(&around(100.0, 0.001)), &cost(&around(100.5, 0.001))),
        ];
        assert_eq!(all, ["slower", "faster", "same within 1 %", "indistinguishable", "same within 1 %"]);
    }

    #[test]
    fn what_must_not_be_compared_says_why_whichever_side_it_is_on() {
        let (clean, values) = (cost(&around(100.0, 1.0)), around(120.0, 1.0));
        let with = |verdict| Cost { verdict: Some(verdict), ..cost(&values) };
        let mode = Mode { weight: 0.5, estimate: clean.typical };
        let least = Estimate { method: Method::Minimum, ..clean.typical };
        let odd = [
            with(Verdict::Disturbed(0.5)),
            with(Verdict::Modes(2)),
            Cost { modes: vec![mode; 2], verdict: None, ..clean.clone() },
            Cost::from(least),
            Cost::from(Estimate { unit: Unit::NanosecondsPerByte, ..clean.typical }),
        ];
        let reasons = odd.each_ref().map(|odd| {
            let (there, back) = (said(&clean, odd), said(odd, &clean));
            assert!(there == back || there.contains("ns/B"), "{there}, {back}");
            there
        });
        assert_eq!(
            reasons,
            [
                "not comparable: disturbed",
                "not comparable: several modes",
                "not comparable: several modes",
                "not comparable: a minimum",
                "not comparable: ns cannot be compared with ns/B",
            ]
        );
    }

    #[test]
    fn a_printed_figure_is_taken_at_its_word_on_either_side() {
        let printed = |point| {
            let interval = Interval { low: point - 0.5, high: point + 0.5, confidence: 1.0 };
            Cost::from(Estimate {
                point,
                interval,
                method: Method::Printed,
                ..cost(&around(1.0, 1.0)).typical
            })
        };
        let measured = cost(&around(100.0, 1.0));
        let all = [
            said(&measured, &printed(90.0)),
            said(&printed(90.0), &measured),
            said(&printed(90.0), &printed(90.4)),
        ];
        assert_eq!(all, ["faster, as printed", "slower, as printed", "equal, as printed"]);
    }

    #[test]
    fn what_is_not_comparable_takes_no_part_in_the_correction_and_keeps_its_ratio() {
        let (base, slower) = (cost(&around(100.0, 5.0)), cost(&around(105.0, 5.0)));
        let disturbed = Cost { verdict: Some(Verdict::Disturbed(0.5)), ..slower.clone() };
        let side = |cost| Side { cost, values: None };
        let pair = |b| Pair { a: side(&base), b: side(b) };
        let alone = compare_costs(&[pair(&slower)], SAME_WITHIN)[0];
        let all = compare_costs(&[pair(&disturbed), pair(&slower), pair(&disturbed)], SAME_WITHIN);
        assert_eq!(all[1], alone);
        assert_eq!((all[0].p_adjusted, all[0].ratio), (None, alone.ratio));
        let twice = compare_costs(&[pair(&slower), pair(&slower)], SAME_WITHIN)[0];
        assert!((twice.p_adjusted.unwrap() - 2.0 * alone.p_adjusted.unwrap()).abs() < 1e-12);
    }

    #[test]
    fn values_add_the_effect_to_what_the_estimates_say() {
        let (a, b) = (around(100.0, 1.0), around(105.0, 1.0));
        let (cost_a, cost_b) = (cost(&a), cost(&b));
        let pair =
            Pair { a: Side { cost: &cost_a, values: Some(&a) }, b: Side { cost: &cost_b, values: Some(&b) } };
        let ratio = compare_costs(&[pair], SAME_WITHIN)[0].ratio.unwrap();
        assert!((ratio.effect.unwrap() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn pairs_show_a_difference_that_the_same_values_do_not_show_apart() {
        let drift: Vec<f64> = (0..12).map(|minute| 100.0 * (1.0 + 0.05 * f64::from(minute))).collect();
        let pairs = |slowdown: f64| {
            let noise = around(slowdown, 0.3);
            drift.iter().zip(noise).map(|(a, noise)| Pair { a: *a, b: a * noise }).collect::<Vec<_>>()
        };
        let primitives = [pairs(1.02), pairs(1.0), vec![], pairs(0.98)];
        let said = compare_in_turns(&primitives, SAME_WITHIN).into_iter().map(|one| one.relation.to_string());
        assert_eq!(
            said.collect::<Vec<_>>(),
            [
                "slower",
                "same within 1 %",
                "not comparable: a ratio needs at least 2 pairs of values, but there are 0",
                "faster"
            ]
        );
        let (a, b): (Vec<f64>, Vec<f64>) = primitives[0].iter().map(|pair| (pair.a, pair.b)).unzip();
        assert_eq!(self::said(&cost(&a), &cost(&b)), "indistinguishable");
    }

    #[test]
    fn runs_are_compared_by_their_values_and_corrected_for_the_number_of_quantities() {
        let of = |a, b, step| Runs { values: Pair { a, b }, step: Pair { a: step, b: step } };
        let runs = |factor: f64| of(around(100.0, 1.0), around(100.0 * factor, 1.0), 0.0);
        let all = [runs(1.05), runs(0.95), runs(1.0), of(vec![1.0], vec![2.0], 0.0)];
        let compared = compare_runs(&all, SAME_WITHIN);
        let said: Vec<String> = compared.iter().map(|one| one.relation.to_string()).collect();
        assert_eq!(
            said,
            [
                "slower",
                "faster",
                "same within 1 %",
                "not comparable: one side has no estimate: 1 value(s) give no interval; at least 2 are needed"
            ]
        );
        let alone = compare_runs(&all[..1], SAME_WITHIN)[0];
        let [one, others] = [alone, compared[0]].map(|comparison| comparison.p_adjusted.unwrap());
        assert!(others > 1.9 * one, "{one} {others}");
    }

    #[test]
    fn small_counts_that_are_equal_by_chance_are_no_difference() {
        let said = |a: &[f64], b: &[f64], step: f64| {
            let runs =
                Runs { values: Pair { a: a.to_vec(), b: b.to_vec() }, step: Pair { a: step, b: step } };
            compare_runs(&[runs], SAME_WITHIN)[0].relation
        };
        let equal = [[5.0, 5.0, 5.0], [6.0, 6.0, 6.0]];
        assert_eq!(said(&equal[0], &equal[1], 1.0), Relation::Indistinguishable);
        assert_eq!(said(&equal[0], &equal[1], 0.001), Relation::Slower, "6000 counts per unit of work");
        // The trimmed mean of five values leaves out one at each end.
        let nearly = [[5.0, 5.0, 5.0, 5.0, 6.0], [6.0, 6.0, 5.0, 6.0, 6.0]];
        assert_eq!(said(&nearly[0], &nearly[1], 1.0), Relation::Indistinguishable);
        assert_eq!(said(&nearly[0], &nearly[1], 0.0), Relation::Slower);
        assert_eq!(said(&[5.0; 3], &[40.0; 3], 1.0), Relation::Slower);
    }

    #[test]
    fn holms_adjustment_is_that_of_his_paper() {
        let mut p = [0.01, 0.04, 0.03, 0.005];
        holm(&mut p);
        for (adjusted, expected) in p.into_iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((adjusted - expected).abs() < 1e-12, "{p:?}");
        }
    }

    proptest! {
        #[test]
        fn adjusted_p_values_are_at_most_bonferronis_and_in_the_order_of_the_raw_ones(
            raw in prop::collection::vec(0.0..=1.0f64, 0..30),
        ) {
            let mut adjusted = raw.clone();
            holm(&mut adjusted);
            for (i, (p, a)) in raw.iter().zip(&adjusted).enumerate() {
                prop_assert!(p <= a && *a <= 1.0 && *a <= p * real(raw.len()) + 1e-12);
                prop_assert!(raw.iter().zip(&adjusted).all(|(q, b)| p < q || a >= b), "{i}");
            }
        }
    }
}
