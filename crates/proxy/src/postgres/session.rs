//! The state of a session between a client and a server: when a transaction ends, how it ended, and whether
//! the session needs its own connection of the server from then on.
//!
//! The relay passes it every message of both sides. It counts what the server still owes: one `ReadyForQuery`
//! for each `Query`, `FunctionCall` and `Sync` (PostgreSQL's manual, *Message Flow*), except for a `Sync`
//! that the server reads while it takes data for `COPY`, which it ignores.

use std::collections::VecDeque;

use super::frame::Piece;
use super::text::{Pin, Set, Text};

/// The state of a session.
#[derive(Debug)]
pub struct Session {
    /// What the server owes, the oldest first.
    owed: VecDeque<Owed>,
    /// What the messages since the last `Sync` need.
    unsynced: bool,
    /// Whether the server takes data for `COPY`.
    copying: bool,
    /// Messages that the server ignores if it reads them while it takes data, and answers if it fails before.
    doubtful: u32,
    /// What the last `ReadyForQuery` says; `None` after the end of a transaction.
    ready: Option<u8>,
    /// The text that comes now.
    text: Option<Text>,
    unnamed: Unnamed,
    /// Whether a text of this transaction may contain a `SET` that lasts.
    may_set: bool,
    pin: Option<Pin>,
    end: End,
}

/// What a message makes the server owe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owed {
    /// `ReadyForQuery` after a `Query` or a `FunctionCall`.
    Query,
    /// `ReadyForQuery` after a `Sync`.
    Sync,
    /// Nothing: here ends the data of a `COPY`, if the server takes it.
    CopyEnd,
}

/// The unnamed statement, which stays with a connection until the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unnamed {
    /// It is not of this transaction, and may be of another session.
    Foreign,
    /// It was parsed in this transaction.
    Parsed,
    /// It was also bound, so that it has been of use.
    Bound,
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
    /// The client uses the unnamed statement of an earlier transaction.
    #[error(
        "the unnamed statement of an earlier transaction cannot be used again; send Parse again, or use a named \
         statement"
    )]
    Unnamed,
    /// The client sends a simple query in the middle of the extended protocol.
    #[error("a simple query after messages of the extended protocol without Sync is not relayed")]
    Unsynced,
    /// The client sends a query while the server takes data.
    #[error("a query before the end of the data of COPY is not relayed")]
    Copying,
    /// The client sends a message that is not one of its own.
    #[error("message type 0x{0:02x} is not one that a client sends")]
    Unknown(u8),
    /// The server ends a query that was not sent.
    #[error("the server answers a query that was not sent")]
    Unasked,
}

/// Outside of a transaction.
const IDLE: u8 = b'I';

