//! The control laws on simulated servers: what each promises, and that no signal makes one fail.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

mod knee;

use std::time::Duration;

use assay_reflect::law::{LAWS, Law, Limit, Tuning};
use assay_reflect::plant::{PLANTS, Plant};
use assay_reflect::simulation::{Moment, Run, Scenario, run};
use assay_reflect::{Overhead, Signal};
use proptest::prelude::*;

fn simulated(law: &str, plant: &str, scenario: &str) -> Run {
    let (law, plant) = (Law::named(law).unwrap(), Plant::named(plant).unwrap());
    run(law, plant, Scenario::named(scenario).unwrap(), 1)
}

/// The largest ratio of two limits of the second half of a run.
fn range(run: &Run) -> f64 {
    let limits = run.moments[run.moments.len() / 2..].iter().map(|moment| moment.limit.units());
    f64::from(limits.clone().max().unwrap()) / f64::from(limits.min().unwrap())
}

#[expect(clippy::cast_precision_loss, reason = "a run has far fewer than 2^52 periods")]
fn mean_per_s(moments: &[Moment]) -> f64 {
    moments.iter().map(|moment| moment.signal.productivity()).sum::<f64>() / moments.len() as f64
}

/// A signal of a server at its peak.
fn signal() -> Signal {
    Signal {
        period: Duration::from_millis(100),
        finished: 100,
        failed: 0,
        in_flight: 10.0,
        waiting: 10.0,
        latency: Some(Duration::from_millis(10)),
        oldest: Some(Duration::from_millis(20)),
        overhead: Overhead { cpu: Some(Duration::from_millis(100)), ..Overhead::default() },
    }
}

/// The limits of a law that starts at `start`, after each of these signals.
fn answers(law: &str, start: f64, signals: impl IntoIterator<Item = Signal>) -> Vec<u32> {
    let tuning = Tuning { start: Limit::nearest(start), gain: 1.0 };
    let mut controller = (Law::named(law).unwrap().new)(tuning);
    signals.into_iter().map(|signal| controller.update(&signal).limit.units()).collect()
}

#[test]
fn fixed_never_moves() {
    let signals = (0..100).map(|n| Signal { finished: n * 7 % 50, ..signal() });
    assert_eq!(answers("fixed", 20.0, signals), [20; 100]);
}

#[test]
fn aimd_swings_around_its_threshold_and_farther_if_signals_are_late() {
    let range = |delay| {
        let (law, plant) = (Law::named("aimd").unwrap(), Plant::named("far").unwrap());
        let run = run(law, plant, &Scenario { delay, ..*Scenario::named("below").unwrap() }, 1);
        range(&run)
    };
    let ranges = [1, 2, 4].map(range);
    assert!(ranges[0] >= 1.1 && ranges.is_sorted() && ranges[2] <= 2.0, "{ranges:?}");
}

#[test]
fn vegas_comes_to_rest_between_its_bounds() {
    let run = simulated("vegas", "universal", "below");
    assert!(range(&run) <= 1.0, "{}", range(&run));
}

#[test]
fn vegas_never_forgets_a_latency_that_it_learnt_inside_the_collapse() {
    let run = simulated("vegas", "universal", "inside");
    let last = run.moments.last().unwrap();
    assert!(last.signal.productivity() < 0.1 * 23_000.0, "{last:?}");
}

#[test]
fn gradient2_falls_by_a_tenth_of_the_limit_at_most() {
    let steady = std::iter::repeat_n(signal(), 50);
    let slow = Signal { latency: Some(Duration::from_secs(5)), in_flight: 1e6, ..signal() };
    let limits = answers("gradient2", 100.0, steady.chain(std::iter::repeat_n(slow, 20)));
    for pair in limits[49..].windows(2) {
        assert!(f64::from(pair[1]) >= 0.9 * f64::from(pair[0]) - 1.0, "{pair:?}");
    }
    assert!(limits[69] < limits[49], "{limits:?}");
}

#[test]
fn paper2003_takes_more_if_both_rise_and_fewer_if_only_overhead_does() {
    let with = |finished, cpu_ms| Signal {
        finished,
        overhead: Overhead { cpu: Some(Duration::from_millis(cpu_ms)), ..Overhead::default() },
        ..signal()
    };
    // The averages rise from zero.
    assert_eq!(answers("paper2003", 100.0, [with(100, 100)]), [110]);
    let settled = || std::iter::repeat_n(with(100, 100), 600);
    let change = |signal| {
        let limits = answers("paper2003", 1.0, settled().chain([signal]));
        f64::from(limits[600]) / f64::from(limits[599])
    };
    for (name, signal, expected) in [
        ("both rise", with(200, 400), 1.1),
        ("only overhead rises", with(100, 400), 0.9),
        ("only productivity rises", with(200, 100), 1.0),
        ("nothing rises", with(100, 100), 1.0),
    ] {
        assert!((change(signal) - expected).abs() < 0.001, "{name}: {}", change(signal));
    }
}

#[test]
fn paper2003_holds_the_limit_if_overhead_is_not_measured() {
    let unmeasured = Signal { overhead: Overhead::default(), ..signal() };
    assert_eq!(answers("paper2003", 30.0, std::iter::repeat_n(unmeasured, 5)), [30; 5]);
}

