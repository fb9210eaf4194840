//! Several processes at once.

use assay_store::{Outcome, RunId};

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
fn a_reader_sees_what_is_committed_while_a_run_is_being_written() {
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
