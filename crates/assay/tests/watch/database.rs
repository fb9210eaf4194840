//! Measures of a database: those of a real PostgreSQL server.

use std::io::{BufRead, BufReader, Lines};
use std::process::ChildStdout;
use std::thread;

use postgres::Client;
use postgres::error::SqlState;
use serde_json::Value;

use crate::postgres_server::Server;
use crate::{Started, start, text, watch};

/// A table with two rows.
const TABLE: &str = "CREATE TABLE account (id int PRIMARY KEY, balance int); \
                     INSERT INTO account VALUES (1, 0), (2, 0)";

/// Readings of a watch, which are added up.
struct Readings {
    watch: Started,
    lines: Lines<BufReader<ChildStdout>>,
    head: Value,
    commits: u64,
    rollbacks: u64,
    deadlocks: u64,
    lock_wait_ns: u64,
}

impl Readings {
    fn of(server: &Server, arguments: &[&str]) -> Self {
        let address = server.address("postgres");
        let mut watch =
            start(&[&["--postgres", &address, "--lines", "--period", "20ms"], arguments].concat());
        let mut lines = BufReader::new(watch.child().stdout.take().unwrap()).lines();
        let head = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        Self { watch, lines, head, commits: 0, rollbacks: 0, deadlocks: 0, lock_wait_ns: 0 }
    }

    /// Adds the next reading, and returns it.
    fn next(&mut self) -> Value {
        let line: Value = serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap();
        let count = |measure: &str| line["counts"][measure].as_u64().unwrap_or(0);
        self.commits += count("commits");
        self.rollbacks += count("rollbacks");
        self.deadlocks += count("deadlocks");
        self.lock_wait_ns += count("lock wait");
        line
    }

    /// Reads on until as many transactions were committed, and until they were counted once more.
    fn until_committed(&mut self, commits: u64) {
        while self.commits < commits {
            self.next();
        }
        while self.next()["counts"]["commits"].is_null() {}
    }
}

/// Makes a session report its transactions now. One that has used no table does not report.
fn report(session: &mut Client) {
    session.batch_execute("SELECT pg_stat_force_next_flush() FROM account").unwrap();
}

/// Sets the balance of an account.
fn set(session: &mut Client, account: u32) -> Result<(), postgres::Error> {
    session.batch_execute(&format!("UPDATE account SET balance = 1 WHERE id = {account}"))
}

#[test]
fn transactions_waits_and_deadlocks_are_those_of_the_other_sessions() {
    let server = Server::start();
    let [mut one, mut other] = [server.session(), server.session()];
    one.batch_execute(TABLE).unwrap();
    // Only the first session looks for deadlocks.
    one.batch_execute("SET deadlock_timeout = '10ms'").unwrap();
    other.batch_execute("SET deadlock_timeout = '1h'").unwrap();
    [&mut one, &mut other].into_iter().for_each(report);
    let mut readings = Readings::of(&server, &[]);
    let first = &readings.head["measures"][0];
    assert_eq!((&first["name"], &first["side"]), (&"commits".into(), &"productivity".into()));
    for _ in 0..100 {
        set(&mut one, 1).unwrap();
    }
    for _ in 0..7 {
        one.batch_execute("BEGIN; UPDATE account SET balance = 2; ROLLBACK").unwrap();
    }
    report(&mut one);
    // The report is a transaction, too. Those of the watch, one for each reading, are not in it.
    readings.until_committed(101);
    assert_eq!((readings.commits, readings.rollbacks), (101, 7));
    assert_eq!((readings.deadlocks, readings.lock_wait_ns), (0, 0));

    one.batch_execute("BEGIN").unwrap();
    set(&mut one, 1).unwrap();
    let waiting = thread::spawn(move || {
        other.batch_execute("BEGIN").unwrap();
        set(&mut other, 2).unwrap();
        set(&mut other, 1).unwrap();
        other
    });
    while readings.lock_wait_ns == 0 {
        readings.next();
    }
    assert_eq!(set(&mut one, 2).unwrap_err().code(), Some(&SqlState::T_R_DEADLOCK_DETECTED));
    one.batch_execute("ROLLBACK").unwrap();
    let mut other = waiting.join().unwrap();
    other.batch_execute("COMMIT").unwrap();
    [&mut one, &mut other].into_iter().for_each(report);
    // A transaction and two reports more.
    readings.until_committed(104);
    assert_eq!((readings.commits, readings.rollbacks, readings.deadlocks), (104, 8, 1));
    while readings.next()["counts"]["lock wait"] != 0 {}
    readings.watch.interrupt();
    assert!(readings.watch.output().status.success());
    let report = text(&watch(&["--postgres", &server.address("postgres"), "--duration", "1s"]).stdout);
    assert!(report.contains("  per commit\n"), "{report}");
}

/// What is said when the server has been stopped.
const LOST: &str = "commits, rollbacks, deadlocks, lock wait, lightweight lock wait can no longer be read: ";

#[test]
fn a_watch_of_commits_ends_with_the_server() {
    let mut server = Server::start();
    let readings = Readings::of(&server, &[]);
    server.stop();
    // A full pipe would halt it.
    readings.lines.for_each(drop);
    let output = readings.watch.output();
    let said = text(&output.stderr);
    assert!(output.status.success() && said.starts_with(LOST) && said.lines().count() == 1, "{said}");
}

#[test]
fn a_server_that_stops_takes_only_its_measures_with_it() {
    let mut server = Server::start();
    let mut readings = Readings::of(&server, &["--productivity", "user time"]);
    server.stop();
    // There is a lock wait ten times a second until then.
    let mut without = 0;
    while without < 50 {
        let counts = &readings.next()["counts"];
        assert!(counts["processor time"].is_u64(), "{counts}");
        without = if counts["lock wait"].is_null() { without + 1 } else { 0 };
    }
    readings.watch.interrupt();
    let output = readings.watch.output();
    assert!(output.status.success());
    assert!(text(&output.stderr).starts_with(LOST), "{}", text(&output.stderr));
}

#[test]
fn a_database_that_cannot_be_queried_is_one_clear_line() {
    let server = Server::start();
    server.session().batch_execute("CREATE ROLE \"The Visitor\" LOGIN").unwrap();
    let absent = format!("{}x", server.address("postgres"));
    let cases = [
        ("postgres://user:secret@host:port/x", "assay: the address of the database cannot be read; "),
        ("host=/no/such dbname=x", "assay: cannot query the database x at /no/such: "),
        (&server.address("'The Visitor'"), "wait for; GRANT pg_read_all_stats TO \"The Visitor\"\n"),
        (&server.address("stranger"), "role \"stranger\" does not exist\n"),
        (&absent, "database \"postgresx\" does not exist\n"),
    ];
    for (address, expected) in cases {
        let output = watch(&["--postgres", address, "--duration", "1s"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{address}: {said}");
        assert!(said.contains(expected) && !said.contains("secret"), "{address}: {said}");
        assert_eq!(said.lines().count(), 1, "{address}: {said}");
        assert!(output.stdout.is_empty(), "{address}");
    }
}
