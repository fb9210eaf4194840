//! The built-in client with faulty peers. Each row contains the behaviour of a peer and the expected result
//! of the client. The peer is a real socket on the loopback interface.
#![expect(clippy::unwrap_used, reason = "the functions that tests share are tests too")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use assay_workload::client::closed_loop::{Plan, run};
use assay_workload::client::http::Http;
use assay_workload::client::postgres::Postgres;
use assay_workload::client::response::{Expected, ExpectedBody};
use assay_workload::client::{Failure, Load, LoadError};
use assay_workload::{ExpectedResult, Reuse};

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Behaviour of a peer for one connection.
type Behaviour = fn(TcpStream);

/// Starts a peer that runs `behaviour` for every connection, each in its own thread.
fn peer(behaviour: Behaviour) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            thread::spawn(move || behaviour(connection.unwrap()));
        }
    });
    address
}

/// Reads one request; returns whether there was one.
fn request(connection: &mut TcpStream) -> bool {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        match connection.read(&mut byte) {
            Ok(1) => bytes.push(byte[0]),
            _ => return false,
        }
    }
    true
}

/// Answers every request with `answer`.
fn say(mut connection: TcpStream, answer: &str) {
    while request(&mut connection) && connection.write_all(answer.as_bytes()).is_ok() {}
}

/// Answers one request with `answer` and closes.
fn say_once(mut connection: TcpStream, answer: &str) {
    request(&mut connection);
    connection.write_all(answer.as_bytes()).unwrap();
}

/// Timeout for a peer that answers: only a failure takes this long.
const AMPLE: Duration = Duration::from_secs(60);

/// Timeout for a peer that never answers.
const SHORT: Duration = Duration::from_secs(2);

fn plan(address: SocketAddr, timeout: Duration) -> Plan {
    let (requests, connections) = (NonZeroU64::new(10).unwrap(), NonZeroU32::new(2).unwrap());
    Plan { address, requests, connections, timeout }
}

fn load(address: SocketAddr, reuse: Reuse, timeout: Duration) -> Result<Load, LoadError> {
    let expected = Expected { status: 200, body: ExpectedBody::Exactly(b"hello".to_vec()) };
    run(
        &plan(address, timeout),
        &Http::new(address, "/", reuse, expected),
        &AtomicBool::new(false),
        &mut |_| {},
    )
}

