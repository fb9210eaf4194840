//! Sessions that share connections, against a naive server: each gets the answers that it would get from a
//! connection of its own.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::postgres::frame::{Frames, Side, message};
use crate::postgres::prepared::Definitions;

/// A connection of a server, as far as statements are concerned.
#[derive(Debug, Default)]
struct Naive {
    named: HashMap<String, String>,
    unnamed: Option<String>,
    portal: Option<String>,
    skips: bool,
}

/// A text that cannot be prepared or executed.
const BAD: &str = "BAD";

impl Naive {
    /// Returns the answers to a message, each as its kind and its body.
    fn answer(&mut self, kind: u8, body: &[u8]) -> Vec<(u8, String)> {
        let strings: Vec<_> =
            body.split(|byte| *byte == 0).map(|part| str::from_utf8(part).unwrap()).collect();
        let answer = |kind: u8| vec![(kind, String::new())];
        let ready = (b'Z', "I".to_owned());
        if self.skips && kind != b'S' {
            return Vec::new();
        }
        match (kind, &*strings) {
            (b'P', ["", text, ..]) => {
                self.unnamed = (*text != BAD).then(|| (*text).to_owned());
                if self.unnamed.is_some() { answer(b'1') } else { self.fail() }
            }
            (b'P', [name, text, ..]) => {
                if *text == BAD || self.named.contains_key(*name) {
                    return self.fail();
                }
                self.named.insert((*name).to_owned(), (*text).to_owned());
                answer(b'1')
            }
            (b'B', [_, name, ..]) => {
                self.portal = self.text(name);
                if self.portal.is_some() { answer(b'2') } else { self.fail() }
            }
            (b'E', _) => match self.portal.take().map(|text| self.execute(text)) {
                Some(Some(tag)) => vec![(b'C', tag + "\0")],
                Some(None) | None => self.fail(),
            },
            (b'D', [name, ..]) => match self.text(&name[1..]) {
                Some(text) => vec![(b't', text), (b'n', String::new())],
                None => self.fail(),
            },
            (b'C', ["S", ..]) => {
                self.unnamed = None;
                answer(b'3')
            }
            (b'C', [name, ..]) => {
                self.named.remove(&name[1..]);
                answer(b'3')
            }
            (b'S', _) => {
                self.skips = false;
                self.portal = None;
                vec![ready]
            }
            (b'Q', [text, ..]) => vec![self.query(text), ready],
            other => unreachable!("{other:?}"),
        }
    }

    fn query(&mut self, text: &str) -> (u8, String) {
        (self.unnamed, self.portal) = (None, None);
        match self.execute(text.to_owned()) {
            _ if text.is_empty() => (b'I', String::new()),
            Some(tag) => (b'C', tag + "\0"),
            None => (b'E', String::new()),
        }
    }

    /// Returns the tag of a text; `None` if it fails.
    fn execute(&mut self, text: String) -> Option<String> {
        match text.strip_prefix("DEALLOCATE ") {
            _ if text == BAD => None,
            None => Some(text),
            Some("ALL") => {
                self.named.clear();
                Some(text)
            }
            Some(name) => self.named.remove(name).map(|_| "DEALLOCATE".to_owned()),
        }
    }

    fn text(&self, name: &str) -> Option<String> {
        if name.is_empty() { self.unnamed.clone() } else { self.named.get(name).cloned() }
    }

    fn fail(&mut self) -> Vec<(u8, String)> {
        self.skips = true;
        vec![(b'E', String::new())]
    }
}

/// A connection of the server with what was sent to it, and what the guard keeps of it.
#[derive(Debug, Default)]
struct Connection {
    server: Naive,
    input: Vec<u8>,
    prepared: Prepared,
}

/// A client, with a connection of its own to compare with.
#[derive(Debug, Default)]
struct Client {
    session: Session,
    alone: Naive,
    /// The answers of that.
    expected: Vec<(u8, String)>,
    /// Those that come through the guard.
    got: Vec<(u8, String)>,
    /// What it has prepared.
    parsed: Vec<String>,
}

