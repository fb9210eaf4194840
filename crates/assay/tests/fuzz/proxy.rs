//! What the guard reads of its clients, of the server, and of its user.

use assay_proxy::postgres::frame::{Frames, HEADER, Piece, Side, message};
use assay_proxy::postgres::prepared::{Definitions, Pass, Prepared, Server};
use assay_proxy::postgres::scram::{Attempt, Binding, Challenge, MECHANISM, Verifier};
use assay_proxy::postgres::session::{Session, Violation};
use assay_proxy::postgres::startup::{self, CancelKey};
use assay_proxy::postgres::users::Users;
use assay_proxy::postgres::{locks, lookup};

pub fn first_packets() -> Vec<Vec<u8>> {
    let packet = |code: u32, body: &[u8]| {
        let length = u32::try_from(body.len() + 8).unwrap().to_be_bytes();
        [&length[..], &code.to_be_bytes(), body].concat()
    };
    let session = packet(3 << 16, b"user\0one\0database\0two\0replication\0false\0\0");
    vec![session, CancelKey(*b"12345678").packet().to_vec(), packet(80_877_103, b"")]
}

/// A packet is accepted with its length only, and only in whole.
pub fn parse_first_packet(input: &[u8]) {
    if let Ok(Some((first, length))) = startup::parse(input) {
        assert_eq!(startup::parse(&input[..length]), Ok(Some((first, length))));
        assert_eq!(startup::parse(&input[..length - 1]), Ok(None));
    }
}

/// The verifier of the example of RFC 7677, section 3.
const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==\
                        $WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
                        wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

/// What the server adds to the nonce of the client there.
const NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";

/// A verifier, both messages of a client, and the question of a server.
pub fn logins() -> Vec<Vec<u8>> {
    let messages = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO\n\
                    c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=\n\
                    r=theirs,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1";
    vec![format!("{VERIFIER}\n{messages}").into()]
}

/// Who has proved keys can prove them to the guard again.
pub fn parse_login(input: &[u8]) {
    let mut lines = str::from_utf8(input).unwrap_or_default().lines();
    let [verifier, first, last, question] = [(); 4].map(|()| lines.next().unwrap_or_default());
    let _ = Attempt::new(Binding::NotOffered, String::new()).0.challenged(question);
    let Ok(verifier) = verifier.parse::<Verifier>() else { return };
    let Ok((challenge, _)) = Challenge::new(verifier.clone(), MECHANISM, first, None, NONCE) else { return };
    let Ok((keys, _)) = challenge.check(last) else { return };
    let (attempt, first) = Attempt::new(Binding::Unsupported, "mine".to_owned());
    let (challenge, question) = Challenge::new(verifier, MECHANISM, &first, None, "yours").unwrap();
    let Ok(challenged) = attempt.challenged(&question) else { return };
    let (last, expected) = challenged.prove(&keys);
    let (same, answer) = challenge.check(&last).unwrap();
    assert!(same == keys && expected.check(&answer).is_ok());
}

pub fn users() -> Vec<Vec<u8>> {
    let others = "; users\n\"one\" \"pencil\"\n\"t\"\"wo\" \"md5e721edf6e7ef16cbff1526f1163776e0\"";
    vec![format!("{others}\n\"three\" \"{VERIFIER}\"\n").into()]
}

/// A list is accepted in whole only: with any other line after it, it is refused.
pub fn parse_users(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    if Users::parse(text).is_ok() {
        assert!(Users::parse(&format!("{text}\nmore")).is_err());
        assert!(Users::parse(&format!("{text}\n;more")).is_ok());
    }
}

pub fn lookups() -> Vec<Vec<u8>> {
    let row = |secret: &[u8]| message(b'D', &[b"\0\x02\0\0\0\x03one", secret].concat());
    let found = [row(b"\0\0\0\x06pencil"), row(b"\xff\xff\xff\xff")];
    let all = |rows: &[Vec<u8>]| {
        let steps = [message(b'1', b""), message(b'2', b"")].concat();
        [&steps[..], &rows.concat(), &message(b'C', b"SELECT 1\0"), &message(b'Z', b"I")].concat()
    };
    let failed = message(b'E', b"SERROR\0VERROR\0C42501\0Mnot permitted\0\0");
    vec![all(&found[..1]), all(&found[1..]), all(&[]), [failed, message(b'Z', b"I")].concat()]
}

