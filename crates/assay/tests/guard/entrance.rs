//! A limit on sessions, which hold their places until they end.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::commands::{ONE_ENDS, ends_sessions, start, wait_for_row};
use crate::ending::{DRAINING, ends, farewell};
use crate::next_line;
use crate::postgres_server::Server;
use crate::session::process;
use crate::users::{MD5_SECRET, list};
use crate::wire::Wire;

const LIMIT_ONE: [&str; 3] = ["--connection-level", "--limit", "1"];

/// Runs a transaction in a session that has been admitted, or is now.
fn works(session: &mut Wire) {
    session.send(&[(b'Q', "SELECT 1\0")]);
    assert_eq!(session.read_to(b'Z').0, "TDCZ");
}

/// Returns when as many sessions wait as this.
fn wait_for_waiting(admin: &Path, number: &str) {
    wait_for_row(admin, "sessions that wait for admission", number);
}

/// Returns when the log has a period of which this is so.
fn wait_for_period(log: &Path, is_so: impl Fn(&Value) -> bool) {
    let mut text = String::new();
    for _ in 0..6000 {
        text = fs::read_to_string(log).unwrap();
        let lines = text.split_inclusive('\n').skip(1).filter(|line| line.ends_with('\n'));
        if lines.map(|line| serde_json::from_str(line).unwrap()).any(|line| is_so(&line)) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{text}");
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
    let log = list("");
    let log = log.path();
    let arguments = [&LIMIT_ONE[..], &["--log", log.to_str().unwrap()]].concat();
    let (mut guard, _directory, admin) = start(&server, &arguments);
    let begin = |role| Wire::begin(role, guard.address);

    let mut first = Wire::start(&guard);
    works(&mut first);
    // It is in no transaction, and the others wait.
    let [mut second, gone, mut third] = ["postgres"; 3].map(begin);
    let other = begin("web");
    wait_for_waiting(&admin, "4");
    drop(gone);
    wait_for_waiting(&admin, "3");
    assert!(ends_sessions(&admin, "web", ONE_ENDS));
    ends(other, "due to administrator command");
    works(&mut first);
    wait_for_period(log, |line| line["in_flight"] == 1.0 && line["waiting"] == 2.0);
    drop(first);
    second.read_to(b'Z');
    works(&mut second);
    wait_for_waiting(&admin, "1");
    second.send(&[(b'X', "")]);
    assert!(second.is_at_end());
    third.read_to(b'Z');
    works(&mut third);
    // The status is of the last period, in which this one may have waited.
    wait_for_waiting(&admin, "0");
    wait_for_period(log, |line| line["finished"] != 0);

    let last = begin("postgres");
    wait_for_waiting(&admin, "1");
    guard.signal(Signal::TERM);
    [third, last].into_iter().for_each(farewell);
    assert!(next_line(&mut guard.messages).starts_with(DRAINING));
    let counts = guard.ended();
    for (what, number) in
        [("logged in", 3), ("admitted after a wait", 2), ("ended by a command", 3), ("fixed", 1)]
    {
        assert_eq!(counts.of(what), number, "{what}: {}", counts.0);
    }
    let log = fs::read_to_string(log).unwrap();
    assert!(log.lines().next().unwrap().contains("\"level\":\"sessions\""), "{log}");
}

#[test]
fn a_session_that_leaves_holds_its_place_until_the_server_has_ended_its_transaction() {
    let server = Server::start();
    let mut blocker = server.session();
    blocker.batch_execute("CREATE TABLE hot (v int)").unwrap();
    let mut lock = blocker.transaction().unwrap();
    lock.batch_execute("LOCK TABLE hot").unwrap();
    let (guard, _directory, admin) = start(&server, &LIMIT_ONE);
    let mut gone = Wire::start(&guard);
    gone.send(&[(b'Q', "INSERT INTO hot VALUES (1)\0")]);
    wait_for_row(&admin, "connections to the server", "1");
    let mut next = Wire::begin("postgres", guard.address);
    wait_for_waiting(&admin, "1");
    gone.send(&[(b'X', "")]);
    drop(gone);
    wait_for_row(&admin, "connections of clients", "1");
    wait_for_waiting(&admin, "1");
    lock.commit().unwrap();
    next.read_to(b'Z');
    works(&mut next);
    guard.end();
}

#[test]
fn sessions_wait_no_longer_and_no_more_of_them_than_their_class_allows() {
    let server = Server::start();
    let config = list("[[class]]\nname = \"few\"\nroles = [\"web\"]\nmax-waiting = 1\nmax-wait = \"1h\"");
    let waits = ["--max-wait", "200ms", "--config", config.path().to_str().unwrap()];
    let (guard, _directory, admin) = start(&server, &[&LIMIT_ONE[..], &waits].concat());
    let _first = Wire::start(&guard);
    refused(Wire::begin("postgres", guard.address), "the session waited too long for admission");
    wait_for_waiting(&admin, "0");
    let web = || Wire::begin("web", guard.address);
    let _waits = web();
    wait_for_waiting(&admin, "1");
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
    // MD5 takes a client less time than SCRAM: without a session for three seconds, the connection would end.
    let users = list(MD5_SECRET);
    let users = ["--users", users.path().to_str().unwrap()];
    let (guard, _directory, admin) = start(&server, &[&LIMIT_ONE[..], &users].concat());
    let mut first = guard.session("same");
    thread::scope(|scope| {
        let others = [(); 2].map(|()| scope.spawn(|| process(&mut guard.session("same"))));
        wait_for_waiting(&admin, "2");
        let one = process(&mut first);
        drop(first);
        // They use its connection of the server.
        assert_eq!(others.map(|other| other.join().unwrap()), [one.clone(), one]);
    });
    assert_eq!(guard.end().of("admitted after a wait"), 2);
}
