//! Files, disks and values that a store cannot use: the error is one line, and no data is damaged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use assay_quantity::{Evidence, Observation, Sample, Unit};
use assay_store::{Failure, OpenError, ReadError, RunId, Store, WriteError};

use crate::{assert_intact, numbered, open, primitive, start};

/// Returns the error of opening this file, which must be one line.
fn refused(path: &Path) -> String {
    let message = Store::open(path).unwrap_err().to_string();
    assert!(!message.contains('\n') && message.contains(path.to_str().unwrap()), "{message}");
    message
}

#[test]
fn a_file_that_is_not_a_database_is_rejected_and_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    let text = "these are my notes, and they are longer than the header of a database file. ".repeat(30);
    fs::write(&path, &text).unwrap();
    assert!(refused(&path).contains("damaged or not a store"));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_database_of_another_program_is_rejected_and_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("photos.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE photo (id INTEGER PRIMARY KEY)").unwrap();
    drop(other);
    let before = fs::read(&path).unwrap();
    assert!(refused(&path).contains("another program"));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_store_of_a_newer_format_is_rejected_with_both_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("assay.db");
    drop(open(&path));
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let message = refused(&path);
    assert!(message.contains("has format 99") && message.contains("up to 3;"), "{message}");
}

#[test]
fn a_damaged_store_is_an_error_and_not_a_shorter_history() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("assay.db");
    let mut store = open(&path);
    let run = store.begin_run(&start()).unwrap();
    for number in 0..200 {
        store.add_sample(run, &primitive("process.getpid"), Unit::Nanoseconds, &numbered(number)).unwrap();
    }
    drop(store);
    let mut bytes = fs::read(&path).unwrap();
    let from = bytes.len() / 2;
    bytes[from..].fill(0xa5);
    fs::write(&path, bytes).unwrap();
    let message = match Store::open(&path) {
        Err(error) => error.to_string(),
        Ok(store) => store.samples(run).unwrap_err().to_string(),
    };
    assert!(message.contains("damaged") && message.contains("move it away"), "{message}");
}

#[test]
fn an_invalid_row_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("assay.db");
    let mut store = open(&path);
    let run = store.begin_run(&start()).unwrap();
    store.add_sample(run, &primitive("process.getpid"), Unit::Nanoseconds, &numbered(1)).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute("UPDATE sample SET body = '{\"seed\": 1}'", []).unwrap();
    let refused = store.samples(run).unwrap_err();
    assert!(matches!(refused, ReadError::Damaged { .. }), "{refused:?}");
}

#[test]
fn a_directory_or_device_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    assert!(refused(directory.path()).contains("not a regular file"));
    assert!(refused(Path::new("/dev/null")).contains("not a regular file"));
}

#[test]
fn the_error_for_a_directory_that_cannot_be_created_contains_its_path() {
    let message = Store::open(Path::new("/proc/assay/assay.db")).unwrap_err().to_string();
    assert!(message.starts_with("cannot create directory /proc/assay for the store"), "{message}");
}

#[test]
fn a_run_that_does_not_exist_is_an_error_and_not_an_empty_run() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&directory.path().join("assay.db"));
    let none = RunId(7);
    assert!(matches!(store.run(none), Err(ReadError::NoRun { run, .. }) if run == none));
    assert!(matches!(store.samples(none), Err(ReadError::NoRun { .. })));
    assert!(matches!(store.rounds(none), Err(ReadError::NoRun { .. })));
    let refused = store.add_rejected(none, &primitive("process.getpid"), "x");
    assert!(matches!(refused, Err(WriteError::NoRun { .. })), "{refused:?}");
}

#[test]
fn a_sample_with_an_infinite_or_invalid_number_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&directory.path().join("assay.db"));
    let run = store.begin_run(&start()).unwrap();
    let id = primitive("process.getpid");
    let of = |elapsed_ns: f64, reading: f64| Sample {
        observations: vec![Observation { operations: 1, elapsed_ns }],
        evidence: Evidence::from_iter([("weather", vec![21.5, reading])]),
        ..Sample::default()
    };
    let bad = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    for sample in bad.map(|value| of(value, 1.0)).into_iter().chain(bad.map(|value| of(1.0, value))) {
        let refused = store.add_sample(run, &id, Unit::Nanoseconds, &sample);
        assert!(matches!(refused, Err(WriteError::NotFinite { .. })), "{refused:?}");
    }
    assert!(store.samples(run).unwrap().is_empty());
}

#[test]
fn one_primitive_has_one_unit_in_a_run() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = open(&directory.path().join("assay.db"));
    let run = store.begin_run(&start()).unwrap();
    let id = primitive("tcp.send{size=64B}");
    store.add_sample(run, &id, Unit::Nanoseconds, &numbered(0)).unwrap();
    let refused = store.add_sample(run, &id, Unit::NanosecondsPerByte, &numbered(1)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "tcp.send{size=64B} has the unit ns in run 1, but a new sample has the unit ns/B; start a new run"
    );
    assert_eq!(store.samples(run).unwrap()[0].samples, [numbered(0)]);
}

/// A small file system in memory; requires root, unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(directory: &Path, options: &str) -> Self {
        let disk = SmallDisk(directory.to_owned());
        disk.run("mount", &["-t", "tmpfs", "-o", options, "tmpfs"]);
        disk
    }

    fn remount(&self, options: &str) {
        self.run("mount", &["-o", &format!("remount,{options}")]);
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let status = Command::new(program).args(arguments).arg(&self.0).status().unwrap();
        assert!(status.success(), "{program} {arguments:?} on {} needs root", self.0.display());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A disk that is still mounted causes the removal of its directory to fail with an error.
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_stops_the_run_without_losing_committed_samples() {
    let directory = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount(directory.path(), "size=400k");
    let path = directory.path().join("assay.db");
    let mut store = open(&path);
    let run = store.begin_run(&start()).unwrap();
    let id = primitive("process.getpid");
    let (committed, refused) = (0..)
        .find_map(|number| {
            let added = store.add_sample(run, &id, Unit::Nanoseconds, &numbered(number));
            added.err().map(|error| (number, error))
        })
        .unwrap();
    assert!(matches!(&refused, WriteError::Sqlite { failure: Failure::Full, .. }), "{refused:?}");
    assert!(refused.to_string().ends_with("the disk is full; free some space and try again"));
    drop(store);
    disk.remount("size=4m");
    let mut store = open(&path);
    assert_intact(&path);
    let expected: Vec<Sample> = (0..committed).map(numbered).collect();
    assert_eq!(store.samples(run).unwrap()[0].samples, expected);
    store.add_sample(run, &id, Unit::Nanoseconds, &numbered(committed)).unwrap();
}

#[test]
fn a_disk_without_any_space_is_an_error_on_opening() {
    let directory = tempfile::tempdir().unwrap();
    let _disk = SmallDisk::mount(directory.path(), "size=4k");
    let path = directory.path().join("assay.db");
    fs::write(directory.path().join("filler"), [1; 4096]).unwrap();
    let refused = Store::open(&path).unwrap_err();
    assert!(matches!(&refused, OpenError::Sqlite { failure: Failure::Full, .. }), "{refused:?}");
}

#[test]
fn a_store_that_cannot_be_written_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount(directory.path(), "size=4m");
    let path = directory.path().join("assay.db");
    drop(open(&path));
    disk.remount("ro");
    let message = refused(&path);
    assert!(message.contains("cannot be") && message.contains("specify another file"), "{message}");
    let message = refused(&directory.path().join("other.db"));
    assert!(message.contains("cannot be opened or created"), "{message}");
}