/// An answer is read with its length only, and only in whole.
pub fn parse_lookup(input: &[u8]) {
    if let Ok(Some((processes, length))) = locks::answer(input, |_| {}) {
        assert_eq!(locks::answer(&input[..length - 1], |_| {}), Ok(None));
        assert_eq!(locks::answer(&input[..length], |_| {}), Ok(Some((processes, length))));
    }
    if let Ok(Some((found, length))) = lookup::answer(input, b"one") {
        assert_eq!(lookup::answer(&input[..length - 1], b"one"), Ok(None));
        assert_eq!(lookup::answer(&input[..length], b"one"), Ok(Some((found, length))));
    }
}

/// What a client sends, a line end, and what the server sends.
pub fn conversations() -> Vec<Vec<u8>> {
    let ready = message(b'Z', b"I");
    let simple =
        [message(b'Q', b"SET x = 1; COPY t FROM STDIN\0"), message(b'd', b"data"), message(b'c', b"")];
    let copied = [message(b'C', b"SET\0"), message(b'G', b"\0"), message(b'C', b"COPY 1\0"), ready.clone()];
    let extended = [
        message(b'P', b"\0SELECT 1\0\0"),
        message(b'B', b"\0\0\0\0"),
        message(b'D', b"P\0"),
        message(b'E', b"\0\0\0\0"),
        message(b'S', b""),
    ];
    let answered = [message(b'1', b""), message(b'2', b""), message(b'C', b"SELECT 1\0"), ready.clone()];
    let named = [
        message(b'P', b"one\0SELECT 1\0\0\0"),
        message(b'P', b"two\0SELECT 1\0\0\0"),
        message(b'B', b"\0two\0\0\0\0\0\0\0"),
        message(b'C', b"Sone\0"),
        message(b'S', b""),
        message(b'Q', b"DEALLOCATE two\0"),
        message(b'Q', b"DEALLOCATE ALL\0"),
    ];
    let prepared = [
        [message(b'1', b""), message(b'3', b""), message(b'2', b""), message(b'3', b""), ready.clone()]
            .concat(),
        [message(b'I', b""), ready.clone(), message(b'C', b"DEALLOCATE ALL\0"), ready].concat(),
    ];
    let both =
        |client: &[Vec<u8>], server: &[Vec<u8>]| [&client.concat()[..], b"\n", &server.concat()].concat();
    vec![both(&simple, &copied), both(&extended, &answered), both(&named, &prepared)]
}

/// One direction of a conversation.
struct Way<'a> {
    from: Frames,
    /// Bytes that the last message lacks that was passed on.
    lacking: usize,
    rest: &'a [u8],
}

impl<'a> Way<'a> {
    fn new(side: Side, rest: &'a [u8]) -> Self {
        Self { from: Frames::new(side), lacking: 0, rest }
    }

    /// Passes on the next piece. Returns whether that is possible.
    fn pass<'b>(&mut self, pass: impl FnOnce(Piece) -> Result<Pass<'b>, Violation>) -> bool {
        let before = self.from.clone();
        let Ok(Some((piece, length))) = self.from.next(self.rest) else { return false };
        let (taken, rest) = self.rest.split_at(length);
        assert!(taken.ends_with(piece.body()));
        let mut passed = match pass(piece) {
            Ok(Pass::AsIs) => taken,
            Ok(Pass::Instead(messages)) => messages,
            Ok(Pass::Later) => {
                self.from = before;
                return false;
            }
            Err(_) => {
                // The session ends.
                self.rest = &[];
                return false;
            }
        };
        self.rest = rest;
        while !passed.is_empty() {
            if self.lacking == 0 {
                let (header, body) = passed.split_first_chunk::<HEADER>().unwrap();
                self.lacking =
                    usize::try_from(u32::from_be_bytes(header[1..].try_into().unwrap())).unwrap() - 4;
                passed = body;
            }
            let length = self.lacking.min(passed.len());
            self.lacking -= length;
            passed = &passed[length..];
        }
        assert_eq!(self.lacking > 0, self.from.is_inside());
        true
    }
}

/// Every byte is returned once, and in order; a session ends, or fails, without a panic. What is passed on
/// are messages, too, which end where those end that came.
pub fn parse_conversation(input: &[u8]) {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let mut client = Way::new(Side::Client, &input[..end]);
    let mut server = Way::new(Side::Server, &input[(end + 1).min(input.len())..]);
    let mut session = Session::default();
    let (mut prepared, mut definitions) = (Prepared::default(), Definitions::new(1));
    let mut changes = 0;
    loop {
        let (prepared, definitions, changes) = (&mut prepared, &mut definitions, &mut changes);
        let sent = client.pass(|piece| session.client(piece, Server { prepared, definitions, changes }));
        let received = server.pass(|piece| session.server(piece, Server { prepared, definitions, changes }));
        session.end(prepared);
        if !sent && !received {
            return;
        }
    }
}
