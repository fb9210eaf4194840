//! Transactions that are set aside: they wait for a lock or for their clients, while others wait for
//! admission.

use std::ops::RangeInclusive;
use std::thread;

use postgres::Client;
use postgres::error::SqlState;
use rustix::process::Signal;

use crate::commands::{start, wait_for_row};
use crate::ending::{A_WHILE, DRAINING};
use crate::login::with_passwords;
use crate::postgres_server::Server;
use crate::session::{select, wait_for_sleep};
use crate::wire::Wire;
use crate::{FOR_CLIENT, FOR_LOCK, Guard, next_line, wait_until};

/// Rows of the status.
const ASIDE: &str = "transactions that are set aside";
const IN_FLIGHT: &str = "transactions in flight";

/// Cancels what sleeps in the server, as soon as something does.
fn cancel_sleep(administrator: &mut Client) {
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    wait_until(|| !select(administrator, cancel).is_empty());
}

/// Returns when as many processes of the server wait for a lock.
fn wait_for_blocked(administrator: &mut Client, number: usize) {
    wait_until(|| select(administrator, "SELECT 1 FROM pg_locks WHERE NOT granted").len() == number);
}

fn server() -> Server {
    let server = Server::start();
    server.session().batch_execute("CREATE TABLE hot (v int); INSERT INTO hot VALUES (0)").unwrap();
    server
}

/// Starts a guard, with more time than the tests need.
fn guard(server: &Server, limit: &str) -> Guard {
    Guard::start(server, &["--limit", limit, "--max-wait", "10m"])
}

/// How many of these sessions may be set aside before the other one is admitted: as three stand still, the
/// last two may be in flight with it.
const SET_ASIDE: RangeInclusive<u64> = 3..=5;

/// Has more sessions of a role than the limit wait for a lock, while another one that needs none goes on.
fn others_go_on(guard: &Guard, server: &Server, role: &str, mut holder: Client) {
    let mut administrator = server.session();
    let connect = || guard.connect(role, "same").unwrap();
    let mut other = connect();
    let sessions: Vec<_> = (0..5).map(|_| connect()).collect();
    holder.batch_execute("BEGIN; UPDATE hot SET v = 0").unwrap();
    thread::scope(|scope| {
        // If something fails, its lock is free.
        let mut holder = holder;
        for mut session in sessions {
            scope.spawn(move || session.batch_execute("UPDATE hot SET v = v + 1").unwrap());
        }
        wait_for_blocked(&mut administrator, 5);
        assert_eq!(select(&mut other, "SELECT 1"), ["1"]);
        holder.batch_execute("COMMIT").unwrap();
    });
    assert_eq!(select(&mut other, "SELECT v FROM hot"), ["5"]);
}

#[test]
fn transactions_that_wait_for_a_lock_give_up_their_places() {
    let server = server();
    let guard = guard(&server, "1");
    others_go_on(&guard, &server, "postgres", server.session());
    let counts = guard.end();
    assert_eq!([counts.of("committed"), counts.of("refused because they waited too long")], [7, 0]);
    assert!(SET_ASIDE.contains(&counts.of(FOR_LOCK)), "{}", counts.0);
}

#[test]
fn a_transaction_that_waits_for_its_client_gives_up_its_place() {
    let server = server();
    let guard = guard(&server, "2");
    let holder = guard.session("same");
    others_go_on(&guard, &server, "postgres", holder);
    let counts = guard.end();
    assert_eq!(["committed", FOR_CLIENT].map(|what| counts.of(what)), [8, 1], "{}", counts.0);
    assert!(SET_ASIDE.contains(&counts.of(FOR_LOCK)), "{}", counts.0);
}

#[test]
fn a_client_that_does_not_read_its_result_keeps_no_other_one_waiting() {
    let server = Server::start();
    let guard = guard(&server, "1");
    let mut slow = Wire::start(&guard);
    let mut other = guard.session("same");
    slow.send(&[(b'Q', "SELECT repeat('x', 100000) FROM generate_series(1, 500)\0")]);
    assert_eq!(select(&mut other, "SELECT 1"), ["1"]);
    let (kinds, _) = slow.read_to(b'Z');
    assert_eq!(kinds.matches('D').count(), 500);
    assert_eq!(guard.end().of("committed"), 2);
}

