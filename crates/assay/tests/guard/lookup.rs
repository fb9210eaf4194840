//! Roles that the guard looks up at the server.

use std::thread;

use postgres::error::SqlState;
use postgres::{Client, NoTls};
use tempfile::NamedTempFile;

use crate::Guard;
use crate::login::with_passwords;
use crate::postgres_server::Server;
use crate::session::process;
use crate::users::list;

/// A guard with an empty list, which looks up roles as one whom the server asks for no password.
fn start(server: &Server, arguments: &[&str]) -> (Guard, NamedTempFile) {
    let empty = list("");
    let path = empty.path().to_str().unwrap().to_owned();
    let arguments = [&["--users", &path, "--limit", "2"], arguments].concat();
    (Guard::start(server, &arguments), empty)
}

/// Why a role cannot log in.
fn refusal(guard: &Guard, role: &str, password: &str) -> (SqlState, String) {
    let parameters = guard.parameters(role, "same").replace("=right", &format!("={password}"));
    let error = Client::connect(&parameters, NoTls).err().unwrap();
    let error = error.as_db_error().unwrap_or_else(|| panic!("{error}"));
    (error.code().clone(), error.message().to_owned())
}

#[test]
fn what_the_server_keeps_of_a_role_counts_at_once() {
    let server = Server::start();
    with_passwords(&server);
    let mut administrator = server.session();
    administrator
        .batch_execute(
            "CREATE ROLE nologin PASSWORD 'right'; CREATE ROLE without LOGIN; \
             CREATE ROLE expired PASSWORD 'right' LOGIN VALID UNTIL '2020-01-01'; \
             SET password_encryption = 'scram-sha-256'; CREATE ROLE \"'; DROP ROLE md5 --\" LOGIN PASSWORD 'right'",
        )
        .unwrap();
    let (guard, _list) = start(&server, &["--auth-user", "postgres"]);
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
    for role in ["nologin", "without", "expired", "missing"] {
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
    assert_eq!((counts.of("logged in"), counts.of("roles looked up")), (5, 14));
    assert_eq!((counts.of("refused at the login"), counts.of("ended with an error of the guard")), (8, 1));
}

#[test]
fn the_list_goes_before_the_server() {
    let server = Server::start();
    with_passwords(&server);
    // The server asks the role that looks up others for its password, too.
    let users = list("\"clear\" \"right\"\n\"md5\" \"listed\"");
    let query = "SELECT * FROM secret_of($1)";
    server
        .session()
        .batch_execute(
            "CREATE FUNCTION secret_of(role name, OUT name, OUT text) LANGUAGE sql SECURITY DEFINER \
                 SET search_path = pg_catalog \
                 AS 'SELECT rolname, rolpassword FROM pg_authid \
                     WHERE rolname = role AND rolcanlogin AND NOT rolsuper \
                         AND coalesce(rolvaliduntil > now(), true)'; \
             REVOKE EXECUTE ON FUNCTION secret_of FROM public; \
             GRANT EXECUTE ON FUNCTION secret_of TO clear",
        )
        .unwrap();
    let users = ["--users", users.path().to_str().unwrap()];
    let arguments = [&users[..], &["--limit", "1", "--auth-user", "clear", "--auth-query", query]].concat();
    let guard = Guard::start(&server, &arguments);
    for role in ["scram", "clear"] {
        process(&mut guard.connect(role, "same").unwrap());
    }
    // The server would accept both.
    for role in ["md5", "postgres"] {
        assert_eq!(refusal(&guard, role, "right").0, SqlState::INVALID_PASSWORD);
    }
    assert_eq!(guard.end().of("roles looked up"), 2);
}

#[test]
fn a_query_that_says_nothing_of_a_role_is_reported() {
    let server = Server::start();
    with_passwords(&server);
    server.session().batch_execute("CREATE DATABASE \"no role\"").unwrap();
    for (arguments, reason) in [
        (&["--auth-query", "SELEC $1"][..], "the query fails: syntax error at or near \"SELEC\""),
        (&["--auth-query", "SELECT $1"], "the query has to return one row with the role and its secret"),
        (&["--auth-query", "SELECT $1, ''"], "the secret of this role is empty"),
        (&["--auth-query", "VALUES ($1, 'a'), ($1, 'b')"], "the query has to return one row with the role"),
        (&["--auth-query", "BEGIN"], "the query fails: bind message supplies 1 parameters"),
        (
            &["--auth-query", "COPY pg_class FROM STDIN"],
            "the query fails: bind message supplies 1 parameters",
        ),
        (&["--auth-dbname", "missing"], "database \"missing\" does not exist"),
    ] {
        let (guard, _list) = start(&server, &[&["--auth-user", "postgres"], arguments].concat());
        for _ in 0..2 {
            let (code, message) = refusal(&guard, "scram", "right");
            assert!(message.starts_with("cannot look up the role at the server: "), "{message}");
            assert!(message.contains(reason) && code == SqlState::CONNECTION_FAILURE, "{message}");
        }
        assert_eq!(guard.end().of("ended with an error of the guard"), 2);
    }
    let (guard, _list) = start(&server, &["--auth-user", "nobody"]);
    let (_, message) = refusal(&guard, "scram", "right");
    assert!(message.contains("no pg_hba.conf entry for host \"[local]\", user \"nobody\""), "{message}");
    guard.end();
}

#[test]
fn lookups_go_on_after_the_server_has_ended_their_connection() {
    let mut server = Server::start();
    with_passwords(&server);
    let query =
        "SELECT rolname, rolpassword FROM pg_authid, pg_advisory_xact_lock_shared(1) WHERE rolname = $1";
    let (guard, _list) = start(&server, &["--auth-user", "postgres", "--auth-query", query]);
    let end_connection = |administrator: &mut Client| {
        const END: &str = "SELECT pg_terminate_backend(pid, 3600000) FROM pg_stat_activity \
                           WHERE application_name = 'assay guard'";
        administrator.batch_execute(END).unwrap();
    };
    let mut administrator = server.session();
    guard.connect("scram", "same").unwrap();
    // While it has nothing to do, and while clients wait for it.
    end_connection(&mut administrator);
    guard.connect("scram", "same").unwrap();
    administrator.batch_execute("SELECT pg_advisory_lock(1)").unwrap();
    let logins: Vec<_> = (0..3)
        .map(|_| {
            let parameters = guard.parameters("scram", "same");
            thread::spawn(move || Client::connect(&parameters, NoTls).is_ok())
        })
        .collect();
    let blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    while administrator.query_one(blocked, &[]).unwrap().get::<_, i64>(0) == 0 {}
    end_connection(&mut administrator);
    administrator.batch_execute("SELECT pg_advisory_unlock(1)").unwrap();
    let accepted = logins.into_iter().filter_map(|login| login.join().unwrap().then_some(()));
    assert_eq!(accepted.count(), 2);
    drop(administrator);
    server.stop();
    let (_, message) = refusal(&guard, "scram", "right");
    assert!(message.starts_with("cannot look up the role at the server: "), "{message}");
    guard.end();
}

#[test]
fn a_lookup_waits_for_room_at_the_server() {
    let server =
        Server::start_with(&["listen_addresses=", "max_connections=4", "superuser_reserved_connections=0"]);
    with_passwords(&server);
    let users = list("\"postgres\" \"right\"");
    let users = ["--users", users.path().to_str().unwrap()];
    let guard = Guard::start(&server, &[&users[..], &["--limit", "1", "--auth-user", "postgres"]].concat());
    // Each one has another connection, and there are only four.
    let mut sessions: Vec<_> = (0..5).map(|name| guard.session(&name.to_string())).collect();
    process(&mut guard.connect("scram", "same").unwrap());
    sessions.iter_mut().for_each(|session| drop(process(session)));
    assert!(guard.end().of("times that the server had no room") >= 2);
}
