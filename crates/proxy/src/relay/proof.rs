//! How sessions begin where the guard has a list of users: each client proves to the guard that it has the
//! password of its role. The server is not asked, but for what it says to a session that begins: the first
//! connection that the guard opens shows that for all sessions that begin in the same way.

use std::time::Duration;

use super::backend::{BackendKey, Role};
use super::client::{ClientKey, Phase};
use super::login::LOGINS;
use super::opening::Opening;
use super::pool::{Greeting, Pool, PoolKey};
use super::{Relay, random};
use crate::postgres::authentication::{ACCEPTED, Examination, Progress};
use crate::postgres::refusal::{READY, Refusal};
use crate::postgres::scram::BadMessage;
use crate::postgres::startup::Startup;

/// A client that proves who it is.
#[derive(Debug)]
pub struct Proof {
    startup: Startup,
    examination: Examination,
}

/// Time for which sessions begin with what the server has said to an earlier one. To ask it again starts a
/// process there, as each session does without the guard.
const GREETING_TIME: Duration = Duration::from_secs(10);

impl Relay {
    /// A client has to prove that it has the password of its role.
    pub(super) fn begin_proof(&mut self, key: ClientKey, mut startup: Startup) {
        let Some(users) = &mut self.users else { return };
        let (examination, question) = Examination::new(users.check(startup.role(), &self.seed), random());
        let negotiated = startup.make_plain().unwrap_or_default();
        let client = &mut self.clients[key];
        client.phase = Phase::Proving;
        client.proof = Some(Box::new(Proof { startup, examination }));
        self.send_to_client(key, &[negotiated, question].concat());
    }

    /// What a client sends while it proves who it is.
    pub(super) fn take_proof(&mut self, key: ClientKey, input: &[u8]) -> Option<usize> {
        let client = &mut self.clients[key];
        let (body, taken) = match client.frames.kind(input) {
            None => return None,
            Some(b'p') => match client.frames.next(input) {
                Ok(None) => return None,
                Ok(Some((piece, taken))) => (piece.body(), taken),
                Err(error) => {
                    self.turn_away(key, Refusal::VIOLATION, &error.to_string());
                    return Some(input.len());
                }
            },
            // It has no password, and leaves.
            Some(b'X') => {
                self.remove_client(key);
                return Some(input.len());
            }
            Some(_) => {
                self.turn_away(key, Refusal::VIOLATION, "the client has not answered with its password");
                return Some(input.len());
            }
        };
        let Some(proof) = client.proof.take() else { return Some(taken) };
        let Proof { startup, examination } = *proof;
        match examination.take(body) {
            Ok(Progress::Asked(examination, question)) => {
                client.proof = Some(Box::new(Proof { startup, examination }));
                self.send_to_client(key, &question);
            }
            Ok(Progress::Proved(keys, last)) => {
                if let (Some(users), Some(keys)) = (&mut self.users, keys) {
                    users.learn(startup.role(), keys);
                }
                self.send_to_client(key, &last);
                self.has_proved(key, startup);
            }
            Err(error @ BadMessage::Malformed(_)) => {
                self.turn_away(key, Refusal::VIOLATION, &error.to_string());
            }
            Err(BadMessage::Wrong) => {
                // As the server says it.
                let role = String::from_utf8_lossy(startup.role());
                let text = format!("password authentication failed for user \"{role}\"");
                self.counts.not_proved += 1;
                self.send_to_client(key, &Refusal::NOT_PROVED.message(&text));
                self.end_client(key);
            }
        }
        Some(taken)
    }

    /// A client has proved who it is, and waits until the guard has a connection like its session.
    fn has_proved(&mut self, key: ClientKey, startup: Startup) {
        if !self.clients.contains_key(key) {
            return;
        }
        let pool = self.join_pool(startup);
        self.end_left_pools();
        let client = &mut self.clients[key];
        client.pool = Some(pool);
        client.phase = Phase::LoginQueued;
        self.pools[pool].logins.push_back(key);
        self.greet_all(pool);
        if self.pools.get(pool).is_some_and(Pool::waits_for_greeting) {
            self.look_after(pool);
        } else {
            self.refresh_greeting(pool);
        }
    }

    /// Lets all sessions of a pool begin that wait for that, if the guard has a greeting for them.
    pub(super) fn greet_all(&mut self, key: PoolKey) {
        while let Some(pool) = self.pools.get_mut(key)
            && let Some(greeting) = &pool.greeting
            && let Some(login) = pool.logins.pop_front()
        {
            // It may have given up.
            let Some(client) = self.clients.get_mut(login) else { continue };
            if client.phase != Phase::LoginQueued {
                continue;
            }
            client.greeted = greeting.since;
            let greeting = [&ACCEPTED, &*greeting.messages, &client.cancel_key.message(), &READY].concat();
            self.send_to_client(login, &greeting);
            self.has_logged_in(login);
        }
    }

    /// Asks the server again what it says to a session that begins, if that is some time ago: settings of the
    /// server or of the role may have changed.
    fn refresh_greeting(&mut self, key: PoolKey) {
        let Some(pool) = self.pools.get_mut(key) else { return };
        let Some(greeting) = &mut pool.greeting else { return };
        if self.at >= greeting.asked + GREETING_TIME && pool.opening == 0 && self.opening < LOGINS {
            greeting.asked = self.at;
            self.open_backend(key, Opening::refresh());
        }
    }

    /// The guard has logged in: sessions begin with what the server has said to it. Connections that began
    /// with other settings end when they are free.
    pub(super) fn set_greeting(&mut self, key: PoolKey, messages: Vec<u8>) {
        let Some(pool) = self.pools.get_mut(key).filter(|pool| pool.is_listed) else { return };
        match &mut pool.greeting {
            Some(greeting) if greeting.messages == messages => {
                greeting.asked = self.at;
                return;
            }
            // Several servers with one address do not end each other's connections all the time.
            Some(greeting) if self.at < greeting.since + GREETING_TIME => return,
            greeting => *greeting = Some(Greeting { messages, since: self.at, asked: self.at }),
        }
        for (idle, _) in pool.idle.clone() {
            self.terminate(idle);
        }
    }

    /// A transaction begins: its session gets the settings of its connection, if they have changed. A session
    /// with a connection of its own keeps its own.
    pub(super) fn repeat_greeting(&mut self, key: ClientKey) {
        let client = &mut self.clients[key];
        if let Some(greeting) = client.pool.and_then(|pool| self.pools[pool].greeting.as_ref())
            && client.greeted < greeting.since
            && client.session.pin().is_none()
        {
            client.greeted = greeting.since;
            let messages = greeting.messages.clone();
            self.send_to_client(key, &messages);
        }
    }

    /// The server has ended a connection. If a pool has no other one, the next session has to wait until the
    /// server accepts one again.
    pub(super) fn lose_greeting(&mut self, key: BackendKey) {
        let backend = &self.backends[key];
        if matches!(backend.role, Role::Serving(_) | Role::Idle | Role::Settling)
            && let Some(pool) = self.pools.get_mut(backend.pool)
            && pool.shared == u32::from(backend.is_shared)
        {
            pool.greeting = None;
        }
    }
}
