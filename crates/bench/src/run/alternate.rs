//! Measures two states of a machine alternately: every round measures both.
//!
//! A machine that drifts from minute to minute cannot be compared with itself by two runs. Here each process
//! in one state has a counterpart in the other state in the same round, with the same seed: on the same
//! processor, with the same choices and the same offsets of stack, environment and buffers
//! ([`crate::pairs_of`], [`assay_statistics::comparison::paired`]). The order of the two states is random in
//! every round. The whole budget of the plan is used: stopping at the first clear difference finds too many
//! differences.

use std::sync::atomic::{AtomicBool, Ordering};

use assay_quantity::{Pair, PrimitiveId, Which};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::plan::{Finding, NoRun, Place, Plan, Series, sample_seed};
use crate::benchmark::Benchmark;
use crate::platform::clock::monotonic;
use crate::sample::{Outcome, Spawner};

/// Minimum number of rounds: one pair of processes has no interval.
const ROUNDS_MIN: usize = 2;

/// Measures the benchmarks in two states alternately until the plan's budget is used, and for at least
/// [`ROUNDS_MIN`] rounds; the plan's numbers of processes and its precision are ignored. Each state has its
/// own spawner. Calls `enter` before each turn to put the machine into the state; if that fails, `enter` sets
/// `stop`. Everything else is as in [`crate::measure`].
///
/// # Errors
/// Returns [`NoRun`] if nothing can be measured.
pub fn alternate(
    plan: &Plan,
    benchmarks: &[Benchmark],
    spawners: Pair<&Spawner>,
    stop: &AtomicBool,
    enter: &mut dyn FnMut(Which),
    on_sample: &mut dyn FnMut(Which, &PrimitiveId, &Outcome),
) -> Result<Pair<Vec<Finding>>, NoRun> {
    let place = Place::find(plan)?;
    let mut take =
        |which, benchmark: &Benchmark, seed| place.sample(plan, spawners.get(which), benchmark, seed, stop);
    Ok(turns(plan, benchmarks, &mut monotonic::now_ns, stop, enter, &mut take, on_sample))
}

