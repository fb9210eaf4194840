//! Connections of the server that the guard opens: it logs in as the role of the pool.

use super::Relay;
use super::backend::{BackendKey, Role};
use super::login::{STARTUP_TIME, Step};
use super::pool::{Kind, Pool, PoolKey};
use super::random;
use crate::postgres::authentication::{Login, NoAnswer};
use crate::postgres::channel::Channel;
use crate::postgres::frame::Piece;
use crate::postgres::startup::First;

/// A login of the guard.
#[derive(Debug, Default)]
pub struct Opening {
    login: Login,
    /// The messages `ParameterStatus`.
    greeting: Vec<u8>,
    /// Whether these are all that it is for.
    is_refresh: bool,
}

impl Opening {
    /// A login that only asks what the server says to a session that begins.
    pub fn refresh() -> Self {
        Self { is_refresh: true, ..Self::default() }
    }
}

impl Relay {
    /// Opens a connection, and returns whether the server may answer.
    pub(super) fn open_backend(&mut self, key: PoolKey, opening: Opening) -> bool {
        let first = First::Session(self.pools[key].startup.clone());
        match self.connect(Role::Opening, key, first) {
            Ok(backend) => {
                self.backends[backend].opening = Some(Box::new(opening));
                self.pools[key].opening += 1;
                self.opening += 1;
                self.openings.push_back((self.at + STARTUP_TIME, backend));
                true
            }
            Err(error) => {
                self.not_opened(key, &self.no_connection_message(&error.to_string()));
                false
            }
        }
    }

    /// What the server sends while the guard logs in.
    pub(super) fn opening_reply(&mut self, key: BackendKey, input: &[u8]) -> usize {
        let mut used = 0;
        loop {
            let backend = &mut self.backends[key];
            let (piece, taken) = match backend.frames.next(&input[used..]) {
                Ok(None) => return used,
                Ok(Some(next)) => next,
                Err(error) => {
                    self.server_fails(key, &error.to_string());
                    return input.len();
                }
            };
            let message = &input[used..used + taken];
            used += taken;
            match Step::of(piece) {
                Step::Key(cancel_key) => backend.cancel_key = cancel_key,
                Step::Ready
                    if !backend.opening.as_ref().is_some_and(|opening| opening.login.is_accepted()) =>
                {
                    self.server_fails(key, "it begins a session without a login");
                    return input.len();
                }
                Step::Ready => {
                    self.has_opened(key);
                    return used;
                }
                Step::Full => {
                    let pool = self.drop_opening(key);
                    self.no_room(pool);
                    return input.len();
                }
                Step::Refused if !backend.frames.is_inside() => {
                    let pool = self.drop_opening(key);
                    // In the server's words.
                    self.not_opened(pool, message);
                    return input.len();
                }
                Step::Refused => {
                    self.server_fails(key, "it refuses a login");
                    return input.len();
                }
                Step::Setting => {
                    if let Some(opening) = &mut backend.opening {
                        opening.greeting.extend_from_slice(message);
                    }
                }
                Step::Asked | Step::Accepted | Step::Other => {
                    if let Piece::First { kind: b'R', body, .. } = piece
                        && let Err(error) = self.answer(key, body)
                    {
                        self.server_fails(key, &error.to_string());
                        return input.len();
                    }
                }
            }
        }
    }

    /// Answers a message `Authentication…`, if it needs an answer.
    fn answer(&mut self, key: BackendKey, body: &[u8]) -> Result<(), NoAnswer> {
        let channel = self.channel(key);
        let backend = &mut self.backends[key];
        let Some(opening) = &mut backend.opening else { return Ok(()) };
        let pool = self.pools.get_mut(backend.pool);
        let role = pool.as_ref().map_or(&[][..], |pool| pool.startup.role());
        let secret = self.users.as_mut().and_then(|users| users.secret(role));
        match opening.login.answer(body, role, secret, channel, random()) {
            Ok(None) => {}
            Ok(Some(answer)) => self.send_to_backend(key, &answer),
            Err(error) => {
                // The server has trusted the role before, and does so no more. A list may get it again.
                let has_none = error == NoAnswer::NoSecret;
                pool.into_iter().for_each(|pool| pool.is_open &= pool.kind != Kind::AtServer || !has_none);
                return Err(error);
            }
        }
        Ok(())
    }

    /// What a login runs over.
    fn channel(&self, key: BackendKey) -> Channel {
        match self.backends[key].connection.channel() {
            Channel::Open if self.server.is_local() => Channel::Local,
            channel => channel,
        }
    }

    /// The guard has logged in.
    fn has_opened(&mut self, key: BackendKey) {
        let pool = self.end_opening(key);
        self.counts.opened += 1;
        let Opening { greeting, is_refresh, .. } =
            self.backends[key].opening.take().map(|new| *new).unwrap_or_default();
        self.set_greeting(pool, greeting);
        let has_spare = |pool: &Pool| !pool.is_waiting() && !pool.idle.is_empty();
        if is_refresh && self.pools.get(pool).is_some_and(has_spare) {
            self.terminate(key);
        } else {
            self.share(key);
            self.greet_all(pool);
            self.give_back(key);
        }
        self.opened(pool);
    }

    /// The guard has logged in, or cannot. Returns the pool of the connection.
    fn end_opening(&mut self, key: BackendKey) -> PoolKey {
        let backend = &mut self.backends[key];
        backend.role = Role::Idle;
        self.opening -= 1;
        if let Some(pool) = self.pools.get_mut(backend.pool) {
            pool.opening -= 1;
        }
        backend.pool
    }

    /// The guard cannot log in. Returns the pool that lacks the connection.
    pub(super) fn drop_opening(&mut self, key: BackendKey) -> PoolKey {
        let pool = self.end_opening(key);
        self.backends.remove(key);
        pool
    }
}
