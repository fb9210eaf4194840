//! Data is read as written.

use std::cell::RefCell;

use assay_quantity::{
    ClientSide, CpuTime, Description, Evidence, Fact, Latency, Observation, Round, Sample, Unit, Unmeasured,
};
use assay_store::{Outcome, Rejected, Run, RunId, RunStart, WriteError};
use proptest::prelude::*;

use crate::{numbered, open, primitive, start};

fn finite() -> impl Strategy<Value = f64> {
    prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO
}

fn observations() -> impl Strategy<Value = Vec<Observation>> {
    let observation =
        (any::<u64>(), finite()).prop_map(|(operations, elapsed_ns)| Observation { operations, elapsed_ns });
    prop::collection::vec(observation, 0..20)
}

fn evidence() -> impl Strategy<Value = Evidence> {
    let readings = (".*", prop::collection::vec(finite(), 0..20));
    prop::collection::vec(readings, 0..5).prop_map(Evidence::from_iter)
}

fn samples() -> impl Strategy<Value = Sample> {
    (any::<u64>(), observations(), observations(), any::<usize>(), evidence()).prop_map(
        |(seed, observations, baseline, refused, evidence)| Sample {
            seed,
            observations,
            baseline,
            refused,
            evidence,
            counted: Vec::new(),
        },
    )
}

/// Returns all bits of a sample: `==` would treat -0.0 and 0.0 as equal.
fn bits(sample: &Sample) -> (Vec<u64>, Vec<(String, Vec<u64>)>) {
    let observed = |list: &[Observation]| -> Vec<u64> {
        list.iter().flat_map(|o| [o.operations, o.elapsed_ns.to_bits()]).collect()
    };
    let mut bits = vec![sample.seed, sample.observations.len() as u64, sample.refused as u64];
    bits.extend(observed(&sample.observations));
    bits.extend(observed(&sample.baseline));
    let readings = |readings: &[f64]| readings.iter().map(|reading| reading.to_bits()).collect();
    let evidence = sample.evidence.iter().map(|(kind, own)| (kind.to_owned(), readings(own)));
    (bits, evidence.collect())
}

#[test]
fn samples_are_read_bit_for_bit_and_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let store = RefCell::new(open(&directory.path().join("assay.db")));
    proptest!(|(samples in prop::collection::vec(samples(), 1..5))| {
        let mut store = store.borrow_mut();
        let run = store.begin_run(&start()).unwrap();
        for sample in &samples {
            store.add_sample(run, &primitive("tcp.send{size=64B}"), Unit::NanosecondsPerByte, sample).unwrap();
        }
        let series = store.samples(run).unwrap();
        prop_assert_eq!(series.len(), 1);
        prop_assert_eq!(series[0].unit, Unit::NanosecondsPerByte);
        let given: Vec<_> = samples.iter().map(bits).collect();
        let found: Vec<_> = series[0].samples.iter().map(bits).collect();
        prop_assert_eq!(given, found);
    });
}

#[test]
fn any_text_of_a_run_is_read_as_written() {
    let directory = tempfile::tempdir().unwrap();
    let store = RefCell::new(open(&directory.path().join("assay.db")));
    proptest!(|(machine in ".*", argument in ".*", reason in ".*")| {
        let mut store = store.borrow_mut();
        let start = RunStart { machine, command: vec![argument], ..start() };
        let id = store.begin_run(&start).unwrap();
        let outcome = Outcome::Failed(reason);
        store.finish_run(id, &outcome).unwrap();
        prop_assert_eq!(store.run(id).unwrap(), Run { id, start, outcome: Some(outcome) });
    });
}

#[test]
fn series_separate_primitives_and_runs_that_were_measured_alternately() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&directory.path().join("assay.db"));
    let runs = [store.begin_run(&start()).unwrap(), store.begin_run(&start()).unwrap()];
    let ids = ["tcp.send{size=64B}", "process.getpid"];
    for number in 0..12 {
        let (run, id) = (runs[number as usize % 2], ids[number as usize / 2 % 2]);
        store.add_sample(run, &primitive(id), Unit::Nanoseconds, &numbered(number)).unwrap();
    }
    let series = store.samples(runs[1]).unwrap();
    let found: Vec<(String, Vec<u64>)> = series
        .iter()
        .map(|series| (series.primitive.to_string(), series.samples.iter().map(|s| s.seed).collect()))
        .collect();
    assert_eq!(found, [(ids[0].to_owned(), vec![1, 5, 9]), (ids[1].to_owned(), vec![3, 7, 11])]);
    for (id, series) in ids.iter().zip(series) {
        assert_eq!(store.samples_of(runs[1], &primitive(id)).unwrap(), series.samples);
    }
    assert_eq!(store.samples_of(runs[1], &primitive("call.null")).unwrap(), []);
}

