//! How sessions begin without a list of users: each client logs in at the server itself, through the guard.
//! So the server alone decides who may, and by which method; the guard keeps no password. The connection that
//! a session brings can be used by all that begin in the same way.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use super::Relay;
use super::backend::{BackendKey, Role};
use super::client::{ClientKey, Phase};
use super::pool::Kind;
use crate::postgres::authentication::{misses_binding, without_binding};
use crate::postgres::frame::Piece;
use crate::postgres::refusal::{self, Refusal};
use crate::postgres::startup::{self, BadStart, CancelKey, First};

/// Sessions that log in.
#[derive(Debug, Default)]
pub struct Logins {
    waiting: VecDeque<ClientKey>,
    at_work: u32,
}

/// Who has to go on with a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The client, if it logs in.
    Client,
    /// The server, which works on it.
    Server,
}

/// What a message of the server means for a login.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The server has asked for something.
    Asked,
    /// It has accepted the client.
    Accepted,
    /// It gives a key to cancel with.
    Key(CancelKey),
    /// The session is ready.
    Ready,
    /// It has no room for a further connection.
    Full,
    /// It refuses.
    Refused,
    /// It reports a setting (`ParameterStatus`).
    Setting,
    /// It goes on.
    Other,
}

/// Logins that the server works on when another one begins. Each one starts a process.
pub const LOGINS: u32 = 16;

/// Time for a client to log in: as long as the server gives it by default (`authentication_timeout`).
pub const STARTUP_TIME: Duration = Duration::from_secs(60);

/// To a client that the server would refuse.
const BOUND_TO_NONE: &str = "the guard encrypts both sides, and a login cannot be bound to both; connect with \
    channel_binding=disable, or start the guard with a list of users, or with the certificate of the server";

impl Step {
    /// Returns what a piece means.
    pub fn of(piece: Piece) -> Self {
        match piece {
            Piece::First { kind: b'R', body: [0, 0, 0, 0], .. } => Self::Accepted,
            // AuthenticationSASLFinal, to which there is no answer.
            Piece::First { kind: b'R', body: [0, 0, 0, 12, ..], .. } => Self::Other,
            Piece::First { kind: b'R', .. } => Self::Asked,
            // Without a key of this length, which protocol 3.0 has, the server ignores requests to cancel.
            Piece::First { kind: b'K', body, .. } => {
                Self::Key(CancelKey(body.try_into().unwrap_or_default()))
            }
            Piece::First { kind: b'Z', .. } => Self::Ready,
            Piece::First { kind: b'S', .. } => Self::Setting,
            Piece::First { kind: b'E', body, .. }
                if refusal::code(body) == Some(Refusal::FULL.code.as_bytes()) =>
            {
                Self::Full
            }
            Piece::First { kind: b'E', .. } => Self::Refused,
            _ => Self::Other,
        }
    }
}

impl Relay {
    /// The first packet of a client.
    pub(super) fn take_first(&mut self, key: ClientKey, input: &[u8]) -> Option<usize> {
        match startup::parse(input) {
            Ok(None) => return None,
            Ok(Some((First::Encryption(kind), length))) => {
                self.asks_for_encryption(key, kind, &input[length..]);
                return Some(length);
            }
            Ok(Some((First::Cancel(cancel_key), _))) => self.cancel(key, cancel_key),
            Ok(Some((First::Session(_), _))) if self.must_encrypt(key) => {
                let text = "the guard requires TLS; connect with sslmode=require";
                self.turn_away(key, Refusal::UNENCRYPTED, text);
            }
            Ok(Some((First::Session(startup), length))) => {
                self.ask_to_enter(key, startup);
                return Some(length);
            }
            Err(error @ BadStart::Replication) => {
                self.turn_away(key, Refusal::UNSUPPORTED, &error.to_string())
            }
            Err(error @ BadStart::Malformed) => self.turn_away(key, Refusal::VIOLATION, &error.to_string()),
        }
        Some(input.len())
    }

