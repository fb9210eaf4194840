//! SIGKILL: assay cannot clean up, but no server may survive and no store may be damaged.

use std::fs;

use rustix::process::Signal;

use crate::place::{OLD, PATIENCE, Place, RUN, patiently};

fn a_run_is_killed(requests: u32, phase: &str) {
    let place = Place::with_requests(requests);
    fs::write(place.path("report.html"), OLD).unwrap();
    let mut going = place.start(&RUN);
    going.await_line(phase);
    let another = patiently(PATIENCE, || (place.processes().len() > 1).then_some(()));
    assert!(another.is_some(), "no process other than assay is visible, so a surviving one would be missed");
    going.signal(Signal::KILL);
    let said = going.end();
    assert_eq!(said.status.code(), None, "{said:?}");
    place.assert_nothing_runs(&format!("SIGKILL in '{phase}'"));
    assert_eq!(place.read("report.html"), OLD);
    let history = place.history();
    assert!(history.lines().count() == 2 && history.contains("incomplete"), "{history}");
}

#[test]
fn a_run_killed_while_the_server_starts_ends_it_too() {
    a_run_is_killed(400, "starting nginx");
}

#[test]
fn a_run_killed_while_the_application_is_measured_ends_the_server_too() {
    a_run_is_killed(400_000, "measuring 'page'");
}

#[test]
fn a_run_killed_while_the_application_is_traced_ends_the_server_too() {
    a_run_is_killed(1500, "tracing 'page'");
}

#[test]
fn a_run_killed_while_the_machine_is_measured_ends_its_sample_too() {
    a_run_is_killed(200, "finding the sizes of the caches");
}
