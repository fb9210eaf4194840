//! Prepared statements of sessions that share connections of the server.

use postgres::error::SqlState;
use postgres::{Client, Statement};

use crate::postgres_server::Server;
use crate::session::{process, select};
use crate::wire::{SYNC, Wire, borrowed, query};
use crate::{FOR_CLIENT, Guard};

/// The only value of a prepared statement.
fn value(session: &mut Client, statement: &Statement) -> String {
    session.query_one(statement, &[]).unwrap().get(0)
}

#[test]
fn a_statement_is_used_on_any_connection() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "3"]);
    let mut sessions = ["same"; 3].map(|name| guard.session(name));
    // The sessions give the same name to different statements, and share one.
    let mine =
        [0, 1, 2].map(|n| sessions[n].prepare(&format!("SELECT 'mine {n}', pg_backend_pid()")).unwrap());
    let shared = [0, 1, 2].map(|n| sessions[n].prepare("SELECT 'shared ' || $1, pg_backend_pid()").unwrap());
    let mut processes = Vec::new();
    for turn in 0..9 {
        // Transactions of the other sessions occupy the connections that were used last.
        let ([holders @ .., last], held) = (&mut sessions, turn % 3);
        for holder in &mut holders[..held] {
            holder.batch_execute("BEGIN").unwrap();
            process(holder);
        }
        let row = last.query_one(&mine[2], &[]).unwrap();
        assert_eq!(row.get::<_, &str>(0), "mine 2");
        processes.push(row.get::<_, i32>(1));
        let row = last.query_one(&shared[2], &[&"2"]).unwrap();
        assert_eq!((row.get::<_, &str>(0), row.get(1)), ("shared 2", processes[turn]));
        for (n, holder) in holders[..held].iter_mut().enumerate() {
            let row = holder.query_one(&mine[n], &[]).unwrap();
            assert_eq!(row.get::<_, &str>(0), format!("mine {n}"));
            holder.batch_execute("COMMIT").unwrap();
        }
    }
    processes.sort_unstable();
    processes.dedup();
    assert_eq!(processes.len(), 3);
    let counts = guard.end();
    assert_eq!(counts.of("prepared statement"), 0, "{}", counts.0);
    assert!(counts.of("statements prepared again") >= 6, "{}", counts.0);
}

#[test]
fn a_connection_keeps_the_statements_that_were_used_last() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let [mut session, mut other] = ["same"; 2].map(|name| guard.session(name));
    let statements: Vec<_> = (0..300).map(|n| session.prepare(&format!("SELECT '{n}'")).unwrap()).collect();
    for (n, statement) in statements.iter().enumerate() {
        assert_eq!(value(&mut session, statement), n.to_string());
    }
    assert_eq!(select(&mut session, "SELECT count(*) FROM pg_prepared_statements"), ["256"]);
    // Those that other sessions have closed are kept.
    drop(statements);
    session.batch_execute("SELECT").unwrap();
    assert_eq!(value_of(&mut other, "SELECT '299'"), "299");
    assert_eq!(select(&mut other, "SELECT count(*) FROM pg_prepared_statements"), ["256"]);
    assert_eq!(guard.end().of("statements prepared again"), 300);
}

fn value_of(session: &mut Client, text: &str) -> String {
    let statement = session.prepare(text).unwrap();
    value(session, &statement)
}

#[test]
fn statements_that_are_too_long_to_be_kept_keep_their_connection() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let mut witness = guard.session("same");
    let long = format!("SELECT '{}'", "x".repeat(70_000));
    let mut one = guard.session("same");
    let statement = one.prepare(&long).unwrap();
    assert_ne!(process(&mut witness), process(&mut one));
    assert_eq!(value(&mut one, &statement), long[8..long.len() - 1]);
    // Many of them.
    let mut many = guard.session("same");
    let kept: Vec<_> =
        (0..20).map(|n| many.prepare(&format!("{} || '{n}'", &long[8..60_000])).err()).collect();
    assert!(kept.iter().all(Option::is_some));
    let text = |n| format!("SELECT '{n}{}'", &long[8..60_000]);
    let kept: Vec<_> = (0..20).map(|n| many.prepare(&text(n)).unwrap()).collect();
    assert_ne!(process(&mut witness), process(&mut many));
    for (n, statement) in kept.iter().enumerate() {
        assert!(value(&mut many, statement).starts_with(&format!("{n}x")));
    }
    assert_eq!(guard.end().of("prepared statement"), 2);
}

#[test]
fn a_statement_whose_result_has_changed_can_be_prepared_again() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "2"]);
    let [mut one, mut other] = ["same"; 2].map(|name| guard.session(name));
    one.batch_execute("CREATE TABLE t (x text); INSERT INTO t VALUES ('x')").unwrap();
    let statement = one.prepare("SELECT * FROM t").unwrap();
    // Both connections have it.
    other.batch_execute("BEGIN").unwrap();
    assert_eq!(value_of(&mut other, "SELECT * FROM t"), "x");
    assert_eq!(value(&mut one, &statement), "x");
    other.batch_execute("COMMIT; ALTER TABLE t ADD y text").unwrap();
    let error = one.query(&statement, &[]).unwrap_err();
    assert_eq!(error.code(), Some(&SqlState::FEATURE_NOT_SUPPORTED), "{error}");
    for _ in 0..2 {
        other.batch_execute("BEGIN").unwrap();
        process(&mut other);
        assert_eq!(value_of(&mut one, "SELECT * FROM t"), "x");
        assert_eq!(value_of(&mut other, "SELECT * FROM t"), "x");
        other.batch_execute("COMMIT").unwrap();
    }
    guard.end();
}