    /// A client waits until fewer others log in at the server.
    pub(super) fn queue_login(&mut self, key: ClientKey) {
        let Some(startup) = self.clients[key].startup.take() else { return };
        let pool = self.join_pool(startup);
        let client = &mut self.clients[key];
        client.pool = Some(pool);
        client.phase = Phase::LoginQueued;
        self.logins.waiting.push_back(key);
    }

    /// Lets those log in that may.
    pub(super) fn begin_logins(&mut self) {
        while self.logins.at_work < LOGINS
            && let Some(key) = self.logins.waiting.pop_front()
        {
            // It may have given up.
            let Some(client) = self.clients.get(key) else { continue };
            if client.phase != Phase::LoginQueued {
                continue;
            }
            match client.pool.and_then(|pool| self.pools.get_mut(pool)) {
                Some(pool) if pool.is_full(self.at) || !pool.logins.is_empty() => pool.logins.push_back(key),
                _ => self.begin_login(key),
            }
        }
    }

    /// A client begins to log in.
    pub(super) fn begin_login(&mut self, key: ClientKey) {
        let client = &mut self.clients[key];
        client.phase = Phase::Login;
        let Some(pool) = client.pool else { return };
        let first = First::Session(self.pools[pool].startup.clone());
        self.set_turn(key, Turn::Server);
        match self.connect(Role::Login(key), pool, first) {
            Ok(backend) => self.clients[key].backend = Some(backend),
            Err(error) => self.no_connection(key, &error.to_string()),
        }
    }

    /// It is the turn of the server, which works on a login, or of the client.
    pub(super) fn set_turn(&mut self, key: ClientKey, turn: Turn) {
        let Some(client) = self.clients.get_mut(key) else { return };
        let Some(pool) = client.pool.and_then(|pool| self.pools.get_mut(pool)) else { return };
        match (std::mem::replace(&mut client.turn, turn), turn) {
            (Turn::Client, Turn::Server) => {
                self.logins.at_work += 1;
                pool.logging_in += 1;
            }
            (Turn::Server, Turn::Client) => {
                self.logins.at_work -= 1;
                pool.logging_in -= 1;
            }
            (Turn::Client, Turn::Client) | (Turn::Server, Turn::Server) => {}
        }
    }

    /// What a client sends while it logs in: answers to the server.
    pub(super) fn take_login(&mut self, key: ClientKey, input: &[u8]) -> Option<usize> {
        let client = &mut self.clients[key];
        let backend = client.backend?;
        // One answer to each question of the server: it would take a further one for part of the session. An
        // early query has to wait.
        if client.turn == Turn::Server || client.frames.kind(input) != Some(b'p') {
            return None;
        }
        match client.frames.next(input) {
            Ok(None) => None,
            Ok(Some((piece, taken))) => {
                if self.backends[backend].hides_binding && misses_binding(piece.body()) {
                    self.turn_away(key, Refusal::UNSUPPORTED, BOUND_TO_NONE);
                    return Some(input.len());
                }
                self.set_turn(key, Turn::Server);
                self.send_to_backend(backend, &input[..taken]);
                Some(taken)
            }
            Err(error) => {
                self.turn_away(key, Refusal::VIOLATION, &error.to_string());
                Some(input.len())
            }
        }
    }

