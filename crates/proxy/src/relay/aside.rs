//! Transactions that are set aside: they give up their places until they go on. Those that wait for their
//! clients do so here, those that wait for a lock in a stall.

use std::mem;

use super::Relay;
use super::backend::Role;
use super::client::ClientKey;

impl Relay {
    /// At a tick, gives the places of transactions that stand still to others that wait for admission.
    pub(super) fn give_places(&mut self) {
        if !self.gate.is_waiting() && self.gate.aside() == 0 {
            return;
        }
        self.look_at_clients();
        self.gate.look_for_standstill();
        self.admit_waiting();
    }

    /// Sets the transactions aside that have waited for their clients since the last tick, if others wait for
    /// admission. Their clients may do something else, or wait for another transaction, as in a program that
    /// uses several sessions in turn. Those that do not wait any more have their places again.
    fn look_at_clients(&mut self) {
        for backend in self.backends.values() {
            let Role::Serving(client) = backend.role else { continue };
            let client = &mut self.clients[client];
            let waits = client.is_waited_for(&backend.connection);
            let Some(permit) = &mut client.permit else { continue };
            let has_waited = mem::replace(&mut client.keeps_waiting, waits);
            if has_waited && !waits {
                self.gate.take_back(permit, self.at);
            } else if has_waited && self.gate.is_waiting() && self.gate.set_aside(permit, self.at) {
                self.counts.aside_for_client += 1;
            }
        }
    }

    /// A transaction goes on: it has its place again.
    pub(super) fn go_on(&mut self, client: ClientKey) {
        let Some(client) = self.clients.get_mut(client) else { return };
        let has_waited = mem::take(&mut client.keeps_waiting);
        let was_aside = client.permit.as_mut().is_some_and(|permit| self.gate.take_back(permit, self.at));
        if was_aside && !has_waited {
            self.stop_spreading();
        }
    }
}
