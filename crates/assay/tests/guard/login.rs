//! How sessions begin.

use postgres::error::SqlState;

use crate::Guard;
use crate::postgres_server::Server;

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
    let mut sessions: Vec<_> = (0..4).map(|_| guard.connect("scram", "same").unwrap()).collect();
    // One connection for each of the transactions that may be in flight, and one more.
    for session in &mut sessions[..2] {
        session.batch_execute("SET work_mem = '7MB'").unwrap();
    }
    assert!(sessions[2].simple_query("SELECT 1").is_err());
    // The next login brings one.
    drop(guard.connect("scram", "same").unwrap());
    sessions[3].simple_query("SELECT 1").unwrap();
    sessions[0].simple_query("SELECT 1").unwrap();
    assert_eq!(guard.end().of("ended with an error of the guard"), 1);
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
