//! What users of PostgreSQL run: `psql` and `pgbench`.

use std::process::{Command, Output, Stdio};

use crate::postgres_server::Server;
use crate::{FOR_CLIENT, Guard, text};

/// A session of psql, which reads its commands.
pub fn psql_session(parameters: &str) -> Command {
    let mut command = Command::new("psql");
    command.args(["--no-psqlrc", "--no-align", "--tuples-only", "--dbname"]);
    command.arg(parameters);
    command
}

/// Runs a command of psql.
pub fn psql(guard: &Guard, script: &str) -> Output {
    psql_with(&guard.parameters("postgres", "psql"), script)
}

/// Runs one with parameters of libpq.
pub fn psql_with(parameters: &str, script: &str) -> Output {
    psql_session(parameters).args(["--command", script]).stdin(Stdio::null()).output().unwrap()
}

/// Runs scripts of pgbench, and returns what it reports.
fn pgbench(guard: &Guard, arguments: &[&str]) -> String {
    let mut command = Command::new("pgbench");
    command.args(arguments).arg(guard.parameters("postgres", "pgbench")).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn psql_works_as_it_does_without_a_guard() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let select = |script| text(&psql(&guard, script).stdout);
    assert_eq!(select("SELECT 1; SELECT 'two'"), "1\ntwo\n");
    assert_eq!(select("CREATE TABLE numbers (n int)"), "CREATE TABLE\n");
    assert_eq!(select("\\copy numbers from program 'seq 100000'"), "COPY 100000\n");
    assert_eq!(select("SELECT count(*), sum(n) FROM numbers"), "100000|5000050000\n");
    // 600 KB, in many messages.
    let copied = select("\\copy numbers to stdout");
    assert_eq!((copied.lines().count(), copied.lines().last()), (100_000, Some("100000")));
    // One message of several MB.
    assert_eq!(select("SELECT repeat('x', 5000000)").len(), 5_000_001);
    let notified = select("LISTEN x; NOTIFY x, 'hello'");
    assert!(notified.contains("notification \"x\" with payload \"hello\" received"), "{notified}");
    let failed = psql(&guard, "SELECT 1/0");
    assert_eq!(text(&failed.stderr), "ERROR:  division by zero\n");
    // The script of an unfinished transaction ends with it.
    assert_eq!(select("BEGIN; DELETE FROM numbers"), "BEGIN\nDELETE 100000\n");
    assert_eq!(select("SELECT count(*) FROM numbers"), "100000\n");
    guard.end();
}

#[test]
fn pgbench_runs_with_more_clients_than_transactions_may_be_in_flight() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "2"]);
    pgbench(&guard, &["--initialize", "--quiet", "--init-steps=dtg"]);
    let branches = |guard: &Guard| {
        let mut session = guard.session("check");
        let row = session.query_typed(
            "SELECT sum(bbalance), (SELECT count(*) FROM pgbench_history), \
                                       (SELECT sum(delta) FROM pgbench_history) FROM pgbench_branches",
            &[],
        );
        let row = row.unwrap().remove(0);
        (row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, i64>(2))
    };
    for (mode, jobs, transactions) in
        [("simple", "16", 160), ("extended", "16", 320), ("prepared", "16", 480), ("prepared", "1", 640)]
    {
        let report = pgbench(
            &guard,
            &["--no-vacuum", "--protocol", mode, "--client=16", "--jobs", jobs, "--transactions=10"],
        );
        assert!(report.contains("transactions actually processed: 160/160"), "{report}");
        // Each was committed once.
        let (balance, history, delta) = branches(&guard);
        assert_eq!((history, balance), (transactions, delta));
    }
    let counts = guard.end();
    assert!(counts.of("committed") >= 640 && counts.of("admitted after a wait") > 0, "{}", counts.0);
    assert_eq!(counts.of("prepared statement"), 0);
    // One thread prepares the statements of all its sessions, one after the other, when each begins.
    assert!(counts.of(FOR_CLIENT) >= 2, "{}", counts.0);
    assert_eq!([counts.of("rolled back"), counts.of("with an error"), counts.of("abandoned")], [0; 3]);
}

#[test]
fn one_thread_that_uses_many_sessions_in_turn_does_not_wait_for_itself() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let mut first = guard.session("first");
    first.batch_execute("BEGIN").unwrap();
    let mut second = guard.session("second");
    second.batch_execute("SELECT 1").unwrap();
    first.batch_execute("COMMIT").unwrap();
    assert_eq!(guard.end().of(FOR_CLIENT), 1);
}
