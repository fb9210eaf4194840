//! Drivers for Python and Node.js, each doing what its users do (`driver/with_*`): transactions, values,
//! prepared statements, COPY, requests to cancel, notifications, cursors, pipelines and pools.
//! `scripts/drivers` installs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::encryption::Authority;
use crate::postgres_server::Server;
use crate::users::list;
use crate::{Counts, Guard, text};

/// Where the drivers are installed.
fn drivers() -> PathBuf {
    let drivers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/drivers");
    assert!(drivers.is_dir(), "run scripts/setup test, which installs drivers");
    drivers
}

fn python() -> Command {
    Command::new(drivers().join("python/bin/python"))
}

fn node() -> Command {
    let mut node = Command::new("node");
    node.env("NODE_PATH", drivers().join("node_modules"));
    node
}

/// Runs a program of a driver, which prints what its user sees.
fn run(mut interpreter: Command, program: &str, environment: &[(&str, &str)]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guard/driver").join(program);
    let output =
        interpreter.arg(path).envs(environment.iter().copied()).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let transcript = text(&output.stdout);
    assert!(transcript.lines().last().is_some_and(|line| line.starts_with("pools ")), "{transcript}");
    transcript
}

/// Runs a program at a server, then through a guard to which it logs in with a password and TLS; compares
/// what its user sees, and returns the report of the guard.
fn compare(interpreter: fn() -> Command, program: &str) -> Counts {
    let server = Server::start();
    let mut administrator = server.session();
    administrator.batch_execute("CREATE ROLE web LOGIN").unwrap();
    for name in ["direct", "guarded"] {
        let database = format!("CREATE DATABASE {name} OWNER web TEMPLATE template0 ENCODING 'UTF8'");
        administrator.batch_execute(&database).unwrap();
    }
    let directory: String = administrator.query_one("SHOW unix_socket_directories", &[]).unwrap().get(0);
    let direct = [("PGHOST", &*directory), ("PGUSER", "web"), ("PGDATABASE", "direct")];
    let expected = run(interpreter(), program, &direct);

    let authority = Authority::new();
    let files = authority.sign("guard", "IP:127.0.0.1");
    let users = list("\"web\" \"right\"\n");
    let limit = ["--limit", "2", "--require-tls", "--users", users.path().to_str().unwrap()];
    let guard = Guard::start(&server, &[&limit[..], &files.options()].concat());
    let (host, port) = (guard.address.ip().to_string(), guard.address.port().to_string());
    let guarded = [
        ("PGHOST", &*host),
        ("PGPORT", &*port),
        ("PGUSER", "web"),
        ("PGPASSWORD", "right"),
        ("PGDATABASE", "guarded"),
        ("PGSSLMODE", "verify-full"),
        ("PGSSLROOTCERT", &*authority.certificate()),
        // Only libpq knows this one.
        ("PGCHANNELBINDING", "require"),
    ];
    let transcript = run(interpreter(), program, &guarded);
    for (line, expected) in transcript.lines().zip(expected.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(transcript.len(), expected.len());
    let counts = guard.end();
    let complete = counts.of("logged in") > 8 && counts.of("requests to cancel") > 0;
    assert!(complete && counts.of("with TLS") == counts.of("logged in"), "{}", counts.0);
    assert_eq!((counts.of("abandoned"), counts.of("ended with an error of the guard")), (0, 0));
    counts
}

#[test]
fn psycopg_works_as_it_does_without_a_guard() {
    let counts = compare(python, "with_psycopg.py");
    assert_eq!(counts.of("LISTEN"), 1);
}

#[test]
fn asyncpg_works_as_it_does_without_a_guard() {
    let counts = compare(python, "with_asyncpg.py");
    // The driver sets `jit` when it asks for a type; the sessions of the pool ask for none.
    assert_eq!(counts.of("SET"), 1);
}

#[test]
fn node_postgres_works_as_it_does_without_a_guard() {
    let counts = compare(node, "with_node_postgres.js");
    assert_eq!(counts.of("LISTEN"), 1);
}
