//! The end of sessions that cuts off no transaction: each one ends as soon as it is in none. One that waits
//! already is still done; what a client has sent behind it is not. All sessions of a relay end in this way,
//! after which it ends itself, or those of one role.

use super::Relay;
use super::backend::Backend;
use super::client::{Client, ClientKey, Phase};
use crate::postgres::refusal::Refusal;

/// To a session that ends with the guard.
const FAREWELL: &str = "terminating connection because the guard ends";

/// To a session that ends alone, as the server says it.
const COMMANDED: &str = "terminating connection due to administrator command";

impl Relay {
    /// Begins to end, and returns a message for who runs the relay.
    pub(super) fn drain(&mut self) -> String {
        self.drained_by = Some(self.at + self.drain_time);
        self.accept();
        self.listener.close();
        self.clients.keys().collect::<Vec<_>>().into_iter().for_each(|key| self.end_soon(key));
        let time = self.drain_time;
        format!("no client is accepted any more; sessions end after their transactions, all within {time:?}")
    }

    /// Begins to end the sessions of a role, and returns how many there are.
    pub(super) fn end_sessions(&mut self, role: &[u8]) -> usize {
        let has_role = |client: &Client| {
            let pool = client.pool.and_then(|pool| self.pools.get(pool)).map(|pool| &pool.startup);
            // While a role is looked up, the pool is that of the lookups.
            let startup = client.startup.as_ref().or(pool);
            client.phase != Phase::Ending && startup.is_some_and(|startup| startup.role() == role)
        };
        let of_role = self.clients.iter().filter(|(_, client)| has_role(client));
        let keys: Vec<_> = of_role.map(|(key, _)| key).collect();
        for key in &keys {
            if self.clients.get(*key).is_some_and(|client| !client.is_leaving) {
                self.leavings.push_back((self.at + self.drain_time, *key));
                self.end_soon(*key);
            }
        }
        keys.len()
    }

    /// Ends a session of a role that has had its time.
    pub(super) fn cut_off(&mut self, key: ClientKey) {
        if self.clients.get(key).is_some_and(|client| client.phase != Phase::Ending) {
            self.dismiss(key);
        }
    }

    /// Ends a session as soon as it is in no transaction.
    fn end_soon(&mut self, key: ClientKey) {
        // With the end of another session, its own may have come.
        let Some(client) = self.clients.get_mut(key) else { return };
        client.is_leaving = true;
        match client.phase {
            // It would take an error for the answer to a request for encryption.
            Phase::Starting => self.remove_client(key),
            Phase::Waiting(_) | Phase::Entering | Phase::Proving | Phase::LoginQueued | Phase::Login => {
                self.dismiss(key);
            }
            Phase::Idle => self.resumed.push_back(key),
            Phase::Queued(_)
            | Phase::Admitted
            | Phase::Opening
            | Phase::Parked(_)
            | Phase::Active
            | Phase::Refused { .. }
            | Phase::Cancelling
            | Phase::Ending => {}
        }
    }

    /// Whether all sessions end as soon as they can.
    pub(super) fn is_draining(&self) -> bool {
        self.drained_by.is_some()
    }

    /// Whether no session is left, nor a transaction whose client has gone; or they have had their time.
    pub(super) fn is_drained(&self) -> bool {
        let is_empty = self.clients.is_empty() && self.gate.in_flight() + self.gate.aside() == 0;
        self.drained_by.is_some_and(|by| is_empty || self.at >= by)
    }

    /// Ends a session with a reason.
    pub(super) fn dismiss(&mut self, key: ClientKey) {
        self.counts.dismissed += 1;
        let text = if self.is_draining() { FAREWELL } else { COMMANDED };
        self.end_with(key, Refusal::SHUTDOWN, text);
    }

    /// Ends all sessions, and says so to those that can hear it.
    pub(super) fn end_all(&mut self) {
        let farewell = Refusal::SHUTDOWN.message(FAREWELL);
        for client in self.clients.values_mut() {
            match client.phase {
                Phase::Starting | Phase::Cancelling | Phase::Ending => continue,
                Phase::Active => self.counts.cut_off += 1,
                Phase::Queued(_) | Phase::Admitted | Phase::Opening | Phase::Parked(_) => {
                    self.counts.not_begun += 1;
                }
                Phase::Waiting(_)
                | Phase::Entering
                | Phase::Proving
                | Phase::LoginQueued
                | Phase::Login
                | Phase::Idle
                | Phase::Refused { .. } => {}
            }
            self.counts.dismissed += 1;
            let backend = client.backend.and_then(|backend| self.backends.get(backend));
            if !backend.is_some_and(Backend::is_inside_for_client) {
                // The kernel takes it, or it is lost with the rest.
                let _ = client.connection.send(&farewell);
                client.connection.end();
            }
        }
        self.backends.values_mut().for_each(Backend::terminate);
    }
}
