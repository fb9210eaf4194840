//! How sessions begin.

use postgres::error::SqlState;

use std::thread;

use crate::Guard;
use crate::postgres_server::Server;
use crate::session::process;

/// Lets roles log in with passwords.
pub fn with_passwords(server: &Server) {
    let mut administrator = server.session();
    let file: String = administrator.query_one("SHOW hba_file", &[]).unwrap().get(0);
    administrator
        .batch_execute(&format!(
            "CREATE ROLE scram PASSWORD 'right' LOGIN; SET password_encryption = md5; \
             CREATE ROLE md5 PASSWORD 'right' LOGIN; CREATE ROLE clear PASSWORD 'right' LOGIN; \
             COPY (VALUES ('local all scram scram-sha-256'), ('local all md5 md5'), ('local all clear password'), \
                 ('local all postgres trust')) TO '{file}'"
        ))
        .unwrap();
    administrator.batch_execute("SELECT pg_reload_conf()").unwrap();
    // It has been loaded when a role is refused that could log in before.
    administrator.batch_execute("CREATE ROLE nobody LOGIN").unwrap();
    while server.connect("nobody").is_ok() {}
}

/// Ends the processes that serve a role, but for some.
pub fn end_processes_of(server: &Server, role: &str, but: &str) {
    server
        .session()
        .batch_execute(&format!(
            "SELECT pg_terminate_backend(pid, 3600000) FROM pg_stat_activity \
             WHERE usename = '{role}' AND pid NOT IN ({but})"
        ))
        .unwrap();
}

#[test]
fn the_server_decides_who_may_log_in() {
    let server = Server::start();
    with_passwords(&server);
    let guard = Guard::start(&server, &["--limit", "1"]);
    for role in ["scram", "md5", "clear"] {
        let mut sessions: Vec<_> = (0..3).map(|_| guard.connect(role, "same").unwrap()).collect();
        for session in &mut sessions {
            let user: String = session.query_typed("SELECT current_user::text", &[]).unwrap()[0].get(0);
            assert_eq!(user, role);
        }
        let wrong = guard.parameters(role, "same").replace("=right", "=wrong");
        let error = postgres::Client::connect(&wrong, postgres::NoTls).err().unwrap();
        assert_eq!(error.code(), Some(&SqlState::INVALID_PASSWORD), "{error}");
    }
    let error = guard.connect("nobody", "same").err().unwrap();
    assert_eq!(error.code(), Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION), "{error}");
    let counts = guard.end();
    assert_eq!((counts.of("logged in"), counts.of("connections to the server")), (9, 0));
}

#[test]
fn without_a_password_of_its_own_the_guard_cannot_replace_a_connection() {
    let server = Server::start();
    with_passwords(&server);
    let guard = Guard::start(&server, &["--limit", "1"]);
    let mut sessions: Vec<_> = (0..3).map(|_| guard.connect("scram", "same").unwrap()).collect();
    // One keeps its own; those that the others share are lost.
    sessions[0].batch_execute("SET work_mem = '7MB'").unwrap();
    let own = process(&mut sessions[0]);
    end_processes_of(&server, "scram", &own);
    assert!(sessions[1].simple_query("SELECT 1").is_err());
    // The next login brings one.
    drop(guard.connect("scram", "same").unwrap());
    sessions[2].simple_query("SELECT 1").unwrap();
    assert_eq!(process(&mut sessions[0]), own);
    assert_eq!(guard.end().of("ended with an error of the guard"), 1);
}

#[test]
fn a_transaction_waits_for_a_connection_that_the_guard_cannot_open() {
    let server = Server::start();
    with_passwords(&server);
    let guard = Guard::start(&server, &["--limit", "4"]);
    let [mut holder, mut other, mut pinned] = [0; 3].map(|_| guard.connect("scram", "same").unwrap());
    pinned.batch_execute("SET work_mem = '7MB'").unwrap();
    holder.batch_execute("BEGIN").unwrap();
    // One is left of the three.
    end_processes_of(&server, "scram", &format!("{}, {}", process(&mut holder), process(&mut pinned)));
    let other = thread::spawn(move || process(&mut other));
    let held = process(&mut holder);
    // Those that are admitted later need no connection of this role.
    assert_eq!(guard.session("same").simple_query("SELECT 1").unwrap().len(), 3);
    holder.batch_execute("COMMIT").unwrap();
    assert_eq!(other.join().unwrap(), held);
    // One that waits for a connection that its session keeps for itself gets none.
    let mut waiting = guard.connect("scram", "same").unwrap();
    end_processes_of(&server, "scram", &format!("{held}, {}", process(&mut pinned)));
    holder.batch_execute("BEGIN").unwrap();
    let waiting = thread::spawn(move || waiting.simple_query("SELECT 1").unwrap_err());
    holder.batch_execute("SET work_mem = '7MB'; COMMIT").unwrap();
    let error = waiting.join().unwrap();
    assert!(error.is_closed() || error.code() == Some(&SqlState::CONNECTION_FAILURE), "{error}");
    assert_eq!(guard.end().of("connections to the server"), 0);
}

#[test]
fn a_server_that_is_not_there_is_reported() {
    let mut server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let mut session = guard.session("session");
    server.stop();
    assert!(session.simple_query("SELECT 1").is_err());
    let error = guard.connect("postgres", "later").err().unwrap();
    assert_eq!(error.code(), Some(&SqlState::CONNECTION_FAILURE), "{error}");
    assert!(error.to_string().contains("db error"), "{error}");
    guard.end();
}
