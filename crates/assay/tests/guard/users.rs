//! Sessions whose roles are in a list of users of the guard.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::thread;

use postgres::error::SqlState;
use postgres::{Client, NoTls};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

use crate::client::{psql, psql_session};
use crate::login::{end_processes_of, with_passwords};
use crate::postgres_server::Server;
use crate::session::process;
use crate::wire::answer;
use crate::{Guard, command, next_line, text};

/// A line of a list: what MD5 needs of the password "right".
pub const MD5_SECRET: &str = "\"postgres\" \"md5310345a502ea2f597e7f181213a8dc54\"";

/// A list of users that only its owner can read.
pub fn list(lines: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(lines.as_bytes()).unwrap();
    file
}

/// What the server keeps of the passwords of two roles, and the passwords of a third one and of the
/// administrator, whom the server asks for none.
fn kept_by(server: &Server) -> NamedTempFile {
    let secrets = "SELECT string_agg(format('\"%s\" \"%s\"\n', rolname, rolpassword), '') FROM pg_authid \
                   WHERE rolname IN ('scram', 'md5')";
    let secrets: String = server.session().query_one(secrets, &[]).unwrap().get(0);
    list(&format!("{secrets}\"clear\" \"right\"\n\"postgres\" \"right\""))
}

fn start(server: &Server, list: &NamedTempFile, limit: &str) -> Guard {
    Guard::start(server, &["--users", list.path().to_str().unwrap(), "--limit", limit])
}

#[test]
fn the_guard_asks_for_passwords_and_logs_in_with_what_it_has_of_them() {
    let server = Server::start();
    with_passwords(&server);
    let guard = start(&server, &kept_by(&server), "1");
    for role in ["scram", "md5", "clear", "postgres"] {
        let wrong = guard.parameters(role, "same").replace("=right", "=wrong");
        let refused = |parameters: &str| {
            let error = Client::connect(parameters, NoTls).err().unwrap();
            assert_eq!(error.code(), Some(&SqlState::INVALID_PASSWORD), "{error}");
        };
        refused(&wrong);
        let mut sessions: Vec<_> = (0..3).map(|_| guard.connect(role, "same").unwrap()).collect();
        for session in &mut sessions {
            let user: String = session.query_typed("SELECT current_user::text", &[]).unwrap()[0].get(0);
            assert_eq!(user, role);
        }
        // One keeps its own, so that the others need another one, which the guard can open.
        sessions[0].batch_execute("SET work_mem = '7MB'").unwrap();
        let one = process(&mut sessions[0]);
        assert_ne!(process(&mut sessions[1]), one);
        refused(&wrong);
    }
    let error = guard.connect("nobody", "same").err().unwrap();
    assert_eq!(error.code(), Some(&SqlState::INVALID_PASSWORD), "{error}");
    let counts = guard.end();
    assert!(counts.of("logged in") == 12 && counts.of("connections to the server") >= 8, "{}", counts.0);
    assert_eq!((counts.of("refused at the login"), counts.of("ended with an error of the guard")), (9, 0));
}

#[test]
fn a_session_finds_the_connection_of_one_that_has_left() {
    let server = Server::start();
    with_passwords(&server);
    let guard = start(&server, &kept_by(&server), "2");
    let log_in = || process(&mut guard.connect("scram", "same").unwrap());
    // Some time later, it does not.
    assert!((0..100).any(|_| log_in() == log_in()));
    // Without a session, connections can be lost, too.
    end_processes_of(&server, "scram", "0");
    log_in();
    // Settings are those of the session's own first packet.
    let mut session = guard.connect("scram", "other").unwrap();
    let name: String = session.query_typed("SHOW application_name", &[]).unwrap()[0].get(0);
    assert_eq!(name, "other");
    guard.end();
}

#[test]
fn few_connections_are_kept_for_sessions_that_have_left() {
    let server = Server::start();
    let guard = start(&server, &list("\"postgres\" \"right\""), "1");
    let log_in = |name: u32| process(&mut guard.session(&name.to_string()));
    let first = log_in(0);
    (1..30).for_each(|name| drop(log_in(name)));
    assert_ne!(log_in(0), first);
    guard.end();
}

