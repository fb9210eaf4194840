//! The state of a session between a client and a server: when a transaction ends, how it ended, and whether
//! the session needs its own connection of the server from then on.
//!
//! The relay passes it every message of both sides. It counts what the server still owes: one `ReadyForQuery`
//! for each `Query`, `FunctionCall` and `Sync` (PostgreSQL's manual, *Message Flow*), except for a `Sync`
//! that the server reads while it takes data for `COPY`, which it ignores; the answers to messages that
//! prepare and close statements; and how many of the messages without a `Sync` it has answered.

use std::collections::VecDeque;
use std::ops::Range;

use super::frame::Piece;
use super::prepared::{Pass, Prepared, Server};
use super::refusal;
use super::statement::{Statements, Step};
use super::text::{Pin, Set, Text, dropped, dropped_first};

/// The state of a session.
#[derive(Debug)]
pub struct Session {
    /// What the server owes, the oldest first.
    owed: VecDeque<Owed>,
    /// Messages of the extended protocol that no `Sync` or query has followed which the server answers.
    unsynced: u64,
    /// Answers since the last `ReadyForQuery`. If no other is owed, they are those to the unsynced messages.
    answered: u64,
    /// Whether the server skips all messages up to `Sync`, after an error.
    skipping: bool,
    /// Whether the server takes data for `COPY`.
    copying: bool,
    /// Messages that the server ignores if it reads them while it takes data, and answers if it fails before.
    doubtful: u32,
    /// Whether the last message of the client has to wait.
    waits: bool,
    /// What the last `ReadyForQuery` says; `None` after the end of a transaction.
    ready: Option<u8>,
    /// The text that comes now.
    text: Option<Text>,
    statements: Statements,
    /// Whether a text of this transaction may contain a `SET` that lasts.
    may_set: bool,
    /// Whether this transaction has settings with which texts may mean something else.
    reads_otherwise: bool,
    pin: Option<Pin>,
    end: End,
}

/// What a message makes the server owe.
#[derive(Debug)]
enum Owed {
    /// `ReadyForQuery` after a `Query` or a `FunctionCall`.
    Query,
    /// The same after an empty query, which is sent instead of one that drops a statement.
    Drop,
    /// `ReadyForQuery` after a `Sync`.
    Sync,
    /// The answer to a step of the extended protocol.
    Step(Step),
    /// Nothing: here ends the data of a `COPY`, if the server takes it.
    CopyEnd,
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was committed, or there was none: each statement succeeded.
    Committed,
    /// Its client had it rolled back.
    RolledBack,
    /// Something in it failed.
    Failed,
}

/// The client or the server does something that cannot be relayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The client sends a simple query behind messages of the extended protocol, which may fail: the server
    /// would skip it then.
    #[error("a simple query right behind messages of the extended protocol without Sync is not relayed")]
    Unsynced,
    /// The client sends a query while the server takes data.
    #[error("a query before the end of the data of COPY is not relayed")]
    Copying,
    /// The client sends without an end, and the server does not answer.
    #[error("more than {MOST} messages without an answer are not relayed")]
    Unanswered,
    /// The client sends a message that is not one of its own.
    #[error("message type 0x{0:02x} is not one that a client sends")]
    Unknown(u8),
    /// The server answers what was not sent.
    #[error("the server answers what was not sent")]
    Unasked,
}

/// Messages whose answers are waited for. A client that sends as much as the kernel and the guard hold for it
/// has fewer, unless the server does not answer them.
const MOST: usize = 1 << 20;

/// Outside of a transaction.
const IDLE: u8 = b'I';

/// In a transaction that has failed.
const FAILED: u8 = b'E';

/// There is no prepared statement of this name (`invalid_sql_statement_name`).
const NO_STATEMENT: &[u8] = b"26000";

/// `CommandComplete` of `DEALLOCATE`.
const DROPPED: Pass = Pass::Instead(b"C\0\0\0\x0fDEALLOCATE\0");

