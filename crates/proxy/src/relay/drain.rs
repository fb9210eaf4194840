//! The end of a relay that cuts off no transaction: clients are not accepted any more, and each session ends
//! as soon as it is in no transaction. One that waits already is still done; what a client has sent behind it
//! is not.

use super::Relay;
use super::backend::Backend;
use super::client::{ClientKey, Phase};
use crate::postgres::refusal::Refusal;

/// To a session that ends with the guard.
const FAREWELL: &str = "terminating connection because the guard ends";

impl Relay {
    /// Begins to end, and returns a message for who runs the relay.
    pub(super) fn drain(&mut self) -> String {
        self.drained_by = Some(self.at + self.drain_time);
        self.accept();
        self.listener.close();
        for key in self.clients.keys().collect::<Vec<_>>() {
            match self.clients[key].phase {
                // It would take an error for the answer to a request for encryption.
                Phase::Starting => self.remove_client(key),
                Phase::Proving | Phase::LoginQueued | Phase::Login => self.dismiss(key),
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
        let time = self.drain_time;
        format!("no client is accepted any more; sessions end after their transactions, all within {time:?}")
    }

    /// Whether sessions end as soon as they can.
    pub(super) fn is_draining(&self) -> bool {
        self.drained_by.is_some()
    }

    /// Whether no session is left, nor a transaction whose client has gone; or they have had their time.
    pub(super) fn is_drained(&self) -> bool {
        let is_empty = self.clients.is_empty() && self.gate.in_flight() == 0;
        self.drained_by.is_some_and(|by| is_empty || self.at >= by)
    }

    /// Ends a session with the guard.
    pub(super) fn dismiss(&mut self, key: ClientKey) {
        self.turn_away(key, Refusal::SHUTDOWN, FAREWELL);
    }

    /// Ends all sessions, and says so to those that can hear it.
    pub(super) fn end_all(&mut self) {
        let farewell = Refusal::SHUTDOWN.message(FAREWELL);
        for client in self.clients.values_mut() {
            match client.phase {
                Phase::Active => self.counts.cut_off += 1,
                Phase::Queued(_) | Phase::Admitted | Phase::Opening | Phase::Parked(_) => {
                    self.counts.not_begun += 1;
                }
                _ => {}
            }
            let backend = client.backend.and_then(|backend| self.backends.get(backend));
            let is_inside = backend.is_some_and(Backend::is_inside_for_client);
            if !is_inside && !matches!(client.phase, Phase::Starting | Phase::Ending) {
                // The kernel takes it, or it is lost with the rest.
                let _ = client.connection.send(&farewell);
                client.connection.end();
            }
        }
        self.backends.values_mut().for_each(Backend::terminate);
    }
}
