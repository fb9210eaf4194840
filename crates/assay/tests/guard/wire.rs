//! Messages of the protocol as few clients send them, and what is not the protocol.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use assay_proxy::postgres::frame::message;

use crate::Guard;
use crate::login::with_passwords;
use crate::postgres_server::Server;

/// A session that is written by hand.
pub struct Wire(TcpStream);

impl Wire {
    /// Logs in.
    pub fn start(guard: &Guard) -> Self {
        Self::connect(guard.address)
    }

    /// Logs in at an address.
    pub fn connect(address: SocketAddr) -> Self {
        Self::connect_as("postgres", address)
    }

    /// Logs in at an address as a role.
    pub fn connect_as(role: &str, address: SocketAddr) -> Self {
        let mut wire = Self::begin(role, address);
        wire.read_to(b'Z');
        wire
    }

    /// Begins to log in.
    pub fn begin(role: &str, address: SocketAddr) -> Self {
        let mut wire = Self(TcpStream::connect(address).unwrap());
        // A test that fails ends.
        wire.0.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        wire.0.write_all(&packet(&format!("user\0{role}\0database\0postgres\0\0"))).unwrap();
        wire
    }

    /// Proves to the guard, which asks for MD5, that it has the password, and logs in.
    pub fn prove(&mut self, proof: impl Fn([u8; 4]) -> String) {
        let (_, question) = self.read_bytes_to(b'R');
        let salt = *question.last_chunk().unwrap();
        self.send(&[(b'p', &(proof(salt) + "\0"))]);
        self.read_to(b'Z');
    }

    /// Sends messages, each of which is its kind and its body.
    pub fn send(&mut self, messages: &[(u8, &str)]) {
        let bytes: Vec<u8> =
            messages.iter().flat_map(|(kind, body)| message(*kind, body.as_bytes())).collect();
        self.0.write_all(&bytes).unwrap();
    }

    /// Sends a message again and again without reading an answer, until nothing is taken for a second, or it
    /// is sent as often as this. Returns how often.
    pub fn flood(&mut self, (kind, body): (u8, &str), most: usize) -> usize {
        let message = message(kind, body.as_bytes());
        let messages = message.repeat(1000);
        self.0.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut sent = 0;
        while sent < most * message.len() {
            match self.0.write(&messages[sent % messages.len()..]) {
                Ok(length) => sent += length,
                Err(_) => break,
            }
        }
        sent / message.len()
    }

    /// Whether nothing comes any more.
    pub fn is_at_end(&mut self) -> bool {
        self.0.read(&mut [0]).unwrap() == 0
    }

    /// Reads up to a message of this kind, and returns all kinds, and the text of the last.
    pub fn read_to(&mut self, last: u8) -> (String, String) {
        let (kinds, body) = self.read_bytes_to(last);
        (kinds, String::from_utf8_lossy(&body).into_owned())
    }

    fn read_bytes_to(&mut self, last: u8) -> (String, Vec<u8>) {
        let mut kinds = String::new();
        loop {
            let mut header = [0; 5];
            self.0.read_exact(&mut header).unwrap();
            let [kind, length @ ..] = header;
            let mut body = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap() - 4];
            self.0.read_exact(&mut body).unwrap();
            kinds.push(char::from(kind));
            if kind == last {
                return (kinds, body);
            }
        }
    }
}

/// A query with the unnamed statement, up to and with Execute.
pub fn query(text: &str) -> [(u8, String); 3] {
    [
        (b'P', format!("\0{text}\0\0\0")),
        (b'B', "\0\0\0\0\0\0\0\0".to_owned()),
        (b'E', "\0\0\0\0\0".to_owned()),
    ]
}

pub fn borrowed(messages: &[(u8, String)]) -> Vec<(u8, &str)> {
    messages.iter().map(|(kind, body)| (*kind, &**body)).collect()
}

pub const SYNC: (u8, &str) = (b'S', "");

#[test]
fn transactions_that_are_sent_together_are_answered_in_order() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let mut wire = Wire::start(&guard);
    let [one, two] = ["SELECT 1", "SELECT 2"].map(query);
    wire.send(&[borrowed(&one), vec![SYNC], borrowed(&two), vec![SYNC, (b'Q', "SELECT 3\0")]].concat());
    for value in ["1", "2", "3"] {
        assert!(wire.read_to(b'D').1.ends_with(value));
        wire.read_to(b'Z');
    }
    // The first one fails, and the second one is not affected.
    let failing = query("SELECT 1/0");
    wire.send(&[borrowed(&failing), vec![SYNC], borrowed(&two), vec![SYNC]].concat());
    assert_eq!(wire.read_to(b'Z').0, "1EZ");
    assert_eq!(wire.read_to(b'Z').0, "12DCZ");
    let counts = guard.end();
    // Those that were sent together had one admission.
    assert_eq!((counts.of("committed"), counts.of("with an error")), (1, 1), "{}", counts.0);
}

