//! A limit on sessions, which hold their places until they end.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::ending::{ask, ends};
use crate::postgres_server::Server;
use crate::session::process;
use crate::users::list;
use crate::wire::Wire;
use crate::{Guard, next_line};

const LIMIT_ONE: [&str; 3] = ["--connection-level", "--limit", "1"];

/// Runs a transaction in a session that has been admitted, or is now.
fn works(session: &mut Wire) {
    session.send(&[(b'Q', "SELECT 1\0")]);
    assert_eq!(session.read_to(b'Z').0, "TDCZ");
}

/// Returns when as many sessions wait as this.
fn wait_for(admin: &Path, waiting: &str) {
    let has_row = |text: &str| {
        let row = |line: &str| {
            let rest = line.trim().strip_prefix("sessions that wait for admission");
            rest.is_some_and(|rest| rest.trim() == waiting)
        };
        text.lines().any(row)
    };
    while !has_row(&ask(admin, "GET /status", "").1) {
        thread::sleep(Duration::from_millis(10));
    }
}

/// Reads the error that refuses a session.
fn refused(mut session: Wire, reason: &str) {
    let (kinds, error) = session.read_to(b'E');
    let expected = format!("C53300\0M{reason}; the database is in overload\0");
    assert!(kinds == "E" && error.contains(&expected), "{kinds}: {error}");
    assert!(session.is_at_end());
}

#[test]
fn sessions_are_admitted_in_turn_and_hold_their_places() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let path = |name| directory.path().join(name);
    let (admin, log) = (path("admin"), path("log"));
    let files = ["--admin", admin.to_str().unwrap(), "--log", log.to_str().unwrap()];
    let mut guard = Guard::start(&server, &[&LIMIT_ONE[..], &files].concat());
    next_line(&mut guard.messages);
    let begin = |role| Wire::begin(role, guard.address);

    let mut first = Wire::start(&guard);
    works(&mut first);
    // It is in no transaction, and the others wait.
    let [mut second, gone, mut third] = ["postgres"; 3].map(begin);
    let other = begin("web");
    wait_for(&admin, "4");
    drop(gone);
    wait_for(&admin, "3");
    let one = "1 session ends when it is in no transaction\n";
    assert_eq!(ask(&admin, "POST /end-sessions", "web").1, one);
    ends(other, "due to administrator command");
    works(&mut first);
    drop(first);
    second.read_to(b'Z');
    works(&mut second);
    wait_for(&admin, "1");
    second.send(&[(b'X', "")]);
    assert!(second.is_at_end());
    third.read_to(b'Z');
    works(&mut third);
    drop(third);
    // All places are free again.
    works(&mut Wire::start(&guard));

    let counts = guard.end();
    for (what, number) in [
        ("committed", 5),
        ("logged in", 4),
        ("admitted after a wait", 2),
        ("ended by a command", 1),
        ("fixed", 1),
    ] {
        assert_eq!(counts.of(what), number, "{what}: {}", counts.0);
    }
    let log = fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["level"], "sessions");
    let most = |key: &str| lines.iter().filter_map(|line| line[key].as_f64()).fold(0.0, f64::max);
    // Sessions are in flight and wait, and transactions finish. The last period has not ended.
    assert!(most("in_flight") > 0.9 && most("in_flight") < 1.1, "{log}");
    assert!(most("waiting") > 0.0 && most("limit") < 1.1, "{log}");
    let finished: u64 = lines.iter().filter_map(|line| line["finished"].as_u64()).sum();
    assert!((1..=5).contains(&finished), "{log}");
}

#[test]
fn sessions_wait_no_longer_and_no_more_of_them_than_their_class_allows() {
    let server = Server::start();
    let config = list("[[class]]\nname = \"few\"\nroles = [\"web\"]\nmax-waiting = 1\nmax-wait = \"1h\"");
    let path = config.path().to_str().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let admin = directory.path().join("admin");
    let files = ["--config", path, "--admin", admin.to_str().unwrap()];
    let mut guard = Guard::start(&server, &[&LIMIT_ONE[..], &["--max-wait", "200ms"], &files].concat());
    next_line(&mut guard.messages);
    let _first = Wire::start(&guard);
    refused(Wire::begin("postgres", guard.address), "the session waited too long for admission");
    let web = || Wire::begin("web", guard.address);
    let _waits = web();
    wait_for(&admin, "1");
    refused(web(), "too many sessions wait for admission");
    let counts = guard.end();
    assert_eq!(
        ["refused because they waited", "refused because too many"].map(|what| counts.of(what)),
        [1, 1]
    );
    assert_eq!((counts.row("few"), counts.row("others")), (vec![0, 0, 1], vec![0, 1, 0]));
}

#[test]
fn sessions_that_log_in_at_the_guard_are_admitted_in_turn() {
    let server = Server::start();
    let users = list("\"postgres\" \"right\"");
    let directory = tempfile::tempdir().unwrap();
    let admin = directory.path().join("admin");
    let files = ["--users", users.path().to_str().unwrap(), "--admin", admin.to_str().unwrap()];
    let mut guard = Guard::start(&server, &[&LIMIT_ONE[..], &files].concat());
    next_line(&mut guard.messages);
    let mut first = guard.session("same");
    thread::scope(|scope| {
        let others = [(); 2].map(|()| scope.spawn(|| process(&mut guard.session("same"))));
        wait_for(&admin, "2");
        let one = process(&mut first);
        drop(first);
        // They use its connection of the server.
        assert_eq!(others.map(|other| other.join().unwrap()), [one.clone(), one]);
    });
    assert_eq!(guard.end().of("admitted after a wait"), 2);
}
