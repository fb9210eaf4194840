//! Drivers for Python and Node.js, each doing what its users do (`driver/with_*`): transactions, values,
//! prepared statements, COPY, requests to cancel, notifications, cursors, pipelines and pools.
//! `scripts/drivers` installs them.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use postgres::NoTls;
use postgres::error::SqlState;

use crate::encryption::Authority;
use crate::postgres_server::Server;
use crate::session::{select, wait_for_sleep};
use crate::users::list;
use crate::{Counts, Guard, text, wait_until};

/// The program of a driver, with what it needs to run.
fn program(name: &str) -> Command {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let drivers = own.join("../../target/drivers");
    assert!(drivers.is_dir(), "run scripts/setup test, which installs drivers");
    // It ends after this time in seconds, in case a message is lost.
    let mut program = Command::new("timeout");
    program.arg("600");
    if name.ends_with(".py") {
        program.arg(drivers.join("python/bin/python")).arg("-u");
    } else {
        program.arg("node");
    }
    program.arg(own.join("tests/guard/driver").join(name)).stdin(Stdio::null());
    // Nothing else of the environment, nor files of the user, say where and how to connect.
    program.env_clear().envs(env::var_os("PATH").map(|path| ("PATH", path)));
    program.env("HOME", &drivers).env("NODE_PATH", drivers.join("node_modules"));
    program.envs([("LC_ALL", "C.UTF-8"), ("TZ", "UTC")]);
    program
}

/// Runs a program, and returns what its user sees.
fn run(name: &str, environment: &[(&str, &str)]) -> String {
    let output = program(name).envs(environment.iter().copied()).output().unwrap();
    let transcript = text(&output.stdout);
    assert!(output.status.success(), "{transcript}{}", text(&output.stderr));
    assert!(transcript.lines().last().is_some_and(|line| line.starts_with("pools ")), "{transcript}");
    transcript
}

/// Runs a program at a server, then through a guard to which it logs in with a password and TLS; compares
/// what its user sees, and returns the report of the guard.
fn compare(name: &str) -> Counts {
    let server = Server::start();
    let mut administrator = server.session();
    administrator.batch_execute("CREATE ROLE web LOGIN").unwrap();
    for database in ["direct", "guarded"] {
        let create = format!("CREATE DATABASE {database} OWNER web TEMPLATE template0 ENCODING 'UTF8'");
        administrator.batch_execute(&create).unwrap();
    }
    let directory = select(&mut administrator, "SHOW unix_socket_directories").remove(0);
    let expected = run(name, &[("PGHOST", &*directory), ("PGUSER", "web"), ("PGDATABASE", "direct")]);

    let authority = Authority::new();
    let files = authority.sign("guard", "IP:127.0.0.1");
    let users = list("\"web\" \"right\"\n");
    // Refusals have the same code as statements that are cancelled.
    let options = ["--limit", "2", "--max-wait", "1h", "--require-tls", "--users"];
    let options = [&options[..], &[users.path().to_str().unwrap()], &files.options()].concat();
    let guard = Guard::start(&server, &options);
    let (host, port) = (guard.address.ip().to_string(), guard.address.port().to_string());
    let guarded = [
        ("PGHOST", &*host),
        ("PGPORT", &*port),
        ("PGUSER", "web"),
        ("PGPASSWORD", "right"),
        ("PGDATABASE", "guarded"),
        ("PGSSLMODE", "verify-full"),
        ("PGSSLROOTCERT", &*authority.certificate()),
        // Only libpq has this one.
        ("PGCHANNELBINDING", "require"),
    ];
    let transcript = run(name, &guarded);
    for (line, expected) in transcript.lines().zip(expected.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(transcript.len(), expected.len());
    let counts = guard.end();
    let sessions = counts.of("logged in");
    assert!(counts.of("with TLS") == sessions && counts.of("requests to cancel") > 0, "{}", counts.0);
    // They shared connections.
    assert!(counts.of("connections to the server that the guard opened") < sessions, "{}", counts.0);
    for none in ["refused", "abandoned", "ended with an error of the guard"] {
        assert_eq!(counts.of(none), 0, "{none}");
    }
    counts
}

#[test]
fn psycopg_works_as_it_does_without_a_guard() {
    let counts = compare("with_psycopg.py");
    assert_eq!(counts.of("LISTEN"), 1);
}

#[test]
fn asyncpg_works_as_it_does_without_a_guard() {
    let counts = compare("with_asyncpg.py");
    // The driver sets `jit` when it asks for a type; the sessions of the pool ask for none.
    assert_eq!(counts.of("SET"), 1);
}

#[test]
fn node_postgres_works_as_it_does_without_a_guard() {
    let counts = compare("with_node_postgres.js");
    assert_eq!(counts.of("LISTEN"), 1);
}

/// Runs a program in overload: its user sees errors, and these results when the overload is over.
fn overload(name: &str, results: [&str; 4]) {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1", "--max-wait", "200ms"]);
    let mut holder = guard.session("holder");
    let cancel = holder.cancel_token();
    let holder = thread::spawn(move || holder.batch_execute("SELECT pg_sleep(3600)").unwrap_err());
    wait_for_sleep(&server);

    let mut program = program(name);
    program.arg("refusals").envs([
        ("PGHOST", "127.0.0.1"),
        ("PGUSER", "postgres"),
        ("PGDATABASE", "postgres"),
    ]);
    program.env("PGPORT", guard.address.port().to_string());
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let names = ["query", "transaction", "pipeline", "pool"];
    for name in names {
        assert_eq!(lines.next(), Some(format!("{name} 57014")));
    }
    cancel.cancel_query(NoTls).unwrap();
    assert_eq!(holder.join().unwrap().code(), Some(&SqlState::QUERY_CANCELED));
    // The place is free when the server is done with the request to cancel.
    let mut free = guard.session("free");
    wait_until(|| free.simple_query("SELECT 1").is_ok());
    writeln!(child.stdin.take().unwrap()).unwrap();
    for (name, result) in names.iter().zip(results) {
        assert_eq!(lines.next(), Some(format!("{name} {result}")));
    }
    assert!(child.wait().unwrap().success());
    assert!(guard.end().of("refused because they waited too long") >= 4);
}

#[test]
fn users_of_psycopg_see_refusals_and_go_on() {
    overload("with_psycopg.py", ["[(1,)]", "[(2,)]", "[(0,), (1,), (2,)]", "[(4,)]"]);
}

#[test]
fn users_of_asyncpg_see_refusals_and_go_on() {
    let records = "[<Record int4=0>, <Record int4=1>, <Record int4=2>]";
    overload("with_asyncpg.py", ["1", "2", records, "4"]);
}

#[test]
fn users_of_node_postgres_see_refusals_and_go_on() {
    overload("with_node_postgres.js", ["[[1]]", "[[2]]", "[[[1]],[[2]],[[3]]]", "[[4]]"]);
}
