//! Roles that the guard looks up at the server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use assay_proxy::postgres::frame::message;
use postgres::error::SqlState;
use postgres::{Client, NoTls, Row};

use crate::login::with_passwords;
use crate::postgres_server::Server;
use crate::session::process;
use crate::users::list;
use crate::wire::{answer, packet};
use crate::{FOR_CLIENT, Guard, command, next_line, text};

/// The role as which guards look up others, which is not looked up itself.
const LISTED: &str = "\"postgres\" \"right\"";

/// A guard with a list of these lines, which looks up other roles.
fn start(server: &Server, lines: &str, arguments: &[&str]) -> Guard {
    let users = list(lines);
    let users = ["--users", users.path().to_str().unwrap(), "--limit", "1"];
    Guard::start(server, &[&users, arguments].concat())
}

/// Why a role cannot log in.
fn refusal(guard: &Guard, role: &str, password: &str) -> (SqlState, String) {
    let parameters = guard.parameters(role, "same").replace("=right", &format!("={password}"));
    let error = Client::connect(&parameters, NoTls).err().unwrap();
    let error = error.as_db_error().unwrap_or_else(|| panic!("{error}"));
    (error.code().clone(), error.message().to_owned())
}

/// What a client sends that leaves when it has to prove that it is a role.
fn quits(role: &str) -> Vec<u8> {
    [packet(&format!("user\0{role}\0\0")), message(b'X', b"")].concat()
}

#[test]
fn what_the_server_keeps_of_a_role_counts_at_once() {
    let server = Server::start();
    with_passwords(&server);
    let mut administrator = server.session();
    administrator
        .batch_execute(
            "ALTER ROLE postgres PASSWORD 'right'; CREATE ROLE nologin PASSWORD 'right'; CREATE ROLE without LOGIN; \
             CREATE ROLE expired PASSWORD 'right' LOGIN VALID UNTIL '2020-01-01'; \
             SET password_encryption = 'scram-sha-256'; CREATE ROLE \"'; DROP ROLE md5 --\" LOGIN PASSWORD 'right'",
        )
        .unwrap();
    let guard = start(&server, "", &["--auth-user", "postgres"]);
    let refused = |role: &str, password: &str| {
        let (code, message) = refusal(&guard, role, password);
        assert_eq!(code, SqlState::INVALID_PASSWORD, "{message}");
    };
    for role in ["scram", "md5"] {
        let mut sessions: Vec<_> = (0..2).map(|_| guard.connect(role, "same").unwrap()).collect();
        // One keeps its own, so that the other one needs another one, which the guard can open.
        sessions[0].batch_execute("SET work_mem = '7MB'").unwrap();
        let user: String = sessions[1].query_typed("SELECT current_user::text", &[]).unwrap()[0].get(0);
        assert_eq!(user, role);
        refused(role, "wrong");
    }
    for role in ["nologin", "without", "expired", "missing", "postgres"] {
        refused(role, "right");
    }
    // The server has no rule for it.
    let (code, message) = refusal(&guard, "\\'\\;\\ DROP\\ ROLE\\ md5\\ --", "right");
    assert_eq!(code, SqlState::INVALID_AUTHORIZATION_SPECIFICATION, "{message}");
    // Another password, another method, and none any more.
    administrator.batch_execute("ALTER ROLE scram PASSWORD 'other'").unwrap();
    refused("scram", "right");
    let other = guard.parameters("scram", "same").replace("=right", "=other");
    process(&mut Client::connect(&other, NoTls).unwrap());
    administrator.batch_execute("ALTER ROLE md5 NOLOGIN").unwrap();
    refused("md5", "right");
    let counts = guard.end();
    assert_eq!((counts.of("logged in"), counts.of("roles that had to be looked up")), (5, 15));
    assert_eq!((counts.of("refused at the login"), counts.of("ended with an error of the guard")), (9, 1));
}