#[test]
fn a_text_that_depends_on_settings_of_a_transaction_is_not_shared() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let [mut one, mut other] = ["same"; 2].map(|name| guard.session(name));
    // The constant is read when the statement is prepared.
    let noon = "SELECT ('2026-01-01 12:00'::timestamptz AT TIME ZONE 'UTC')::text";
    let far_away = |session: &mut Client| {
        session.batch_execute("BEGIN").unwrap();
        session.batch_execute("SET LOCAL timezone = 'America/New_York'").unwrap();
        assert_eq!(value_of(session, noon), "2026-01-01 17:00:00");
        session.batch_execute("COMMIT").unwrap();
    };
    far_away(&mut other);
    let here = select(&mut one, noon).remove(0);
    assert_ne!(here, "2026-01-01 17:00:00");
    assert_eq!(value_of(&mut one, noon), here);
    far_away(&mut other);
    assert_eq!(guard.end().of("SET"), 0);
}

#[test]
fn a_statement_that_sets_something_keeps_its_connection_when_it_is_executed() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let [mut one, mut other] = ["same"; 2].map(|name| guard.session(name));
    let sets = one.prepare("SET work_mem = '7MB'").unwrap();
    assert_eq!(process(&mut one), process(&mut other));
    one.execute(&sets, &[]).unwrap();
    assert_ne!(process(&mut one), process(&mut other));
    assert_eq!(
        (select(&mut one, "SHOW work_mem"), select(&mut other, "SHOW work_mem")),
        (vec!["7MB".to_owned()], vec!["4MB".to_owned()])
    );
    assert_eq!(guard.end().of("SET"), 1);
}

#[test]
fn transactions_that_are_sent_together_wait_for_a_statement_once() {
    const TOGETHER: usize = 1000;
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "2"]);
    let [mut one, mut other] = [(); 2].map(|()| Wire::start(&guard));
    // It is long, so that the guard would send much more than it gets.
    let [parse, bind, execute] = query(&format!("SELECT '{}'", "x".repeat(60_000)));
    let named = [(b'P', format!("s{}", parse.1)), (b'B', format!("\0s{}", &bind.1[1..])), execute];
    one.send(&[borrowed(&named[..1]), vec![SYNC]].concat());
    one.read_to(b'Z');
    // The connection that has it is in use.
    other.send(&[(b'Q', "BEGIN\0")]);
    other.read_to(b'Z');
    one.send(&[borrowed(&named[1..2]), vec![SYNC]].concat().repeat(TOGETHER));
    for _ in 0..TOGETHER {
        assert_eq!(one.read_to(b'Z').0, "2Z");
    }
    assert_eq!(guard.end().of("statements prepared again"), 1);
}

#[test]
fn statements_are_dropped_in_sql() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let [mut one, mut other] = [(); 2].map(|()| Wire::start(&guard));
    let named = |name: &str, value: &str| {
        let [parse, bind, execute] = query(&format!("SELECT '{value}'"));
        [(b'P', format!("{name}{}", parse.1)), (b'B', format!("\0{name}{}", &bind.1[1..])), execute]
    };
    let ours = named("pdo_stmt_00000001", "ours");
    for wire in [&mut one, &mut other] {
        wire.send(&[borrowed(&ours), vec![SYNC]].concat());
        assert_eq!(wire.read_to(b'Z').0, "12DCZ");
    }
    one.send(&[(b'Q', "DEALLOCATE pdo_stmt_00000001\0")]);
    assert_eq!(one.read_to(b'C').1, "DEALLOCATE\0");
    one.read_to(b'Z');
    // The other one still has it.
    other.send(&[borrowed(&ours[1..]), vec![SYNC]].concat());
    assert!(other.read_to(b'D').1.ends_with("ours"));
    one.send(&[borrowed(&ours[1..]), vec![SYNC]].concat());
    assert!(one.read_to(b'E').1.contains("prepared statement \"pdo_stmt_00000001\" does not exist"));
    one.read_to(b'Z');
    one.send(&[(b'Q', "DEALLOCATE ALL\0")]);
    one.read_to(b'Z');
    other.read_to(b'Z');
    other.send(&[borrowed(&ours[1..]), vec![SYNC]].concat());
    assert!(other.read_to(b'D').1.ends_with("ours"));
    // The name is taken.
    other.send(&[borrowed(&named("pdo_stmt_00000001", "new")), vec![SYNC]].concat());
    other.read_to(b'Z');
    assert_eq!(other.read_to(b'Z').0, "EZ");
    assert_eq!(guard.end().of("prepared statement"), 0);
}

#[test]
fn a_session_that_prepares_without_sync_lets_others_pass_and_goes_on_with_a_query() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let mut wire = Wire::start(&guard);
    // As asyncpg does.
    wire.send(&[(b'P', "x\0SELECT $1::int\0\0\0"), (b'D', "Sx\0"), (b'H', "")]);
    assert_eq!(wire.read_to(b'T').0, "1tT");
    guard.session("other").batch_execute("SELECT 1").unwrap();
    wire.send(&[(b'Q', "BEGIN\0")]);
    assert_eq!(wire.read_to(b'Z'), ("CZ".to_owned(), "T".to_owned()));
    wire.send(&[(b'Q', "COMMIT\0")]);
    assert_eq!(wire.read_to(b'Z'), ("CZ".to_owned(), "I".to_owned()));
    // Right behind, a query could be skipped.
    wire.send(&[(b'D', "Sx\0"), (b'Q', "SELECT 1\0")]);
    assert!(wire.read_to(b'E').1.contains("C08P01\0"));
    let counts = guard.end();
    assert_eq!((counts.of(FOR_CLIENT), counts.of("ended with an error of the guard")), (1, 1));
}
