//! What the load of `bench/overload/database` reports is what the database has, through the guard.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use assay_proxy::postgres::frame::message;

use crate::postgres_server::Server;
use crate::{Guard, text};

/// Clients of a load: more than the guard lets in at a time.
const CLIENTS: usize = 12;

/// Runs the load with a kind of transaction, and maybe options.
fn load(to: SocketAddr, arguments: &[&str]) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_assay")).with_file_name("examples/load");
    assert!(program.exists(), "not built; run: cargo build --package assay-proxy --example load");
    Command::new(program)
        .args([&to.to_string(), "--warm-up=0s", "--duration=1s"])
        .args(arguments)
        .args(["--clients", &CLIENTS.to_string()])
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Returns what a load has counted.
fn counts(guard: &Guard, arguments: &[&str]) -> impl Fn(&str) -> Option<u64> + use<> {
    let output = load(guard.address, arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let figures = text(&output.stdout);
    move |name| {
        let line = figures.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(|number| number.parse().unwrap())
    }
}

#[test]
fn commits_and_failures_are_counted_as_the_server_has_them() {
    let server = Server::start();
    let mut session = server.session();
    let tables = "CREATE TABLE hot (id int, v int CHECK (v <= 5));
        INSERT INTO hot VALUES (1, 0);
        CREATE TABLE contended (id int, v int, CHECK (id % 10 > 0 OR v = 0));
        INSERT INTO contended SELECT id, 0 FROM generate_series(1, 1000) AS id;
        CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, abalance int);
        INSERT INTO pgbench_accounts SELECT id, 0 FROM generate_series(1, 100000) AS id;
        CREATE TABLE pgbench_tellers (tid int, tbalance int);
        INSERT INTO pgbench_tellers SELECT id, 0 FROM generate_series(1, 10) AS id;
        CREATE TABLE pgbench_branches (bid int, bbalance int);
        INSERT INTO pgbench_branches VALUES (1, 0);
        CREATE TABLE pgbench_history
            (tid int, bid int, aid int, delta int CHECK (delta > 0), mtime timestamp)";
    session.batch_execute(tables).unwrap();
    let guard = Guard::start(&server, &["--limit", "4"]);
    let mut failed = 0;
    // The server refuses some even of the first twelve: all but five, those of some rows, and half of them.
    for (transaction, changes, made) in [
        ("hot", 1, "SELECT sum(v) FROM hot"),
        ("deadlock", 8, "SELECT sum(v) FROM contended"),
        ("tpc-b", 1, "SELECT count(*) FROM pgbench_history"),
    ] {
        let counts = counts(&guard, &[transaction]);
        let committed = counts("changes_in_all").unwrap();
        let made: i64 = session.query_one(made, &[]).unwrap().get(0);
        assert!(
            made > 0 && committed * changes == made.cast_unsigned(),
            "{transaction}: {committed}, {made}"
        );
        failed += counts("error_23514").unwrap() + counts("error_40P01").unwrap_or(0);
        assert_eq!(counts("error_25P02"), None, "{transaction}: a statement was sent after an error");
    }
    assert_eq!(guard.end().of("with an error"), failed);
}

#[test]
fn a_shop_has_the_changes_that_were_reported() {
    let server = Server::start();
    let mut session = server.session();
    session.batch_execute(include_str!("../../../../bench/overload/shop.sql")).unwrap();
    // Half of the orders fail at their last statement.
    session.batch_execute("ALTER TABLE payment ADD CHECK (orders % 2 = 0) NOT VALID").unwrap();
    let guard = Guard::start(&server, &["--limit", "4"]);
    let (mut reported, mut failed, mut orders) = (0, 0, 0_i64);
    // The first order is the 145th interaction of a run: a slow machine needs a longer one.
    for seconds in [1, 2, 4, 8, 16, 32] {
        let counts = counts(&guard, &["shop", &format!("--duration={seconds}s")]);
        reported += counts("changes_in_all").unwrap();
        failed += counts("error_23514").unwrap_or(0);
        orders = session.query_one("SELECT count(*) - 25920 FROM orders", &[]).unwrap().get(0);
        let made: String = session.query_one("SELECT number::text FROM changes", &[]).unwrap().get(0);
        assert_eq!(reported.to_string(), made);
        if failed > 0 && orders > 0 {
            break;
        }
    }
    assert!(failed > 0 && orders > 0, "{failed}, {orders}");
    guard.end();
}

#[test]
fn a_statement_that_finds_no_row_ends_the_load() {
    let server = Server::start();
    server.session().batch_execute("CREATE TABLE pgbench_accounts (aid int, abalance int)").unwrap();
    let guard = Guard::start(&server, &["--limit", "4"]);
    let output = load(guard.address, &["select"]);
    assert!(!output.status.success() && output.stdout.is_empty());
    assert_eq!(text(&output.stderr), "load: the answer is `SELECT 0` instead of `SELECT 1`\n");
    guard.end();
}

#[test]
fn a_second_answer_ends_the_load() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let ready = message(b'Z', b"I");
        let mut sessions = Vec::new();
        for _ in 0..CLIENTS {
            let (mut session, _) = listener.accept().unwrap();
            assert_ne!(session.read(&mut [0; 512]).unwrap(), 0);
            session.write_all(&[message(b'R', &[0; 4]), ready.clone()].concat()).unwrap();
            sessions.push(session);
        }
        assert_ne!(sessions[0].read(&mut [0; 512]).unwrap(), 0);
        let answer = [message(b'C', b"UPDATE 1\0"), ready].concat();
        sessions[0].write_all(&answer.repeat(2)).unwrap();
        sessions
    });
    let output = load(to, &["hot"]);
    assert!(!output.status.success() && output.stdout.is_empty());
    assert_eq!(text(&output.stderr), "load: the server has answered twice\n");
    server.join().unwrap();
}

#[test]
fn sessions_that_end_make_room_for_others() {
    let server = Server::start();
    let mut session = server.session();
    session.batch_execute("CREATE TABLE hot (id int, v int); INSERT INTO hot VALUES (1, 0)").unwrap();
    let guard = Guard::start(&server, &["--connection-level", "--limit", "2"]);
    let counts = counts(&guard, &["hot", "--session=5"]);
    let committed = counts("changes_in_all").unwrap();
    let made: i64 = session.query_one("SELECT sum(v) FROM hot", &[]).unwrap().get(0);
    assert!(made > 0 && committed == made.cast_unsigned(), "{committed}, {made}");
    let counts = guard.end();
    // The last session of a client may have ended early.
    let sessions = counts.of("logged in");
    assert!((committed.div_ceil(5)..=committed / 5 + CLIENTS as u64).contains(&sessions), "{}", counts.0);
    // The first two need not wait.
    assert!(counts.of("admitted after a wait") >= CLIENTS as u64 - 2, "{}", counts.0);
}