#[test]
fn the_server_is_asked_over_a_connection_of_a_login_if_the_guard_cannot_open_one() {
    let server = server();
    with_passwords(&server);
    server.session().batch_execute("GRANT ALL ON hot TO scram").unwrap();
    let guard = guard(&server, "2");
    others_go_on(&guard, &server, "scram", server.session());
    assert!(SET_ASIDE.contains(&guard.end().of(FOR_LOCK)));
}

#[test]
fn the_server_is_asked_over_another_connection_after_it_has_ended_one() {
    let server = server();
    let guard = guard(&server, "1");
    let mut administrator = server.session();
    let (mut holder, mut other) = (server.session(), guard.session("same"));
    let sessions = [(); 2].map(|()| guard.session("same"));
    holder.batch_execute("BEGIN; UPDATE hot SET v = 0").unwrap();
    thread::scope(|scope| {
        let mut holder = holder;
        for (number, mut session) in (1..).zip(sessions) {
            scope.spawn(move || session.batch_execute("UPDATE hot SET v = v + 1").unwrap());
            wait_for_blocked(&mut administrator, number);
            assert_eq!(select(&mut other, "SELECT 1"), ["1"]);
            let end = "SELECT pg_terminate_backend(pid, 3600000) FROM pg_stat_activity \
                       WHERE application_name = 'same' AND state = 'idle'";
            wait_until(|| !select(&mut administrator, end).is_empty());
        }
        holder.batch_execute("COMMIT").unwrap();
    });
    assert_eq!(guard.end().of("committed"), 4);
}

#[test]
fn the_server_is_asked_as_another_role_if_one_may_not() {
    let server = server();
    server.session().batch_execute("CREATE ROLE web LOGIN; REVOKE SELECT ON pg_locks FROM public").unwrap();
    let guard = guard(&server, "1");
    // Its connection is free.
    let _web = guard.connect("web", "same").unwrap();
    others_go_on(&guard, &server, "postgres", server.session());
    assert!(SET_ASIDE.contains(&guard.end().of(FOR_LOCK)));
}

#[test]
fn a_copy_that_waits_for_its_client_gives_up_its_place() {
    let server = server();
    let guard = guard(&server, "1");
    let (mut copies, mut other) = (Wire::start(&guard), guard.session("same"));
    copies.send(&[(b'Q', "COPY hot FROM STDIN\0")]);
    copies.read_to(b'G');
    assert_eq!(select(&mut other, "SELECT 1"), ["1"]);
    copies.send(&[(b'd', "7\n"), (b'c', "")]);
    assert_eq!(copies.read_to(b'Z').0, "CZ");
    let counts = guard.end();
    assert_eq!(["committed", FOR_CLIENT].map(|what| counts.of(what)), [2, 1], "{}", counts.0);
}

#[test]
fn a_copy_that_its_server_delays_keeps_its_place() {
    let server = server();
    let sleeps = "CREATE FUNCTION sleeps() RETURNS trigger LANGUAGE plpgsql AS \
                  'BEGIN PERFORM pg_sleep(3600); RETURN NEW; END'; \
                  CREATE TRIGGER sleeps BEFORE INSERT ON hot FOR EACH ROW EXECUTE FUNCTION sleeps()";
    server.session().batch_execute(sleeps).unwrap();
    let guard = Guard::start(&server, &["--limit", "1", "--max-wait", "1s"]);
    let (mut copies, mut other) = (Wire::start(&guard), guard.session("same"));
    copies.send(&[(b'Q', "COPY hot FROM STDIN\0")]);
    copies.read_to(b'G');
    let most = 100_000;
    assert!(copies.flood((b'd', &"7\n".repeat(5_000)), most) < most);
    let error = other.simple_query("SELECT 1").unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED), "{error}");
    drop(copies);
    cancel_sleep(&mut server.session());
    assert_eq!(guard.end().of(FOR_CLIENT), 0);
}

