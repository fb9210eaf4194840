//! Servers that have no room for a further connection.

use std::thread;

use postgres::error::SqlState;

use crate::Guard;
use crate::postgres_server::Server;
use crate::session::process;

/// A server that takes one connection of a role.
fn server() -> Server {
    let server = Server::start();
    server.session().batch_execute("CREATE ROLE single LOGIN CONNECTION LIMIT 1").unwrap();
    server
}

#[test]
fn sessions_share_what_the_server_has_room_for() {
    let server = server();
    let guard = Guard::start(&server, &["--limit", "2", "--max-wait", "1h"]);
    let [mut holder, one, other, third] = [0; 4].map(|_| guard.connect("single", "same").unwrap());
    holder.batch_execute("BEGIN").unwrap();
    let held = process(&mut holder);
    // More transactions wait than may be in flight, and a login.
    let others = [one, other, third].map(|mut session| thread::spawn(move || process(&mut session)));
    let login = thread::spawn({
        let parameters = guard.parameters("single", "different");
        move || process(&mut postgres::Client::connect(&parameters, postgres::NoTls).unwrap())
    });
    let mut passer_by = guard.session("same");
    for _ in 0..20 {
        assert_eq!(process(&mut holder), held);
        process(&mut passer_by);
    }
    holder.batch_execute("COMMIT").unwrap();
    for other in others {
        other.join().unwrap();
    }
    login.join().unwrap();
    process(&mut holder);
    let counts = guard.end();
    assert!(counts.of("times that the server had no room") > 0, "{}", counts.0);
    assert_eq!((counts.of("logged in"), counts.of("ended with an error of the guard")), (6, 0));
}

#[test]
fn a_transaction_that_waits_too_long_for_a_connection_is_refused() {
    let server = server();
    let guard = Guard::start(&server, &["--limit", "4", "--max-wait", "1s"]);
    let [mut holder, mut other] = [0; 2].map(|_| guard.connect("single", "same").unwrap());
    holder.batch_execute("BEGIN").unwrap();
    for _ in 0..2 {
        let error = other.simple_query("SELECT 1").unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::TOO_MANY_CONNECTIONS), "{error}");
        let error = other.query_typed("SELECT 1", &[]).unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::TOO_MANY_CONNECTIONS), "{error}");
    }
    holder.batch_execute("COMMIT").unwrap();
    assert_eq!(process(&mut other), process(&mut holder));
    assert_eq!(guard.end().of("refused"), 4);
}
