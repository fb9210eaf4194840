//! The end of a relay that cuts off no transaction: clients are not accepted any more, and each session ends as
//! soon as it is in no transaction. A transaction that has arrived is done, also if it has to wait first.

use super::Relay;
use super::backend::Backend;
use super::client::{ClientKey, Phase};
use crate::postgres::refusal::Refusal;

/// To a session that ends with the guard.
pub const FAREWELL: &str = "terminating connection because the guard ends";

impl Relay {
    /// Begins to end, and returns a message for who runs the relay.
    pub(super) fn drain(&mut self) -> String {
        self.drained_by = Some(self.at + self.drain_time);
        self.listener.close();
        for key in self.clients.keys().collect::<Vec<_>>() {
            match self.clients[key].phase {
                // It has sent nothing that could be answered.
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

    /// Whether no session is left, or they have had their time. What was sent to those that have ended is on
    /// its way.
    pub(super) fn is_drained(&self) -> bool {
        let mut clients = self.clients.values();
        self.drained_by.is_some_and(|by| self.at >= by)
            || clients.all(|client| client.phase == Phase::Ending && client.connection.is_flushed())
    }

    /// Ends a session with the guard.
    pub(super) fn dismiss(&mut self, key: ClientKey) {
        self.turn_away(key, Refusal::SHUTDOWN, FAREWELL);
    }

    /// Ends all sessions, and says so to those that can hear it.
    pub(super) fn end_all(&mut self) {
        let farewell = Refusal::SHUTDOWN.message(FAREWELL);
        for client in self.clients.values_mut() {
            self.counts.cut_off += u64::from(client.permit.is_some());
            self.counts.not_begun += u64::from(matches!(client.phase, Phase::Queued(_) | Phase::Parked(_)));
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
