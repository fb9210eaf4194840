//! Several concurrent processes.

use std::thread;
use std::time::Duration;

use assay_store::{Outcome, RunId};
use rusqlite::Connection;

use crate::child::{self, Report};
use crate::{assert_intact, numbered, open};

#[test]
fn processes_that_create_and_fill_one_store_at_once_all_succeed() {
    const PROCESSES: usize = 4;
    const SAMPLES: u32 = 50;
    if child::was_child() {
        return;
    }
    for _ in 0..5 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/assay.db");
        let test = "rivals::processes_that_create_and_fill_one_store_at_once_all_succeed";
        let mut children: Vec<_> = (0..PROCESSES).map(|_| child::spawn(test, &path, Some(SAMPLES))).collect();
        let mut runs = Vec::new();
        for child in &mut children {
            let reports: Vec<Report> = child::reports(child).collect();
            assert!(child.wait().unwrap().success(), "{reports:?}");
            assert_eq!(reports.last(), Some(&Report::Committed(SAMPLES - 1)));
            runs.extend(reports.iter().filter_map(|report| match report {
                Report::Run(id) => Some(RunId(*id)),
                Report::Committed(_) => None,
            }));
        }
        let store = open(&path);
        assert_intact(&path);
        assert_eq!(store.runs().unwrap().len(), PROCESSES);
        assert_eq!(runs.len(), PROCESSES);
        for run in runs {
            let expected: Vec<_> = (0..SAMPLES).map(numbered).collect();
            assert_eq!(store.samples(run).unwrap()[0].samples, expected);
            assert_eq!(store.run(run).unwrap().outcome, Some(Outcome::Completed));
        }
    }
}

#[test]
fn opening_a_store_waits_for_another_connection_that_changes_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("assay.db");
    drop(open(&path));
    // The state of a new store between the creation of its tables and of its write-ahead log.
    let other = Connection::open(&path).unwrap();
    other.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(())).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    thread::scope(|scope| {
        let opening = scope.spawn(|| open(&path));
        thread::sleep(Duration::from_millis(200));
        other.execute_batch("COMMIT").unwrap();
        opening.join().unwrap();
    });
}

#[test]
fn a_reader_sees_committed_samples_while_a_run_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("assay.db");
    let (mut writer, reader) = (open(&path), open(&path));
    let run = writer.begin_run(&crate::start()).unwrap();
    for number in 0..3 {
        let id = crate::primitive("process.getpid");
        writer.add_sample(run, &id, assay_quantity::Unit::Nanoseconds, &numbered(number)).unwrap();
        assert_eq!(reader.samples(run).unwrap()[0].samples.last(), Some(&numbered(number)));
    }
}