fn turns(
    plan: &Plan,
    benchmarks: &[Benchmark],
    now_ns: &mut dyn FnMut() -> u64,
    stop: &AtomicBool,
    enter: &mut dyn FnMut(Which),
    take: &mut dyn FnMut(Which, &Benchmark, u64) -> Outcome,
    on_sample: &mut dyn FnMut(Which, &PrimitiveId, &Outcome),
) -> Pair<Vec<Finding>> {
    let series = || benchmarks.iter().map(|_| Series::default()).collect::<Vec<Series>>();
    let mut all = Pair { a: series(), b: series() };
    let mut rng = Pcg64Mcg::seed_from_u64(plan.seed);
    let budget_ns = u64::try_from(plan.budget.as_nanos()).unwrap_or(u64::MAX);
    let deadline_ns = now_ns().saturating_add(budget_ns);
    // The duration of the last round, the estimate for the next one.
    let mut round_ns = 0;
    for round in 0.. {
        let begun_ns = now_ns();
        let is_given_up = |position: usize| all.a[position].is_given_up() || all.b[position].is_given_up();
        let mut turn: Vec<usize> = (0..benchmarks.len()).filter(|position| !is_given_up(*position)).collect();
        let is_over = round >= ROUNDS_MIN && begun_ns.saturating_add(round_ns) >= deadline_ns;
        if turn.is_empty() || stop.load(Ordering::Relaxed) || is_over {
            break;
        }
        turn.shuffle(&mut rng);
        let turn: Vec<(usize, u64)> =
            turn.into_iter().map(|position| (position, sample_seed(&mut rng))).collect();
        let order = if rng.random() { [Which::A, Which::B] } else { [Which::B, Which::A] };
        for which in order {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            enter(which);
            for (position, seed) in &turn {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let benchmark = &benchmarks[*position];
                let outcome = take(which, benchmark, *seed);
                if outcome == Outcome::Stopped {
                    break;
                }
                on_sample(which, &benchmark.primitive, &outcome);
                all.get_mut(which)[*position].add(outcome);
            }
        }
        round_ns = now_ns().saturating_sub(begun_ns);
    }
    let finding = |(series, benchmark): (Series, &Benchmark)| series.finding(benchmark);
    all.map(|all| all.into_iter().zip(benchmarks).map(finding).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::cost::pairs_of;
    use crate::run::plan::tests::{benchmarks, plan};
    use assay_quantity::{Observation, Sample};
    use std::cell::{Cell, RefCell};
    use std::time::Duration;

    /// An event of the measurement.
    #[derive(Debug, Clone, PartialEq)]
    enum Event {
        Entered(Which),
        Taken(Which, String, u64),
    }

    fn costing(cost_ns: f64, seed: u64) -> Outcome {
        let batch = |operations: u64, elapsed_ns| Observation { operations, elapsed_ns };
        let observations = vec![batch(1, 10.0 + cost_ns), batch(2, 10.0 + 2.0 * cost_ns)];
        Outcome::Sample(Sample { seed, observations, ..Sample::default() })
    }

    /// Measures alternately for this time; every sample takes a second.
    fn run(
        seconds: u64,
        ids: &[&str],
        stop: &AtomicBool,
        enter: &dyn Fn(Which),
        outcome: &dyn Fn(Which, &str, u64) -> Outcome,
    ) -> (Pair<Vec<Finding>>, Vec<Event>) {
        let plan = Plan { budget: Duration::from_secs(seconds), ..plan() };
        let (clock, events) = (Cell::new(0), RefCell::new(Vec::new()));
        let findings = turns(
            &plan,
            &benchmarks(ids),
            &mut || clock.get(),
            stop,
            &mut |which| {
                events.borrow_mut().push(Event::Entered(which));
                enter(which);
            },
            &mut |which, benchmark, seed| {
                clock.set(clock.get() + 1_000_000_000);
                let id = benchmark.primitive.to_string();
                let outcome = outcome(which, &id, seed);
                events.borrow_mut().push(Event::Taken(which, id, seed));
                outcome
            },
            &mut |_, _, _| {},
        );
        (findings, events.into_inner())
    }

    fn samples(finding: &Finding) -> &[Sample] {
        match finding {
            Finding::Measured(measured) => &measured.samples,
            Finding::Unmeasured(missing) => panic!("{missing:?}"),
        }
    }

    #[test]
    fn each_round_takes_every_primitive_in_both_states_with_the_same_seeds_and_in_either_order() {
        let ids = ["call.null", "file.stat"];
        let never = AtomicBool::new(false);
        let slower = |which, _: &str, seed| costing(if which == Which::A { 100.0 } else { 102.0 }, seed);
        let (findings, events) = run(81, &ids, &never, &|_| {}, &slower);
        let rounds: Vec<&[Event]> = events.chunks(6).collect();
        assert_eq!(rounds.len(), 20);
        let seeds = |events: &[Event]| {
            let seed = |event: &Event| match event {
                Event::Taken(_, id, seed) => (id.clone(), *seed),
                Event::Entered(which) => panic!("{which:?}"),
            };
            events.iter().map(seed).collect::<Vec<_>>()
        };
        for round in &rounds {
            assert_eq!(seeds(&round[1..3]), seeds(&round[4..6]));
            let states = [&round[0], &round[3]];
            let orders = [[Which::A, Which::B], [Which::B, Which::A]];
            assert!(orders.iter().any(|order| states == order.map(Event::Entered).each_ref()), "{round:?}");
        }
        let first = |which| rounds.iter().filter(|round| round[0] == Event::Entered(which)).count();
        assert!(first(Which::A) > 0 && first(Which::B) > 0);
        for (id, (a, b)) in ids.iter().zip(findings.a.iter().zip(&findings.b)) {
            let pairs = pairs_of(&id.parse().unwrap(), Pair { a: samples(a), b: samples(b) });
            assert_eq!(pairs.len(), 20);
            assert!(pairs.iter().all(|pair| (pair.b / pair.a - 1.02).abs() < 1e-9), "{pairs:?}");
        }
    }

    #[test]
    fn two_rounds_are_measured_even_if_the_budget_is_too_short() {
        let never = AtomicBool::new(false);
        let (_, events) = run(0, &["call.null"], &never, &|_| {}, &|_, _, seed| costing(5.0, seed));
        assert_eq!(events.len(), 8, "{events:?}");
    }

    #[test]
    fn a_process_without_a_value_omits_only_its_own_pair() {
        let never = AtomicBool::new(false);
        let count = Cell::new(0);
        let every_third_fails = |_, _: &str, seed| {
            count.set(count.get() + 1);
            if count.get() % 3 == 0 { Outcome::Rejected("no".to_owned()) } else { costing(5.0, seed) }
        };
        let (findings, _) = run(13, &["call.null"], &never, &|_| {}, &every_third_fails);
        let (a, b) = (samples(&findings.a[0]), samples(&findings.b[0]));
        assert_eq!(a.len() + b.len(), 8);
        assert_eq!(pairs_of(&"call.null".parse().unwrap(), Pair { a, b }).len(), 2);
    }

    #[test]
    fn a_primitive_that_fails_in_one_state_is_given_up_in_both_and_the_others_continue() {
        let never = AtomicBool::new(false);
        let fails_in_b = |which, id: &str, seed| match (which, id) {
            (Which::B, "file.stat") => Outcome::Rejected("killed".to_owned()),
            _ => costing(5.0, seed),
        };
        let (findings, _) = run(41, &["call.null", "file.stat"], &never, &|_| {}, &fails_in_b);
        assert_eq!((samples(&findings.a[0]).len(), samples(&findings.a[1]).len()), (15, 5));
        let Finding::Unmeasured(missing) = &findings.b[1] else { panic!("{findings:?}") };
        assert_eq!(missing.reason, "all 5 processes failed, the last one: killed");
    }

    #[test]
    fn no_sample_is_taken_in_a_state_that_could_not_be_entered() {
        let stop = AtomicBool::new(false);
        let entered = Cell::new(0);
        let fails_the_third_time = |_| {
            entered.set(entered.get() + 1);
            stop.store(entered.get() == 3, Ordering::Relaxed);
        };
        let (_, events) =
            run(100, &["call.null"], &stop, &fails_the_third_time, &|_, _, seed| costing(5.0, seed));
        assert_eq!(events.len(), 5, "{events:?}");
        assert!(matches!(events[4], Event::Entered(_)), "{events:?}");
    }
}