impl Client {
    /// Whether an answer is not about what others have prepared.
    fn may_get(&self, kind: u8, text: &str) -> bool {
        let is_own = |text: &str| self.parsed.iter().any(|parsed| parsed == text);
        match kind {
            b't' => is_own(text),
            b'C' => text.starts_with("DEALLOCATE") || text == "Q\0" || is_own(&text.replace('\0', "")),
            _ => true,
        }
    }
}

/// A client, a connection, and what the client sends on it in one transaction: messages, and after each the
/// number of messages that the server answers then.
type Batch = (usize, usize, Vec<(Sent, usize)>);

/// A message.
#[derive(Debug, Clone)]
struct Sent(u8, String);

/// Not a message: those that drop a statement in the extended protocol.
const DROP: u8 = 0;

/// When a client waits for all answers. It always does after `DEALLOCATE ALL`: a statement that was used
/// right behind that could be prepared again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// After each message.
    Always,
    /// After its transaction, and it does not use the unnamed statement: the guard does not keep one that may
    /// have been replaced.
    NamedOnly,
    /// After its transaction.
    AtEnd,
}

impl Sent {
    fn is_about_unnamed(&self) -> bool {
        let name = match self.0 {
            b'P' => &self.1,
            b'B' | b'D' | b'C' => &self.1[1..],
            _ => return false,
        };
        name.starts_with('\0')
    }
}

fn sent() -> impl Strategy<Value = Sent> {
    let name = || prop::sample::select(&["", "", "one", "two"][..]);
    let text = prop::sample::select(&["A", "B", "own", "own2", BAD][..]);
    let query = &["Q", "DEALLOCATE one", "DEALLOCATE two", "DEALLOCATE ALL", BAD][..];
    prop_oneof![
        4 => (name(), text).prop_map(|(name, text)| Sent(b'P', format!("{name}\0{text}\0\0\0"))),
        4 => name().prop_map(|name| Sent(b'B', format!("\0{name}\0\0\0\0\0\0\0"))),
        4 => Just(Sent(b'E', "\0\0\0\0\0".to_owned())),
        1 => name().prop_map(|name| Sent(b'D', format!("S{name}\0"))),
        1 => name().prop_map(|name| Sent(b'C', format!("S{name}\0"))),
        1 => prop::sample::select(&["one", "two"][..]).prop_map(|name| Sent(DROP, name.to_owned())),
        2 => Just(Sent(b'S', String::new())),
        1 => prop::sample::select(query).prop_map(|text| Sent(b'Q', format!("{text}\0"))),
    ]
}

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    prop::collection::vec((0..3usize, 0..2usize, prop::collection::vec((sent(), 0..3usize), 1..10)), 1..30)
}

impl Connection {
    /// The server answers a message, if there is one, and the client gets the answers.
    fn answer(&mut self, client: &mut Client, definitions: &mut Definitions) -> bool {
        let Ok(Some((Piece::First { kind, body, rest: 0 }, length))) =
            Frames::new(Side::Client).next(&self.input)
        else {
            return false;
        };
        let answers = self.server.answer(kind, body);
        self.input.drain(..length);
        for (kind, body) in answers {
            let piece = Piece::First { kind, body: body.as_bytes(), rest: 0 };
            let server = Server { prepared: &mut self.prepared, definitions, changes: &mut 0 };
            match client.session.server(piece, server).unwrap() {
                Pass::AsIs => client.got.push((kind, body)),
                Pass::Instead(b"") => {}
                Pass::Instead(answer) => {
                    client.got.push((answer[0], str::from_utf8(&answer[5..]).unwrap().to_owned()));
                }
                Pass::Later => unreachable!(),
            }
        }
        true
    }