impl Default for Session {
    fn default() -> Self {
        Self {
            owed: VecDeque::new(),
            unsynced: false,
            copying: false,
            doubtful: 0,
            ready: None,
            text: None,
            unnamed: Unnamed::Foreign,
            may_set: false,
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

    /// Whether the server has answered everything, so that only the client can go on.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.owed.is_empty() && !self.unsynced
    }

    /// Returns how the transaction ended if the last messages ended it, and begins the next one. The caller
    /// must not be in the middle of a message of the client: the server would take what another client sends
    /// for the rest of it.
    pub fn end(&mut self) -> Option<End> {
        if self.ready != Some(IDLE) || !self.is_answered() {
            return None;
        }
        self.ready = None;
        self.end_text();
        if self.unnamed == Unnamed::Parsed {
            self.needs(Pin::Statement);
        }
        self.unnamed = Unnamed::Foreign;
        self.may_set = false;
        Some(std::mem::replace(&mut self.end, End::Committed))
    }

    /// Takes a piece of what the client sends, before it is passed on.
    ///
    /// # Errors
    /// If it must not be passed on.
    pub fn client(&mut self, piece: Piece) -> Result<(), Violation> {
        let (kind, body) = match piece {
            Piece::Rest(bytes) => {
                if let Some(text) = &mut self.text {
                    text.read(bytes);
                }
                return Ok(());
            }
            Piece::First { kind, body } => (kind, body),
        };
        self.end_text();
        match kind {
            b'Q' | b'F' if self.copying => return Err(Violation::Copying),
            b'Q' | b'F' if self.unsynced => return Err(Violation::Unsynced),
            b'S' if self.copying => self.doubtful += 1,
            b'Q' => {
                self.owed.push_back(Owed::Query);
                self.unnamed = Unnamed::Foreign;
                self.text(body);
            }
            b'F' => self.owed.push_back(Owed::Query),
            b'S' => {
                self.owed.push_back(Owed::Sync);
                self.unsynced = false;
            }
            b'P' => {
                let name = string(&mut &*body);
                if name.is_empty() {
                    self.unnamed = Unnamed::Parsed;
                } else {
                    self.needs(Pin::Statement);
                }
                self.text(&body[(name.len() + 1).min(body.len())..]);
                self.unsynced = true;
            }
            b'B' => {
                let mut rest = body;
                string(&mut rest);
                if self.uses_unnamed(string(&mut rest))? {
                    self.unnamed = Unnamed::Bound;
                }
                self.unsynced = true;
            }
            b'D' => {
                if let Some(mut name) = body.strip_prefix(b"S") {
                    self.uses_unnamed(string(&mut name))?;
                }
                self.unsynced = true;
            }
            b'E' | b'C' => self.unsynced = true,
            b'c' | b'f' if self.copying => self.copying = false,
            b'c' | b'f' if !self.is_answered() => self.owed.push_back(Owed::CopyEnd),
            b'c' | b'f' | b'd' | b'H' => {}
            kind => return Err(Violation::Unknown(kind)),
        }
        Ok(())
    }

    /// Takes a piece of what the server sends.
    ///
    /// # Errors
    /// If the server does not keep to the protocol.
    pub fn server(&mut self, piece: Piece) -> Result<(), Violation> {
        let Piece::First { kind, body } = piece else { return Ok(()) };
        match kind {
            b'C' => self.tag(body),
            b'E' => {
                self.end = End::Failed;
                self.copying = false;
                if self.unnamed == Unnamed::Parsed {
                    self.unnamed = Unnamed::Foreign;
                }
                if self.doubtful > 0 {
                    // It cannot be known how many answers are still to come.
                    self.needs(Pin::Copy);
                }
            }
            b'G' => self.copy(),
            b'Z' => {
                self.drop_copy_ends();
                if self.owed.pop_front().is_none() {
                    self.doubtful = self.doubtful.checked_sub(1).ok_or(Violation::Unasked)?;
                    self.unsynced = false;
                }
                self.drop_copy_ends();
                self.ready = body.first().copied();
            }
            _ => {}
        }
        Ok(())
    }

    /// The server begins to take data. What was sent before the end of the data is not what it will answer.
    fn copy(&mut self) {
        let is_simple = self.owed.front() == Some(&Owed::Query);
        let end = self.owed.iter().position(|owed| *owed == Owed::CopyEnd);
        self.copying = end.is_none();
        let before = self.owed.drain(usize::from(is_simple)..end.map_or(self.owed.len(), |end| end + 1));
        self.doubtful += before.map(|owed| u32::from(owed != Owed::CopyEnd)).sum::<u32>();
        // The extended protocol ends with a further Sync, which may have been sent.
        self.unsynced |= !is_simple && self.owed.is_empty();
    }

    /// Removes ends of data that the server did not ask for.
    fn drop_copy_ends(&mut self) {
        while self.owed.front() == Some(&Owed::CopyEnd) {
            self.owed.pop_front();
        }
    }

    /// A statement succeeded.
    fn tag(&mut self, body: &[u8]) {
        match string(&mut &*body) {
            tag if tag.starts_with(b"COPY") => self.doubtful = 0,
            b"SET" if self.may_last() => self.needs(Pin::Setting),
            b"LISTEN" => self.needs(Pin::Listen),
            b"PREPARE" => self.needs(Pin::Statement),
            b"LOAD" => self.needs(Pin::Library),
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

    /// Whether a statement that the client uses is the unnamed one.
    fn uses_unnamed(&self, name: &[u8]) -> Result<bool, Violation> {
        if name.is_empty() && self.unnamed == Unnamed::Foreign && self.pin.is_none() {
            return Err(Violation::Unnamed);
        }
        Ok(name.is_empty())
    }

    /// Begins the text of a query.
    fn text(&mut self, part: &[u8]) {
        let mut text = Text::default();
        text.read(part);
        self.text = Some(text);
    }

    fn end_text(&mut self) {
        if let Some((pin, set)) = self.text.take().map(Text::end) {
            self.may_set |= set == Set::Lasting;
            if let Some(pin) = pin {
                self.needs(pin);
            }
        }
    }

    /// The first reason stays.
    fn needs(&mut self, pin: Pin) {
        self.pin.get_or_insert(pin);
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
mod tests {
    use super::*;

    /// A conversation: what the client (`>`) and the server (`<`) send, each message as its kind and, after a
    /// colon, its body, in which `0` stands for a zero byte. Returns how transactions ended, and the session.
    fn converse(lines: &str) -> Result<(Vec<End>, Session), Violation> {
        let (mut session, mut ends) = (Session::default(), Vec::new());
        for message in lines.split_whitespace() {
            let (from, message) = message.split_at(1);
            let (kind, body) = message.split_once(':').unwrap_or((message, ""));
            let body = body.replace('0', "\0").replace('_', " ");
            let piece = Piece::First { kind: kind.as_bytes()[0], body: body.as_bytes() };
            if from == ">" {
                session.client(piece)?;
            } else {
                session.server(piece)?;
                ends.extend(session.end());
            }
        }
        Ok((ends, session))
    }

    fn ends(lines: &str) -> Vec<End> {
        converse(lines).unwrap().0
    }

    fn pin(lines: &str) -> Option<Pin> {
        converse(lines).unwrap().1.pin()
    }

    use End::{Committed, Failed, RolledBack};

    #[test]
    fn a_transaction_ends_when_the_server_is_ready_outside_of_one() {
        assert_eq!(ends(">Q <T <D <C:SELECT_10 <Z:I"), [Committed]);
        assert_eq!(ends(">Q <C:BEGIN0 <Z:T >Q <C:UPDATE_10 <Z:T >Q <C:COMMIT0 <Z:I >Q"), [Committed]);
        assert_eq!(ends(">Q <C:BEGIN0 <Z:T >Q <E <Z:E >Q <C:ROLLBACK0 <Z:I >Q <Z:I"), [Failed, Committed]);
        assert_eq!(ends(">Q <C:BEGIN0 <Z:T >Q <C:ROLLBACK0 <Z:I"), [RolledBack]);
        assert_eq!(ends(">Q <C:BEGIN0 <Z:T >Q <E <Z:E >Q <C:ROLLBACK0 <Z:T >Q <C:COMMIT0 <Z:I"), [Committed]);
        assert_eq!(ends(">Q <E <Z:I >F <V <Z:I"), [Failed, Committed]);
        assert_eq!(ends(">P:00 >B:00 >D:P0 >E >S <1 <2 <n <C:SELECT_10 <Z:I"), [Committed]);
    }

    #[test]
    fn all_that_was_sent_is_answered_before_a_transaction_ends() {
        // Pipelined: two transactions, which use the connection together.
        assert_eq!(ends(">P:00 >B:00 >E >S >P:00 >B:00 >E >S <1 <2 <C:X0 <Z:I"), []);
        assert_eq!(
            ends(">P:00 >B:00 >E >S >P:00 >B:00 >E >S <1 <2 <C:X0 <Z:I <1 <2 <C:X0 <Z:I"),
            [Committed]
        );
        assert_eq!(ends(">Q >Q <C:X0 <Z:I <E <Z:I"), [Failed]);
        // Sync is still to come.
        assert_eq!(ends(">Q >P:00 >H <C:X0 <Z:I <1"), []);
        assert_eq!(ends(">Q >H <C:X0 <Z:I"), [Committed]);
        // An error skips up to Sync.
        assert_eq!(ends(">P:00 >B:00 >E <E >E >S <Z:I"), [Failed]);
    }

    #[test]
    fn a_sync_that_copy_ignores_is_not_answered() {
        assert_eq!(ends(">Q <G >d >d >c <C:COPY_20 <Z:I"), [Committed]);
        assert_eq!(ends(">Q <G >d >S >H >f <E <Z:I"), [Failed]);
        // As libpq does: one Sync after Execute, which is ignored, one after the data.
        assert_eq!(ends(">P:00 >B:00 >E >S <1 <2 <G >d >c >S <C:COPY_10 <Z:I"), [Committed]);
        assert_eq!(ends(">P:00 >B:00 >E >S <1 <2 <G >d >c <C:COPY_10"), []);
        // Without waiting.
        assert_eq!(ends(">P:00 >B:00 >E >d >c >S <1 <2 <G <C:COPY_10 <Z:I"), [Committed]);
        assert_eq!(ends(">P:00 >B:00 >E >S >d >c >S <1 <2 <G <C:COPY_10 <Z:I"), [Committed]);
        assert_eq!(ends(">Q >d >c >Q <G <C:COPY_10 <Z:I <C:X0 <Z:I"), [Committed]);
        assert_eq!(converse(">Q <G >Q").unwrap_err(), Violation::Copying);
        // The server fails in the middle of the data: the rest is ignored.
        assert_eq!(ends(">P:00 >B:00 >E >S <1 <2 <G >d <E >d >c >S <Z:I"), [Failed]);
        assert_eq!(ends(">Q <G >d <E <Z:I"), [Failed]);
        // It fails after it has begun, and before it reads: it answers what it would have ignored. The
        // session keeps its connection, because it may also have ignored that.
        for (lines, committed) in
            [(">P:00 >B:00 >E >S <1 <2 <G <E <Z:I", 0), (">Q >Q <G <E <Z:I <C:X0 <Z:I", 1)]
        {
            let (ends, session) = converse(lines).unwrap();
            assert_eq!(ends.iter().filter(|end| **end == Committed).count(), committed);
            assert_eq!((ends[0], session.pin()), (Failed, Some(Pin::Copy)));
        }
        // It fails before.
        assert_eq!(ends(">P:00 >B:00 >E >d >c >S <1 <E <Z:I >Q <Z:I"), [Failed, Committed]);
    }

    #[test]
    fn a_session_is_pinned_by_what_was_executed() {
        assert_eq!(pin(">Q:SET_x=1 <C:SET0 <Z:I"), Some(Pin::Setting));
        assert_eq!(pin(">Q:SET_x=1 <E <Z:I"), None);
        assert_eq!(pin(">Q:SET_LOCAL_x=1 <C:SET0 <Z:I"), None);
        assert_eq!(pin(">Q:SET_LOCAL_x=1 >Q:SET_x=1 <E <Z:I <C:SET0 <Z:I"), Some(Pin::Setting));
        assert_eq!(pin(">P:0SET_x=10 >B:00 >E >S <1 <2 <C:SET0 <Z:I"), Some(Pin::Setting));
        assert_eq!(pin(">Q:LISTEN_x <C:LISTEN0 <Z:I"), Some(Pin::Listen));
        assert_eq!(pin(">Q:PREPARE_x <C:PREPARE0 <Z:I"), Some(Pin::Statement));
        assert_eq!(pin(">Q:LOAD_x <C:LOAD0 <Z:I"), Some(Pin::Library));
        assert_eq!(pin(">Q:CREATE_TEMP_TABLE_t() <C:CREATE_TABLE0 <Z:I"), Some(Pin::TemporaryTable));
        assert_eq!(pin(">P:name0SELECT0 >S <1 <Z:I"), Some(Pin::Statement));
    }

    #[test]
    fn the_unnamed_statement_does_not_outlive_its_transaction() {
        // It was not used, so that the client will use it later.
        assert_eq!(pin(">P:0SELECT0 >D:S0 >S <1 <t <T <Z:I"), Some(Pin::Statement));
        assert!(converse(">P:0SELECT0 >D:S0 >S <1 <t <T <Z:I >B:00 >E >S").is_ok());
        assert_eq!(pin(">P:0SELECT0 >B:00 >E >S <1 <2 <C:SELECT_10 <Z:I"), None);
        for again in [">B:00", ">D:S0"] {
            let lines = format!(">P:0SELECT0 >B:00 >E >S <1 <2 <C:SELECT_10 <Z:I {again}");
            assert_eq!(converse(&lines).unwrap_err(), Violation::Unnamed);
        }
        // A simple query drops it.
        assert_eq!(converse(">P:0X0 >S >Q >B:00").unwrap_err(), Violation::Unnamed);
        // In one transaction it can be used again.
        assert!(converse(">Q:BEGIN <C:BEGIN0 <Z:T >P:0X0 >B:00 >S <1 <2 <Z:T >B:00 >E >S").is_ok());
    }

    #[test]
    fn what_cannot_be_relayed_is_a_violation() {
        assert_eq!(converse(">P:00 >Q").unwrap_err(), Violation::Unsynced);
        assert_eq!(converse(">Q >p").unwrap_err(), Violation::Unknown(b'p'));
        assert_eq!(converse("<Z:I").unwrap_err(), Violation::Unasked);
        assert_eq!(converse(">Q <Z:I <Z:I").unwrap_err(), Violation::Unasked);
    }
}
