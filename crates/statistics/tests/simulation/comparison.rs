//! Comparisons of two machines.

use assay_quantity::{Cost, Pair, Unit};
use assay_statistics::comparison::compare;
use assay_statistics::comparison::family::{FAMILY_LEVEL, Relation, SAME_WITHIN, Side, compare_costs};
use assay_statistics::comparison::paired::paired;
use assay_statistics::{median, trimmed_mean};

use crate::noise::{Noise, Source, share};

/// Ratio of the trimmed means of the distributions: the logarithm's standard deviation shifts that of
/// lognormal noise, which is a mean over the middle 60 % of its quantiles.
fn true_ratio(pair: Pair<Noise>) -> f64 {
    let centre = |noise| match noise {
        Noise::LogNormal(deviation) => {
            // Quantiles of 20 and 80 %, in standard deviations.
            let edge = 0.841_621_233_572_914_3;
            let places = (0..1000).map(|i| edge * (f64::from(i) - 499.5) / 500.0);
            let (sum, weights) = places.fold((0.0, 0.0), |(sum, weights), z: f64| {
                let weight = (-z * z / 2.0).exp();
                (sum + weight * (deviation * z).exp(), weights + weight)
            });
            sum / weights
        }
        _ => 1.0,
    };
    centre(pair.b) / centre(pair.a)
}

#[test]
fn intervals_of_ratios_hold_the_truth_in_93_to_97_per_cent() {
    let mut source = Source::of_seed(1);
    for shape in [Noise::Normal, Noise::LogNormal] {
        for (deviation_a, deviation_b) in [(0.01, 0.01), (0.2, 0.2), (0.05, 0.2), (0.2, 0.05)] {
            for (processes_a, processes_b) in [(8, 8), (8, 40), (20, 12), (40, 40)] {
                let noise = Pair { a: shape(deviation_a), b: shape(deviation_b) };
                let truth = true_ratio(noise);
                let covered = share(2000, || {
                    let (a, b) = (source.costs(noise.a, processes_a), source.costs(noise.b, processes_b));
                    let interval = compare(Pair { a: &a, b: &b }).unwrap().estimate.interval;
                    interval.low <= truth && truth <= interval.high
                });
                assert!(
                    (0.93..=0.97).contains(&covered),
                    "{covered} for {noise:?} with {processes_a} and {processes_b} processes"
                );
            }
        }
    }
}

/// The relations of forty primitives with three kinds of noise; the first one may be slower.
fn relations(source: &mut Source, slowdown: f64) -> Vec<Relation> {
    let kinds = [Noise::Normal(0.01), Noise::LogNormal(0.03), Noise::Disturbed(0.01)];
    let costs = |source: &mut Source, slowdown: f64| -> Vec<(Cost, Vec<f64>)> {
        let of = |position: usize| {
            let factor = if position == 0 { slowdown } else { 1.0 };
            let costs = source.costs(kinds[position % 3], 20);
            let values: Vec<f64> = costs.into_iter().map(|cost| cost * factor).collect();
            (Cost::from(trimmed_mean(&values, Unit::Nanoseconds).unwrap()), values)
        };
        (0..40).map(of).collect()
    };
    let (a, b) = (costs(source, 1.0), costs(source, slowdown));
    let side = |(cost, values)| Side { cost, values: Some(values) };
    let pairs: Vec<_> =
        a.iter().zip(&b).map(|(a, b)| Pair { a: side((&a.0, &a.1)), b: side((&b.0, &b.1)) }).collect();
    compare_costs(&pairs, SAME_WITHIN).into_iter().map(|comparison| comparison.relation).collect()
}

fn differs(relation: &Relation) -> bool {
    matches!(relation, Relation::Faster | Relation::Slower)
}

#[test]
fn a_machine_compared_with_itself_differs_in_any_of_40_primitives_in_at_most_5_per_cent() {
    let mut source = Source::of_seed(2);
    let alarms = share(1000, || relations(&mut source, 1.0).iter().any(differs));
    assert!(alarms <= FAMILY_LEVEL, "{alarms}");
}