#[test]
fn the_list_goes_before_the_server() {
    let server = Server::start();
    with_passwords(&server);
    // The server asks the role that looks up others for its password, too.
    let users = "\"clear\" \"right\"\n\"md5\" \"listed\"";
    let query = "SELECT * FROM guard.secret_of($1)";
    server
        .session()
        .batch_execute(
            "CREATE SCHEMA guard; \
             CREATE FUNCTION guard.secret_of(role name, OUT name, OUT text) LANGUAGE sql SECURITY DEFINER \
                 SET search_path = pg_catalog, pg_temp \
                 AS 'SELECT rolname, rolpassword FROM pg_authid \
                     WHERE rolname = role AND rolcanlogin AND NOT rolsuper \
                         AND coalesce(rolvaliduntil > now(), true)'; \
             REVOKE EXECUTE ON FUNCTION guard.secret_of FROM public; \
             GRANT USAGE ON SCHEMA guard TO clear; GRANT EXECUTE ON FUNCTION guard.secret_of TO clear",
        )
        .unwrap();
    let guard = start(&server, users, &["--auth-user", "clear", "--auth-query", query]);
    for role in ["scram", "clear"] {
        process(&mut guard.connect(role, "same").unwrap());
    }
    // The server would accept both.
    for role in ["md5", "postgres"] {
        assert_eq!(refusal(&guard, role, "right").0, SqlState::INVALID_PASSWORD);
    }
    assert_eq!(guard.end().of("roles that had to be looked up"), 2);
}

#[test]
fn a_query_that_says_nothing_of_a_role_is_reported_to_its_owner() {
    const BAD: &str = "the query has to return one row with the role and its secret";
    let mut server = Server::start();
    with_passwords(&server);
    let (not_proved, no_server) = (SqlState::INVALID_PASSWORD, SqlState::CONNECTION_FAILURE);
    for (arguments, code, reason) in [
        (["--auth-query", "SELEC $1"], &no_server, "the query fails: syntax error at or near \"SELEC\""),
        (["--auth-query", "SELECT $1"], &not_proved, BAD),
        (["--auth-query", "VALUES ($1, 'a'), ($1, 'b')"], &not_proved, BAD),
        (["--auth-query", "SELECT $1, ''"], &not_proved, "the secret of this role is empty"),
        (["--auth-query", "BEGIN"], &no_server, "the query fails: bind message supplies 1 parameters"),
        (["--auth-dbname", "missing"], &no_server, "database \"missing\" does not exist"),
        (["--auth-user", "nobody"], &no_server, "no pg_hba.conf entry for host \"[local]\", user \"nobody\""),
    ] {
        let user = if arguments[0] == "--auth-user" { &[][..] } else { &["--auth-user", "postgres"] };
        let mut guard = start(&server, "", &[user, &arguments].concat());
        let (refused, message) = refusal(&guard, "scram", "right");
        assert_eq!(refused, *code, "{message}");
        assert!(!message.contains(reason), "{message}");
        let said = next_line(&mut guard.messages);
        assert!(said.starts_with(&format!("cannot look up a role at the server: {reason}")), "{said}");
        assert_eq!(guard.end().of("lookups that failed"), 1);
    }
    let mut guard = start(&server, "", &["--auth-user", "postgres"]);
    server.stop();
    assert_eq!(refusal(&guard, "scram", "right").0, no_server);
    let said = next_line(&mut guard.messages);
    assert!(said.contains("at the server: cannot connect to the server at "), "{said}");
    guard.end();
}

