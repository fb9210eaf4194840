//! Ctrl-C and SIGTERM in every phase, after a random delay, which a failure prints.

use std::env;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rand::RngExt;
use rustix::process::Signal;

use crate::place::{Going, OLD, PATIENCE, Place, RUN, Said, patiently};

const SIGNALS: [(&str, Signal); 2] = [("SIGINT", Signal::INT), ("SIGTERM", Signal::TERM)];

/// A run that goes on until it is interrupted.
const LONG_BENCH: [&str; 8] =
    ["bench", "call", "--budget", "60", "--precision", "0.001%", "--store", "store.db"];

/// Sleeps for a random part of `limit_ms`, or for `PLACES_DELAY_MS`, and returns a description for a failure.
fn random_delay(what: &str, limit_ms: u64) -> String {
    let delay_ms = match env::var("PLACES_DELAY_MS") {
        Ok(delay_ms) => delay_ms.parse().unwrap(),
        Err(_) => rand::rng().random_range(0..limit_ms),
    };
    thread::sleep(Duration::from_millis(delay_ms));
    format!("{what} with PLACES_DELAY_MS={delay_ms}")
}

/// Sends each signal, a random part of `limit_ms` after a run has printed this phase.
fn a_run_is_interrupted(requests: u32, phase: &str, limit_ms: u64) {
    for (name, signal) in SIGNALS {
        let place = Place::with_requests(requests);
        fs::write(place.path("report.html"), OLD).unwrap();
        let mut going = place.start(&RUN);
        going.await_line(phase);
        let story = random_delay(&format!("{name} in '{phase}'"), limit_ms);
        going.signal(signal);
        assert_interrupted(&going.end(), &story);
        place.assert_nothing_runs(&story);
        place.assert_no_litter(&story);
        assert_eq!(place.read("report.html"), OLD, "{story}");
        let history = place.history();
        assert!(history.lines().count() == 2 && history.contains(",interrupted"), "{story}: {history}");
    }
}

fn assert_interrupted(said: &Said, story: &str) {
    assert_eq!(said.status.code(), Some(130), "{story}: {said:?}");
    assert!(said.complaint().starts_with("assay: interrupted; "), "{story}: {said:?}");
    assert!(said.stdout.is_empty(), "{story}: {said:?}");
}

#[test]
fn a_run_interrupted_while_the_server_starts_stops_it() {
    a_run_is_interrupted(400, "starting nginx", 60);
}

#[test]
fn a_run_interrupted_while_the_application_is_measured_stops_the_server() {
    a_run_is_interrupted(400_000, "measuring 'page'", 500);
}

#[test]
fn a_run_interrupted_while_the_application_is_traced_stops_the_server() {
    a_run_is_interrupted(1500, "tracing 'page'", 300);
}

#[test]
fn a_run_interrupted_while_the_machine_is_measured_ends_its_sample() {
    a_run_is_interrupted(200, "finding the sizes of the caches", 500);
}

#[test]
fn an_interrupted_bench_shows_its_results_writes_no_machine_and_can_be_resumed() {
    for (name, signal) in SIGNALS {
        let place = Place::new();
        fs::write(place.path("old.machine.json"), OLD).unwrap();
        let mut going = place.start(&[&LONG_BENCH[..], &["-o", "old.machine.json"]].concat());
        going.await_line("measuring ");
        let story = random_delay(&format!("{name} in bench"), 500);
        going.signal(signal);
        let said = going.end();
        assert_eq!(said.status.code(), Some(130), "{story}: {said:?}");
        assert!(said.stdout.contains("What its primitives cost"), "{story}: {said:?}");
        assert!(said.stderr.contains("--resume 1"), "{story}: {said:?}");
        place.assert_nothing_runs(&story);
        place.assert_no_litter(&story);
        assert_eq!(place.read("old.machine.json"), OLD, "{story}");
        assert!(place.history().contains(",interrupted"), "{story}: {}", place.history());
    }
}

