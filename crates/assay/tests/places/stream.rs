//! Standard streams that are closed, unread or full.

use std::fs::OpenOptions;
use std::io;

use crate::place::{Place, Said};

#[test]
fn a_closed_pipe_is_success() {
    let place = Place::new();
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let said = Said::by(place.assay(&["bench", "--list"]).stdout(writer));
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
}

#[test]
fn a_closed_stdout_is_no_panic() {
    let place = Place::new();
    let closed = ["sh", "-c", "exec \"$@\" >&-", "sh", env!("CARGO_BIN_EXE_assay")];
    let said = Said::by(&mut place.command(&closed, &["bench", "--list"]));
    assert!(said.status.success() || said.complaint().contains("stdout"), "{said:?}");
}

#[test]
fn a_closed_stderr_does_not_hide_a_failure() {
    let place = Place::new();
    let closed = ["sh", "-c", "exec \"$@\" 2>&-", "sh", env!("CARGO_BIN_EXE_assay")];
    let said = Said::by(&mut place.command(&closed, &["bench", "nonsense"]));
    assert_eq!(said.status.code(), Some(1), "{said:?}");
}

#[test]
fn a_full_stdout_is_reported_as_a_failure() {
    let place = Place::new();
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let said = Said::by(place.assay(&["bench", "--list"]).stdout(full));
    said.complains_of(&["cannot write to stdout", "No space left"]);
}

#[test]
fn every_view_can_be_printed_in_every_supported_format() {
    let place = Place::new();
    // A program that sleeps, so that no table is empty.
    let traced = Said::by(&mut place.assay(&["trace", "-o", "x.trace", "--", "sleep", "0.01"]));
    assert!(traced.status.success(), "{traced:?}");
    let view = |view: &str, format: &str| {
        let call: &[&str] = if view == "calls" { &["clock_nanosleep"] } else { &[] };
        Said::by(&mut place.assay(&[&["view", "x.trace", view, "--format", format], call].concat()))
    };
    let named = view("unknown", "text").stderr;
    let (_, names) = named.split_once("[possible values: ").unwrap();
    let names: Vec<&str> = names.split_once(']').unwrap().0.split(", ").collect();
    assert!(names.contains(&"sequence") && names.len() > 3, "{named}");
    for name in names {
        let begins = |format: &str, beginning: &str| {
            let said = view(name, format);
            assert!(said.status.success() && said.stdout.starts_with(beginning), "{name} {format}: {said:?}");
        };
        begins("json", "{");
        match name {
            "sequence" => {
                begins("csv", "begin_ns,elapsed_ns,program,process,thread,cpu,number,descriptor,event\r\n")
            }
            _ => {
                begins(
                    "text",
                    &format!("x.trace, {name}{}\n", if name == "calls" { " clock_nanosleep" } else { "" }),
                );
                begins("html", "<!DOCTYPE html>");
                let csv = view(name, "csv");
                assert!(csv.status.success() && csv.stdout.contains("_unit,"), "{name} csv: {csv:?}");
            }
        }
    }
    let lines = |format| view("sequence", format).stdout.lines().count();
    assert_eq!(lines("json"), lines("text"));
    assert_eq!(lines("csv"), lines("text") + 1);
    view("sequence", "html").complains_of(&["html", "choose text, json or csv"]);
}

#[test]
fn rows_before_a_damaged_block_are_printed_and_no_failure_hides_another() {
    let place = Place::with_damaged_trace();
    let view = |format: &str| place.assay(&["view", "x.trace", "sequence", "--call", "openat", format]);
    for (format, rows) in [("--format=text", 30), ("--json", 30), ("--csv", 31)] {
        let said = Said::by(&mut view(format));
        let complains_of = |said: &Said, word: &str| {
            assert!(said.status.code() == Some(1) && said.stderr.contains(word), "no '{word}' in: {said:?}");
        };
        complains_of(&said, "cpu0-000000.spool: damaged");
        assert_eq!(said.stdout.lines().count(), rows, "{said:?}");
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let said = Said::by(view(format).stdout(full));
        complains_of(&said, "cpu0-000000.spool: damaged");
        complains_of(&said, "cannot write to stdout");
    }
}

#[test]
fn the_view_calls_shows_every_call_of_a_name() {
    let place = Place::new();
    let dd = "dd if=/dev/zero of=/dev/null bs=64 count=500";
    let traced = Said::by(&mut place.assay(&["trace", "-o", "x.trace", "--", "sh", "-c", dd]));
    assert!(traced.status.success(), "{traced:?}");
    let view = |words: &[&str]| Said::by(&mut place.assay(&[&["view", "x.trace"], words].concat()));
    let shown = view(&["calls", "read", "--descriptor", "chardev", "--csv"]).stdout;
    assert!(shown.lines().any(|line| line.starts_with("all,,500,count,1,ratio,1,ratio,")), "{shown}");
    view(&["calls"]).complains_of(&["the view calls requires the name of a call"]);
    view(&["calls", "read", "--units", "2"]).complains_of(&["--units requires the view"]);
    view(&["summary", "read"]).complains_of(&["a name after the view requires the view calls; use --call"]);
    for (words, said) in
        [(["raed", "--csv"], "unknown system call"), (["read", "--call=read"], "cannot be used")]
    {
        let refused = view(&[&["calls"][..], &words[..]].concat());
        assert!(refused.status.code() == Some(2) && refused.stderr.contains(said), "{refused:?}");
    }
}

