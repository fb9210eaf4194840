//! Sessions that share connections of the server, and those that need their own.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use postgres::error::SqlState;
use postgres::{Client, SimpleQueryMessage};

use crate::postgres_server::Server;
use crate::{Guard, wait_until};

/// Returns when a session sleeps in the server.
pub fn wait_for_sleep(server: &Server) {
    let mut administrator = server.session();
    let sleeping = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    wait_until(|| !select(&mut administrator, sleeping).is_empty());
}

/// The first column of the rows of a simple query.
pub fn select(session: &mut Client, query: &str) -> Vec<String> {
    let messages = session.simple_query(query).unwrap();
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap().to_owned()),
        _ => None,
    });
    rows.collect()
}

/// The process of the server that a session uses now.
pub fn process(session: &mut Client) -> String {
    select(session, "SELECT pg_backend_pid()").remove(0)
}

#[test]
fn sessions_share_connections_between_transactions_only() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "2"]);
    // Equal names, so that the sessions begin in the same way.
    let [mut one, mut other] = ["same", "same"].map(|name| guard.session(name));
    let shared = process(&mut one);
    assert_eq!(process(&mut other), shared, "the connection that was used last");
    one.batch_execute("BEGIN").unwrap();
    let held = process(&mut one);
    assert_ne!(process(&mut other), held);
    one.batch_execute("ROLLBACK").unwrap();
    // A session that begins in another way has connections of its own.
    assert_ne!(process(&mut guard.session("different")), shared);
    // The connections end with the last session that could use them.
    drop((one, other));
    let mut administrator = server.session();
    let guarded = "SELECT 1 FROM pg_stat_activity WHERE application_name IN ('same', 'different')";
    while !select(&mut administrator, guarded).is_empty() {}
    guard.end();
}

#[test]
fn a_session_keeps_what_it_has_and_others_do_not_get_it() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let mut witness = guard.session("same");
    for (reason, statement, query, kept) in [
        ("SET", "SET work_mem = '7MB'", "SHOW work_mem", "7MB"),
        ("SET", "SELECT set_config('work_mem', '7MB', false)", "SHOW work_mem", "7MB"),
        ("temporary table", "CREATE TEMP TABLE t AS SELECT 7 AS x", "SELECT x FROM t", "7"),
        ("LISTEN", "LISTEN x", "SELECT pg_listening_channels()", "x"),
        ("prepared statement", "PREPARE seven AS SELECT 7", "EXECUTE seven", "7"),
        (
            "advisory lock",
            "SELECT pg_advisory_lock(7)",
            "SELECT objid FROM pg_locks WHERE locktype = 'advisory'",
            "7",
        ),
        ("cursor WITH HOLD", "DECLARE c CURSOR WITH HOLD FOR SELECT 7", "FETCH c", "7"),
    ] {
        let mut session = guard.session("same");
        session.simple_query(statement).unwrap();
        let own = process(&mut session);
        assert_ne!(process(&mut witness), own, "{reason}");
        assert_eq!(select(&mut session, query), [kept], "{reason}");
        assert_eq!(process(&mut session), own, "{reason}");
    }
    assert_eq!(select(&mut witness, "SHOW work_mem"), ["4MB"]);
    // These end with their transaction.
    let mut brief = guard.session("same");
    for statement in
        ["SET LOCAL work_mem = '7MB'", "SET TRANSACTION READ ONLY", "SELECT pg_advisory_xact_lock(7)"]
    {
        brief.batch_execute(statement).unwrap();
        assert_eq!(process(&mut brief), process(&mut witness), "{statement}");
    }
    let counts = guard.end();
    assert_eq!((counts.of("SET"), counts.of("temporary table"), counts.of("cursor")), (2, 1, 1));
}

#[test]
fn a_transaction_that_waits_too_long_is_refused_and_its_session_goes_on() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1", "--max-wait", "1s"]);
    let mut holder = guard.session("holder");
    // The server is at work, so that it keeps its place.
    let cancel = holder.cancel_token();
    let holder = thread::spawn(move || holder.batch_execute("SELECT pg_sleep(3600)").unwrap_err());
    let mut session = guard.session("session");
    wait_for_sleep(&server);
    for _ in 0..2 {
        let error = session.simple_query("SELECT 1").unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED), "{error}");
        let error = session.query_typed("SELECT 1", &[]).unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED), "{error}");
    }
    cancel.cancel_query(postgres::NoTls).unwrap();
    assert_eq!(holder.join().unwrap().code(), Some(&SqlState::QUERY_CANCELED));
    wait_until(|| session.simple_query("SELECT 1").is_ok());
    let counts = guard.end();
    assert_eq!((counts.of("refused") >= 4, counts.of("requests to cancel")), (true, 1), "{}", counts.0);
}

