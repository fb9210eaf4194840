//! One query of PostgreSQL (its protocol, version 3, "simple query"), for the closed loop. The server must
//! accept the connection without a password.

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{DataRowBody, ErrorResponseBody, Header, Message};
use postgres_protocol::message::frontend;

use super::load::Failure;
use super::protocol::{Fault, Protocol, Step, Then};

/// Longest message that is accepted: far above any row that a workload file contains.
const MESSAGE_BYTES_MAX: i32 = 1 << 20;

/// Longest part of a wrong row or of an error of the server that is shown.
const EXCERPT_CHARS: usize = 200;

/// The correct result of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedResult {
    /// All rows, each with the text of its columns.
    pub rows: Vec<Vec<String>>,
    /// The tag of the command, for example `UPDATE 1`, if it is checked.
    pub tag: Option<String>,
}

/// A query and its correct result.
#[derive(Debug)]
pub struct Postgres {
    /// The start of a session, and the query.
    messages: [Vec<u8>; 2],
    expected: ExpectedResult,
}

/// The state of a session.
#[derive(Debug)]
pub struct Session {
    /// The messages that are not complete.
    rest: BytesMut,
    phase: Phase,
    /// Number of correct rows of the current result.
    rows: usize,
    /// Whether a command of the query has been completed.
    is_completed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The session is not open.
    Start,
    /// A query was sent.
    Query,
}

impl Postgres {
    /// Sends `query` as `user` in `database`. None of these texts may contain a null character.
    pub fn new(user: &str, database: &str, query: &str, expected: ExpectedResult) -> Postgres {
        let parameters = [("user", user), ("database", database), ("application_name", "assay")];
        let message = |compose: &dyn Fn(&mut BytesMut) -> std::io::Result<()>| {
            let mut bytes = BytesMut::new();
            compose(&mut bytes).expect("a text without a null character");
            bytes.to_vec()
        };
        let start = message(&|bytes| frontend::startup_message(parameters, bytes));
        let query = message(&|bytes| frontend::query(query, bytes));
        Postgres { messages: [start, query], expected }
    }

    /// Evaluates one message of the server; returns whether it ends the answer.
    fn ends(&self, session: &mut Session, message: &Message) -> Result<bool, Fault> {
        match (session.phase, message) {
            (_, Message::ErrorResponse(body)) => Err(refusal(body)),
            (_, Message::ParameterStatus(_) | Message::NoticeResponse(_)) => Ok(false),
            (Phase::Start, Message::AuthenticationOk | Message::BackendKeyData(_)) => Ok(false),
            (Phase::Start, Message::ReadyForQuery(_)) => {
                session.phase = Phase::Query;
                Ok(true)
            }
            (
                Phase::Start,
                Message::AuthenticationCleartextPassword
                | Message::AuthenticationMd5Password(_)
                | Message::AuthenticationSasl(_)
                | Message::AuthenticationGss
                | Message::AuthenticationSspi
                | Message::AuthenticationKerberosV5
                | Message::AuthenticationScmCredential,
            ) => Err(Fault::reported(
                b"the server requires a password; let it trust connections from 127.0.0.1",
            )),
            (Phase::Query, Message::RowDescription(_)) => Ok(false),
            (Phase::Query, Message::EmptyQueryResponse) => Err(wrong("the query is empty".to_owned())),
            (Phase::Query, Message::DataRow(row)) => {
                self.compare(session.rows, row)?;
                session.rows += 1;
                Ok(false)
            }
            (Phase::Query, Message::CommandComplete(body)) => {
                let tag = body.tag().map_err(|_| malformed("a tag that is not UTF-8"))?;
                self.compare_tag(tag)?;
                session.is_completed = true;
                Ok(false)
            }
            (Phase::Query, Message::ReadyForQuery(_)) if session.is_completed => self.end_of_result(session),
            _ => Err(malformed("an unexpected message")),
        }
    }

    fn end_of_result(&self, session: &mut Session) -> Result<bool, Fault> {
        let expected = self.expected.rows.len();
        if session.rows != expected {
            return Err(wrong(format!("number of rows is {} instead of {expected}", session.rows)));
        }
        (session.rows, session.is_completed) = (0, false);
        Ok(true)
    }

    fn compare_tag(&self, found: &str) -> Result<(), Fault> {
        match &self.expected.tag {
            Some(expected) if found != expected => {
                Err(wrong(format!("tag is {} instead of {expected}", excerpt(found.as_bytes()))))
            }
            _ => Ok(()),
        }
    }

    /// Compares the row at `index` with the correct one.
    fn compare(&self, index: usize, row: &DataRowBody) -> Result<(), Fault> {
        let Some(expected) = self.expected.rows.get(index) else {
            return Err(wrong(format!("more than {} rows", self.expected.rows.len())));
        };
        let column = |range: Option<std::ops::Range<usize>>| Ok(range.map(|range| &row.buffer()[range]));
        let columns: Vec<Option<&[u8]>> =
            row.ranges().map(column).collect().map_err(|_| malformed("a row of a wrong length"))?;
        if columns.len() == expected.len()
            && columns.iter().zip(expected).all(|(found, expected)| *found == Some(expected.as_bytes()))
        {
            return Ok(());
        }
        let found: Vec<_> = columns.iter().map(|column| column.unwrap_or(b"NULL")).collect();
        let (number, found) = (index + 1, excerpt(&found.join(&b", "[..])));
        Err(wrong(format!("row {number} is ({found}) instead of ({})", expected.join(", "))))
    }
}

fn wrong(problem: String) -> Fault {
    Fault::new(Failure::WrongContent, problem)
}

fn malformed(problem: &str) -> Fault {
    Fault::new(Failure::Malformed, format!("malformed answer: {problem}"))
}

/// Returns the start of a text of the server.
fn excerpt(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().take(EXCERPT_CHARS).collect()
}

/// Returns an error of the server as a fault: its severity and its message.
fn refusal(body: &ErrorResponseBody) -> Fault {
    let field = |kind: u8| {
        let found = body.fields().find(|field| Ok(field.type_() == kind));
        found.ok().flatten().map_or_else(|| b"?".to_vec(), |field| field.value_bytes().to_vec())
    };
    Fault::reported(excerpt(&[field(b'S'), field(b'M')].join(&b": "[..])).as_bytes())
}

impl Protocol for Postgres {
    type Reader = Session;

    fn reader(&self) -> Session {
        Session { rest: BytesMut::new(), phase: Phase::Start, rows: 0, is_completed: false }
    }

    fn messages(&self) -> &[Vec<u8>] {
        &self.messages
    }

    fn feed(&self, session: &mut Session, bytes: &[u8]) -> Result<Step, Fault> {
        session.rest.extend_from_slice(bytes);
        let foreign = |_| malformed("not the protocol of PostgreSQL");
        loop {
            if Header::parse(&session.rest).map_err(foreign)?.is_some_and(|it| it.len() > MESSAGE_BYTES_MAX) {
                return Err(malformed("a message of more than 1 MiB, or not the protocol of PostgreSQL"));
            }
            let Some(message) = Message::parse(&mut session.rest).map_err(foreign)? else {
                return Ok(Step::Incomplete);
            };
            if self.ends(session, &message)? {
                let used = bytes.len() - session.rest.len();
                session.rest.clear();
                return Ok(Step::Complete { used, then: Then::KeepOpen });
            }
        }
    }
}

#[cfg(test)]
mod tests;