#[test]
fn the_unnamed_statement_outlives_its_transaction() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let [mut wire, mut other] = [(); 2].map(|()| Wire::start(&guard));
    let mine = query("SELECT 'mine'");
    wire.send(&[borrowed(&mine[..1]), vec![(b'D', "S\0"), SYNC]].concat());
    assert_eq!(wire.read_to(b'Z').0, "1tTZ");
    for _ in 0..2 {
        other.send(&[borrowed(&query("SELECT 'other'")), vec![SYNC]].concat());
        assert_eq!(other.read_to(b'Z').0, "12DCZ");
        wire.send(&[borrowed(&mine[1..]), vec![SYNC]].concat());
        assert!(wire.read_to(b'D').1.ends_with("mine"));
        wire.read_to(b'Z');
    }
    // A simple query drops it. The connection has the one of the other session.
    wire.send(&[(b'Q', "SELECT\0")]);
    wire.read_to(b'Z');
    other.send(&[borrowed(&query("SELECT 'other'")), vec![SYNC]].concat());
    other.read_to(b'Z');
    wire.send(&[borrowed(&mine[1..]), vec![SYNC]].concat());
    assert!(wire.read_to(b'E').1.contains("C26000"));
    wire.read_to(b'Z');
    // One that is too long to be prepared again keeps its connection.
    let long = query(&format!("SELECT '{}'", "x".repeat(70_000)));
    wire.send(&[borrowed(&long[..1]), vec![(b'D', "S\0"), SYNC]].concat());
    wire.read_to(b'Z');
    other.send(&[borrowed(&query("SELECT 'other'")), vec![SYNC]].concat());
    other.read_to(b'Z');
    wire.send(&[borrowed(&long[1..]), vec![SYNC]].concat());
    assert!(wire.read_to(b'D').1.ends_with("xxx"));
    let counts = guard.end();
    assert_eq!((counts.of("prepared statement"), counts.of("statements prepared again")), (1, 2));
}

#[test]
fn copy_takes_data_in_both_protocols() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let [mut wire, mut other] = [(); 2].map(|()| Wire::start(&guard));
    wire.send(&[(b'Q', "CREATE TABLE positive (n int CHECK (n > 0))\0")]);
    wire.read_to(b'Z');
    let copy = query("COPY positive FROM STDIN");
    let after = [(b'd', "2\n"), (b'c', ""), SYNC];
    // As libpq does, with a Sync that the server ignores; and without waiting for the server.
    wire.send(&[borrowed(&copy), vec![SYNC]].concat());
    assert_eq!(wire.read_to(b'G').0, "12G");
    wire.send(&after);
    assert_eq!(wire.read_to(b'Z').0, "CZ");
    wire.send(&[borrowed(&copy), after.to_vec()].concat());
    assert_eq!(wire.read_to(b'Z').0, "12GCZ");
    // The client gives up.
    wire.send(&[(b'Q', "COPY positive FROM STDIN\0")]);
    wire.read_to(b'G');
    wire.send(&[(b'd', "3\n"), (b'f', "enough\0")]);
    assert_eq!(wire.read_to(b'Z').0, "EZ");
    other.send(&[(b'Q', "SELECT sum(n) FROM positive\0")]);
    assert!(other.read_to(b'D').1.ends_with('4'));
    guard.end();
}

#[test]
fn what_is_sent_behind_a_copy_that_fails_is_answered_to_its_own_session() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let [mut wire, mut other] = [(); 2].map(|()| Wire::start(&guard));
    wire.send(&[(b'Q', "CREATE VIEW numbers AS SELECT 1 AS n\0")]);
    wire.read_to(b'Z');
    // The server says that it takes data, fails before it reads any, and executes what comes next.
    wire.send(&[(b'Q', "COPY numbers FROM STDIN\0"), (b'Q', "SELECT 'mine' FROM pg_sleep(0.1)\0")]);
    assert_eq!(wire.read_to(b'Z').0, "GEZ");
    other.send(&[(b'Q', "SELECT 'other'\0")]);
    assert!(other.read_to(b'D').1.ends_with("other"));
    assert!(wire.read_to(b'D').1.ends_with("mine"));
    // Likewise the Sync that it ignores otherwise.
    let copy = query("COPY numbers FROM STDIN");
    let mut wire = Wire::start(&guard);
    wire.send(&[borrowed(&copy), vec![SYNC]].concat());
    assert_eq!(wire.read_to(b'Z').0, "12GEZ");
    wire.send(&[(b'Q', "SELECT 'mine'\0")]);
    assert!(wire.read_to(b'D').1.ends_with("mine"));
    assert_eq!(guard.end().of("COPY that failed"), 2);
}

