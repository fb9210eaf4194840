//! Correct and incorrect replies, in one piece and in several pieces.

use expect_test::{Expect, expect};
use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};

use super::super::load::Failure;
use super::super::protocol::{Protocol, verdict};
use super::{ExpectedReply, Redis};

fn redis(expected: ExpectedReply) -> Redis {
    Redis::new(&["GET".to_owned(), "a key".to_owned()], expected)
}

fn hello() -> Redis {
    redis(ExpectedReply::Text("hello".to_owned()))
}

#[test]
fn a_command_is_an_array_of_its_words() {
    assert_eq!(hello().messages(), [b"*2\r\n$3\r\nGET\r\n$5\r\na key\r\n"]);
}

#[test]
fn correct_replies_are_complete_at_their_end() {
    let rows = [("hello", "$5\r\nhello\r\n"), ("OK", "+OK\r\n"), ("-12", ":-12\r\n"), ("", "$0\r\n\r\n")];
    for (text, reply) in rows {
        let redis = redis(ExpectedReply::Text(text.to_owned()));
        let stream = [reply, reply, &reply[..2]].concat();
        assert_eq!(verdict(&redis, &[stream.as_bytes()]), Ok((2, 2)), "{reply:?}");
    }
    assert_eq!(verdict(&redis(ExpectedReply::Bytes(5)), &[b"$5\r\nha", b"llo\r\n"]), Ok((1, 0)));
}

#[test]
fn an_integer_is_compared_as_text() {
    let five = redis(ExpectedReply::Text("5".to_owned()));
    assert_eq!(verdict(&five, &[b":5\r\n"]), Ok((1, 0)));
    assert!(verdict(&five, &[b":05\r\n"]).is_err());
}

#[test]
fn faults_are_distinguished() {
    let rows: [(&str, Failure, Expect); 10] = [
        (
            "$5\r\nhallo\r\n",
            Failure::WrongContent,
            expect!["the reply is a string that differs at byte 1, not the expected one"],
        ),
        ("$4\r\nhell\r\n", Failure::WrongLength, expect!["reply of 4 bytes instead of 5"]),
        ("$5\r\nhelloXY", Failure::Malformed, expect!["malformed reply: not the protocol of Redis"]),
        (
            "$5\r\nhellz\r\n",
            Failure::WrongContent,
            expect!["the reply is a string that differs at byte 4, not the expected one"],
        ),
        (":5\r\n", Failure::WrongContent, expect!["the reply is the integer 5, not the expected one"]),
        ("$-1\r\n", Failure::WrongContent, expect!["the reply is nil, not the expected one"]),
        ("*1\r\n", Failure::WrongContent, expect!["the reply is an array, not the expected one"]),
        ("-ERR no such key\r\n", Failure::Error, expect!["ERR no such key"]),
        (
            "HTTP/1.1 400 Bad Request\r\n",
            Failure::Malformed,
            expect!["malformed reply: not the protocol of Redis"],
        ),
        ("$2000\r\n", Failure::WrongLength, expect!["reply of more than 1029 bytes"]),
    ];
    for (reply, failure, problem) in rows {
        let rest = "x".repeat(if reply.starts_with("$2000") { 1500 } else { 0 });
        let fault = verdict(&hello(), &[format!("{reply}{rest}").as_bytes()]).unwrap_err();
        assert_eq!(fault.failure, failure, "{reply:?}");
        problem.assert_eq(&fault.problem);
    }
}

/// Returns a stream that often begins like a reply.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let start = prop_oneof![
        Just("$5\r\nhello\r\n".to_owned()),
        Just("$5\r\nhallo\r\n".to_owned()),
        Just("+hello\r\n".to_owned()),
        Just("-ERR\r\n".to_owned()),
        any::<i64>().prop_map(|number| format!(":{number}\r\n")),
        any::<i64>().prop_map(|number| format!("${number}\r\n")),
        Just(String::new()),
    ];
    (start, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(start, noise)| {
        let mut stream = start.into_bytes();
        stream.extend(noise);
        stream
    })
}

proptest! {
    #[test]
    fn the_verdict_does_not_depend_on_how_the_bytes_are_split(stream in stream()) {
        let pieces: Vec<&[u8]> = stream.chunks(1).collect();
        prop_assert_eq!(verdict(&hello(), &[&stream]), verdict(&hello(), &pieces));
    }
}