#[test]
fn missing_measurements_are_stored_with_their_reason() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&directory.path().join("assay.db"));
    let run = store.begin_run(&start()).unwrap();
    let (id, reason) = (primitive("file.cold_read{size=1MiB}"), "needs root".to_owned());
    store.add_rejected(run, &id, "interrupted by a signal").unwrap();
    store.add_rejected(run, &id, "interrupted by a signal").unwrap();
    store.add_unavailable(run, &id, "not measured yet").unwrap();
    store.add_unavailable(run, &id, &reason).unwrap();
    let rejected = Rejected { primitive: id.clone(), reason: "interrupted by a signal".to_owned() };
    assert_eq!(store.rejected(run).unwrap(), [rejected.clone(), rejected]);
    assert_eq!(store.unavailable(run).unwrap(), [Unmeasured { primitive: id, reason }]);
    assert!(store.samples(run).unwrap().is_empty());
}

#[test]
fn rounds_are_read_in_order_with_every_value() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&directory.path().join("assay.db"));
    let run = store.begin_run(&start()).unwrap();
    let round = |operation: &str, p999_ns, connections| Round {
        operation: operation.to_owned(),
        units: 10_000,
        elapsed_ns: u64::MAX,
        cpu: CpuTime { total_ns: 8, queued_ns: 11, user_ticks: 9, system_ticks: 10 },
        usable_cpus: 2,
        client: Some(ClientSide {
            latency: Latency { p50_ns: 1, p90_ns: 2, p99_ns: 3, p999_ns, max_ns: 5 },
            received_bytes: 6,
            connections,
            cpu_ns: 7,
        }),
    };
    let command = Round { client: None, units: 1, ..round("make", None, None) };
    let rounds = [round("get", Some(4), None), round("put", None, Some(64)), command];
    for round in &rounds {
        store.add_round(run, round).unwrap();
    }
    assert_eq!(store.rounds(run).unwrap(), rounds);
}

#[test]
fn the_latest_run_is_the_one_that_started_last_with_any_outcome() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("assay.db");
    let mut store = open(&path);
    assert_eq!(store.latest(0).unwrap(), None);
    let ids: Vec<RunId> = (0..3).map(|_| store.begin_run(&start()).unwrap()).collect();
    store.finish_run(ids[0], &Outcome::Completed).unwrap();
    store.finish_run(ids[1], &Outcome::Interrupted).unwrap();
    drop(store);
    let store = open(&path);
    assert_eq!(store.latest(0).unwrap().unwrap().id, ids[2]);
    assert_eq!(store.latest(2).unwrap().unwrap().id, ids[0]);
    assert_eq!(store.latest(3).unwrap(), None);
    let outcomes: Vec<_> = store.runs().unwrap().into_iter().map(|run| run.outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Completed), Some(Outcome::Interrupted), None]);
}

#[test]
fn nothing_is_added_to_a_run_that_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&directory.path().join("assay.db"));
    let run = store.begin_run(&start()).unwrap();
    store.finish_run(run, &Outcome::Completed).unwrap();
    let id = primitive("process.getpid");
    for refused in [
        store.add_sample(run, &id, Unit::Nanoseconds, &numbered(1)),
        store.add_rejected(run, &id, "late"),
        store.finish_run(run, &Outcome::Interrupted),
    ] {
        assert!(matches!(refused, Err(WriteError::Ended { .. })), "{refused:?}");
    }
    assert_eq!(store.run(run).unwrap().outcome, Some(Outcome::Completed));
    assert!(store.samples(run).unwrap().is_empty());
}

#[test]
fn only_a_run_that_was_not_completed_can_be_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&directory.path().join("assay.db"));
    let id = primitive("process.getpid");
    for (outcome, reopens) in [
        (Some(Outcome::Interrupted), true),
        (Some(Outcome::Failed("no space".to_owned())), true),
        (None, true),
        (Some(Outcome::Completed), false),
    ] {
        let run = store.begin_run(&start()).unwrap();
        store.add_sample(run, &id, Unit::Nanoseconds, &numbered(1)).unwrap();
        outcome.iter().for_each(|outcome| store.finish_run(run, outcome).unwrap());
        assert_eq!(store.resume_run(run).is_ok(), reopens, "{outcome:?}");
        let added = store.add_sample(run, &id, Unit::Nanoseconds, &numbered(2));
        assert_eq!(added.is_ok(), reopens, "{outcome:?}");
        assert_eq!(store.samples(run).unwrap()[0].samples.len(), if reopens { 2 } else { 1 });
        assert_eq!(store.run(run).unwrap().outcome.is_none(), reopens);
    }
    assert!(store.resume_run(RunId(99)).is_err());
}

#[test]
fn a_later_description_of_the_machine_replaces_the_first_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&directory.path().join("assay.db"));
    let run = store.begin_run(&start()).unwrap();
    let fact = Fact { name: "noise".to_owned(), value: "3 gaps".to_owned() };
    let description = Description { facts: vec![fact], uncontrolled: vec![] };
    store.describe_run(run, &description).unwrap();
    assert_eq!(store.run(run).unwrap().start.description, description);
    store.finish_run(run, &Outcome::Completed).unwrap();
    assert!(store.describe_run(run, &description).is_err());
}
