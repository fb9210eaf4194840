//! Traces that are made from logs of strace.

use std::collections::BTreeMap;
use std::fs;

use crate::place::{Place, Said};

/// A program that starts others, reads files, and looks for one that does not exist.
const PROGRAM: [&str; 3] = ["/bin/sh", "-c", "cat /etc/passwd; ls /nonexistent 2>/dev/null || true"];

/// Returns a place with a trace of the program, its log, and the trace made from the log.
fn place() -> Place {
    let place = Place::new();
    let traced = Said::by(&mut place.assay(&[&["trace", "-o", "traced.trace", "--"], &PROGRAM[..]].concat()));
    assert!(traced.status.success(), "{traced:?}");
    let strace = ["strace", "-f", "-ttt", "-T", "-y", "-o", "log"];
    let logged = Said::by(&mut place.command(&strace, &PROGRAM));
    assert!(logged.status.success(), "{logged:?}");
    let imported = Said::by(&mut place.assay(&["trace", "import", "log", "-o", "log.trace"]));
    assert!(imported.status.success() && imported.stderr.lines().count() == 1, "{imported:?}");
    assert!(imported.stderr.contains(" calls of 3 processes in log.trace"), "{imported:?}");
    place
}

#[test]
fn the_trace_of_a_log_has_the_calls_of_a_recorded_trace() {
    let place = place();
    let calls = |trace: &str| {
        let said = Said::by(&mut place.assay(&["view", trace, "summary", "--format", "csv"]));
        let table = said.stdout.lines().skip_while(|line| !line.starts_with("num,")).skip(1);
        let mut calls: BTreeMap<String, u64> = BTreeMap::new();
        for line in table.take_while(|line| !line.trim().is_empty()) {
            // The number of the call, its unit, the name, the descriptor, the number of calls.
            let fields: Vec<&str> = line.split(',').collect();
            // A directory that is opened like a file is known as one after the next call.
            let call = fields[2..4].join(" ").replace("openat directory", "openat file");
            *calls.entry(call).or_default() += fields[4].parse::<u64>().unwrap();
        }
        calls
    };
    let (traced, imported) = (calls("traced.trace"), calls("log.trace"));
    assert!(traced.len() > 20, "{traced:?}");
    assert_eq!(imported, traced);
}

#[test]
fn views_show_nothing_that_strace_does_not_record() {
    let place = place();
    let view = |words: &[&str]| Said::by(&mut place.assay(&[&["view", "log.trace"], words].concat()));
    let shown = |words: &[&str]| {
        let said = view(words);
        assert!(said.status.success(), "{said:?}");
        assert_eq!(said.stderr, "log.trace: imported from strace, whose own work is part of all times\n");
        said.stdout
    };
    for (words, absent) in
        [(&["summary"][..], &["softnet", "page faults"][..]), (&["phases"], &["working", "off the CPU"])]
    {
        let text = shown(words);
        for absent in absent {
            assert!(!text.contains(absent), "{words:?}: {text}");
        }
    }
    for (words, missing) in [
        (&["processes"][..], &["page faults"][..]),
        (&["calls", "openat"], &["working", "off the CPU", "interrupts"]),
        (&["demand", "-o", "log.demand.json"], &["traced kernel time"]),
    ] {
        let text = shown(words);
        for missing in missing {
            assert!(text.contains(&format!(" {missing}: strace does not record it.")), "{words:?}: {text}");
            assert_eq!(text.matches(missing).count(), 1, "{words:?}: {text}");
        }
    }
    let demand = shown(&["demand"]);
    assert!(demand.contains("Missing, because strace does not record it: kernel times"), "{demand}");
    assert!(place.read("log.demand.json").contains("log.trace, imported from strace"));
    let sequence = shown(&["sequence", "--format", "json"]);
    assert!(sequence.lines().count() > 100);
    for line in sequence.lines() {
        assert!(line.contains("\"cpu\":null"), "{line}");
    }
    let refused = |said: Said, words: &str| {
        assert!(!said.status.success() && said.stdout.is_empty() && said.stderr.contains(words), "{said:?}");
    };
    refused(view(&["wakeups"]), "log.trace: strace does not record wake-ups; record with assay trace");
    let diff = Said::by(&mut place.assay(&["diff", "traced.trace", "log.trace"]));
    refused(diff, "log.trace: imported from strace; diff compares traces that assay recorded");
}

#[test]
fn a_log_that_cannot_be_imported_leaves_no_trace() {
    let place = Place::new();
    let import = |log: &str| {
        fs::write(place.path("log"), log).unwrap();
        Said::by(&mut place.assay(&["trace", "import", "log"]))
    };
    import("7 1000000000.000000 sync() = 0\n").complains_of(&["log, line 1: it has no elapsed time", "-T"]);
    import("").complains_of(&["log: contains no system call", "strace -f -ttt -T -y"]);
    assert!(!place.path("assay.trace").exists());
    let fine = import("7 1000000000.000000 sync() = 0 <0.000001>\nnoise\n");
    assert!(
        fine.status.success()
            && fine.stderr.contains(
                "log: lines that were not understood and are missing in the trace: 1; the first is line 2"
            ),
        "{fine:?}"
    );
    let view = Said::by(&mut place.assay(&["view", "assay.trace", "summary"]));
    assert!(
        view.stderr.contains("assay.trace: lines of the log that were not understood and are missing: 1"),
        "{view:?}"
    );
    import("7 1000000000.000000 sync() = 0 <0.000001>\n").complains_of(&["assay.trace: already exists"]);
}