#[test]
fn lookups_go_on_after_the_server_has_ended_their_connection() {
    const QUERY: &str = "SELECT rolname, rolpassword FROM pg_authid, pg_advisory_xact_lock_shared(hashtext($1)) \
                         WHERE rolname = $1";
    let server = Server::start();
    with_passwords(&server);
    let mut guard = start(&server, LISTED, &["--auth-user", "postgres", "--auth-query", QUERY]);
    let mut administrator = server.session();
    let mut run = |query: &str| administrator.query_one(query, &[]).unwrap();
    let lock = |role| format!("SELECT pg_advisory_lock(hashtext('{role}'))");
    let unlock = |role| format!("SELECT pg_advisory_unlock(hashtext('{role}'))");
    let log_in = |guard: &Guard| {
        let parameters = guard.parameters("scram", "same");
        thread::spawn(move || Client::connect(&parameters, NoTls).is_ok())
    };
    let blocked = |run: &mut dyn FnMut(&str) -> Row| {
        let query = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        while run(query).get::<_, i64>(0) == 0 {}
    };
    let end_connection = "SELECT count(pg_terminate_backend(pid, 3600000)) FROM pg_stat_activity \
                          WHERE application_name = 'assay guard'";
    run(&lock("scram"));
    run(&lock("md5"));
    let first = log_in(&guard);
    blocked(&mut run);
    // The next one waits for the same connection, once a session has begun that came later.
    let mut second = TcpStream::connect(guard.address).unwrap();
    second.write_all(&packet("user\0md5\0database\0postgres\0\0")).unwrap();
    guard.session("same");
    run(&unlock("scram"));
    assert!(first.join().unwrap());
    // Its connection may have been lost before.
    blocked(&mut run);
    run(end_connection);
    run(&unlock("md5"));
    let mut kind = [0];
    second.read_exact(&mut kind).unwrap();
    assert_eq!(kind, *b"R");
    // One that is lost while it has nothing to do costs no login. The new one that replaces it does.
    run(end_connection);
    run(&lock("scram"));
    let third = log_in(&guard);
    blocked(&mut run);
    run(end_connection);
    assert!(!third.join().unwrap());
    let said = next_line(&mut guard.messages);
    assert_eq!(said, "cannot look up a role at the server: it has closed the connection\n");
    run(&unlock("scram"));
    assert!(log_in(&guard).join().unwrap());
    assert_eq!(guard.end().of("lookups that failed"), 1);
}

#[test]
fn a_lookup_has_a_time_limit() {
    let server = Server::start();
    with_passwords(&server);
    let query = "SELECT $1, current_setting('statement_timeout')";
    let guard = start(&server, "", &["--auth-user", "postgres", "--auth-query", query]);
    let parameters = guard.parameters("postgres", "same").replace("=right", "=20s");
    Client::connect(&parameters, NoTls).unwrap();
    guard.end();
}

#[test]
fn a_client_may_send_the_beginning_of_its_login_early() {
    let server = Server::start();
    let guard = start(&server, "", &["--auth-user", "postgres"]);
    assert_eq!(answer(&guard, &quits("scram")), "R   \x17   \nSCRAM-SHA-256  ");
    guard.end();
}

#[test]
fn lookups_are_no_work_on_transactions() {
    let server = Server::start();
    let guard = start(&server, LISTED, &["--auth-user", "postgres"]);
    let [mut holder, mut other] = ["1", "2"].map(|name| guard.session(name));
    // The connection for lookups is open.
    assert!(answer(&guard, &quits("missing")).starts_with('R'));
    // The other one waits for the holder, which waits for this program.
    holder.batch_execute("BEGIN").unwrap();
    let waiting = thread::spawn(move || process(&mut other));
    while !waiting.is_finished() {
        assert!(answer(&guard, &quits("missing")).starts_with('R'));
    }
    waiting.join().unwrap();
    assert_eq!(guard.end().of(FOR_CLIENT), 1);
}

#[test]
fn secrets_are_not_sent_over_a_network_without_tls() {
    let empty = list("");
    let users = ["--users", empty.path().to_str().unwrap(), "--auth-user", "guard"];
    let address = ["--listen", "127.0.0.1:0", "--to", "postgres://192.0.2.1"];
    let output = command(&[address, users].concat()).output().unwrap();
    let messages = text(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{messages}");
    assert!(messages.contains("the server would send secrets over a network without TLS"), "{messages}");
    assert_eq!(messages.lines().count(), 1);
}

#[test]
fn a_lookup_waits_for_room_at_the_server() {
    let server =
        Server::start_with(&["listen_addresses=", "max_connections=4", "superuser_reserved_connections=0"]);
    with_passwords(&server);
    let guard = start(&server, LISTED, &["--auth-user", "postgres"]);
    // Each one has another connection, and there are only four.
    let mut sessions: Vec<_> = (0..5).map(|name| guard.session(&name.to_string())).collect();
    process(&mut guard.connect("scram", "same").unwrap());
    sessions.iter_mut().for_each(|session| drop(process(session)));
    assert!(guard.end().of("times that the server had no room") >= 2);
}