/// Behaviour of a peer, and the expected failure and its message.
type Row = (Behaviour, Failure, &'static str);

const KEPT_CONNECTIONS: [Row; 15] = [
    (
        |c| say(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello"),
        Failure::WrongStatus,
        "status 404 instead of 200",
    ),
    (
        |c| say(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhell"),
        Failure::WrongLength,
        "body of 4 bytes instead of 5",
    ),
    (
        |c| say(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhallo"),
        Failure::WrongContent,
        "body differs from the expected one at byte 1",
    ),
    (
        |c| say_once(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"),
        Failure::EarlyClose,
        "connection closed before the response was complete",
    ),
    (|c| say_once(c, "HTTP/1.0 200 OK\r\n\r\nhel"), Failure::WrongLength, "body of 3 bytes instead of 5"),
    (|c| say_once(c, ""), Failure::EarlyClose, "connection closed before the response was complete"),
    (|c| say_once(c, ANSWER), Failure::EarlyClose, ""),
    (|c| say(c, "220 mail.example ESMTP\r\n"), Failure::Malformed, "malformed response: not HTTP/1"),
    (|c| say(c, "\0\r\n\u{7f}\r\n\r\n"), Failure::Malformed, "malformed response: not HTTP/1"),
    (
        |c| say(c, &format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(20_000))),
        Failure::Malformed,
        "malformed response: the head is larger than 16 KiB",
    ),
    (|c| say(c, &format!("{ANSWER}!")), Failure::Surplus, "bytes after the end of the response"),
    (|c| say(c, ""), Failure::Timeout, "no complete response within 2s"),
    (
        |c| say(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"),
        Failure::Timeout,
        "no complete response within 2s",
    ),
    (|c| trickle(c, Duration::from_millis(70)), Failure::Timeout, "no complete response within 2s"),
    (
        |c| say(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"),
        Failure::Timeout,
        "the server did not close the connection after its response within 2s",
    ),
];

/// Answers byte by byte.
fn trickle(mut connection: TcpStream, pause: Duration) {
    connection.set_nodelay(true).unwrap();
    while request(&mut connection) {
        for byte in ANSWER.bytes() {
            if connection.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(pause);
        }
    }
}

#[test]
fn a_faulty_peer_is_an_error_of_the_correct_kind() {
    for (row, (behaviour, kind, words)) in KEPT_CONNECTIONS.into_iter().enumerate() {
        let timeout = if kind == Failure::Timeout { SHORT } else { AMPLE };
        let error = load(peer(behaviour), Reuse::KeepAlive, timeout).unwrap_err();
        let LoadError::Failed { failures, first, .. } = &error else { panic!("row {row}: {error}") };
        assert_eq!(failures.count(kind), failures.total(), "row {row}: {error}");
        // Two connections with one request in flight each; none is started after the first failure.
        assert!((1..=2).contains(&failures.total()), "row {row}: {error}");
        assert!(words.is_empty() || first == words, "row {row}: {error}");
    }
}

#[test]
fn a_peer_that_resets_is_an_early_close() {
    // Closing a socket with unread bytes in it sends a reset.
    let address = peer(|mut connection| {
        connection.read_exact(&mut [0]).unwrap();
    });
    let error = load(address, Reuse::KeepAlive, AMPLE).unwrap_err();
    let LoadError::Failed { failures, .. } = &error else { panic!("{error}") };
    assert_eq!(failures.count(Failure::EarlyClose), failures.total(), "{error}");
}

#[test]
fn a_closed_port_is_a_refused_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = load(address, Reuse::KeepAlive, AMPLE).unwrap_err();
    let LoadError::Failed { failures, completed: 0, .. } = &error else { panic!("{error}") };
    assert_eq!(failures.count(Failure::Connect), failures.total(), "{error}");
}

#[test]
fn a_new_connection_that_the_server_leaves_open_is_an_error() {
    let error = load(peer(|c| say(c, ANSWER)), Reuse::NewConnection, SHORT).unwrap_err();
    let LoadError::Failed { failures, .. } = &error else { panic!("{error}") };
    assert_eq!(failures.count(Failure::Timeout), failures.total(), "{error}");
}

#[test]
fn slow_or_unusual_but_correct_peers_complete_the_load() {
    let rows: [(Behaviour, Reuse, u64); 8] = [
        (|c| say(c, ANSWER), Reuse::KeepAlive, 2),
        (|c| trickle(c, Duration::from_micros(10)), Reuse::KeepAlive, 2),
        (
            |c| say(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
            Reuse::KeepAlive,
            2,
        ),
        (
            |c| say_once(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"),
            Reuse::KeepAlive,
            10,
        ),
        (|c| say_once(c, "HTTP/1.0 200 OK\r\n\r\nhello"), Reuse::KeepAlive, 10),
        (|c| say_once(c, "HTTP/1.1 200 OK\r\n\r\nhello"), Reuse::KeepAlive, 10),
        (|c| say_once(c, ANSWER), Reuse::NewConnection, 10),
        (half_close, Reuse::NewConnection, 10),
    ];
    for (row, (behaviour, reuse, connections)) in rows.into_iter().enumerate() {
        let load = load(peer(behaviour), reuse, AMPLE).unwrap_or_else(|error| panic!("row {row}: {error}"));
        assert_eq!((load.requests, load.connections), (10, Some(connections)), "row {row}");
        assert!(load.latency.p50_ns <= load.latency.p999_ns.unwrap(), "row {row}: {load:?}");
        assert!(load.received_bytes >= 10 * 24, "row {row}: {load:?}");
    }
}

/// The answer of PostgreSQL to the start of a session: no password, ready.
const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

/// The answer of PostgreSQL to a query without rows.
const RESULT: &[u8] = b"C\0\0\0\x0dSELECT 0\0Z\0\0\0\x05I";

/// Reads one message of a session, whose start has no type. Returns whether there was one.
fn message(connection: &mut TcpStream, is_start: bool) -> bool {
    let mut head = vec![0; if is_start { 4 } else { 5 }];
    if connection.read_exact(&mut head).is_err() {
        return false;
    }
    let length = u32::from_be_bytes(head[head.len() - 4..].try_into().unwrap());
    connection.read_exact(&mut vec![0; length as usize - 4]).is_ok()
}

/// Answers the start of a session with `welcome` and every query with `result`.
fn serve(mut connection: TcpStream, welcome: &[u8], result: &[u8]) {
    message(&mut connection, true);
    connection.write_all(welcome).unwrap();
    while message(&mut connection, false) && connection.write_all(result).is_ok() {}
}

fn load_postgres(address: SocketAddr, timeout: Duration) -> Result<Load, LoadError> {
    let expect = ExpectedResult { rows: Vec::new(), tag: Some("SELECT 0".to_owned()) };
    let protocol = Postgres::new("u", "d", "SELECT", expect);
    run(&plan(address, timeout), &protocol, &AtomicBool::new(false), &mut |_| {})
}

#[test]
fn a_session_of_two_messages_completes_the_load() {
    let load = load_postgres(peer(|c| serve(c, WELCOME, RESULT)), AMPLE).unwrap();
    assert_eq!((load.requests, load.connections), (10, Some(2)));
    assert_eq!(load.received_bytes, (2 * WELCOME.len() + 10 * RESULT.len()) as u64);
}

#[test]
fn a_faulty_peer_in_a_session_of_two_messages_is_an_error_of_the_correct_kind() {
    let rows: [Row; 6] = [
        (
            |mut c| {
                message(&mut c, true);
                c.write_all(WELCOME).unwrap();
                message(&mut c, false);
            },
            Failure::EarlyClose,
            "connection closed before the response was complete",
        ),
        (
            |mut c| assert!(message(&mut c, true)),
            Failure::EarlyClose,
            "connection closed before the response was complete",
        ),
        (|c| serve(c, WELCOME, b""), Failure::Timeout, "no complete response within 2s"),
        (|c| serve(c, WELCOME, &RESULT[..9]), Failure::Timeout, "no complete response within 2s"),
        (
            |c| serve(c, &[WELCOME, b"!"].concat(), RESULT),
            Failure::Surplus,
            "bytes after the end of the response",
        ),
        (
            |c| serve(c, WELCOME, &[RESULT, b"!"].concat()),
            Failure::Surplus,
            "bytes after the end of the response",
        ),
    ];
    for (row, (behaviour, kind, words)) in rows.into_iter().enumerate() {
        let timeout = if kind == Failure::Timeout { SHORT } else { AMPLE };
        let error = load_postgres(peer(behaviour), timeout).unwrap_err();
        let LoadError::Failed { failures, first, .. } = &error else { panic!("row {row}: {error}") };
        assert_eq!(failures.count(kind), failures.total(), "row {row}: {error}");
        assert_eq!(first, words, "row {row}");
    }
}

/// Closes its sending side, as Apache does, and waits for the client to close.
fn half_close(mut connection: TcpStream) {
    request(&mut connection);
    connection.write_all(ANSWER.as_bytes()).unwrap();
    connection.shutdown(Shutdown::Write).unwrap();
    let _ = connection.read(&mut [0]);
}
