//! Requests to cancel: a client asks with the key that the guard gave it, the guard asks the server with the
//! key of the connection that the client uses now.

use slotmap::Key;

use super::Relay;
use super::backend::{BackendKey, Role};
use super::client::{ClientKey, Phase};
use super::login::STARTUP_TIME;
use super::pool::PoolKey;
use crate::postgres::refusal::Refusal;
use crate::postgres::startup::{CancelKey, First};

impl Relay {
    /// A client asks to cancel what another one does. It gets no answer but the end of its connection.
    pub(super) fn cancel(&mut self, key: ClientKey, cancel_key: CancelKey) {
        let Some(other) = self.client_of.get(&cancel_key).copied() else { return self.end_client(key) };
        if let Phase::Queued(_) | Phase::Opening | Phase::Parked(_) = self.clients[other].phase {
            self.counts.cancelled += 1;
            self.refuse_waiting(other, Refusal::CANCELLED, "canceling statement due to user request");
            return self.end_client(key);
        }
        let Some(target) = self.clients[other].backend else { return self.end_client(key) };
        let first = First::Cancel(self.backends[target].cancel_key);
        match self.connect(Role::Cancelling(key, target), PoolKey::null(), first) {
            Ok(backend) => self.openings.push_back((self.at + STARTUP_TIME, backend)),
            Err(_) => return self.end_client(key),
        }
        self.counts.cancelled += 1;
        self.backends[target].cancels += 1;
        self.clients[key].phase = Phase::Cancelling;
    }

    /// The server has done what a request asks for: it closes that connection afterwards.
    pub(super) fn cancelled(&mut self, target: BackendKey) {
        let Some(backend) = self.backends.get_mut(target) else { return };
        backend.cancels -= 1;
        if backend.cancels > 0 || backend.role != Role::Settling {
            return;
        }
        let permit = backend.permit.take();
        self.release(target);
        permit.into_iter().for_each(|permit| self.leave_gate(permit));
    }
}