#[test]
fn a_session_begins_with_settings_that_were_changed_some_time_ago() {
    let server = Server::start();
    let guard = start(&server, &list("\"postgres\" \"right\""), "1");
    let encoding = || psql(&guard, "\\encoding");
    assert_eq!(text(&encoding().stdout), "SQL_ASCII\n");
    let mut earlier = psql_session(&guard.parameters("postgres", "psql"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut commands = earlier.stdin.take().unwrap();
    let mut output = BufReader::new(earlier.stdout.take().unwrap());
    let mut line = String::new();
    commands.write_all(b"SHOW client_encoding;\n").unwrap();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "SQL_ASCII\n");
    server.session().batch_execute("ALTER ROLE postgres SET client_encoding = 'LATIN1'").unwrap();
    // Ten seconds are at most 10,000 runs of psql.
    assert!((0..10_000).any(|_| text(&encoding().stdout) == "LATIN1\n"));
    // No transaction has the old ones any more.
    assert_eq!(text(&psql(&guard, "SHOW client_encoding").stdout), "LATIN1\n");
    // Sessions that began earlier learn of the new ones.
    commands.write_all(b"SHOW client_encoding;\n\\encoding\n").unwrap();
    drop(commands);
    line.clear();
    output.read_to_string(&mut line).unwrap();
    assert_eq!(line, "LATIN1\nLATIN1\n");
    assert!(earlier.wait().unwrap().success());
    guard.end();
}

#[test]
fn a_login_waits_for_room_at_the_server_and_learns_why_it_has_no_connection() {
    let server = Server::start();
    with_passwords(&server);
    let mut administrator = server.session();
    administrator.batch_execute("ALTER ROLE clear CONNECTION LIMIT 0").unwrap();
    let guard = start(&server, &kept_by(&server), "2");
    let parameters = guard.parameters("clear", "same");
    let waiting = thread::spawn(move || process(&mut Client::connect(&parameters, NoTls).unwrap()));
    // Others log in meanwhile.
    for name in 0..5 {
        guard.connect("postgres", &name.to_string()).unwrap();
        assert!(!waiting.is_finished());
    }
    administrator.batch_execute("ALTER ROLE clear CONNECTION LIMIT 1").unwrap();
    waiting.join().unwrap();
    // The server's own words.
    let missing = guard.parameters("scram", "same").replace("dbname=postgres", "dbname=missing");
    for _ in 0..2 {
        let error = Client::connect(&missing, NoTls).err().unwrap();
        assert_eq!(error.code(), Some(&SqlState::UNDEFINED_DATABASE), "{error}");
    }
    // The guard's, if the server has another password by now.
    administrator.batch_execute("ALTER ROLE md5 PASSWORD 'other'").unwrap();
    administrator.batch_execute("SET password_encryption = md5; ALTER ROLE scram PASSWORD 'right'").unwrap();
    for (role, reason) in
        [("md5", "it asks for SCRAM-SHA-256"), ("scram", "its secret of this role is another")]
    {
        let error = guard.connect(role, "same").err().unwrap();
        assert_eq!(error.code(), Some(&SqlState::CONNECTION_FAILURE), "{error}");
        assert!(error.as_db_error().unwrap().message().contains(reason), "{error:?}");
    }
    guard.end();
}

#[test]
fn a_client_is_asked_in_the_protocol_that_the_guard_has() {
    let server = Server::start();
    let guard = start(&server, &list("\"postgres\" \"right\""), "1");
    let start = |minor: &[u8], parameters: &[u8]| {
        let length = u32::try_from(parameters.len() + 8).unwrap().to_be_bytes();
        [&length[..], &[0, 3, 0], minor, parameters].concat()
    };
    let question = "R   \x17   \nSCRAM-SHA-256  ";
    let role = b"user\0postgres\0\0";
    let later = start(&[2], b"user\0postgres\0_pq_.x\0y\0\0");
    let version = "v   \x13 \x03     \x01_pq_.x ";
    let quits = [start(&[0], role), b"X\0\0\0\x04".to_vec()].concat();
    assert_eq!(answer(&guard, &quits), question);
    let query = [later, b"Q\0\0\0\x05\0".to_vec()].concat();
    let answer_to_query = answer(&guard, &query);
    assert!(answer_to_query.starts_with(&format!("{version}{question}E")), "{answer_to_query:?}");
    assert!(answer_to_query.contains("C08P01 Mthe client has not answered with its password"));
    let other = [start(&[0], role), b"p\0\0\0\x15SCRAM-SHA-1\0\0\0\0\x01n".to_vec()].concat();
    let answer_to_other = answer(&guard, &other);
    assert!(
        answer_to_other.contains("C08P01 M")
            && answer_to_other.contains("names a mechanism that was not offered")
    );
    assert_eq!(guard.end().of("ended with an error of the guard"), 2);
}

#[test]
fn a_guard_that_crashes_leaves_no_core_dump() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    // As large as it would be.
    let mut shell = Command::new("sh");
    shell.current_dir(directory.path()).args(["-c", "ulimit -c $(ulimit -H -c); exec \"$@\"", "sh"]);
    shell.args([env!("CARGO_BIN_EXE_assay"), "guard"]);
    let mut guard = Guard::spawn(shell, &server.address("postgres"), &[]);
    kill_process(Pid::from_child(&guard.child), Signal::ABORT).unwrap();
    let status = guard.child.wait().unwrap();
    assert!(status.signal() == Some(Signal::ABORT.as_raw()) && !status.core_dumped(), "{status}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_session_does_not_begin_while_there_is_no_server() {
    let mut server = Server::start();
    let guard = start(&server, &list("\"postgres\" \"right\""), "1");
    let mut stays = guard.session("same");
    process(&mut stays);
    server.stop();
    for name in ["same", "other", "same"] {
        let error = guard.connect("postgres", name).err().unwrap();
        assert_eq!(error.code(), Some(&SqlState::CONNECTION_FAILURE), "{error}");
    }
    drop(stays);
    guard.end();
}

#[test]
fn a_list_that_is_not_one_is_refused_in_one_line() {
    let (good, bad) = (list("\"role\" \"secret\""), list("\"role\" secret"));
    fs::set_permissions(good.path(), Permissions::from_mode(0o604)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
    for (path, message) in [
        (good.path(), "others can read or change the list of users"),
        (bad.path(), "line 1: it is not \"ROLE\" \"SECRET\""),
        (directory.path(), "is no regular file"),
        ("/no/list".as_ref(), "cannot open the list of users /no/list"),
    ] {
        let path = path.to_str().unwrap();
        let output =
            command(&["--listen", "127.0.0.1:0", "--to", "host=/run/x", "--users", path]).output().unwrap();
        let messages = text(&output.stderr);
        assert!(!output.status.success() && messages.contains(message), "{messages}");
        assert!(!messages.contains("secret") && messages.lines().count() == 1, "{messages}");
        assert!(output.stdout.is_empty());
    }
}

/// Has a guard read its files again, and returns what it says.
pub fn read_again(guard: &mut Guard) -> String {
    kill_process(Pid::from_child(&guard.child), Signal::HUP).unwrap();
    next_line(&mut guard.messages)
}

#[test]
fn the_list_is_read_again_on_request_and_sessions_go_on() {
    const AGAIN: &str = "all files were read again\n";
    let server = Server::start();
    with_passwords(&server);
    let file = kept_by(&server);
    let mut guard = start(&server, &file, "2");
    let refused = |guard: &Guard, role: &str| {
        let error = guard.connect(role, "same").err().unwrap();
        assert_eq!(error.code(), Some(&SqlState::INVALID_PASSWORD), "{error}");
    };
    refused(&guard, "later");
    let [mut scram, mut same, mut md5] =
        ["scram", "scram", "md5"].map(|role| guard.connect(role, "same").unwrap());
    process(&mut md5);
    // A broken list, and one that others can read, change nothing.
    let before = fs::read_to_string(file.path()).unwrap();
    fs::write(file.path(), "\"scram\" right").unwrap();
    let message = read_again(&mut guard);
    assert!(message.contains("line 1: it is not \"ROLE\" \"SECRET\"; all files stay in use"), "{message}");
    guard.connect("md5", "same").unwrap();
    // One role more, one less, and another password.
    let scram_line = before.lines().find(|line| line.starts_with("\"scram\"")).unwrap();
    fs::write(file.path(), format!("{scram_line}\n\"later\" \"right\"\n\"clear\" \"other\"")).unwrap();
    assert_eq!(read_again(&mut guard), AGAIN);
    let error = guard.connect("later", "same").err().unwrap();
    // The server has no rule for it.
    assert_eq!(error.code(), Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION), "{error}");
    for role in ["md5", "clear", "postgres"] {
        refused(&guard, role);
    }
    // The guard still has the key by which it logs in as a role with the same verifier.
    scram.batch_execute("SET work_mem = '7MB'").unwrap();
    let own = process(&mut scram);
    assert_ne!(process(&mut same), own);
    // A session of a role that is not in the list any more has its connection, and gets no other one.
    process(&mut md5);
    end_processes_of(&server, "md5", "0");
    let error = md5.simple_query("SELECT 1").and_then(|_| md5.simple_query("SELECT 1")).unwrap_err();
    assert!(error.is_closed() || error.code() == Some(&SqlState::CONNECTION_FAILURE), "{error}");
    // It is as it was before.
    fs::write(file.path(), before).unwrap();
    assert_eq!(read_again(&mut guard), AGAIN);
    process(&mut guard.connect("md5", "same").unwrap());
    refused(&guard, "later");
    guard.end();
}
