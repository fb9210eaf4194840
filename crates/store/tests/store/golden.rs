//! The format on disk, checked with a golden file: a store as SQL text. The current program must write
//! exactly that text, and must read it back as written.

use std::fmt::Write;
use std::path::Path;

use assay_quantity::evidence::{
    CORE_WIDTH, CYCLE_NS, INTERRUPTS, INVOLUNTARY_SWITCHES, LOST, MAJOR_FAULTS, MPROTECT_NS,
    RUNNABLE_ELSEWHERE, STOLEN,
};
use assay_quantity::{ClientSide, CpuTime, Evidence, Latency, Round, Sample, Unit, Unmeasured};
use assay_store::{Outcome, RunId, Store};
use expect_test::expect_file;
use rusqlite::Connection;

use crate::{numbered, open, primitive, start};

const TABLES: [&str; 6] = ["run", "series", "sample", "rejected", "unavailable", "round"];

fn round() -> Round {
    Round {
        operation: "get".to_owned(),
        units: 10_000,
        elapsed_ns: 1_234_567_890,
        cpu: CpuTime { total_ns: 800_000_000, queued_ns: 9_000_000, user_ticks: 30, system_ticks: 50 },
        usable_cpus: 2,
        client: Some(ClientSide {
            latency: Latency { p50_ns: 101, p90_ns: 102, p99_ns: 103, p999_ns: None, max_ns: 105 },
            received_bytes: 6_000_000,
            connections: Some(64),
            cpu_ns: 700_000_000,
        }),
    }
}

/// Writes a row in every table, and every outcome.
fn fill(store: &mut Store) {
    let run = store.begin_run(&start()).unwrap();
    let id = primitive("tcp.send{size=4KiB,buffer=reused}");
    store.add_sample(run, &id, Unit::NanosecondsPerByte, &numbered(1)).unwrap();
    store.add_sample(run, &id, Unit::NanosecondsPerByte, &numbered(2)).unwrap();
    store.add_rejected(run, &id, "its process was killed").unwrap();
    store.add_unavailable(run, &primitive("file.cold_read"), "needs root").unwrap();
    store.add_round(run, &round()).unwrap();
    store.finish_run(run, &Outcome::Completed).unwrap();
    for outcome in [Outcome::Interrupted, Outcome::Failed("no space".to_owned())] {
        let run = store.begin_run(&start()).unwrap();
        store.finish_run(run, &outcome).unwrap();
    }
    store.begin_run(&start()).unwrap();
}

/// Returns the markers, the schema and the rows as SQL that recreates them.
fn dump(path: &Path) -> String {
    let connection = Connection::open(path).unwrap();
    let mut sql = String::new();
    for pragma in ["application_id", "user_version"] {
        let value: i64 = connection.pragma_query_value(None, pragma, |row| row.get(0)).unwrap();
        writeln!(sql, "PRAGMA {pragma} = {value};").unwrap();
    }
    let texts = |select: &str| -> Vec<String> {
        let mut statement = connection.prepare(select).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    for create in texts(
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid",
    ) {
        writeln!(sql, "{create};").unwrap();
    }
    for table in TABLES {
        let columns = texts(&format!("SELECT 'quote(' || name || ')' FROM pragma_table_info('{table}')"));
        let row = columns.join(" || ', ' || ");
        for values in texts(&format!("SELECT {row} FROM {table} ORDER BY id")) {
            writeln!(sql, "INSERT INTO {table} VALUES ({values});").unwrap();
        }
    }
    sql
}

#[test]
fn the_written_format_is_format_3() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("assay.db");
    let mut store = open(&path);
    fill(&mut store);
    expect_file!["format-3.sql"].assert_eq(&dump(&path));
}

/// Creates a store from this SQL, opens it, and asserts that it contains the data of [`fill`], with these
/// samples.
fn assert_reads(sql: &str, samples: &[Sample]) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("assay.db");
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    let store = open(&path);
    let run = RunId(1);
    let series = store.samples(run).unwrap();
    assert_eq!(series[0].primitive, primitive("tcp.send{size=4KiB,buffer=reused}"));
    assert_eq!(series[0].unit, Unit::NanosecondsPerByte);
    assert_eq!(series[0].samples, samples);
    assert_eq!(store.rejected(run).unwrap()[0].reason, "its process was killed");
    let unavailable = Unmeasured { primitive: primitive("file.cold_read"), reason: "needs root".to_owned() };
    assert_eq!(store.unavailable(run).unwrap(), [unavailable]);
    assert_eq!(store.rounds(run).unwrap(), [round()]);
    let runs = store.runs().unwrap();
    assert!(runs.iter().all(|run| run.start == start()));
    let outcomes: Vec<_> = runs.into_iter().map(|run| run.outcome).collect();
    let failed = Outcome::Failed("no space".to_owned());
    assert_eq!(outcomes, [Some(Outcome::Completed), Some(Outcome::Interrupted), Some(failed), None]);
}

#[test]
fn a_store_of_format_3_is_read_as_written() {
    assert_reads(include_str!("format-3.sql"), &[numbered(1), numbered(2)]);
}

/// Returns the sample with the evidence of an earlier format: one value of each kind, and the lost share of
/// each batch.
fn judged(
    sample: Sample,
    core_width: &[f64],
    interrupts: f64,
    stolen: Option<f64>,
    lost: Vec<f64>,
) -> Sample {
    let of = |kind: &'static str| (kind, sample.evidence.of(kind)[..1].to_vec());
    let evidence = Evidence::from_iter([
        of(CYCLE_NS),
        of(MPROTECT_NS),
        of(RUNNABLE_ELSEWHERE),
        of(INVOLUNTARY_SWITCHES),
        of(MAJOR_FAULTS),
        (CORE_WIDTH, core_width.to_vec()),
        (INTERRUPTS, vec![interrupts]),
        (STOLEN, Vec::from_iter(stolen)),
        (LOST, lost),
    ]);
    Sample { evidence, ..sample }
}

#[test]
fn a_store_of_format_2_is_read_with_the_values_that_were_judged_then() {
    let of_format_2 = |number: u32| {
        let sample = numbered(number);
        let batches = sample.observations.iter().chain(&sample.baseline).enumerate();
        let lost = batches.map(|(batch, seen)| if batch % 20 == 1 { 0.25 / seen.elapsed_ns } else { 0.0 });
        let lost = lost.collect();
        judged(sample, &[3.97, 3.97, 4.01], 0.007, Some(0.0), lost)
    };
    assert_reads(include_str!("format-2.sql"), &[of_format_2(1), of_format_2(2)]);
}

/// Returns a sample as stored in format 1, which contains the losses only for all batches together.
fn of_format_1(number: u32) -> Sample {
    let wall_ns = f64::from(number) * 1.1;
    let sample = Sample { refused: 0, ..numbered(number) };
    judged(sample, &[3.97, 3.97], 0.7 / wall_ns, None, vec![(0.3 / wall_ns).clamp(0.0, 1.0); 23])
}

#[test]
fn a_store_of_format_1_is_read_as_written() {
    assert_reads(include_str!("format-1.sql"), &[of_format_1(1), of_format_1(2)]);
}

#[test]
fn obsolete_fields_of_format_1_are_ignored() {
    let earlier = include_str!("format-1.sql")
        .replace("\"cycle_ns\"", "\"repeated\":3,\"postponed\":7,\"pressure_ns\":0.2,\"cycle_ns\"");
    assert!(earlier.contains("postponed"));
    assert_reads(&earlier, &[of_format_1(1), of_format_1(2)]);
}
