//! The expected costs in a later run, from the earlier runs of this machine in the store.

use anyhow::Context;
use assay_quantity::{Estimate, Key, Machine, PrimitiveId};
use assay_statistics::again;
use assay_store::{Outcome, Run, RunId, Store};
use jiff::{SignedDuration, Timestamp};

use crate::journal::lasting;
use crate::output;

/// Minimum time between the starts of two runs that count: disturbances by other guests of a machine last for
/// minutes. In 46 runs of twelve primitives on such a machine, the costs of two runs a minute apart
/// correlated by 0.68, two minutes apart by 0.62, five minutes apart by 0.18 and ten minutes apart not at
/// all.
pub const APART: SignedDuration = SignedDuration::from_mins(5);

/// Maximum number of earlier runs that count: each takes time to read, and more of them hardly reduce
/// Student's t.
const EARLIER_MAX: usize = 20;

/// Adds the expected cost in a later run to each cost of a run, from the latest earlier runs of the same
/// machine in the same state. If they cannot be read, this is reported, and the run is complete without them.
pub fn add(store: &Store, run: RunId, machine: &mut Machine) {
    if let Err(error) = try_add(store, run, machine) {
        output::say(&format!("cannot estimate the costs in a later run: {}", output::line(&error)));
    }
}

fn try_add(store: &Store, run: RunId, machine: &mut Machine) -> anyhow::Result<()> {
    let this = store.run(run)?;
    let is_alike = |other: &Run| {
        other.id < run
            && other.outcome == Some(Outcome::Completed)
            && other.start.machine == this.start.machine
            && lasting(&other.start.description).eq(lasting(&this.start.description))
    };
    let now = begun(&this)?;
    let mut alike = Vec::new();
    for other in store.runs()?.into_iter().rev().filter(is_alike) {
        alike.push((other.id, begun(&other)?));
    }
    // Earlier runs do not contain the address of the peer.
    let is_here = |primitive: &PrimitiveId| primitive.word(Key::Peer).is_empty();
    for (primitive, cost) in machine.costs.iter_mut().filter(|(primitive, _)| is_here(primitive)) {
        cost.again = again(&earlier(store, primitive, now, &alike)?, &cost.typical);
    }
    Ok(())
}

/// Returns the typical costs of a primitive in these runs, latest first, skipping runs that are not
/// [`APART`].
fn earlier(
    store: &Store,
    primitive: &PrimitiveId,
    now: Timestamp,
    runs: &[(RunId, Timestamp)],
) -> anyhow::Result<Vec<Estimate>> {
    let (mut costs, mut next) = (Vec::new(), now);
    for (run, begun) in runs {
        if costs.len() == EARLIER_MAX {
            break;
        }
        if next.duration_since(*begun) >= APART
            && let Some(typical) = assay_bench::typical_of(primitive, &store.samples_of(*run, primitive)?)
        {
            costs.push(typical);
            next = *begun;
        }
    }
    Ok(costs)
}