/// No message.
const NOTHING: Pass = Pass::Instead(b"");

impl Default for Session {
    fn default() -> Self {
        Self {
            owed: VecDeque::new(),
            unsynced: 0,
            answered: 0,
            skipping: false,
            copying: false,
            doubtful: 0,
            waits: false,
            ready: None,
            text: None,
            statements: Statements::default(),
            may_set: false,
            reads_otherwise: false,
            pin: None,
            end: End::Committed,
        }
    }
}

impl Session {
    /// Returns why the session needs its own connection; `None` if it does not.
    #[must_use]
    pub fn pin(&self) -> Option<Pin> {
        self.pin
    }

    /// Whether the server waits for the client, which may be sending data at the moment: it has answered
    /// everything, also what came without `Sync`, or skips all up to that, or copies.
    #[must_use]
    pub fn waits_for_client(&self) -> bool {
        self.has_all_answers() || self.skipping && self.doubtful == 0 || self.copying
    }

    fn has_all_answers(&self) -> bool {
        self.owed.is_empty() && self.unsynced == self.answered
    }

    /// Whether the last message of the client has to be taken again when the server has answered.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Returns how the transaction ended if the last messages ended it, and begins the next one. The caller
    /// must not be in the middle of a message of the client: the server would take what another client sends
    /// for the rest of it.
    pub fn end(&mut self, prepared: &mut Prepared) -> Option<End> {
        if self.ready != Some(IDLE) || !self.owed.is_empty() || self.unsynced > 0 {
            return None;
        }
        (self.ready, self.waits) = (None, false);
        self.end_text(prepared);
        if std::mem::take(&mut self.reads_otherwise) {
            prepared.forget();
        }
        if self.statements.is_stuck() {
            self.needs(Pin::Statement);
        }
        if self.pin.is_none() {
            self.statements.leave();
        }
        self.may_set = false;
        Some(std::mem::replace(&mut self.end, End::Committed))
    }

