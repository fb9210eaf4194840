//! One client: its session, and the transaction in which it is.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use assay_proxy::postgres::frame::{Frames, Piece, Side, message};
use assay_proxy::postgres::refusal::{TERMINATE, code, text};
use assay_proxy::postgres::startup::Startup;

use crate::transaction::Statement;

/// A client.
pub struct Client {
    socket: TcpStream,
    answers: Answers,
    /// Whether it has logged in.
    is_ready: bool,
    /// Transactions of its session that have ended.
    ended: u32,
    /// Statements of the transaction that were not sent yet.
    statements: VecDeque<Statement>,
    /// Tag that the answer must have if the statement has not failed.
    tag: &'static str,
    /// Whether the transaction changes something.
    is_change: bool,
    /// SQLSTATE of the error in which the transaction has failed.
    error: Option<String>,
    began: Instant,
}

/// What the server sends.
struct Answers {
    frames: Frames,
    /// Bytes that are not a whole message yet.
    input: Vec<u8>,
    /// What the present answer has so far.
    answer: Answer,
}

/// How a transaction has ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Committed,
    /// With this SQLSTATE.
    Failed(String),
}

/// What the server has answered to a statement.
#[derive(Default)]
struct Answer {
    /// The error, if it failed: SQLSTATE and text.
    error: Option<(String, String)>,
    /// Tag of the command, such as `UPDATE 1`.
    tag: String,
    /// Whether a transaction is open.
    is_inside: bool,
}

impl Client {
    /// Begins a session.
    pub fn connect(to: SocketAddr, database: &str, patience: Duration) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&to, patience)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(patience))?;
        socket.set_nonblocking(true)?;
        let startup = Startup::new(&[(b"user", b"postgres"), (b"database", database.as_bytes())]);
        let answers =
            Answers { frames: Frames::new(Side::Server), input: Vec::new(), answer: Answer::default() };
        let mut client = Self {
            socket,
            answers,
            is_ready: false,
            ended: 0,
            statements: VecDeque::new(),
            tag: "",
            is_change: false,
            error: None,
            began: assay_process::clock::now(),
        };
        client.socket.write_all(startup.packet())?;
        Ok(client)
    }

    /// Waits until it has logged in.
    pub fn log_in(&mut self) -> io::Result<()> {
        self.socket.set_nonblocking(false)?;
        while !self.is_ready {
            self.is_ready = match self.answers.read(&self.socket) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(io::Error::other("the server does not answer"));
                }
                answer => answer?.is_some(),
            };
        }
        self.socket.set_nonblocking(true)
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Returns when the transaction began, or arrived.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Whether the transaction changes something, or the last one if it has ended.
    pub fn is_change(&self) -> bool {
        self.is_change
    }

    /// Returns the number of transactions of the session that have ended.
    pub fn ended(&self) -> u32 {
        self.ended
    }

    /// Begins a transaction, as soon as the client has logged in.
    pub fn begin(&mut self, statements: VecDeque<Statement>, at: Instant) -> io::Result<()> {
        self.is_change = statements.iter().any(Statement::is_change);
        self.statements = statements;
        self.began = at;
        if self.is_ready { self.send_next() } else { Ok(()) }
    }

    fn send_next(&mut self) -> io::Result<()> {
        self.statements.pop_front().map_or(Ok(()), |statement| self.send(&statement))
    }

    fn send(&mut self, statement: &Statement) -> io::Result<()> {
        self.tag = statement.tag;
        // The socket has room: all before was answered.
        self.socket.write_all(&message(b'Q', &[statement.text.as_bytes(), b"\0"].concat()))
    }

    /// Reads what has come, and sends the next statement; returns the outcome if the transaction has ended.
    /// One that fails is rolled back.
    pub fn go_on(&mut self) -> io::Result<Option<Outcome>> {
        let answer = match self.answers.read(&self.socket) {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        if !self.is_ready {
            self.is_ready = true;
            return self.send_next().map(|()| None);
        }
        let outcome = self.take(answer)?;
        self.ended += u32::from(outcome.is_some());
        Ok(outcome)
    }

    /// Takes the answer to a statement.
    fn take(&mut self, answer: Answer) -> io::Result<Option<Outcome>> {
        if let Some((code, text)) = answer.error {
            if self.error.is_some() {
                return Err(io::Error::other(format!("a transaction cannot be rolled back: {text}")));
            }
            self.statements.clear();
            if answer.is_inside {
                self.error = Some(code);
                return self.send(&Statement::new("ROLLBACK", "ROLLBACK")).map(|()| None);
            }
            return Ok(Some(Outcome::Failed(code)));
        }
        // A proxy could have lost a statement, or sent it to a connection with another transaction.
        if answer.tag != self.tag {
            return Err(io::Error::other(format!(
                "the answer is `{}` instead of `{}`",
                answer.tag, self.tag
            )));
        }
        if answer.is_inside == self.statements.is_empty() {
            let place = if answer.is_inside { "after its end" } else { "before its end" };
            return Err(io::Error::other(format!("the state of a transaction is wrong {place}")));
        }
        if answer.is_inside {
            return self.send_next().map(|()| None);
        }
        Ok(Some(self.error.take().map_or(Outcome::Committed, Outcome::Failed)))
    }

    /// Ends the session.
    pub fn log_out(mut self) -> io::Result<()> {
        self.socket.write_all(&TERMINATE)
    }
}

impl Answers {
    /// Reads once; returns the answer if it is complete.
    fn read(&mut self, mut socket: &TcpStream) -> io::Result<Option<Answer>> {
        let mut buffer = [0; 4 << 10];
        let read = socket.read(&mut buffer)?;
        if read == 0 {
            let reason = self.answer.error.take().map_or(String::new(), |(_, text)| format!(": {text}"));
            return Err(io::Error::other(format!("the server has closed a connection{reason}")));
        }
        self.input.extend_from_slice(&buffer[..read]);
        let mut taken = 0;
        let mut is_complete = false;
        while let Some((piece, length)) = self
            .frames
            .next(&self.input[taken..])
            .map_err(|malformed| io::Error::other(malformed.to_string()))?
        {
            taken += length;
            match piece {
                Piece::First { kind: b'C' | b'E', .. } if is_complete || !self.answer.tag.is_empty() => {
                    return Err(io::Error::other("the server has answered twice"));
                }
                Piece::First { kind: b'E', body, .. } => {
                    let code = String::from_utf8_lossy(code(body).unwrap_or_default()).into_owned();
                    self.answer.error = Some((code, text(body)));
                }
                Piece::First { kind: b'C', body, .. } => {
                    self.answer.tag =
                        String::from_utf8_lossy(body.strip_suffix(b"\0").unwrap_or(body)).into_owned();
                }
                Piece::First { kind: b'R', body, .. } if body != [0; 4] => {
                    return Err(io::Error::other(
                        "the server asks for a password; it must trust this address",
                    ));
                }
                Piece::First { kind: b'Z', body, .. } => {
                    self.answer.is_inside = body != b"I";
                    is_complete = true;
                }
                Piece::First { .. } | Piece::Rest(_) => (),
            }
        }
        self.input.drain(..taken);
        Ok(is_complete.then(|| mem::take(&mut self.answer)))
    }
}
