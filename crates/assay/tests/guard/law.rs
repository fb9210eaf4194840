//! The limit that a law sets, and the log of its decisions.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;

use crate::postgres_server::Server;
use crate::session::select;
use crate::{Guard, command, text, wait_until};

const SESSIONS: usize = 12;

/// Lets more sessions than processors run transactions until this is so.
fn run_until(guard: &Guard, is_done: impl Fn() -> bool) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..SESSIONS {
            let mut session = guard.session("same");
            scope.spawn({
                let stop = &stop;
                move || {
                    while !stop.load(Ordering::Relaxed) {
                        session.batch_execute("UPDATE hot SET v = v + 1").unwrap();
                    }
                }
            });
        }
        while !is_done() {
            thread::sleep(std::time::Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

fn server() -> Server {
    let server = Server::start();
    server.session().batch_execute("CREATE TABLE hot (v int); INSERT INTO hot VALUES (0)").unwrap();
    server
}

#[test]
fn the_log_has_each_decision_and_what_it_was_made_of() {
    let server = server();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let guard = Guard::start(&server, &["--start", "1", "--log", path.to_str().unwrap()]);
    let lines = || -> Vec<Value> {
        let log = fs::read_to_string(&path).unwrap();
        // The last line may be on its way.
        log.split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    run_until(&guard, || lines().iter().any(|line| line["limit"].as_u64().is_some_and(|limit| limit > 1)));
    let counts = guard.end();
    let lines = lines();
    assert_eq!((&lines[0]["format"], &lines[0]["law"]), (&"assay.guard/1".into(), &"knee".into()));
    let number = |line: &Value, key: &str| line[key].as_u64().unwrap();
    let lines = &lines[1..];
    assert_eq!(number(&lines[0], "limit"), 1);
    for (line, next) in lines.iter().zip(&lines[1..]) {
        assert_eq!(number(line, "next_limit"), number(next, "limit"), "{line}");
        assert_eq!(number(next, "end_ns") - number(line, "end_ns"), number(next, "length_ns"), "{next}");
    }
    let limits = || lines.iter().map(|line| number(line, "next_limit"));
    let [last, lowest, highest, changes] = counts.row("knee")[..] else { panic!("{}", counts.0) };
    assert_eq!(limits().next_back(), Some(last), "the last limit");
    assert_eq!([limits().min(), limits().max()], [lowest, highest].map(Some));
    assert_eq!(limits().zip(limits().skip(1)).filter(|(one, next)| one != next).count() as u64, changes);
    // The last period has not ended.
    let finished: u64 = lines.iter().map(|line| number(line, "finished")).sum();
    assert!(finished > 0 && finished <= counts.of("committed"), "{}", counts.0);
    let updated: i32 = server.session().query_one("SELECT v FROM hot", &[]).unwrap().get(0);
    assert_eq!(u64::try_from(updated).unwrap(), counts.of("committed"));
}

#[test]
fn a_log_has_one_guard() {
    let server = server();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let arguments = ["--log", path.to_str().unwrap()];
    let guard = Guard::start(&server, &arguments);
    let second = ["--listen", "127.0.0.1:0", "--to", "host=/run/x"];
    let output = command(&[&second[..], &arguments].concat()).output().unwrap();
    assert!(!output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("is in use by another guard"), "{}", text(&output.stderr));
    guard.end();
    // The next one appends to it.
    Guard::start(&server, &arguments).end();
    let log = fs::read_to_string(&path).unwrap();
    assert_eq!(log.lines().filter(|line| line.contains("assay.guard/1")).count(), 2, "{log}");
}

#[test]
fn a_guard_that_only_observes_lets_all_transactions_in_and_shows_what_the_server_did() {
    let server = server();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let guard = Guard::start(&server, &["--shadow", "--log", path.to_str().unwrap()]);
    let mut blocker = server.session();
    // The connections of sessions that have left do not add up. Those that come when there are enough are
    // closed; if they were kept until the first ones have been idle for long, the first ones would be.
    let _stays = guard.session("same");
    let leave = || (0..10).for_each(|_| drop(guard.session("same")));
    let mut open =
        || select(&mut blocker, "SELECT pid::text FROM pg_stat_activity WHERE application_name = 'same'");
    leave();
    let first = open();
    assert_eq!(first.len(), 11);
    leave();
    wait_until(|| open().len() <= 16);
    let left = open();
    assert!(first.iter().all(|process| left.contains(process)), "{first:?} {left:?}");
    let mut lock = blocker.transaction().unwrap();
    lock.batch_execute("UPDATE hot SET v = 1").unwrap();
    let all_are_in_flight = || {
        let log = fs::read_to_string(&path).unwrap();
        let lines = log.split_inclusive('\n').skip(1).filter(|line| line.ends_with('\n'));
        let last = lines.last().map(|line| serde_json::from_str::<Value>(line).unwrap());
        last.is_some_and(|line| line["in_flight"].as_f64() == Some(SESSIONS as f64) && line["waiting"] == 0.0)
    };
    thread::scope(|scope| {
        for _ in 0..SESSIONS {
            let mut session = guard.session("same");
            scope.spawn(move || session.batch_execute("UPDATE hot SET v = v + 1").unwrap());
        }
        while !all_are_in_flight() {
            thread::sleep(std::time::Duration::from_millis(10));
        }
        lock.commit().unwrap();
    });
    let counts = guard.end();
    assert_eq!(["committed", "admitted after a wait"].map(|what| counts.of(what)), [SESSIONS as u64, 0]);
    let tables = || counts.0["blocks"].as_array().unwrap().iter().map(|block| &block["table"]);
    assert!(tables().all(|table| table["title"] != "Limit of transactions"), "{}", counts.0);
    let curve = tables().find(|table| table["title"] == "Transactions by the number in flight").unwrap();
    let mut rows = curve["rows"].as_array().unwrap().iter();
    assert!(rows.any(|row| (&row[0]["count"], &row[1]["count"]) == (&8.into(), &16.into())), "{curve}");
}
