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

/// A query and its correct result.
#[derive(Debug)]
pub struct Postgres {
    /// The start of a session, and the query.
    messages: [Vec<u8>; 2],
    rows: Vec<Vec<String>>,
}

/// The state of a session.
#[derive(Debug)]
pub struct Session {
    /// The messages that are not complete.
    rest: BytesMut,
    phase: Phase,
    /// Number of correct rows of the current result.
    rows: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The session is not open.
    Start,
    /// A query was sent.
    Query,
}

impl Postgres {
    /// Sends `query` as `user` in `database`; every row of the correct result has the text of its columns.
    ///
    /// None of the texts may contain a null character.
    pub fn new(user: &str, database: &str, query: &str, rows: Vec<Vec<String>>) -> Postgres {
        let parameters = [("user", user), ("database", database), ("application_name", "assay")];
        let message = |compose: &dyn Fn(&mut BytesMut) -> std::io::Result<()>| {
            let mut bytes = BytesMut::new();
            compose(&mut bytes).expect("a text without a null character");
            bytes.to_vec()
        };
        let start = message(&|bytes| frontend::startup_message(parameters, bytes));
        let query = message(&|bytes| frontend::query(query, bytes));
        Postgres { messages: [start, query], rows }
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
                | Message::AuthenticationSasl(_),
            ) => Err(Fault::new(
                Failure::Error,
                "the server requires a password; let it trust connections from 127.0.0.1",
            )),
            (
                Phase::Query,
                Message::RowDescription(_) | Message::CommandComplete(_) | Message::EmptyQueryResponse,
            ) => Ok(false),
            (Phase::Query, Message::DataRow(row)) => {
                self.compare(session.rows, row)?;
                session.rows += 1;
                Ok(false)
            }
            (Phase::Query, Message::ReadyForQuery(_)) if session.rows == self.rows.len() => {
                session.rows = 0;
                Ok(true)
            }
            (Phase::Query, Message::ReadyForQuery(_)) => {
                let problem = format!("number of rows is {} instead of {}", session.rows, self.rows.len());
                Err(Fault::new(Failure::WrongContent, problem))
            }
            _ => Err(malformed("an unexpected message")),
        }
    }

    /// Compares the row at `index` with the correct one.
    fn compare(&self, index: usize, row: &DataRowBody) -> Result<(), Fault> {
        let Some(expected) = self.rows.get(index) else {
            let problem = format!("more than {} rows", self.rows.len());
            return Err(Fault::new(Failure::WrongContent, problem));
        };
        let column = |range: Option<std::ops::Range<usize>>| Ok(range.map(|range| &row.buffer()[range]));
        let columns: Vec<Option<&[u8]>> =
            row.ranges().map(column).collect().map_err(|_| malformed("a row of a wrong length"))?;
        if columns.len() == expected.len()
            && columns.iter().zip(expected).all(|(found, expected)| *found == Some(expected.as_bytes()))
        {
            return Ok(());
        }
        let found: Vec<_> = columns
            .iter()
            .map(|column| column.map_or("NULL".into(), |text| String::from_utf8_lossy(text)))
            .collect();
        let problem =
            format!("row {} is ({}) instead of ({})", index + 1, found.join(", "), expected.join(", "));
        Err(Fault::new(Failure::WrongContent, problem))
    }
}

fn malformed(problem: &str) -> Fault {
    Fault::new(Failure::Malformed, format!("malformed answer: {problem}"))
}

/// Returns an error of the server as a fault: its severity and its message.
fn refusal(body: &ErrorResponseBody) -> Fault {
    let field = |kind: u8| {
        let found = body.fields().find(|field| Ok(field.type_() == kind));
        found.ok().flatten().map_or_else(|| b"?".to_vec(), |field| field.value_bytes().to_vec())
    };
    Fault::reported(&[field(b'S'), field(b'M')].join(&b": "[..]))
}

impl Protocol for Postgres {
    type Reader = Session;

    fn reader(&self) -> Session {
        Session { rest: BytesMut::new(), phase: Phase::Start, rows: 0 }
    }

    fn reset(&self, session: &mut Session) {
        *session = self.reader();
    }

    fn messages(&self) -> &[Vec<u8>] {
        &self.messages
    }

    fn feed(&self, session: &mut Session, bytes: &[u8]) -> Result<Step, Fault> {
        session.rest.extend_from_slice(bytes);
        loop {
            let header =
                Header::parse(&session.rest).map_err(|_| malformed("not the protocol of PostgreSQL"))?;
            if header.is_some_and(|header| header.len() > MESSAGE_BYTES_MAX) {
                return Err(malformed("a message of more than 1 MiB, or not the protocol of PostgreSQL"));
            }
            let message =
                Message::parse(&mut session.rest).map_err(|_| malformed("not the protocol of PostgreSQL"))?;
            let Some(message) = message else { return Ok(Step::Incomplete) };
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
