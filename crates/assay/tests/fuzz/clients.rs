//! The answers that the built-in clients of `assay run` parse. The verdict on an answer must be the same in
//! one piece and byte by byte.

use assay_workload::client::http::Http;
use assay_workload::client::postgres::Postgres;
use assay_workload::client::protocol::{Fault, Protocol, Step};
use assay_workload::client::redis::Redis;
use assay_workload::client::response::{Expected, ExpectedBody};
use assay_workload::{ExpectedReply, ExpectedResult, Reuse};

pub(super) fn http_answers() -> Vec<Vec<u8>> {
    [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ]
    .map(|answer| answer.as_bytes().to_vec())
    .to_vec()
}

pub(super) fn parse_http_answer(input: &[u8]) {
    let expected = Expected { status: 200, body: ExpectedBody::Exactly(b"hello".to_vec()) };
    agree(&Http::new(([127, 0, 0, 1], 80).into(), "/", Reuse::KeepAlive, expected), input);
}

pub(super) fn redis_replies() -> Vec<Vec<u8>> {
    [
        "$5\r\nhello\r\n",
        "+OK\r\n",
        "$5\r\nhalloXY",
        "-ERR unknown command\r\n",
        ":12\r\n",
        "*1\r\n$1\r\na\r\n",
        "$-1\r\n",
    ]
    .map(|reply| reply.as_bytes().to_vec())
    .to_vec()
}

pub(super) fn parse_redis_reply(input: &[u8]) {
    agree(&Redis::new(&["GET".to_owned()], ExpectedReply::Text("hello".to_owned())), input);
}

pub(super) fn postgres_answers() -> Vec<Vec<u8>> {
    let welcome = b"R\0\0\0\x08\0\0\0\0S\0\0\0\x09a\x00bc\0K\0\0\0\x0c\0\0\0\x01\0\0\0\x02Z\0\0\0\x05I";
    let row = b"T\0\0\0\x06\0\0D\0\0\0\x0f\0\x01\0\0\0\x05helloC\0\0\0\x05\0Z\0\0\0\x05I";
    let error = b"E\0\0\0\x0cSA\0MB\0C\0\0";
    vec![
        [&welcome[..], &row[..]].concat(),
        [&welcome[..], &error[..]].concat(),
        b"R\0\0\0\x0c\0\0\0\x05abcd".to_vec(),
    ]
}

pub(super) fn parse_postgres_answer(input: &[u8]) {
    let expect = ExpectedResult { rows: vec![vec!["hello".to_owned()]], tag: None };
    agree(&Postgres::new("a", "b", "SELECT 'hello'", expect), input);
}

fn agree(protocol: &impl Protocol, input: &[u8]) {
    let whole = verdict(protocol, [input]);
    let pieces = verdict(protocol, input.iter().map(std::slice::from_ref));
    assert_eq!(whole, pieces, "in one piece and byte by byte");
}

/// Returns how many bytes of `pieces` belong to the first answers, one to each message of a new connection;
/// `None` if they are incomplete.
fn verdict<'a>(
    protocol: &impl Protocol,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Option<usize>, Fault> {
    let mut reader = protocol.reader();
    let mut answers = protocol.messages().len();
    let mut before = 0;
    for mut piece in pieces {
        while let Step::Complete { used, .. } = protocol.feed(&mut reader, piece)? {
            before += used;
            answers -= 1;
            if answers == 0 {
                return Ok(Some(before));
            }
            piece = &piece[used..];
        }
        before += piece.len();
    }
    Ok(None)
}
