//! Modes that exist and modes that do not.

use assay_quantity::evidence::{CORE_WIDTH, CYCLE_NS, MPROTECT_NS, RUNNABLE_ELSEWHERE, STOLEN};
use assay_quantity::{Evidence, Mode, Unit};
use assay_statistics::{dependence, modes};

use crate::noise::{Noise, Source, share};

/// Two modes with 2 % noise: the number of values in the lower one, and all values.
fn mixture(source: &mut Source, weight: f64, upper: f64, processes: usize) -> (usize, Vec<f64>) {
    let mut lower = 0;
    let mut values = Vec::with_capacity(processes);
    for _ in 0..processes {
        let is_lower = source.uniform() < weight;
        lower += usize::from(is_lower);
        values.push(source.cost(Noise::Normal(0.02)) * if is_lower { 1.0 } else { upper });
    }
    (lower, values)
}

fn several(values: &[f64]) -> Option<Vec<Mode>> {
    modes::several(values, Unit::Nanoseconds)
}

#[test]
fn a_mixture_of_70_and_30_per_cent_is_named_with_its_weights_and_its_costs() {
    let mut source = Source::of_seed(1);
    let (trials, processes) = (500, 40);
    let mut named = 0_u32;
    let (mut exact, mut near, mut low_covered, mut high_covered) = (0_u32, 0_u32, 0_u32, 0_u32);
    for _ in 0..trials {
        let (lower, values) = mixture(&mut source, 0.7, 1.5, processes);
        let Some(modes) = several(&values) else { continue };
        named += 1;
        let [low, high] = modes.as_slice() else { continue };
        assert!((low.weight + high.weight - 1.0).abs() < 1e-12);
        exact += u32::from(low.estimate.values == lower && high.estimate.values == processes - lower);
        // Two binomial standard errors.
        near += u32::from((low.weight - 0.7).abs() < 2.0 * (0.7f64 * 0.3 / 40.0).sqrt());
        let holds =
            |mode: &Mode, truth| mode.estimate.interval.low <= truth && truth <= mode.estimate.interval.high;
        low_covered += u32::from(holds(low, 1.0));
        high_covered += u32::from(holds(high, 1.5));
    }
    let of_named = |count: u32| f64::from(count) / f64::from(named);
    assert!(f64::from(named) / f64::from(trials) > 0.9, "{named} named");
    assert!(of_named(exact) > 0.99, "{exact} of {named} are divided as they were mixed");
    assert!(of_named(near) > 0.9, "{near} of {named} weights are within the binomial error");
    assert!(
        of_named(low_covered) > 0.92 && of_named(high_covered) > 0.92,
        "{low_covered} {high_covered} of {named}"
    );
}

#[test]
fn noise_of_one_mode_is_reported_as_several_in_at_most_one_per_cent() {
    let mut source = Source::of_seed(2);
    let shapes = [
        Noise::Normal(0.05),
        Noise::LogNormal(1.0),
        Noise::LogNormal(0.3),
        Noise::Exponential,
        Noise::Disturbed(0.02),
    ];
    for processes in [8, 12, 20, 40] {
        for shape in shapes {
            let alarms = share(1500, || several(&source.costs(shape, processes)).is_some());
            assert!(alarms <= 0.01, "{alarms} of {processes} values of {shape:?}");
        }
        // Uniform noise is the worst case: 1 %, plus the error of 4000 trials.
        let alarms = share(4000, || several(&source.costs(Noise::Uniform, processes)).is_some());
        assert!(
            alarms <= 0.01 + 3.0 * (0.01f64 * 0.99 / 4000.0).sqrt(),
            "{alarms} of {processes} uniform values"
        );
    }
}

#[test]
fn as_many_mixtures_are_found_as_the_documentation_says() {
    let documented = [
        (0.5, 1.5, [0.94, 0.98, 1.0, 1.0, 1.0, 1.0]),
        (0.7, 1.5, [0.73, 0.89, 0.93, 0.95, 0.99, 1.0]),
        (0.8, 1.5, [0.43, 0.72, 0.83, 0.80, 0.81, 0.89]),
        (0.9, 1.5, [0.11, 0.30, 0.52, 0.47, 0.36, 0.26]),
        (0.7, 1.2, [0.23, 0.31, 0.44, 0.58, 0.81, 0.96]),
    ];
    let mut source = Source::of_seed(3);
    for (weight, upper, shares) in documented {
        for (processes, expected) in [12, 20, 30, 40, 60, 90].into_iter().zip(shares) {
            let found = share(300, || several(&mixture(&mut source, weight, upper, processes).1).is_some());
            let error = 3.5 * (expected * (1.0_f64 - expected) / 300.0).sqrt() + 0.005;
            assert!(
                (found - expected).abs() <= error,
                "{found} of {weight}, {upper}, {processes}: not {expected}"
            );
        }
    }
}