#[test]
fn the_server_gets_as_many_answers_at_a_login_as_it_asks_for() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    with_passwords(&server);
    let [mut wire, mut other] = [(); 2].map(|()| {
        let mut wire = Wire(TcpStream::connect(guard.address).unwrap());
        wire.0.write_all(&packet("user\0clear\0database\0postgres\0\0")).unwrap();
        wire.read_to(b'R');
        wire
    });
    let password = (b'p', "right\0");
    other.send(&[password]);
    other.read_to(b'Z');
    // The server would take the second one for part of the session.
    wire.send(&[password, password]);
    wire.read_to(b'Z');
    for session in ["one", "two"] {
        other.send(&[(b'Q', &format!("SELECT '{session}'\0"))]);
        assert!(other.read_to(b'D').1.ends_with(session));
    }
    assert!(wire.read_to(b'E').1.contains("message type 0x70 is not one that a client sends"));
    guard.end();
}

#[test]
fn a_connection_is_not_passed_on_in_the_middle_of_a_message() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let [mut wire, mut other] = [(); 2].map(|()| Wire::start(&guard));
    wire.send(&[(b'Q', "CREATE TABLE positive (n int CHECK (n > 0))\0")]);
    wire.read_to(b'Z');
    wire.send(&[(b'Q', "COPY positive FROM STDIN\0")]);
    wire.read_to(b'G');
    // The server fails at the first line, and the client is in the middle of the next.
    let (begun, rest) = (&message(b'd', b"12345\n")[..8], &message(b'd', b"12345\n")[8..]);
    wire.0.write_all(&[&message(b'd', b"-1\n"), begun].concat()).unwrap();
    assert_eq!(wire.read_to(b'Z').0, "EZ");
    other.send(&[(b'Q', "SELECT 'other'\0")]);
    assert!(other.read_to(b'D').1.ends_with("other"));
    wire.0.write_all(&[rest, &message(b'c', b"")].concat()).unwrap();
    for session in [&mut other, &mut wire] {
        session.send(&[(b'Q', "SELECT count(*) FROM positive\0")]);
        assert!(session.read_to(b'D').1.ends_with('0'));
    }
    guard.end();
}

/// What the guard answers before it closes the connection.
pub fn answer(guard: &Guard, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(guard.address).unwrap();
    socket.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).replace('\0', " ")
}

pub fn packet(parameters: &str) -> Vec<u8> {
    let length = u32::try_from(parameters.len() + 8).unwrap().to_be_bytes();
    [&length[..], &(3u32 << 16).to_be_bytes(), parameters.as_bytes()].concat()
}

#[test]
fn what_is_not_the_protocol_is_refused_with_a_reason() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let start = packet("user\0postgres\0database\0postgres\0\0");
    let then = |message: &[u8]| [&start[..], message].concat();
    for (bytes, code, reason) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "08P01", "not one of PostgreSQL's protocol"),
        (packet("user\0postgres\0replication\0true\0\0"), "0A000", "replication is not relayed"),
        (then(b"Q\0\0\0\x02"), "08P01", "impossible length of 2"),
        (then(b"z\0\0\0\x04"), "08P01", "message type 0x7a is not one that a client sends"),
        (then(b"P\0\0\0\x08\0\0\0\0Q\0\0\0\x05\0"), "08P01", "a simple query right behind messages"),
        (packet("user\0postgres\0database\0none\0\0"), "3D000", "database \"none\" does not exist"),
    ] {
        let answer = answer(&guard, &bytes);
        assert!(answer.contains(&format!("C{code} M")) && answer.contains(reason), "{answer}");
    }
    // The guard goes on.
    guard.session("last").simple_query("SELECT 1").unwrap();
    assert_eq!(guard.end().of("ended with an error of the guard"), 5);
}

#[test]
fn encryption_is_declined_and_the_session_goes_on() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let encrypted = [&[0, 0, 0, 8][..], &80_877_103u32.to_be_bytes()].concat();
    let end = b"X\0\0\0\x04";
    let start = packet("user\0postgres\0database\0postgres\0\0");
    let answer = answer(&guard, &[&encrypted[..], &start, end].concat());
    assert!(answer.starts_with("NR") && answer.contains("server_version"), "{answer}");
    guard.end();
}

#[test]
fn a_late_answer_to_a_failed_copy_does_not_end_the_next_transaction() {
    let server = Server::start();
    let guard = Guard::start(&server, &["--limit", "1"]);
    let [mut wire, mut other] = [(); 2].map(|()| Wire::start(&guard));
    wire.send(&[(b'Q', "CREATE TABLE numbers (n int)\0")]);
    wire.read_to(b'Z');
    wire.send(&[
        (b'Q', "COPY numbers FROM STDIN\0"),
        (b'd', "no number\n"),
        (b'Q', "SELECT pg_sleep(0.3)\0"),
    ]);
    wire.read_to(b'Z');
    other.send(&[(b'Q', "SELECT pg_sleep(1)\0")]);
    // It waits for admission when the second answer comes, and then gives up.
    wire.send(&[(b'Q', "SELECT 1\0")]);
    wire.read_to(b'Z');
    drop(wire);
    other.read_to(b'Z');
    other.send(&[(b'Q', "SELECT 1\0")]);
    other.read_to(b'Z');
    assert_eq!(guard.end().of("ended with an error of the guard"), 0);
}
