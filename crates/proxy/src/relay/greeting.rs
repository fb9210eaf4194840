//! What the server says to a session that begins: its settings. Where the guard has a list of users, it keeps
//! what the server has said when the guard logged in, for all sessions that begin in the same way.

use std::time::Duration;

use super::Relay;
use super::backend::{BackendKey, Role};
use super::client::{ClientKey, Phase};
use super::login::LOGINS;
use super::opening::Opening;
use super::pool::{Kind, Pool, PoolKey};
use crate::postgres::authentication::ACCEPTED;
use crate::postgres::refusal::READY;

/// What the server says to a session that begins.
#[derive(Debug)]
pub struct Greeting {
    /// The messages `ParameterStatus`.
    pub messages: Vec<u8>,
    /// The connections that were opened from then on begin so.
    pub since: Duration,
    /// When the server was asked last.
    pub asked: Duration,
}

/// Time for which sessions begin with what the server has said to an earlier one. To ask it again starts a
/// process there, as each session does without the guard.
const GREETING_TIME: Duration = Duration::from_secs(10);

impl Pool {
    /// Whether a connection that was opened then began with other settings than sessions do by now.
    pub fn has_other_settings(&self, opened: Duration) -> bool {
        self.greeting.as_ref().is_some_and(|greeting| opened < greeting.since)
    }
}

impl Relay {
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
    pub(super) fn refresh_greeting(&mut self, key: PoolKey) {
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
        let Some(pool) = self.pools.get_mut(key).filter(|pool| pool.kind == Kind::AtGuard) else { return };
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