#[test]
fn the_intervals_of_a_timeline_have_the_calls_of_the_summary() {
    let place = Place::new();
    let command = "dd if=/dev/zero of=/dev/null bs=64 count=500; cat /nonexistent; exit 0";
    let traced = Said::by(&mut place.assay(&["trace", "-o", "x.trace", "--", "sh", "-c", command]));
    assert!(traced.status.success(), "{traced:?}");
    let view = |words: &[&str]| Said::by(&mut place.assay(&[&["view", "x.trace"], words].concat())).stdout;
    let row = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<String>>();
    let sums = |words: &[&str]| {
        let shown = view(&[&["timeline", "--csv"], words].concat());
        let mut rows = shown.lines().map(row);
        let header = rows.next().unwrap();
        assert_eq!([&header[2], &header[4]], ["calls", "failed calls"], "{shown}");
        let mut sums = [0u64; 2];
        for row in rows {
            let cells = sums.iter_mut().zip([&row[2], &row[4]]);
            cells.for_each(|(sum, cell)| *sum += cell.parse::<u64>().unwrap());
        }
        sums
    };
    let summary = view(&["summary", "--csv"]);
    let total = summary.lines().map(row).find(|row| row.get(2).is_some_and(|name| name == "total")).unwrap();
    let errors = summary.lines().map(row).skip_while(|row| row[0] != "call" || row[1] != "p50");
    let errors: u64 = errors.skip(1).map_while(|row| row.get(7)?.parse::<u64>().ok()).sum();
    let [calls, failed] = sums(&[]);
    assert_eq!([calls.to_string(), failed.to_string()], [total[4].clone(), errors.to_string()], "{summary}");
    assert!(calls > 1_000 && failed > 0, "{calls} {failed}");
    let reads = sums(&["--call", "read", "--descriptor", "chardev"]);
    assert_eq!(reads, [500, 0]);
    let begins = view(&["sequence", "--csv", "--call", "read", "--descriptor", "chardev"]);
    let middle = format!("{}ns", row(begins.lines().nth(250).unwrap())[0]);
    let parts =
        ["--to", "--from"].map(|of| sums(&["--call", "read", "--descriptor", "chardev", of, &middle]));
    assert_eq!(parts, [[249, 0], [251, 0]]);
}

#[test]
fn a_filter_picks_events_in_the_views_that_have_filters_and_others_refuse_it() {
    let place = Place::new();
    let traced = Said::by(&mut place.assay(&["trace", "-o", "x.trace", "--", "true"]));
    assert!(traced.status.success(), "{traced:?}");
    let view = |words: &[&str]| Said::by(&mut place.assay(&[&["view", "x.trace"], words].concat()));
    let shown = |words: &[&str]| view(&[&["sequence", "--csv"], words].concat()).stdout;
    let events = |shown: &str| shown.lines().skip(1).map(str::to_owned).collect::<Vec<String>>();
    let all = events(&shown(&[]));
    let opened = events(&shown(&["--call", "openat", "--descriptor", "file"]));
    assert!(!opened.is_empty() && opened.len() < all.len(), "{all:#?}");
    assert!(opened.iter().all(|event| event.contains(",file,") && event.contains("openat(")), "{opened:#?}");
    assert_eq!(events(&shown(&["--slower", "3600s"])), [""; 0]);
    let process = all[0].split(',').nth(3).unwrap();
    assert_eq!(events(&shown(&["--process", process])).len(), all.len());
    assert_eq!(events(&shown(&["--thread", "1"])).len(), 0);
    let begin_ns = |event: &str| event.split(',').next().unwrap().parse::<u64>().unwrap();
    let middle_ns = begin_ns(&all[all.len() / 2]);
    let [before, after] = ["--to", "--from"].map(|of| events(&shown(&[of, &format!("{middle_ns}ns")])));
    assert!(before.iter().all(|event| begin_ns(event) < middle_ns), "{middle_ns}: {before:#?}");
    assert!(after.iter().all(|event| begin_ns(event) >= middle_ns), "{middle_ns}: {after:#?}");
    assert!(before.len() + after.len() == all.len() && !before.is_empty() && !after.is_empty(), "{all:#?}");
    let summary = view(&["summary", "--call", "openat"]).stdout;
    assert!(summary.starts_with("x.trace, summary --call openat\n"), "{summary}");
    assert!(summary.contains("openat file") && !summary.contains("mmap"), "{summary}");
    view(&["demand", "--call", "read"]).complains_of(&["filters require the view summary or sequence or"]);
    view(&["summary", "--from", "2s", "--to", "2s"]).complains_of(&["--from must be before --to"]);
    view(&["phases", "--units", "1"]).complains_of(&["--units requires the view summary or demand or"]);
    for (wrong, said) in
        [("--call=raed", "unknown system call"), ("--descriptor=tcp", "tcp4"), ("--slower=1", "20us")]
    {
        let refused = view(&["sequence", wrong]);
        assert!(refused.status.code() == Some(2) && refused.stderr.contains(said), "{refused:?}");
    }
}