#[test]
fn three_modes_are_named_and_a_fourth_is_not() {
    let mut source = Source::of_seed(4);
    let mut at = |places: &[f64]| -> Vec<f64> {
        places
            .iter()
            .flat_map(|place| source.costs(Noise::Normal(0.02), 20).into_iter().map(move |cost| cost * place))
            .collect()
    };
    let three = several(&at(&[1.0, 1.5, 3.0])).unwrap();
    assert_eq!(three.iter().map(|mode| mode.estimate.values).collect::<Vec<_>>(), [20, 20, 20]);
    assert!(three.is_sorted_by(|a, b| a.estimate.point < b.estimate.point));
    assert_eq!(several(&at(&[1.0, 1.5, 3.0, 6.0])).unwrap().len(), 3);
}

#[test]
fn modes_closer_than_one_per_cent_are_one() {
    let mut source = Source::of_seed(5);
    let mut apart = |distance: f64| -> Vec<f64> {
        (0..40).map(|i| source.cost(Noise::Normal(0.0001)) + if i < 20 { 0.0 } else { distance }).collect()
    };
    assert_eq!(several(&apart(0.009)), None);
    assert_eq!(several(&apart(0.011)).unwrap().len(), 2);
}

#[test]
fn a_few_far_values_are_outliers_and_not_a_mode() {
    let mut source = Source::of_seed(6);
    let mut values = source.costs(Noise::Normal(0.02), 30);
    values.extend([9.0, 9.1]);
    assert_eq!(several(&values), None);
    assert!(assay_statistics::outlier::outliers(&values) >= 2);
    assert_eq!(several(&[]), None);
    assert_eq!(several(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]), None);
}

/// Number of trials in which the dependence is reported to be the width of the core, and number of those in
/// which it is something else. Half of the processes of a trial cost 50 % more; their core is narrower only
/// if `planted`, and everything else is noise.
fn named(processes: usize, planted: bool) -> (u32, u32) {
    let mut source = Source::of_seed(5);
    let (mut width, mut others) = (0, 0);
    for _ in 0..500 {
        let (mut values, mut evidence) = (Vec::new(), Vec::new());
        for process in 0..processes {
            let is_dear = process % 2 == 1;
            values.push(source.cost(Noise::Normal(0.02)) * if is_dear { 1.5 } else { 1.0 });
            let is_narrow = if planted { is_dear } else { source.uniform() < 0.5 };
            let events = |uniform: f64| if uniform < 0.7 { 0.0 } else { uniform };
            evidence.push(Evidence::from_iter([
                (CORE_WIDTH, vec![source.cost(Noise::Normal(0.05)) * if is_narrow { 3.0 } else { 4.0 }]),
                (CYCLE_NS, vec![source.cost(Noise::Normal(0.01))]),
                (MPROTECT_NS, vec![source.cost(Noise::LogNormal(0.3))]),
                (RUNNABLE_ELSEWHERE, vec![events(source.uniform())]),
                (STOLEN, vec![events(source.uniform())]),
            ]));
        }
        let modes = several(&values).unwrap_or_default();
        match dependence(&modes, &values, &evidence.iter().collect::<Vec<_>>()).as_deref() {
            Some("core sharing") => width += 1,
            Some(_) => others += 1,
            None => {}
        }
    }
    (width, others)
}

#[test]
fn the_condition_that_two_modes_go_with_is_named_and_one_that_they_do_not_go_with_is_not() {
    let (width, others) = named(12, true);
    assert!(width > 450 && others < 5, "the width of the core in {width}, others in {others} of 500");
    let (width, others) = named(12, false);
    assert!(width + others <= 25, "{} of 500 are named without a reason", width + others);
}