#[test]
fn a_transaction_has_its_place_again_when_its_client_has_read_its_result() {
    let server = Server::start();
    let (guard, _directory, admin) = start(&server, &["--limit", "1", "--max-wait", "10m"]);
    let (mut slow, mut other) = (Wire::start(&guard), guard.session("same"));
    let script = "SELECT repeat('x', 100000) FROM generate_series(1, 500); SELECT pg_sleep(3600)\0";
    slow.send(&[(b'Q', script)]);
    assert_eq!(select(&mut other, "SELECT 1"), ["1"]);
    // The server keeps the last part of it until it has slept.
    for _ in 0..499 {
        slow.read_to(b'D');
    }
    wait_for_row(&admin, ASIDE, "0");
    wait_for_row(&admin, IN_FLIGHT, "1");
    cancel_sleep(&mut server.session());
    assert_eq!(slow.read_to(b'Z').0, "DCTEZ");
    assert_eq!(guard.end().of(FOR_CLIENT), 1);
}

#[test]
fn more_transactions_than_the_limit_are_in_flight_if_all_that_were_wait_for_their_clients() {
    let server = Server::start();
    let (guard, _directory, admin) = start(&server, &["--limit", "1", "--max-wait", "10m"]);
    let mut administrator = server.session();
    let [mut first, mut second, mut third, mut fourth] = [(); 4].map(|()| Wire::start(&guard));
    let sleep = [(b'Q', "SELECT pg_sleep(3600)\0")];
    for wire in [&mut first, &mut second] {
        wire.send(&[(b'Q', "BEGIN\0")]);
        wire.read_to(b'Z');
    }
    second.send(&sleep);
    wait_for_sleep(&server);
    third.send(&sleep);
    fourth.send(&sleep);
    wait_for_row(&admin, "transactions that wait for admission", "2");
    cancel_sleep(&mut administrator);
    second.read_to(b'Z');
    wait_for_row(&admin, IN_FLIGHT, "2");
    cancel_sleep(&mut administrator);
    assert_eq!(guard.end().of(FOR_CLIENT), 2);
}

#[test]
fn a_transaction_has_its_place_again_when_it_goes_on() {
    let server = server();
    let (guard, _directory, admin) = start(&server, &["--limit", "1", "--max-wait", "10m"]);
    let mut administrator = server.session();
    let (mut holder, mut other, mut works) = (server.session(), guard.session("same"), Wire::start(&guard));
    holder.batch_execute("BEGIN; UPDATE hot SET v = 0").unwrap();
    // When it has the lock, it works without an answer.
    works.send(&[(b'Q', "UPDATE hot SET v = v + 1; SELECT pg_sleep(3600)\0")]);
    wait_for_blocked(&mut administrator, 1);
    assert_eq!(select(&mut other, "SELECT 1"), ["1"]);
    wait_for_row(&admin, ASIDE, "1");
    holder.batch_execute("COMMIT").unwrap();
    wait_for_row(&admin, ASIDE, "0");
    wait_for_row(&admin, IN_FLIGHT, "1");
    cancel_sleep(&mut administrator);
    assert_eq!(works.read_to(b'Z').0, "CTEZ");
    guard.end();
}

#[test]
fn a_transaction_whose_client_is_gone_is_not_forgotten() {
    let server = server();
    let mut guard = Guard::start(&server, &["--limit", "1", "--max-wait", "10m", "--drain-time", "5m"]);
    let mut administrator = server.session();
    let (mut holder, mut other, mut gone) = (server.session(), guard.session("same"), Wire::start(&guard));
    holder.batch_execute("BEGIN; UPDATE hot SET v = 0").unwrap();
    gone.send(&[(b'Q', "UPDATE hot SET v = v + 1\0")]);
    wait_for_blocked(&mut administrator, 1);
    // It has given up its place, and stays so without its client.
    assert_eq!(select(&mut other, "SELECT 1"), ["1"]);
    drop(gone);
    assert_eq!(select(&mut other, "SELECT 2"), ["2"]);
    drop(other);
    guard.signal(Signal::TERM);
    assert!(next_line(&mut guard.messages).starts_with(DRAINING));
    thread::sleep(A_WHILE);
    assert!(guard.child.try_wait().unwrap().is_none(), "the transaction has not ended");
    holder.batch_execute("COMMIT").unwrap();
    let counts = guard.ended();
    assert_eq!(["abandoned", FOR_LOCK].map(|what| counts.of(what)), [1, 1], "{}", counts.0);
}