    /// Takes a piece of what the client sends, and returns how it is passed on to the server.
    ///
    /// # Errors
    /// If it must not be passed on.
    pub fn client<'a>(&mut self, piece: Piece, mut server: Server<'a>) -> Result<Pass<'a>, Violation> {
        let (kind, body, rest) = match piece {
            Piece::Rest(bytes) => {
                if let Some(text) = &mut self.text {
                    text.read(bytes);
                }
                return Ok(Pass::AsIs);
            }
            Piece::First { kind, body, rest } => (kind, body, rest),
        };
        self.end_text(server.prepared);
        if self.owed.len() > MOST {
            return Err(Violation::Unanswered);
        }
        server.prepared.begin();
        if matches!(kind, b'Q' | b'F') && !self.copying && self.is_doubtful() {
            return Err(Violation::Unsynced);
        }
        self.waits = self.lacks_answer(kind, body, server.prepared);
        if self.waits {
            return Ok(Pass::Later);
        }
        match kind {
            b'Q' | b'F' | b'P' | b'B' | b'D' | b'E' | b'C' if self.copying => return Err(Violation::Copying),
            b'S' if self.copying => self.doubtful += 1,
            b'S' => {
                self.owed.push_back(Owed::Sync);
                (self.unsynced, self.skipping) = (0, false);
                server.prepared.end_segment();
            }
            b'Q' | b'F' | b'P' | b'B' | b'D' | b'E' | b'C' | b'c' | b'f' if self.skipping => {}
            b'Q' => self.query(body, rest, server.prepared),
            b'F' => {
                self.owed.push_back(Owed::Query);
                self.unsynced = 0;
                server.prepared.end_segment();
            }
            b'P' | b'B' | b'D' | b'E' | b'C' => {
                self.extended(kind, body, rest, &mut server);
                self.owed.extend(server.prepared.steps().map(Owed::Step));
                self.unsynced += 1;
            }
            b'c' | b'f' if self.copying => self.copying = false,
            b'c' | b'f' if !self.has_all_answers() => self.owed.push_back(Owed::CopyEnd),
            b'c' | b'f' | b'd' | b'H' => {}
            kind => return Err(Violation::Unknown(kind)),
        }
        Ok(server.prepared.pass())
    }

    /// Whether it cannot be known if the server skips a query, after an error in the messages before it.
    fn is_doubtful(&self) -> bool {
        self.unsynced > 0 && if self.skipping { self.doubtful > 0 } else { !self.has_all_answers() }
    }

    /// Whether what a message means depends on an answer that is still to come: on one to messages before the
    /// last `Sync`, so that the server sends it without waiting for more.
    fn lacks_answer(&self, kind: u8, mut body: &[u8], prepared: &Prepared) -> bool {
        if self.owed.is_empty() || self.skipping || self.copying {
            return false;
        }
        let is_uncertain = |name: &[u8]| self.statements.is_uncertain(name, prepared);
        match kind {
            b'Q' => dropped(body).is_some_and(|name| is_uncertain(&name) || self.statements.contains(&name)),
            b'P' => match string(&mut body) {
                b"" => dropped_first(body).is_some_and(|name| is_uncertain(&name)),
                // A query may drop it.
                name if self.statements.contains(name) => self.owed.iter().any(Owed::is_ready_for_query),
                name => is_uncertain(name),
            },
            b'B' => {
                string(&mut body);
                is_uncertain(string(&mut body))
            }
            b'D' => body.split_off_first() == Some(&b'S') && is_uncertain(string(&mut body)),
            b'C' => {
                body.split_off_first() == Some(&b'S')
                    && !body.starts_with(b"\0")
                    && is_uncertain(string(&mut body))
            }
            _ => false,
        }
    }

    /// A simple query, of which `rest` bytes follow.
    fn query(&mut self, body: &[u8], rest: usize, prepared: &mut Prepared) {
        self.statements.lose_unnamed();
        self.unsynced = 0;
        // In a transaction that has failed, the server refuses it.
        let is_possible = rest == 0 && self.ready != Some(FAILED);
        if is_possible && dropped(body).is_some_and(|name| self.statements.remove(&name)) {
            // Other sessions may use it, and it has another name.
            prepared.send(b'Q', &[b"\0"], 0);
            self.owed.push_back(Owed::Drop);
        } else {
            self.text(body);
            self.owed.push_back(Owed::Query);
        }
        prepared.end_segment();
    }

    /// A step of the extended protocol, of which `rest` bytes follow.
    fn extended(&mut self, kind: u8, body: &[u8], rest: usize, server: &mut Server) {
        let mut behind = body;
        match kind {
            b'P' => {
                let name = string(&mut behind);
                if name.is_empty() {
                    let definition =
                        self.statements.parse_unnamed(behind, rest, server).map(|definition| definition.pin);
                    self.prepares(definition, behind);
                } else {
                    let definition = self.statements.parse(name, behind, rest, server);
                    if definition.is_none() {
                        self.needs(Pin::Statement);
                    }
                    self.prepares(definition.map(|definition| definition.pin), behind);
                }
            }
            b'B' => {
                let (portal, name) = (string(&mut behind), string(&mut behind));
                if name.is_empty() {
                    self.statements.bind_unnamed();
                }
                let (name, set) = self.statements.provide(name, server);
                self.sets(set, server.prepared);
                if let Some(name) = name {
                    server.prepared.send(b'B', &[portal, b"\0", &name, b"\0", behind], rest);
                }
            }
            b'D' | b'C' if behind.split_off_first() == Some(&b'S') => {
                let name = string(&mut behind);
                let name = match kind {
                    b'D' => self.statements.provide(name, server).0,
                    _ => self.statements.close(name, server.prepared),
                };
                if let Some(name) = name {
                    server.prepared.send(kind, &[b"S", &name, b"\0"], rest);
                }
            }
            b'C' => server.prepared.expect(Step::Close(None)),
            _ => {}
        }
    }

    /// The session prepares a statement with this text, which comes in parts unless what it needs is known.
    fn prepares(&mut self, pin: Option<Option<Pin>>, text: &[u8]) {
        match pin {
            Some(Some(pin)) => self.needs(pin),
            Some(None) => {}
            None => self.text(text),
        }
    }

    /// Takes a piece of what the server sends, and returns how it is passed on to the client.
    ///
    /// # Errors
    /// If the server does not keep to the protocol.
    pub fn server(&mut self, piece: Piece, from: Server) -> Result<Pass<'static>, Violation> {
        let Piece::First { kind, body, rest } = piece else { return Ok(Pass::AsIs) };
        match kind {
            // They have no body.
            b'1' | b'3' | b'I' if rest > 0 => return Err(Violation::Unasked),
            b'1' | b'3' => return self.step(kind, from.prepared),
            b'I' if matches!(self.owed.front(), Some(Owed::Drop)) => return Ok(DROPPED),
            b'2' | b'n' | b'T' | b's' | b'I' => self.answered += 1,
            b'C' => {
                self.answered += 1;
                self.tag(body, from.prepared);
            }
            b'E' => self.error(body, from),
            b'G' => self.copy(from.prepared),
            b'S' => from.prepared.read_setting(body),
            b'Z' => {
                self.skip(from.prepared);
                if self.owed.pop_front().is_none() {
                    self.doubtful = self.doubtful.checked_sub(1).ok_or(Violation::Unasked)?;
                    (self.unsynced, self.skipping) = (0, false);
                }
                self.answered = 0;
                self.drop_copy_ends();
                self.ready = body.first().copied();
            }
            _ => {}
        }
        Ok(Pass::AsIs)
    }

    /// The server has prepared or closed a statement.
    fn step(&mut self, kind: u8, prepared: &mut Prepared) -> Result<Pass<'static>, Violation> {
        let Some(Owed::Step(step)) = self.owed.pop_front() else { return Err(Violation::Unasked) };
        self.statements.confirm(&step, prepared);
        self.waits = false;
        match (kind, step) {
            (b'1', Step::Parse(_) | Step::Taken(_) | Step::Unnamed(..)) | (b'3', Step::Close(_)) => {
                self.answered += 1;
                Ok(Pass::AsIs)
            }
            (b'1', Step::Again(_) | Step::UnnamedAgain(_)) | (b'3', Step::Unneeded(_)) => Ok(NOTHING),
            _ => Err(Violation::Unasked),
        }
    }

    fn error(&mut self, body: &[u8], Server { prepared, changes, .. }: Server) {
        self.end = End::Failed;
        self.copying = false;
        self.skipping = self.unsynced > 0 && !self.owed.iter().any(Owed::is_ready_for_query);
        if refusal::code(body) == Some(NO_STATEMENT) && prepared.is_named_in(&refusal::text(body)) {
            // A function has dropped it, and maybe others.
            prepared.forget();
        }
        *changes += u64::from(refusal::is_changed_statement(body));
        if self.doubtful > 0 {
            // It cannot be known how many answers are still to come.
            self.needs(Pin::Copy);
        }
    }

    /// The server begins to take data. What was sent before the end of the data is not what it will answer.
    fn copy(&mut self, prepared: &mut Prepared) {
        let is_simple = matches!(self.owed.front(), Some(Owed::Query));
        let end = self.owed.iter().position(|owed| matches!(owed, Owed::CopyEnd));
        self.copying = end.is_none();
        let ignored = usize::from(is_simple)..end.map_or(self.owed.len(), |end| end + 1);
        let answers = self.owed.range(ignored.clone()).filter(|owed| owed.is_ready_for_query()).count();
        self.doubtful = self.doubtful.saturating_add(u32::try_from(answers).unwrap_or(u32::MAX));
        self.undo(ignored, prepared);
        // The extended protocol ends with a further Sync, which may have been sent. Otherwise the messages
        // before the data have none any more: those that are answered, and `Execute`.
        if !is_simple && answers > 0 && !self.owed.iter().any(Owed::is_ready_for_query) {
            self.unsynced += self.answered + 1;
        }
    }

    /// Removes what the server has skipped after an error, and ends of data that it did not ask for.
    fn skip(&mut self, prepared: &mut Prepared) {
        let answered = self.owed.iter().position(Owed::is_ready_for_query);
        self.undo(0..answered.unwrap_or(self.owed.len()), prepared);
    }

    /// Removes what the server does not do. The last message is undone first.
    fn undo(&mut self, skipped: Range<usize>, prepared: &mut Prepared) {
        self.waits = false;
        for owed in self.owed.drain(skipped).rev() {
            if let Owed::Step(step) = owed {
                self.statements.undo(step, prepared);
            }
        }
    }

    /// Removes ends of data that the server did not ask for.
    fn drop_copy_ends(&mut self) {
        while let Some(Owed::CopyEnd) = self.owed.front() {
            self.owed.pop_front();
        }
    }

    /// A statement succeeded.
    fn tag(&mut self, body: &[u8], prepared: &mut Prepared) {
        match string(&mut &*body) {
            tag if tag.starts_with(b"COPY") => self.doubtful = 0,
            b"SET" if self.may_last() => self.needs(Pin::Setting),
            b"LISTEN" => self.needs(Pin::Listen),
            b"PREPARE" => self.needs(Pin::Statement),
            b"LOAD" => self.needs(Pin::Library),
            b"DEALLOCATE ALL" | b"DISCARD ALL" => {
                prepared.forget();
                self.statements.clear(self.owed.iter_mut().filter_map(Owed::step));
            }
            b"COMMIT" => self.end = End::Committed,
            // Of the transaction, or to a savepoint.
            b"ROLLBACK" if self.end == End::Committed => self.end = End::RolledBack,
            _ => {}
        }
    }

    /// Whether a `SET` may last that was executed now. The last text that was sent may contain it, too.
    fn may_last(&self) -> bool {
        self.may_set || self.text.clone().is_some_and(|text| text.end().1 == Set::Lasting)
    }

    /// Begins the text of a query.
    fn text(&mut self, part: &[u8]) {
        let mut text = Text::default();
        text.read(part);
        self.text = Some(text);
    }

    fn end_text(&mut self, prepared: &mut Prepared) {
        if let Some((pin, set)) = self.text.take().map(Text::end) {
            self.sets(set, prepared);
            if let Some(pin) = pin {
                self.needs(pin);
            }
        }
    }

    /// Something is executed now or later in this transaction that sets this.
    fn sets(&mut self, set: Set, prepared: &mut Prepared) {
        match set {
            Set::Brief => {}
            Set::Reading => {
                self.reads_otherwise = true;
                prepared.forget();
            }
            Set::Lasting => self.may_set = true,
        }
    }

    /// The first reason stays.
    fn needs(&mut self, pin: Pin) {
        self.pin.get_or_insert(pin);
    }
}

impl Owed {
    fn is_ready_for_query(&self) -> bool {
        matches!(self, Self::Query | Self::Drop | Self::Sync)
    }

    fn step(&mut self) -> Option<&mut Step> {
        if let Self::Step(step) = self { Some(step) } else { None }
    }
}

/// Takes a string that ends with a zero byte.
fn string<'a>(body: &mut &'a [u8]) -> &'a [u8] {
    let length = body.iter().position(|byte| *byte == 0).unwrap_or(body.len());
    let string = &body[..length];
    *body = &body[(length + 1).min(body.len())..];
    string
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
