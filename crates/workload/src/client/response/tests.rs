//! Correct and incorrect responses, in one piece and in several pieces.

use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};

use super::{Expected, ExpectedBody, Fault, HEAD_BYTES_MAX, ResponseReader, Step, Then};

fn expecting(body: &[u8]) -> Expected {
    Expected { status: 200, body: ExpectedBody::Exactly(body.to_vec()) }
}

/// Returns the verdict on a stream of bytes that ends with the connection, and the length of the response.
fn verdict(expected: &Expected, pieces: &[&[u8]]) -> Result<(usize, Then), Fault> {
    let mut reader = ResponseReader::new();
    let mut before = 0;
    for piece in pieces {
        match reader.feed(expected, piece)? {
            Step::Incomplete => before += piece.len(),
            Step::Complete { used, then } => return Ok((before + used, then)),
        }
    }
    match reader.end(expected)? {
        Step::Complete { then, .. } => Ok((before, then)),
        Step::Incomplete => panic!("the end of the connection ends every response"),
    }
}

fn whole(expected: &Expected, answer: &str) -> Result<(usize, Then), Fault> {
    verdict(expected, &[answer.as_bytes()])
}

#[test]
fn the_framing_determines_the_end_of_a_response() {
    let page = expecting(b"hello");
    for (answer, then) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", Then::KeepOpen),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\nConnection: Close\r\n\r\nhello", Then::Close),
        ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", Then::Close),
        ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello", Then::KeepOpen),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", Then::KeepOpen),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nhe\r\n003\r\nllo\r\n0\r\nX: y\r\n\r\n",
            Then::KeepOpen,
        ),
    ] {
        assert_eq!(whole(&page, answer), Ok((answer.len(), then)), "{answer}");
        let surplus = format!("{answer}HTTP/1.1");
        assert_eq!(whole(&page, &surplus), Ok((answer.len(), then)), "{surplus}");
        let short = &answer[..answer.len() - 1];
        assert_eq!(whole(&page, short), Err(Fault::EarlyClose), "{short}");
    }
}

#[test]
fn a_body_without_a_length_ends_with_the_connection_and_is_compared() {
    let page = expecting(b"hello");
    let head = "HTTP/1.0 200 OK\r\n\r\n";
    assert_eq!(whole(&page, &format!("{head}hello")), Ok((head.len() + 5, Then::Close)));
    assert_eq!(whole(&page, &format!("{head}hell")), Err(Fault::Length { expected: 5, found: 4 }));
    assert_eq!(whole(&page, &format!("{head}hello!")), Err(Fault::Longer { expected: 5 }));
}

#[test]
fn faults_are_distinguished() {
    let page = expecting(b"hello");
    for (answer, fault) in [
        (
            "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello",
            Fault::Status { expected: 200, found: 404 },
        ),
        ("HTTP/1.1 100 Continue\r\n\r\n", Fault::Status { expected: 200, found: 100 }),
        ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello!", Fault::Length { expected: 5, found: 6 }),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhellO", Fault::Body { at: 4 }),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
            Fault::Malformed("Content-Length is not a number"),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            Fault::Malformed("Content-Length is not a number"),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            Fault::Malformed("two different Content-Lengths"),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            Fault::Malformed("a Transfer-Encoding other than chunked"),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            Fault::Malformed("both Content-Length and Transfer-Encoding"),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n",
            Fault::Malformed("a chunk is longer than its size"),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhell\r\n0\r\n\r\n",
            Fault::Length { expected: 5, found: 4 },
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            Fault::Malformed("a chunk's size is not a hexadecimal number"),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n12345678901234567\r\n",
            Fault::Malformed("a chunk's size is not a hexadecimal number"),
        ),
        ("HTTP/2 200 OK\r\n\r\n", Fault::Malformed("not HTTP/1")),
        ("SSH-2.0-OpenSSH_9.2\r\n", Fault::Malformed("not HTTP/1")),
    ] {
        assert_eq!(whole(&page, answer), Err(fault), "{answer}");
    }
}