/// Returns the start time of a run.
fn begun(run: &Run) -> anyhow::Result<Timestamp> {
    let Run { id, start, .. } = run;
    start
        .started_at
        .parse()
        .with_context(|| format!("run {id} in the store has an invalid start time '{}'", start.started_at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_quantity::{Description, Fact, Observation, Sample, Unit};
    use assay_store::RunStart;

    /// A run with this cost of the null call.
    struct Past {
        started_at: String,
        cost_ns: f64,
        governor: &'static str,
        outcome: Outcome,
    }

    /// Returns a run that started in this minute.
    fn past(minute: i64, cost_ns: f64) -> Past {
        let started_at = Timestamp::new(1_800_000_000 + 60 * minute, 0).unwrap().to_string();
        Past { started_at, cost_ns, governor: "performance", outcome: Outcome::Completed }
    }

    /// Returns the expected cost of the null call in a later run, as estimated by the last of these runs.
    fn of_the_last(runs: &[Past]) -> Option<Estimate> {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::open(&directory.path().join("store.db")).unwrap();
        let primitive: PrimitiveId = "call.null".parse().unwrap();
        let mut last = None;
        for (number, past) in runs.iter().enumerate() {
            let fact = |name: &str, value: String| Fact { name: name.to_owned(), value };
            let facts = vec![
                fact("governor", past.governor.to_owned()),
                fact("load", format!("{number}")),
                fact("core clock", format!("{number} GHz in the median sample")),
            ];
            let start = RunStart {
                started_at: past.started_at.clone(),
                command: Vec::new(),
                version: "0.1.0".to_owned(),
                machine: "m".to_owned(),
                description: Description { facts, ..Description::default() },
                seed: 1,
            };
            let run = store.begin_run(&start).unwrap();
            for process in 0..5 {
                let cost_ns = past.cost_ns + 0.01 * f64::from(process);
                let batch = |operations: u32| Observation {
                    operations: operations.into(),
                    elapsed_ns: 5.0 + f64::from(operations) * cost_ns,
                };
                let sample = Sample { observations: vec![batch(10), batch(20)], ..Sample::default() };
                store.add_sample(run, &primitive, Unit::Nanoseconds, &sample).unwrap();
            }
            store.finish_run(run, &past.outcome).unwrap();
            last = Some(run);
        }
        let last = store.run(last.unwrap()).unwrap();
        crate::journal::machine(&store, &last).unwrap().costs[&primitive].again
    }

    #[test]
    fn five_earlier_runs_that_are_apart_suffice_for_an_estimate() {
        let runs = [100.0, 104.0, 98.0, 102.0, 96.0, 100.0];
        let runs: Vec<Past> = (0..).zip(runs).map(|(number, cost_ns)| past(5 * number, cost_ns)).collect();
        let estimate = of_the_last(&runs).unwrap();
        assert_eq!(estimate.values, 6);
        assert!(estimate.interval.low < 96.0 && 104.0 < estimate.interval.high, "{estimate:?}");
        assert_eq!(of_the_last(&runs[..5]), None, "four earlier runs");
    }

    #[test]
    fn of_runs_in_quick_succession_only_the_latest_counts() {
        let at = |minutes: &[i64]| minutes.iter().map(|minute| past(*minute, 100.0)).collect::<Vec<_>>();
        assert_eq!(of_the_last(&at(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 24])), None);
        let mut runs = at(&[0, 6, 7, 12, 13, 18, 24, 30]);
        runs[1].cost_ns = 1e6;
        runs[3].cost_ns = 1e6;
        let estimate = of_the_last(&runs).unwrap();
        assert!(estimate.values == 6 && estimate.interval.high < 200.0, "{estimate:?}");
    }

    #[test]
    fn runs_of_another_state_of_the_machine_and_unfinished_ones_do_not_count() {
        let runs = || (0..6).map(|number| past(10 * number, 100.0)).collect::<Vec<_>>();
        assert!(of_the_last(&runs()).is_some());
        let mut other = runs();
        other[2].governor = "powersave";
        assert_eq!(of_the_last(&other), None);
        let mut interrupted = runs();
        interrupted[4].outcome = Outcome::Interrupted;
        assert_eq!(of_the_last(&interrupted), None);
    }

    #[test]
    fn an_earlier_run_that_cannot_be_read_leaves_the_cost_of_this_one_as_it_is() {
        let mut runs: Vec<Past> = (0..7).map(|number| past(10 * number, 100.0)).collect();
        runs[0].started_at = "yesterday".to_owned();
        assert_eq!(of_the_last(&runs), None);
    }

    #[test]
    fn no_more_than_twenty_earlier_runs_count() {
        let runs: Vec<Past> = (0..30).map(|number| past(10 * number, 100.0)).collect();
        assert_eq!(of_the_last(&runs).unwrap().values, EARLIER_MAX + 1);
    }
}
