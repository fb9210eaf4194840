//! Commands at the socket of `--admin`.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::ending::{DRAINING, ends, farewell};
use crate::http::request;
use crate::postgres_server::Server;
use crate::users::list;
use crate::wire::Wire;
use crate::{Guard, command, next_line, text, wait_until};

/// Starts a guard with a socket for commands, and returns where that is.
pub fn start(server: &Server, arguments: &[&str]) -> (Guard, TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin");
    let mut guard = Guard::start(server, &[arguments, &["--admin", path.to_str().unwrap()]].concat());
    assert_eq!(next_line(&mut guard.messages), format!("taking commands at {}\n", path.display()));
    (guard, directory, path)
}

/// Sends a request to the socket for commands, and returns the status and the body of the answer.
pub fn ask(path: &Path, what: &str, body: &str) -> (String, String) {
    let answer = request(UnixStream::connect(path).unwrap(), what, body);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
}

/// Returns when a row of the status has this number.
pub fn wait_for_row(admin: &Path, what: &str, number: &str) {
    let has_number = |line: &str| line.trim().strip_prefix(what).is_some_and(|rest| rest.trim() == number);
    let mut status = String::new();
    for _ in 0..6000 {
        status = ask(admin, "GET /status", "").1;
        if status.lines().any(has_number) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} {number}: {status}");
}

/// Asks for an end of the sessions of a role. Returns whether the answer is this, or comes later than the
/// server waits for it.
pub fn ends_sessions(admin: &Path, role: &str, expected: &str) -> bool {
    let (status, said) = ask(admin, "POST /end-sessions", role);
    said == expected || status == "503"
}

pub const ONE_ENDS: &str = "1 session ends when it is in no transaction\n";

#[test]
fn commands_end_the_sessions_of_a_role_and_the_guard() {
    let server = Server::start();
    server.session().batch_execute("CREATE ROLE web LOGIN").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin");
    // It is left of a guard that was killed.
    drop(UnixListener::bind(&path).unwrap());
    let admin = ["--admin", path.to_str().unwrap()];
    let mut guard = Guard::start(&server, &[&["--limit", "2"], &admin[..]].concat());
    assert_eq!(next_line(&mut guard.messages), format!("taking commands at {}\n", path.display()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    let mut other = Wire::start(&guard);
    let [idle, mut active] = [(); 2].map(|()| Wire::connect_as("web", guard.address));
    active.send(&[(b'Q', "BEGIN\0")]);
    active.read_to(b'Z');
    assert!(ends_sessions(&path, "web\n", "2 sessions end when they are in no transaction\n"));
    ends(idle, "due to administrator command");
    active.send(&[(b'Q', "SELECT 1\0")]);
    assert_eq!(active.read_to(b'Z'), ("TDCZ".to_owned(), "T".to_owned()));
    active.send(&[(b'Q', "COMMIT\0")]);
    assert_eq!(active.read_to(b'Z').0, "CZ");
    ends(active, "due to administrator command");
    other.send(&[(b'Q', "SELECT 1\0")]);
    assert_eq!(other.read_to(b'Z').0, "TDCZ");
    // A session that begins later stays.
    let mut again = Wire::connect_as("web", guard.address);
    again.send(&[(b'Q', "SELECT 1\0")]);
    assert_eq!(again.read_to(b'Z').0, "TDCZ");

    for (name, number) in
        [("web", "1"), ("postgres", "1"), ("connections of clients", "2"), ("committed", "3")]
    {
        wait_for_row(&path, name, number);
    }
    for (what, body, status) in [
        ("GET /end-sessions", "web", "404"),
        ("GET /drain", "", "404"),
        ("POST /status", "", "404"),
        ("POST /end-sessions", "", "400"),
    ] {
        let (answered, text) = ask(&path, what, body);
        assert!(answered == status && text.starts_with("use GET /status"), "{what}: {answered} {text}");
    }
    let to = server.address("postgres");
    let second = [&["--listen", "127.0.0.1:0", "--to", &to], &admin[..]].concat();
    let refused = command(&second).output().unwrap();
    let message = format!("cannot listen at {}; give another path: another process does so", path.display());
    assert!(text(&refused.stderr).contains(&message), "{}", text(&refused.stderr));

    let answer = ask(&path, "POST /drain", "");
    assert_eq!(answer, ("200".to_owned(), "the guard ends with its sessions\n".to_owned()));
    [other, again].into_iter().for_each(farewell);
    assert!(next_line(&mut guard.messages).starts_with(DRAINING));
    assert_eq!(guard.ended().of("ended by a command, or with the guard"), 4);
    assert!(!path.exists());
}

#[test]
fn commands_end_the_logins_of_a_role() {
    let server = Server::start();
    let users = list("\"web\" \"right\"\n\"postgres\" \"right\"");
    let lookups = ["--auth-user", "postgres", "--auth-query", "SELECT $1, pg_sleep(3600)::text"];
    let users = ["--users", users.path().to_str().unwrap()];
    let (guard, _directory, path) = start(&server, &[&lookups[..], &users].concat());
    let mut proving = Wire::begin("web", guard.address);
    proving.read_to(b'R');
    let looked_up = Wire::begin("report", guard.address);
    wait_until(|| ends_sessions(&path, "report", ONE_ENDS));
    ends(looked_up, "due to administrator command");
    assert!(ends_sessions(&path, "web", ONE_ENDS));
    ends(proving, "due to administrator command");
    let counts = guard.end();
    assert_eq!((counts.of("logged in"), counts.of("ended by a command, or with the guard")), (0, 2));
}

#[test]
fn another_guard_takes_over_the_commands_and_cuts_off_what_does_not_end() {
    let server = Server::start();
    let (first, directory, path) = start(&server, &["--drain-time", "200ms"]);
    let options = ["--admin", path.to_str().unwrap(), "--drain-time", "200ms"];
    let (address, to) = (first.address.to_string(), server.address("postgres"));
    // One that cannot begin takes over nothing.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let cannot = [&["--listen", &taken, "--to", &to, "--take-over"], &options[..]].concat();
    let refused = command(&cannot).output().unwrap();
    let message = format!("cannot listen at {taken}");
    assert!(text(&refused.stderr).contains(&message), "{}", text(&refused.stderr));
    wait_until(|| ask(&path, "GET /status", "").0 == "200");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    let mut second = Guard::listen(&address, command(&options), &to, &["--take-over"]);
    next_line(&mut second.messages);
    first.end();

    let mut session = Wire::start(&second);
    session.send(&[(b'Q', "BEGIN\0")]);
    session.read_to(b'Z');
    assert!(ends_sessions(&path, "postgres", ONE_ENDS));
    ends(session, "due to administrator command");
    assert_eq!(second.end().of("abandoned by their client or the server"), 1);
    assert!(!path.exists());
    fs::write(&path, "").unwrap();
    let refused =
        command(&[&["--listen", "127.0.0.1:0", "--to", &to], &options[..]].concat()).output().unwrap();
    assert!(text(&refused.stderr).contains("there is a file"), "{}", text(&refused.stderr));
    assert!(path.exists());
}
