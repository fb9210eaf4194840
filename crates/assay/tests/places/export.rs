//! Traces in the formats of other tools.

use std::collections::{BTreeMap, HashMap};
use std::fs::OpenOptions;
use std::io;

use serde_json::Value;

use crate::place::{Place, Said};

/// A shell whose child executes a program, and which waits for it.
const PROGRAM: [&str; 3] = ["sh", "-c", "sleep 0.01; true"];

fn place() -> Place {
    let place = Place::new();
    let traced = Said::by(&mut place.assay(&[&["trace", "-o", "x.trace", "--"], &PROGRAM[..]].concat()));
    assert!(traced.status.success(), "{traced:?}");
    place
}

fn export(place: &Place, format: &str, filters: &[&str]) -> Said {
    Said::by(&mut place.assay(&[&["trace", "export", "x.trace", "--format", format], filters].concat()))
}

fn printed(place: &Place, format: &str, filters: &[&str]) -> String {
    let said = export(place, format, filters);
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    said.stdout
}

fn events(place: &Place, filters: &[&str]) -> Vec<Value> {
    let whole: Value = serde_json::from_str(&printed(place, "chrome", filters)).unwrap();
    whole["traceEvents"].as_array().unwrap().clone()
}

/// Returns the rows of the sequence of the same events.
fn rows(place: &Place, filters: &[&str]) -> Vec<Value> {
    let sequence = [&["view", "x.trace", "sequence", "--format", "json"], filters].concat();
    let said = Said::by(&mut place.assay(&sequence));
    assert!(said.status.success(), "{said:?}");
    said.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn time_ns(event: &Value, field: &str) -> u64 {
    // A decimal fraction of three digits, as text: a floating-point product may be off by one.
    let text = event[field].to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    format!("{whole}{fraction:0<3}").parse().unwrap()
}

#[test]
fn the_events_of_a_trace_are_the_rows_of_its_sequence() {
    let place = place();
    for filters in [&[][..], &["--call", "wait4"], &["--slower", "10ms"]] {
        let (rows, events) = (rows(&place, filters), events(&place, filters));
        let (names, events): (Vec<_>, Vec<_>) = events.into_iter().partition(|event| event["ph"] == "M");
        assert!(!rows.is_empty() && rows.len() == events.len(), "{} {}", rows.len(), events.len());
        let mut named: HashMap<u64, String> = HashMap::new();
        for name in names {
            named.insert(name["pid"].as_u64().unwrap(), name["args"]["name"].as_str().unwrap().to_owned());
        }
        let mut last: HashMap<u64, &Value> = HashMap::new();
        for (row, event) in rows.iter().zip(&events) {
            assert_eq!(row["begin_ns"], time_ns(event, "ts"), "{row} {event}");
            assert_eq!(row["event"], event["args"]["event"]);
            assert_eq!((&row["process"], &row["thread"]), (&event["pid"], &event["tid"]));
            assert_eq!(row["elapsed_ns"].is_null(), event["ph"] == "i");
            if event["ph"] == "X" {
                assert_eq!(row["elapsed_ns"], time_ns(event, "dur"), "{row} {event}");
            }
            if row["program"] != "" {
                last.insert(row["process"].as_u64().unwrap(), &row["program"]);
            }
        }
        assert_eq!(named.len(), last.len());
        assert!(named.iter().all(|(process, name)| last[process] == name), "{named:?} {last:?}");
    }
    let empty = export(&place, "chrome", &["--from", "2s", "--to", "2s"]);
    empty.complains_of(&["--from must be before --to"]);
}

#[test]
fn the_stacks_of_a_trace_have_the_time_of_its_events() {
    let place = place();
    let all = rows(&place, &[]);
    let sleep = all.iter().find(|row| row["program"] == "sleep").unwrap()["process"].to_string();
    for filters in [&[][..], &["--call", "wait4"], &["--process", &sleep]] {
        let mut times: BTreeMap<String, u64> = BTreeMap::new();
        for line in printed(&place, "folded", filters).lines() {
            let (stack, time_ns) = line.rsplit_once(' ').unwrap();
            assert!(times.insert(stack.to_owned(), time_ns.parse().unwrap()).is_none(), "twice: {stack}");
        }
        let all = rows(&place, filters);
        let elapsed_ns: u64 = all.iter().filter_map(|row| row["elapsed_ns"].as_u64()).sum();
        assert!(times.values().sum::<u64>() == elapsed_ns && elapsed_ns > 0, "{elapsed_ns} {times:#?}");
        let has = |beginning: &str| times.keys().any(|stack| stack.starts_with(beginning));
        let due = [filters != ["--process", &sleep], !filters.contains(&"--call")];
        assert_eq!([has("sh;wait4;"), has("sh;sleep;clock_nanosleep;")], due, "{times:#?}");
    }
}

#[test]
fn events_before_a_damaged_block_are_printed_as_whole_json() {
    let place = Place::with_damaged_trace();
    let damaged = |format: &str| {
        let said = export(&place, format, &["--call", "openat"]);
        assert!(said.status.code() == Some(1) && said.stderr.contains("spool: damaged"), "{said:?}");
        said.stdout
    };
    let whole: Value = serde_json::from_str(&damaged("chrome")).unwrap();
    let calls = whole["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] != "M");
    assert_eq!(calls.count(), 30);
    assert_eq!(damaged("folded"), "", "a sum that lacks some events would be wrong");
}

#[test]
fn a_closed_pipe_is_success_and_a_full_disk_is_not() {
    let place = place();
    for format in ["chrome", "folded"] {
        let command = || place.assay(&["trace", "export", "x.trace", "--format", format]);
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let said = Said::by(command().stdout(writer));
        assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        Said::by(command().stdout(full)).complains_of(&["cannot write to stdout", "No space left"]);
    }
}
