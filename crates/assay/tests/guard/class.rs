//! Classes of transactions, which wait in different ways.

use std::fs;
use std::thread::{self, JoinHandle};

use postgres::error::SqlState;
use postgres::{CancelToken, Client, NoTls};
use serde_json::Value;
use tempfile::TempDir;

use crate::postgres_server::Server;
use crate::session::{select, wait_for_sleep};
use crate::users::read_again;
use crate::wire::{SYNC, Wire, borrowed, query};
use crate::{Guard, wait_until};

/// A guard with a limit of one, and a transaction that has its place until it is cancelled.
struct Occupied {
    guard: Guard,
    directory: TempDir,
    holder: JoinHandle<postgres::Error>,
    cancel: CancelToken,
}

impl Occupied {
    /// Starts one; `prepare` comes before the transaction that has the place.
    fn start<T>(server: &Server, config: &str, prepare: impl FnOnce(&Guard) -> T) -> (Self, T) {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name).to_str().unwrap().to_owned();
        fs::write(path("config"), config).unwrap();
        let files = ["--config", &path("config"), "--log", &path("log")];
        let guard = Guard::start(server, &[&["--limit", "1", "--max-wait", "1h"], &files[..]].concat());
        let prepared = prepare(&guard);
        let mut holder = guard.session("holder");
        let cancel = holder.cancel_token();
        // The server is at work, so that it keeps its place.
        let holder = thread::spawn(move || holder.batch_execute("SELECT pg_sleep(3600)").unwrap_err());
        wait_for_sleep(server);
        (Self { guard, directory, holder, cancel }, prepared)
    }

    fn configure(&mut self, config: &str) -> String {
        fs::write(self.directory.path().join("config"), config).unwrap();
        read_again(&mut self.guard)
    }

    /// Returns when as many have waited in a whole period as this.
    fn wait_for(&self, waiting: f64) {
        let have_waited = || {
            let log = fs::read_to_string(self.directory.path().join("log")).unwrap();
            let mut lines = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            let last: Value = serde_json::from_str(lines.next_back().unwrap()).unwrap();
            last["waiting"].as_f64().is_some_and(|mean| (mean - waiting).abs() < 0.01)
        };
        wait_until(have_waited);
    }

    /// Ends the transaction that has the place.
    fn free(self) -> Guard {
        self.cancel.cancel_query(NoTls).unwrap();
        assert_eq!(self.holder.join().unwrap().code(), Some(&SqlState::QUERY_CANCELED));
        self.guard
    }
}

/// A simple query, and one of the extended protocol, are refused with this code.
fn are_refused(session: &mut Client, code: &SqlState) {
    let error = session.simple_query("SELECT 1").unwrap_err();
    assert_eq!(error.code(), Some(code), "{error}");
    let error = session.query_typed("SELECT 1", &[]).unwrap_err();
    assert_eq!(error.code(), Some(code), "{error}");
}

#[test]
fn classes_have_priorities_longest_waits_and_bounds() {
    let server = Server::start();
    server.session().batch_execute("CREATE TABLE entered (place serial, who text)").unwrap();
    let classes = [
        ("low", "priority = -1"),
        ("high", "priority = 1"),
        ("soon", "max-wait = '200ms'"),
        ("few", "max-waiting = 1"),
    ];
    let classes =
        classes.map(|(name, how)| format!("[[class]]\nname = '{name}'\napplications = ['{name}']\n{how}\n"));
    let (occupied, ()) = Occupied::start(&server, &classes.concat(), |_| ());
    let [mut soon, mut few] = ["soon", "few"].map(|name| occupied.guard.session(name));
    let mut waiting = Vec::new();
    for (number, name) in (1u32..).zip(["low", "other", "other", "high", "few"]) {
        let mut session = occupied.guard.session(name);
        waiting.push(thread::spawn(move || {
            session.batch_execute(&format!("INSERT INTO entered (who) VALUES ('{name}')")).unwrap();
        }));
        occupied.wait_for(number.into());
    }
    are_refused(&mut soon, &SqlState::QUERY_CANCELED);
    are_refused(&mut few, &SqlState::TOO_MANY_CONNECTIONS);
    let guard = occupied.free();
    waiting.into_iter().for_each(|waiting| waiting.join().unwrap());
    let entered = select(&mut server.session(), "SELECT who FROM entered ORDER BY place");
    assert_eq!(entered, ["high", "few", "other", "other", "low"]);
    for session in [&mut soon, &mut few] {
        assert_eq!(select(session, "SELECT 1"), ["1"]);
    }
    let counts = guard.end();
    // Admitted after a wait, refused after a wait, and refused at once.
    for (class, expected) in [
        ("low", [1, 0, 0]),
        ("high", [1, 0, 0]),
        ("soon", [0, 2, 0]),
        ("few", [1, 0, 2]),
        ("others", [2, 0, 0]),
    ] {
        assert_eq!(counts.row(class), expected, "{class}: {}", counts.0);
    }
    let refused =
        ["refused because they waited", "refused because too many waited"].map(|what| counts.of(what));
    assert_eq!((refused, counts.of("admitted after a wait")), ([2, 2], 5));
}

