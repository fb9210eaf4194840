//! Full disks: small file systems in a mount namespace, at each location that is written to.

use std::fs;

use crate::place::{OLD, Place, Said, repository};

/// A file system of 16 KiB at `full`, with older files in it.
const SMALL: &str = "mount -t tmpfs -o size=16k none full
    cp old full/report.html; cp old full/x.machine.json; cp old full/x.trace";

/// Returns a place with the contents of the older files, and a machine, to avoid measuring one.
fn place() -> Place {
    let place = Place::new();
    fs::write(place.path("old"), OLD).unwrap();
    let machine = repository().join("examples/thesis-1997/pro-200.machine.json");
    fs::copy(machine, place.path("given.machine.json")).unwrap();
    place
}

/// Returns the arguments of a run with this report and store.
fn run<'a>(report: &'a str, store: &'a str) -> [&'a str; 8] {
    ["run", "workload.toml", "--machine", "given.machine.json", "--report", report, "--store", store]
}

/// Asserts that the older files on the full disk are unchanged, and that there are no half-written files.
fn assert_old_files_are_whole(place: &Place) {
    for name in ["report.html", "x.machine.json", "x.trace"] {
        assert_eq!(place.read(&format!("kept/{name}")), OLD, "{name}");
    }
    let names: Vec<_> =
        fs::read_dir(place.path("kept")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().starts_with('.')), "litter: {names:?}");
}

#[test]
fn a_full_disk_for_the_report_is_reported_and_the_older_report_is_whole() {
    let place = place();
    let said = place.unshared(SMALL, &run("full/report.html", "store.db"));
    said.complains_of(&["cannot write full/report.html", "check free space", "No space left"]);
    assert_old_files_are_whole(&place);
    place.assert_nothing_runs("a full disk under the report");
}

#[test]
fn a_full_disk_for_the_machine_file_is_reported_and_the_older_one_is_whole() {
    let place = place();
    let fill = format!("{SMALL}\nhead -c 16k /dev/zero >full/filler 2>/dev/null || true");
    let bench = ["bench", "call", "--precision", "99%", "--store", "store.db", "-o", "full/x.machine.json"];
    let said = place.unshared(&fill, &bench);
    // The table is still on stdout, and the samples are in the store.
    assert!(said.stdout.contains("call.null"), "{}", said.stdout);
    said.complains_of(&["cannot write full/x.machine.json", "check free space", "No space left"]);
    assert_old_files_are_whole(&place);
}

#[test]
fn a_full_disk_for_a_new_store_is_reported_before_anything_is_started() {
    let place = place();
    let said = place.unshared(SMALL, &run("report.html", "full/store.db"));
    said.complains_of(&["store full/store.db", "the disk is full; free some space"]);
    assert!(!said.stderr.contains("starting"), "{}", said.stderr);
    assert_old_files_are_whole(&place);
}

#[test]
fn a_disk_that_fills_during_a_run_is_reported_and_the_store_keeps_its_older_runs() {
    let place = place();
    let bench = ["bench", "call", "--precision", "99%", "--store", "store.db"];
    let earlier = Said::by(&mut place.assay(&bench));
    assert!(earlier.status.success(), "{earlier:?}");
    let before = place.history();
    // Room for the log of some samples: each of up to 90 samples of a primitive takes at least a page of 4
    // KiB.
    let fill =
        "mount -t tmpfs -o size=$(($(stat -c %s store.db) / 1024 + 200))k none full; cp store.db full/";
    let precise = ["bench", "call", "--precision", "0.001%", "--budget", "600", "--store", "full/store.db"];
    let said = place.unshared(fill, &precise);
    said.complains_of(&["store full/store.db", "the disk is full; free some space"]);
    place.assert_nothing_runs("a full disk under the store");
    fs::remove_file(place.path("store.db")).unwrap();
    for entry in fs::read_dir(place.path("kept")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, place.path(path.file_name().unwrap())).unwrap();
    }
    let after = place.history();
    for line in before.lines() {
        assert!(after.contains(line), "lost: {line}\nleft: {after}");
    }
    assert_eq!(after.lines().count(), before.lines().count() + 1, "{after}");
    let kept = Said::by(&mut place.assay(&["history", "latest", "--store", "store.db", "--csv"]));
    assert!(kept.status.success() && kept.stdout.contains("\ncall.null,"), "no sample was kept: {kept:?}");
}

#[test]
fn a_full_disk_for_a_trace_is_reported_and_the_recorded_part_is_readable() {
    let place = place();
    let trace = ["trace", "-o", "full/new.trace", "--", "ls", "-R", "/usr/share/doc"];
    let small = SMALL.replace("16k", "48k");
    let said = place.unshared(&small, &trace);
    said.complains_of(&["full/new.trace", "No space left", "is the disk full?"]);
    assert_old_files_are_whole(&place);
    let view = Said::by(&mut place.assay(&["view", "kept/new.trace"]));
    assert!(view.status.success() && view.stderr.contains("incomplete"), "{view:?}");
}

#[test]
fn a_trace_without_any_room_leaves_no_container() {
    let place = place();
    let fill = format!("{SMALL}\nhead -c 16k /dev/zero >full/filler 2>/dev/null || true");
    let said = place.unshared(&fill, &["trace", "-o", "full/new.trace", "--", "touch", "ran"]);
    said.complains_of(&["full/new.trace", "No space left"]);
    assert!(!place.path("kept/new.trace").exists() && !place.path("ran").exists());
    assert_old_files_are_whole(&place);
}

#[test]
fn a_trace_does_not_overwrite_an_older_file() {
    let place = place();
    let said = place.unshared(SMALL, &["trace", "-o", "full/x.trace", "--", "touch", "ran"]);
    said.complains_of(&["full/x.trace: already exists; choose another name"]);
    assert!(!place.path("ran").exists(), "the command ran untraced");
    assert_old_files_are_whole(&place);
}

#[test]
fn a_full_temporary_directory_is_reported_before_anything_is_measured() {
    let place = place();
    fs::write(place.path("report.html"), OLD).unwrap();
    let mount = "mount -t tmpfs -o size=16k none tmp";
    let said = place.unshared(mount, &run("report.html", "store.db"));
    said.complains_of(&["No space left", "TMPDIR"]);
    assert!(!said.stderr.contains("measuring"), "{}", said.stderr);
    assert_eq!(place.read("report.html"), OLD);
    place.assert_nothing_runs("a full TMPDIR");
}

#[test]
fn a_temporary_directory_too_small_for_the_trace_loses_only_the_trace() {
    let place = place();
    // Room for nginx's files, not for the records of its work.
    let mount = "mount -t tmpfs -o size=1500k none tmp";
    let said = place.unshared(mount, &run("report.html", "store.db"));
    said.complains_of(&["the report is incomplete", "No space left", "is the disk full?"]);
    let report = place.read("report.html");
    assert!(report.contains("Missing: demand") && report.trim_end().ends_with("</html>"), "{report}");
    place.assert_nothing_runs("a TMPDIR too small for the trace");
}