#[test]
fn a_request_to_cancel_reaches_its_own_session_only() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let mut idle = guard.session("same");
    let mut other = guard.session("same");
    let cancel = idle.cancel_token();
    // They use the same connection, but the idle session does nothing that could be cancelled.
    assert_eq!(process(&mut idle), process(&mut other));
    let other = thread::spawn(move || select(&mut other, "SELECT pg_sleep(0.2)"));
    for _ in 0..20 {
        cancel.cancel_query(postgres::NoTls).unwrap();
    }
    assert_eq!(other.join().unwrap(), [""]);
    assert_eq!(guard.end().of("requests to cancel"), 0);
}

#[test]
fn a_transaction_that_waits_can_be_cancelled() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let [mut holder, mut waiting] = ["holder", "waiting"].map(|name| guard.session(name));
    let [of_holder, of_waiting] = [holder.cancel_token(), waiting.cancel_token()];
    // The server is at work, so that it keeps its place.
    let holder = thread::spawn(move || holder.batch_execute("SELECT pg_sleep(3600)").unwrap_err());
    wait_for_sleep(&server);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // The first ones may come before the transaction.
            while !is_done.load(Ordering::Relaxed) {
                of_waiting.cancel_query(postgres::NoTls).unwrap();
            }
        });
        let result = waiting.simple_query("SELECT 1");
        is_done.store(true, Ordering::Relaxed);
        let error = result.unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::QUERY_CANCELED), "{error}");
    });
    of_holder.cancel_query(postgres::NoTls).unwrap();
    assert_eq!(holder.join().unwrap().code(), Some(&SqlState::QUERY_CANCELED));
    assert_eq!(select(&mut waiting, "SELECT 1"), ["1"]);
    assert_eq!(guard.end().of("refused"), 0);
}

#[test]
fn a_request_that_comes_late_does_not_cancel_the_next_transaction() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    // They take turns on one connection.
    let [mut cancelled, mut other] = ["same", "same"].map(|name| guard.session(name));
    let (cancel, is_done) = (cancelled.cancel_token(), AtomicBool::new(false));
    let hits = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                cancel.cancel_query(postgres::NoTls).unwrap();
            }
        });
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                if cancelled.simple_query("SELECT pg_sleep(0.001)").is_err() {
                    hits.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let mut results = Vec::new();
        while hits.load(Ordering::Relaxed) < 50 && results.last().is_none_or(Result::is_ok) {
            results.push(other.simple_query("SELECT pg_sleep(0.001)"));
        }
        is_done.store(true, Ordering::Relaxed);
        for result in results {
            result.unwrap();
        }
    });
    assert!(guard.end().of("requests to cancel") >= 50);
}

#[test]
fn a_transaction_ends_with_its_client() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let mut session = guard.session("same");
    session.batch_execute("CREATE TABLE t (x int); INSERT INTO t VALUES (1)").unwrap();
    let mut gone = guard.session("same");
    gone.batch_execute("BEGIN; UPDATE t SET x = 2").unwrap();
    drop(gone);
    assert_eq!(select(&mut session, "SELECT x FROM t FOR UPDATE"), ["1"]);
    assert_eq!(guard.end().of("abandoned"), 1);
}

#[test]
fn a_lost_connection_of_the_server_ends_only_the_session_that_uses_it() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let mut administrator = server.session();
    let mut end = |process: &str| {
        administrator.batch_execute(&format!("SELECT pg_terminate_backend({process}, 3600000)")).unwrap();
    };
    let [mut one, mut other] = ["same", "same"].map(|name| guard.session(name));
    end(&process(&mut one));
    // It was idle: the guard opens another one.
    let next = process(&mut other);
    other.batch_execute("BEGIN").unwrap();
    assert_eq!(process(&mut other), next);
    end(&next);
    let error = other.simple_query("SELECT 1").unwrap_err();
    assert!(error.is_closed() || error.code() == Some(&SqlState::ADMIN_SHUTDOWN), "{error}");
    assert_ne!(process(&mut one), next);
    let counts = guard.end();
    assert_eq!((counts.of("connections to the server"), counts.of("abandoned")), (1, 1), "{}", counts.0);
}