#[test]
fn a_head_that_exceeds_its_limit_is_an_error() {
    let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
    let limit = Err(Fault::Malformed("the head is larger than 16 KiB"));
    assert_eq!(whole(&expecting(b""), &endless), limit);
    let pieces: Vec<&[u8]> = endless.as_bytes().chunks(100).collect();
    assert_eq!(verdict(&expecting(b""), &pieces), limit);
}

#[test]
fn chunk_lines_and_trailers_that_exceed_their_limit_are_errors() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for line in [format!("0;{}", "x".repeat(5000)), format!("0\r\n{}", "X: y\r\n".repeat(1000))] {
        let fault = Fault::Malformed("a chunk's size line or the trailers are too long");
        assert_eq!(whole(&expecting(b""), &format!("{head}{line}")), Err(fault));
    }
}

#[test]
fn consecutive_responses_are_parsed() {
    let page = expecting(b"hello");
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let mut reader = ResponseReader::new();
    for _ in 0..3 {
        assert_eq!(reader.feed(&page, &answer[..20]), Ok(Step::Incomplete));
        let used = answer.len() - 20;
        assert_eq!(reader.feed(&page, &answer[20..]), Ok(Step::Complete { used, then: Then::KeepOpen }));
    }
}

/// Fragments of correct and incorrect responses.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 404 No\r\n",
        "HTTP/1.0 200 OK\n",
        "Content-Length: 5\r\n",
        "Content-Length: 0\r\n",
        "Content-Length: 6\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Connection: close\r\n",
        "\r\n",
        "\n",
        "\r",
        "X: y\r\n",
        "hello",
        "5\r\nhello\r\n",
        "2\r\nhe\r\n3\r\nllo\r\n",
        "0\r\n\r\n",
        "0\r\n",
        "ffffffffffffffff\r\n",
        ";",
        ":",
        " ",
    ];
    prop_oneof![
        8 => prop::sample::select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
        1 => Just(vec![b'x'; 9000]),
    ]
}

/// Streams that are often a response, sometimes nearly one, and sometimes noise.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let starts = ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"];
    let rest = prop::collection::vec(fragment(), 0..10);
    (prop::sample::select(starts.to_vec()), rest)
        .prop_map(|(start, rest)| [start.as_bytes(), &rest.concat()].concat())
}

proptest! {
    #[test]
    fn the_verdict_does_not_depend_on_how_the_bytes_are_split(
        stream in stream(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        places.extend([0, stream.len()]);
        places.sort_unstable();
        let pieces: Vec<&[u8]> = places.windows(2).map(|ends| &stream[ends[0]..ends[1]]).collect();
        let expected = expecting(b"hello");
        prop_assert_eq!(verdict(&expected, &pieces), verdict(&expected, &[&stream]));
    }

    #[test]
    fn the_verdict_is_the_same_byte_by_byte(stream in stream()) {
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        let expected = expecting(b"hello");
        prop_assert_eq!(verdict(&expected, &bytes), verdict(&expected, &[&stream]));
    }

    #[test]
    fn the_content_of_the_chunks_is_the_body(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..10),
    ) {
        let mut answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for chunk in &chunks {
            answer.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            answer.extend_from_slice(chunk);
            answer.extend_from_slice(b"\r\n");
        }
        answer.extend_from_slice(b"0\r\n\r\n");
        let expected = expecting(&chunks.concat());
        prop_assert_eq!(verdict(&expected, &[&answer]), Ok((answer.len(), Then::KeepOpen)));
    }

    #[test]
    fn noise_never_panics(stream in prop::collection::vec(any::<u8>(), 0..300)) {
        for body in [ExpectedBody::Length(3), ExpectedBody::Within(9), ExpectedBody::Exactly(vec![0; 3])] {
            let _ = verdict(&Expected { status: 200, body }, &[&stream]);
        }
    }
}