    /// The client sends a message.
    fn send(&mut self, client: &mut Client, kind: u8, body: &str, definitions: &mut Definitions) {
        client.expected.extend(client.alone.answer(kind, body.as_bytes()));
        if kind == b'P' {
            client.parsed.extend(body.split('\0').nth(1).map(str::to_owned));
        }
        loop {
            let piece = Piece::First { kind, body: body.as_bytes(), rest: 0 };
            let server = Server { prepared: &mut self.prepared, definitions, changes: &mut 0 };
            match client.session.client(piece, server).unwrap() {
                Pass::AsIs => return self.input.extend(message(kind, body.as_bytes())),
                Pass::Instead(messages) => return self.input.extend(messages),
                // The server has enough to go on.
                Pass::Later => assert!(client.session.waits() && self.answer(client, definitions)),
            }
        }
    }
}

/// Runs transactions, and compares what their clients get.
fn run(batches: Vec<Batch>, waits: Waits) -> Result<(), TestCaseError> {
    let (mut connections, mut clients) = <([Connection; 2], [Client; 3])>::default();
    let mut definitions = Definitions::new(1);
    for (number, connection, mut messages) in batches {
        let (client, connection) = (&mut clients[number], &mut connections[connection]);
        // A client that drops a statement with the unnamed one does that once.
        // A client that uses the unnamed statement otherwise could use the one again that drops a statement.
        messages.retain(|(sent, _)| match waits {
            Waits::NamedOnly => !sent.is_about_unnamed(),
            Waits::Always | Waits::AtEnd => sent.0 != DROP,
        });
        messages.push((Sent(b'S', String::new()), 0));
        let mut is_open = false;
        for (Sent(kind, body), answers) in messages {
            // A query right behind others, which may fail, is not relayed. Those of a client that does not
            // wait may have failed on one side only, for lack of an unnamed statement there.
            let passes = waits == Waits::Always || client.session.has_all_answers() && !client.alone.skips;
            if kind == b'Q' && is_open && !passes {
                connection.send(client, b'S', "", &mut definitions);
            }
            is_open = !matches!(kind, b'S' | b'Q');
            let drops_all = body.contains(" ALL");
            if kind == DROP {
                for (kind, body) in [
                    (b'P', &*format!("\0DEALLOCATE {body}\0\0\0")),
                    (b'B', "\0\0\0\0\0\0\0\0"),
                    (b'E', "\0\0\0\0\0"),
                ] {
                    connection.send(client, kind, body, &mut definitions);
                }
            } else {
                let body = body.replace("own", &format!("own {number}"));
                connection.send(client, kind, &body, &mut definitions);
            }
            let must_wait = waits == Waits::Always || drops_all;
            let answers = if must_wait { usize::MAX } else { answers };
            for _ in 0..answers {
                if !connection.answer(client, &mut definitions) {
                    break;
                }
            }
            let is_answered = connection.input.is_empty() && !connection.server.skips;
            prop_assert!(is_answered || !client.session.has_all_answers());
        }
        while connection.answer(client, &mut definitions) {}
        prop_assert!(client.session.end(&mut connection.prepared).is_some());
        prop_assert_eq!(client.session.pin(), None);
        let [got, expected] = [&mut client.got, &mut client.expected].map(std::mem::take);
        if waits == Waits::AtEnd {
            // It may lack an unnamed statement.
            for (kind, text) in &got {
                prop_assert!(client.may_get(*kind, text), "{}", text);
            }
            let ends = |answers: &[(u8, String)]| answers.iter().filter(|(kind, _)| *kind == b'Z').count();
            prop_assert_eq!(ends(&got), ends(&expected));
        } else {
            prop_assert_eq!(got, expected);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_session_gets_the_answers_of_a_connection_of_its_own(batches in batches()) {
        for waits in [Waits::Always, Waits::NamedOnly] {
            run(batches.clone(), waits)?;
        }
    }

    #[test]
    fn a_session_that_does_not_wait_gets_nothing_of_others(batches in batches()) {
        run(batches, Waits::AtEnd)?;
    }
}