#[test]
fn a_resumed_run_measures_its_own_primitives_and_keeps_its_samples() {
    let place = Place::new();
    let going = place.start(&[&LONG_BENCH[..], &["null"]].concat());
    // Wait for at least one sample to keep.
    patiently(PATIENCE, || place.samples().first().map(drop)).unwrap();
    going.signal(Signal::INT);
    assert_eq!(going.end().status.code(), Some(130));
    let taken = place.samples();
    let resumed = Said::by(&mut place.assay(&[
        "bench",
        "--resume",
        "--precision",
        "99%",
        "--store",
        "store.db",
        "--csv",
    ]));
    assert!(resumed.status.success(), "{resumed:?}");
    let kept = place.samples();
    for series in &taken {
        let kept = kept.iter().find(|kept| kept.primitive == series.primitive).unwrap();
        assert_eq!(kept.samples[..series.samples.len()], series.samples, "{}", series.primitive);
    }
    for id in ["call.null", "null.read", "null.write"] {
        assert!(resumed.stdout.contains(id), "{id}: {resumed:?}");
    }
    assert!(
        place.history().contains(",completed") && place.history().lines().count() == 2,
        "{}",
        place.history()
    );
    let again = Said::by(&mut place.assay(&["bench", "--resume", "--store", "store.db"]));
    assert!(!again.status.success() && again.complaint().contains("run 1"), "{again:?}");
}

#[test]
fn an_interrupt_ends_the_counting_too() {
    let place = Place::new();
    let bench = [
        "bench",
        "memory.load{set=16MiB}",
        "cpu",
        "--precision",
        "99%",
        "--count",
        "--store",
        "store.db",
        "--csv",
    ];
    let mut going = place.start(&bench);
    going.await_line("counting with valgrind");
    going.signal(Signal::INT);
    let said = going.end();
    assert_eq!(said.status.code(), Some(130), "{said:?}");
    let counted = said.stdout.split("Executed by one operation").nth(1).unwrap_or_default();
    let rows = counted.lines().filter(|line| line.starts_with("cpu.")).count();
    assert_eq!(rows, 0, "{said:?}");
    assert!(place.history().contains(",completed"), "the measurement is not completed: {}", place.history());
    place.assert_nothing_runs("an interrupt while it counts");
    place.assert_no_litter("an interrupt while it counts");
}

#[test]
fn an_interrupted_trace_of_a_command_ends_the_command_and_is_whole() {
    for (name, signal) in SIGNALS {
        a_trace_of_a_command_is_interrupted(name, |going| going.signal(signal));
    }
}

#[test]
fn an_interrupt_from_a_terminal_that_also_ends_the_traced_command_is_an_interrupt() {
    for _ in 0..2 {
        a_trace_of_a_command_is_interrupted("Ctrl-C", |going| going.signal_group(Signal::INT));
    }
}

fn a_trace_of_a_command_is_interrupted(name: &str, interrupt: impl Fn(&Going)) {
    let place = Place::new();
    // The delay begins before the probe is in place, and may end long after the command has started.
    let going = place.start(&["trace", "-o", "x.trace", "--", "sleep", "100"]);
    patiently(PATIENCE, || place.path("x.trace").exists().then_some(())).unwrap();
    let story = random_delay(&format!("{name} in trace"), 600);
    interrupt(&going);
    let said = going.end();
    assert_interrupted(&said, &story);
    assert!(said.complaint().contains("its trace so far is in x.trace"), "{story}: {said:?}");
    place.assert_nothing_runs(&story);
    assert_whole(&place, &story);
}

#[test]
fn an_interrupt_is_the_usual_end_of_a_trace_of_a_process_and_the_process_continues() {
    for (name, signal) in SIGNALS {
        let place = Place::new();
        let script = "while :; do sleep 0.01; done";
        let mut target = Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn().unwrap();
        let mut going = place.start(&["trace", "-o", "x.trace", "-p", &target.id().to_string()]);
        going.await_line("tracing process");
        let story = random_delay(&format!("{name} in trace -p"), 300);
        going.signal(signal);
        let said = going.end();
        let lives = target.try_wait().unwrap().is_none();
        target.kill().unwrap();
        target.wait().unwrap();
        assert!(said.status.success() && said.stderr.contains("records in x.trace"), "{story}: {said:?}");
        assert!(lives, "{story}: the traced process has ended");
        assert_whole(&place, &story);
    }
}

#[test]
fn a_second_interrupt_ends_a_run_immediately_with_its_server() {
    let place = Place::with_requests(400_000);
    let mut going: Going = place.start(&RUN);
    going.await_line("measuring 'page'");
    going.signal(Signal::INT);
    going.signal(Signal::INT);
    let said = going.end();
    assert_eq!(said.status.code(), Some(130), "{said:?}");
    place.assert_nothing_runs("a second SIGINT");
    assert_eq!(place.history().lines().count(), 2);
}

/// Asserts that a trace is closed and can be read to its end.
fn assert_whole(place: &Place, story: &str) {
    let said = Said::by(&mut place.assay(&["view", "x.trace"]));
    assert!(said.status.success() && said.stderr.is_empty(), "{story}: {said:?}");
    place.assert_no_litter(story);
}