#[test]
fn classes_are_read_again_on_request() {
    let server = Server::start();
    let (mut occupied, ()) = Occupied::start(&server, "", |_| ());
    let mut session = occupied.guard.session("session");
    let class = "[[class]]\nname = 'soon'\napplications = ['session']\n";
    occupied.configure(class);
    let mut early = occupied.guard.session("session");
    let early = thread::spawn(move || early.simple_query("SELECT 1").unwrap_err());
    occupied.wait_for(1.0);
    assert_eq!(occupied.configure(&format!("{class}max-wait = '100ms'")), "all files were read again\n");
    assert_eq!(early.join().unwrap().code(), Some(&SqlState::QUERY_CANCELED));
    are_refused(&mut session, &SqlState::QUERY_CANCELED);
    let message = occupied.configure(&format!("{class}max-wait = '100 ms'"));
    assert!(message.contains("config: line 4: max-wait: give a time between 1ms and 24h"), "{message}");
    assert!(message.ends_with("; all files stay in use as they were read before\n"), "{message}");
    are_refused(&mut session, &SqlState::QUERY_CANCELED);
    // The class is gone, but not what happened in it.
    occupied.configure("");
    occupied.wait_for(0.0);
    let waiting = thread::spawn(move || select(&mut session, "SELECT 1"));
    occupied.wait_for(1.0);
    let guard = occupied.free();
    assert_eq!(waiting.join().unwrap(), ["1"]);
    let counts = guard.end();
    assert_eq!((counts.row("soon"), counts.row("others")), (vec![0, 5, 0], vec![1, 0, 0]), "{}", counts.0);
}

/// One transaction waits at most.
const ONE: &str = "[[class]]\nname = 'all'\nmax-waiting = 1";

#[test]
fn transactions_that_are_sent_together_are_refused_one_by_one() {
    let server = Server::start();
    // One of the sessions has a connection of its own.
    let (occupied, mut wires) = Occupied::start(&server, ONE, |guard| {
        let mut wires = [0; 2].map(|_| Wire::start(guard));
        wires[0].send(&[(b'Q', "LISTEN x\0")]);
        wires[0].read_to(b'Z');
        wires
    });
    let mut session = occupied.guard.session("session");
    let waiting = thread::spawn(move || select(&mut session, "SELECT 1"));
    occupied.wait_for(1.0);
    let one = query("SELECT 1");
    let together = [&borrowed(&one)[..], &[SYNC, (b'Q', "SELECT 2\0"), SYNC]].concat();
    for wire in &mut wires {
        wire.send(&together);
        for _ in 0..3 {
            assert_eq!(wire.read_to(b'Z'), ("EZ".to_owned(), "I".to_owned()));
        }
    }
    let guard = occupied.free();
    assert_eq!(waiting.join().unwrap(), ["1"]);
    for wire in &mut wires {
        wire.send(&together);
        let answers = [0; 3].map(|_| wire.read_to(b'Z').0);
        assert_eq!(answers, ["12DCZ", "TDCZ", "Z"]);
    }
    assert_eq!(guard.end().row("all")[2], 6);
}

#[test]
fn a_client_that_does_not_read_its_refusals_has_to_wait() {
    // 100 MB: more than the kernel keeps.
    const MOST: usize = 7_000_000;
    const READ: usize = 10_000;
    let server = Server::start();
    let (occupied, mut wire) = Occupied::start(&server, ONE, Wire::start);
    let mut session = occupied.guard.session("session");
    let waiting = thread::spawn(move || select(&mut session, "SELECT 1"));
    occupied.wait_for(1.0);
    let sent = wire.flood((b'Q', "SELECT 1\0"), MOST);
    assert!(sent < MOST, "{sent}");
    for _ in 0..sent.min(READ) {
        assert_eq!(wire.read_to(b'Z').0, "EZ");
    }
    drop(wire);
    let guard = occupied.free();
    assert_eq!(waiting.join().unwrap(), ["1"]);
    guard.end();
}
