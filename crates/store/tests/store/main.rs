//! The store on real files: data is read as written, despite kills, full disks and concurrent processes.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "all of this crate is tests")]

mod child;
mod golden;
mod kill;
mod refusal;
mod rivals;
mod round_trip;

use std::path::Path;

use assay_quantity::evidence::{
    CORE_WIDTH, CYCLE_NS, INTERRUPTS, INVOLUNTARY_SWITCHES, MAJOR_FAULTS, MPROTECT_NS, NOT_RUN,
    RUNNABLE_ELSEWHERE, STOLEN,
};
use assay_quantity::{Counted, Description, Evidence, Fact, Observation, PrimitiveId, Sample};
use assay_store::{RunStart, Store};

/// Returns the start of a run as a caller would create it.
fn start() -> RunStart {
    RunStart {
        started_at: "2026-11-21T21:44:00Z".to_owned(),
        command: ["assay", "bench", "--seed", "7", "tcp.*"].map(str::to_owned).to_vec(),
        version: "0.1.0".to_owned(),
        machine: "build-7".to_owned(),
        description: Description {
            facts: vec![Fact { name: "cpu".to_owned(), value: "a \"fast\" one, 3 GHz ±".to_owned() }],
            uncontrolled: vec!["the frequency was not fixed".to_owned()],
        },
        seed: u64::MAX,
    }
}

fn primitive(name: &str) -> PrimitiveId {
    name.parse().unwrap()
}

/// Returns a sample whose values depend on `number`.
fn numbered(number: u32) -> Sample {
    let observation = |turn: u32| Observation {
        operations: u64::from(turn + 1),
        elapsed_ns: f64::from(number) + 0.1 * f64::from(turn),
    };
    Sample {
        seed: u64::from(number),
        observations: (0..20).map(observation).collect(),
        baseline: (0..3).map(observation).collect(),
        refused: usize::from(number.is_multiple_of(2)),
        evidence: Evidence::from_iter([
            (CORE_WIDTH, vec![3.97, 4.01]),
            (CYCLE_NS, vec![0.342]),
            (MPROTECT_NS, vec![4562.5]),
            (RUNNABLE_ELSEWHERE, vec![0.5, 1.5]),
            (INTERRUPTS, vec![0.007]),
            (STOLEN, vec![0.0]),
            (INVOLUNTARY_SWITCHES, vec![f64::from(number)]),
            (MAJOR_FAULTS, vec![0.0]),
            (NOT_RUN, (0..23).map(|batch| if batch % 20 == 1 { 0.25 } else { 0.0 }).collect()),
            ("weather", vec![-1e-300, 21.5]),
        ]),
        counted: vec![
            Counted { event: "page faults".to_owned(), batches: Ok(vec![(1, 2.0), (2, 4.5)]) },
            Counted { event: "cycles".to_owned(), batches: Err("there is no counter".to_owned()) },
        ],
    }
}

/// Runs SQLite's own checks on the file.
fn assert_intact(path: &Path) {
    let connection = rusqlite::Connection::open(path).unwrap();
    let verdict: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
    let dangling = connection.prepare("PRAGMA foreign_key_check").unwrap().exists([]).unwrap();
    assert!(!dangling, "a row has a dangling reference");
}

fn open(path: &Path) -> Store {
    Store::open(path).unwrap()
}