#[test]
fn the_plant_with_deadlocks_serves_what_was_measured() {
    let law = |new| Law { name: "", about: "", period: Duration::from_secs(1), new };
    let limits = [
        law(|tuning| (Law::fixed().new)(Tuning { start: Limit::nearest(2.0), ..tuning })),
        law(|tuning| (Law::fixed().new)(Tuning { start: Limit::nearest(8.0), ..tuning })),
        law(|tuning| (Law::fixed().new)(Tuning { start: Limit::nearest(32.0), ..tuning })),
    ];
    let halves = limits.map(|law| {
        let run = run(&law, Plant::named("deadlock").unwrap(), Scenario::named("below").unwrap(), 1);
        run.moments[run.moments.len() / 2..].to_vec()
    });
    let failed: u64 = halves[2].iter().map(|moment| moment.signal.failed).sum();
    // 2.4 in each of the 60 seconds.
    assert!((130..160).contains(&failed), "{failed}");
    let served = halves.map(|half| mean_per_s(&half));
    // The lowest and the highest measurement with 2 and 8 in flight; with 32 there is one.
    for (served, measured) in served.into_iter().zip([790.0..=1_106.0, 519.0..=633.0, 55.0..=75.0]) {
        assert!(measured.contains(&served), "{served} is not in {measured:?}");
    }
}

#[test]
fn every_client_of_a_plant_is_in_flight_or_waits() {
    for plant in &PLANTS {
        let run = run(Law::named("aimd").unwrap(), plant, Scenario::named("inside").unwrap(), 1);
        for Moment { end, signal, .. } in &run.moments {
            let clients = signal.in_flight + signal.waiting;
            assert!((clients - f64::from(plant.clients)).abs() < 0.6, "{} at {end:?}: {clients}", plant.name);
        }
    }
}

#[test]
fn a_seed_repeats_a_run_and_another_one_does_not() {
    let noise = |seed| {
        let (law, plant) = (Law::named("knee").unwrap(), Plant::named("cliff").unwrap());
        let run = run(law, plant, Scenario::named("noise").unwrap(), seed);
        run.moments.iter().map(|moment| (moment.limit, moment.signal.finished)).collect::<Vec<_>>()
    };
    assert_eq!(noise(3), noise(3));
    assert_ne!(noise(3), noise(4));
}

fn any_duration() -> impl Strategy<Value = Option<Duration>> {
    prop::option::of(prop_oneof![
        Just(Duration::MAX),
        any::<u32>().prop_map(|ns| Duration::from_nanos(ns.into()))
    ])
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), 0.0..2_000.0]
}

prop_compose! {
    fn any_signal()(
        period in any_duration(),
        finished in prop_oneof![any::<u64>(), 0..1_000u64],
        failed in prop_oneof![any::<u64>(), 0..10u64],
        in_flight in any_number(),
        waiting in any_number(),
        [latency, oldest, cpu, run_queue_wait, lock_wait] in [(); 5].map(|()| any_duration()),
    ) -> Signal {
        let overhead = Overhead { cpu, run_queue_wait, lock_wait };
        let period = period.unwrap_or_default();
        Signal { period, finished, failed, in_flight, waiting, latency, oldest, overhead }
    }
}

proptest! {
    #[test]
    fn no_signal_makes_a_law_fail(
        start in any::<f64>(),
        gain in 0.5..2.0,
        signals in prop::collection::vec((any_signal(), 1..40usize), 1..20),
    ) {
        for law in &LAWS {
            let mut controller = (law.new)(Tuning { start: Limit::nearest(start), gain });
            for signal in signals.iter().flat_map(|(signal, times)| std::iter::repeat_n(signal, *times)) {
                let limit = controller.update(signal).limit.units();
                prop_assert!((1..=Limit::HIGHEST).contains(&limit));
            }
        }
    }

    /// A server whose number in flight follows the limit: with it, knee gets through all of its stages.
    #[test]
    fn knee_takes_any_productivity(
        start in 1.0..2_000.0,
        productivity in prop::collection::vec((0..100_000u64, 1..30usize), 1..60),
        empty in prop::collection::vec(1..60usize, 1..8),
        clients in 1.0..2_000.0,
    ) {
        let mut controller = (Law::named("knee").unwrap().new)(Tuning { start: Limit::nearest(start), gain: 1.0 });
        let mut limit = Limit::nearest(start);
        let stalls = empty.into_iter().map(|periods| (0, periods));
        let runs = productivity.chunks(8).map(<[_]>::to_vec).zip(stalls.chain(std::iter::repeat((0, 0))));
        let runs = runs.flat_map(|(run, stall)| run.into_iter().chain([stall]));
        for finished in runs.flat_map(|(finished, periods)| std::iter::repeat_n(finished, periods)) {
            let in_flight = f64::from(limit.units()).min(clients);
            let signal = Signal { finished, in_flight, waiting: clients - in_flight, oldest: None, ..signal() };
            limit = controller.update(&signal).limit;
        }
        prop_assert!((1..=Limit::HIGHEST).contains(&limit.units()));
    }
}

#[test]
fn the_law_of_a_limit_chosen_by_hand_is_the_one_of_that_name() {
    assert!(std::ptr::eq(Law::fixed(), Law::named("fixed").unwrap()));
}
