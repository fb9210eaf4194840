//! Correct and incorrect answers, in one piece and in several pieces.

use expect_test::{Expect, expect};
use proptest::prelude::{any, prop, prop_assert_eq, proptest};

use super::super::load::Failure;
use super::super::protocol::{Fault, Protocol, verdict};
use super::{ExpectedResult, Postgres};

/// A message of the server.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind], &length.to_be_bytes()[..], body].concat()
}

/// A row of text columns, `None` for NULL.
fn row(columns: &[Option<&str>]) -> Vec<u8> {
    let mut body = u16::try_from(columns.len()).unwrap().to_be_bytes().to_vec();
    for column in columns {
        match column {
            Some(text) => {
                body.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
                body.extend(text.as_bytes());
            }
            None => body.extend((-1_i32).to_be_bytes()),
        }
    }
    message(b'D', &body)
}

fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

/// The answer to the start of a session.
fn welcome() -> Vec<u8> {
    let parameter = message(b'S', b"server_version\x0015\x00");
    [message(b'R', &[0; 4]), parameter, message(b'K', &[7; 8]), ready()].concat()
}

fn done() -> Vec<u8> {
    [message(b'C', b"SELECT 2\0"), ready()].concat()
}

/// Expects the rows (1, one) and (2, two).
fn postgres() -> Postgres {
    let rows = [["1", "one"], ["2", "two"]].map(|row| row.map(String::from).to_vec()).to_vec();
    let tag = Some("SELECT 2".to_owned());
    Postgres::new("u", "d", "SELECT a, b FROM t", ExpectedResult { rows, tag })
}

fn result() -> Vec<u8> {
    let columns = message(b'T', &[0, 0]);
    [columns, row(&[Some("1"), Some("one")]), row(&[Some("2"), Some("two")]), done()].concat()
}

fn fault(answer: &[u8]) -> Fault {
    verdict(&postgres(), &[&welcome(), answer]).unwrap_err()
}

#[test]
fn a_session_starts_with_its_user_and_asks_the_query() {
    let postgres = postgres();
    let [start, query] = postgres.messages() else { panic!("two messages") };
    assert!(start.ends_with(b"user\0u\0database\0d\0application_name\0assay\0\0"), "{start:?}");
    assert_eq!(query, b"Q\0\0\0\x17SELECT a, b FROM t\0");
}

#[test]
fn correct_answers_are_complete_at_their_end() {
    let stream = [welcome(), result(), result(), result()[..9].to_vec()].concat();
    assert_eq!(verdict(&postgres(), &[&stream]), Ok((3, 9)));
}

#[test]
fn notices_and_parameters_are_not_part_of_a_result() {
    let notice = message(b'N', b"SNOTICE\0Mhello\0\0");
    let parameter = message(b'S', b"TimeZone\0UTC\0");
    assert_eq!(verdict(&postgres(), &[&[welcome(), notice, parameter, result()].concat()]), Ok((2, 0)));
}

#[test]
fn faults_are_distinguished() {
    let two = row(&[Some("2"), Some("two")]);
    let one = row(&[Some("1"), Some("one")]);
    let rows: [(Vec<u8>, Failure, Expect); 13] = [
        (message(b'C', b"UPDATE 0\0"), Failure::WrongContent, expect!["tag is UPDATE 0 instead of SELECT 2"]),
        (message(b'I', b""), Failure::WrongContent, expect!["the query is empty"]),
        (ready(), Failure::Malformed, expect!["malformed answer: an unexpected message"]),
        (
            b"D\0\0\0\x03".to_vec(),
            Failure::Malformed,
            expect!["malformed answer: not the protocol of PostgreSQL"],
        ),
        (two.clone(), Failure::WrongContent, expect!["row 1 is (2, two) instead of (1, one)"]),
        (row(&[Some("1"), None]), Failure::WrongContent, expect!["row 1 is (1, NULL) instead of (1, one)"]),
        (row(&[Some("1")]), Failure::WrongContent, expect!["row 1 is (1) instead of (1, one)"]),
        ([one.clone(), done()].concat(), Failure::WrongContent, expect!["number of rows is 1 instead of 2"]),
        ([one, two.clone(), two].concat(), Failure::WrongContent, expect!["more than 2 rows"]),
        (message(b'E', b"SERROR\0C42P01\0Mno table\0\0"), Failure::Error, expect!["ERROR: no table"]),
        (message(b'G', &[0; 3]), Failure::Malformed, expect!["malformed answer: an unexpected message"]),
        (message(b'D', &[0, 9, 0]), Failure::Malformed, expect!["malformed answer: a row of a wrong length"]),
        (
            b"D\x7f\0\0\0".to_vec(),
            Failure::Malformed,
            expect!["malformed answer: a message of more than 1 MiB, or not the protocol of PostgreSQL"],
        ),
    ];
    for (answer, failure, problem) in rows {
        let fault = fault(&answer);
        assert_eq!(fault.failure, failure, "{answer:?}");
        problem.assert_eq(&fault.problem);
    }
}

#[test]
fn a_server_that_requires_a_password_is_an_error() {
    let fault = verdict(&postgres(), &[&message(b'R', &[0, 0, 0, 3])]).unwrap_err();
    assert_eq!(fault.failure, Failure::Error);
    expect!["the server requires a password; let it trust connections from 127.0.0.1"]
        .assert_eq(&fault.problem);
}

proptest! {
    #[test]
    fn the_verdict_does_not_depend_on_how_the_bytes_are_split(
        noise in prop::collection::vec(any::<u8>(), 0..20),
        at in any::<prop::sample::Index>(),
        from in any::<prop::sample::Index>(),
    ) {
        let mut stream = [welcome(), result(), result()].concat();
        let at = at.index(stream.len());
        let end = (at + noise.len()).min(stream.len());
        stream.splice(at..end, noise);
        let from = from.index(2);
        let stream = &stream[if from == 0 { 0 } else { welcome().len() }..];
        let pieces: Vec<&[u8]> = stream.chunks(1).collect();
        prop_assert_eq!(verdict(&postgres(), &[stream]), verdict(&postgres(), &pieces));
    }
}