    /// What the server sends while a client logs in. Returns the number of bytes that are done with.
    pub(super) fn login_reply(&mut self, key: BackendKey, client: ClientKey, input: &[u8]) -> usize {
        let (mut used, mut reply, mut is_ready) = (0, Vec::new(), false);
        while !is_ready {
            let backend = &mut self.backends[key];
            let (piece, taken) = match backend.frames.next(&input[used..]) {
                Ok(None) => break,
                Ok(Some(next)) => next,
                Err(error) => {
                    self.server_fails(key, &error.to_string());
                    return input.len();
                }
            };
            let mut message = Cow::Borrowed(&input[used..used + taken]);
            let step = Step::of(piece);
            match step {
                Step::Asked => {
                    if backend.is_other_end_than(&self.clients[client])
                        && let Some(question) = without_binding(piece.body())
                    {
                        backend.hides_binding = true;
                        message = question.into();
                    }
                    backend.asked = true;
                    self.set_turn(client, Turn::Client);
                    // It may have answered already.
                    self.resumed.push_back(client);
                }
                Step::Accepted => {
                    if let Some(pool) = self.pools.get_mut(backend.pool) {
                        pool.is_open |= !backend.asked;
                    }
                }
                Step::Key(cancel_key) => {
                    backend.cancel_key = cancel_key;
                    message = self.clients[client].cancel_key.message().to_vec().into();
                }
                Step::Ready => is_ready = true,
                // The client has got nothing of this login.
                Step::Full if !backend.asked && !backend.has_answered => {
                    self.no_room_for_login(key, client);
                    return input.len();
                }
                Step::Full | Step::Refused | Step::Setting | Step::Other => {}
            }
            reply.extend_from_slice(&message);
            used += taken;
        }
        self.send_to_client(client, &reply);
        if is_ready && self.clients.contains_key(client) {
            self.logged_in(key, client);
        }
        used
    }

    fn logged_in(&mut self, key: BackendKey, client: ClientKey) {
        self.set_turn(client, Turn::Client);
        let session = &mut self.clients[client];
        session.backend = None;
        let pool = session.pool;
        self.has_logged_in(client);
        self.share(key);
        self.offer(key);
        pool.into_iter().for_each(|pool| self.opened(pool));
    }

    /// A session begins.
    pub(super) fn has_logged_in(&mut self, key: ClientKey) {
        let Some(client) = self.clients.get_mut(key) else { return };
        client.phase = Phase::Idle;
        self.counts.sessions += 1;
        self.counts.encrypted += u64::from(client.connection.is_encrypted());
        self.client_of.insert(client.cancel_key, key);
        self.resumed.push_back(key);
    }

    /// The server has no room for a client that logs in, which waits.
    fn no_room_for_login(&mut self, key: BackendKey, client: ClientKey) {
        self.backends.remove(key);
        self.set_turn(client, Turn::Client);
        let session = &mut self.clients[client];
        session.backend = None;
        session.phase = Phase::LoginQueued;
        let Some(pool) = session.pool else { return };
        self.pools[pool].logins.push_front(client);
        self.no_room(pool);
    }

    /// From now on, a client has time to log in.
    pub(super) fn expect_login(&mut self, key: ClientKey) {
        let due = self.at + STARTUP_TIME;
        self.clients[key].login_due = due;
        self.startups.push_back((due, key));
    }

    /// The time to log in is over, unless it began anew.
    pub(super) fn startup_is_due(&mut self, key: ClientKey) {
        let Some(client) = self.clients.get(key).filter(|client| client.login_due <= self.at) else { return };
        let pool = client.pool.and_then(|pool| self.pools.get(pool));
        let is_full = pool.is_some_and(|pool| pool.full_until.is_some());
        match (client.phase, pool.map(|pool| pool.kind)) {
            (Phase::Starting, _) => self.remove_client(key),
            (Phase::LoginQueued, Some(Kind::Lookups)) => {
                self.not_looked_up(key, if is_full { "it has no room" } else { "it took too long" });
            }
            (Phase::LoginQueued, _) if is_full => {
                let text = "the server has had no room for this session for too long; connect again later";
                self.turn_away(key, Refusal::NO_ROOM, text);
            }
            (Phase::Proving | Phase::LoginQueued | Phase::Login, _) => {
                self.turn_away(key, Refusal::NO_SERVER, "the login took too long; connect again later");
            }
            _ => {}
        }
    }
}