#[test]
fn a_slowdown_of_2_per_cent_is_found_among_40_primitives_with_20_processes() {
    let mut source = Source::of_seed(3);
    let found = share(300, || relations(&mut source, 1.02)[0] == Relation::Slower);
    assert!(found >= 0.9, "{found}");
}

#[test]
fn the_documented_numbers_of_processes_find_a_slowdown_of_2_per_cent_in_90_per_cent() {
    let mut source = Source::of_seed(4);
    for (deviation, alone, among_40) in [(0.01, 8, 17), (0.03, 58, 112), (0.05, 158, 305)] {
        for (processes, tests) in [(alone, 1.0), (among_40, 40.0)] {
            let found = share(1000, || {
                let a = source.costs(Noise::Normal(deviation), processes);
                let b: Vec<f64> = source
                    .costs(Noise::Normal(deviation), processes)
                    .iter()
                    .map(|cost| 1.02 * cost)
                    .collect();
                compare(Pair { a: &a, b: &b }).unwrap().p.unwrap() * tests < FAMILY_LEVEL
            });
            assert!((0.88..=0.94).contains(&found), "{found} with {processes} processes");
        }
    }
}

#[test]
fn pairs_see_through_a_drift_that_both_sides_share_and_hold_their_level() {
    let mut source = Source::of_seed(5);
    for rounds in [8_usize, 20] {
        let mut differences = |slowdown: f64| {
            let (mut in_pairs, mut apart) = (0.0, 0.0);
            let covered = share(1000, || {
                let round = |_| {
                    let drift = 1.0 + 0.5 * source.uniform();
                    let mut cost = || drift * source.cost(Noise::Normal(0.01));
                    Pair { a: cost(), b: slowdown * cost() }
                };
                let taken: Vec<Pair<f64>> = (0..rounds).map(round).collect();
                let (a, b): (Vec<f64>, Vec<f64>) = taken.iter().map(|round| (round.a, round.b)).unzip();
                let ratio = paired(&taken).unwrap();
                in_pairs += f64::from(u8::from(ratio.p.unwrap() < 0.05)) / 1000.0;
                apart +=
                    f64::from(u8::from(compare(Pair { a: &a, b: &b }).unwrap().p.unwrap() < 0.05)) / 1000.0;
                (ratio.estimate.interval.low..=ratio.estimate.interval.high).contains(&slowdown)
            });
            (covered, in_pairs, apart)
        };
        let (covered, false_alarms, _) = differences(1.0);
        assert!((0.93..=0.98).contains(&covered) && false_alarms <= 0.06, "{covered}, {false_alarms}");
        let (covered, found, apart) = differences(1.03);
        assert!(
            (0.93..=0.98).contains(&covered) && found > 0.95 && apart < 0.2,
            "{covered}, {found}, {apart}"
        );
    }
}

#[test]
fn medians_of_few_processes_keep_the_level_of_the_family() {
    let mut source = Source::of_seed(6);
    for (noise, level) in [(Noise::Normal(0.02), 0.06), (Noise::Disturbed(0.01), 0.08)] {
        for processes in [4, 6, 12] {
            let mut cost = || Cost::from(median(&source.costs(noise, processes), Unit::Nanoseconds).unwrap());
            let differs_in_any = || {
                let costs: Vec<Pair<Cost>> = (0..40).map(|_| Pair { a: cost(), b: cost() }).collect();
                let side = |cost| Side { cost, values: None };
                let sides: Vec<_> =
                    costs.iter().map(|costs| Pair { a: side(&costs.a), b: side(&costs.b) }).collect();
                compare_costs(&sides, SAME_WITHIN).iter().any(|one| differs(&one.relation))
            };
            let alarms = share(1000, differs_in_any);
            assert!(alarms <= level, "{alarms} of comparisons, {noise:?}, {processes} processes");
        }
    }
}
