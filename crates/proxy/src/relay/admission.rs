//! Transactions at the gate: they arrive, wait, and are admitted or refused.

use super::Relay;
use super::backend::Backend;
use super::client::{ClientKey, Phase};
use crate::gate::{Arrival, ClassId, Permit};
use crate::postgres::refusal::{READY, Refusal};

impl Relay {
    /// A transaction begins with a message of this kind, as soon as it may.
    pub(super) fn arrive(&mut self, key: ClientKey, first: u8) {
        let client = &mut self.clients[key];
        let class = self.pools[client.pool.expect("a session that has logged in has a pool")].class;
        match self.gate.arrive(key, class, self.at) {
            Arrival::Queued(ticket) => client.phase = Phase::Queued(ticket),
            Arrival::Admitted(permit) => {
                client.permit = Some(permit);
                self.begin_transaction(key);
            }
            Arrival::Refused => {
                self.of_class(class).not_queued += 1;
                let text = "too many transactions wait for admission; the database is in overload";
                self.refuse(key, Some(first), Refusal::FULL, text);
            }
        }
    }

    /// Refuses the transactions that have waited too long.
    pub(super) fn refuse_all_late(&mut self) {
        while let Some((key, class)) = self.gate.expire(self.at) {
            self.refuse_late(key, class);
        }
    }

    /// A transaction has waited too long.
    pub(super) fn refuse_late(&mut self, key: ClientKey, class: ClassId) {
        self.of_class(class).late += 1;
        if matches!(self.clients[key].phase, Phase::Opening | Phase::Parked(_)) {
            let text = "the transaction waited too long for a connection of the server; all are in use";
            self.refuse_waiting(key, Refusal::FULL, text);
        } else {
            let text = "the transaction waited too long for admission; the database is in overload";
            self.refuse_waiting(key, Refusal::CANCELLED, text);
        }
    }

    /// Refuses a transaction that waits.
    pub(super) fn refuse_waiting(&mut self, key: ClientKey, refusal: Refusal, text: &str) {
        let client = &self.clients[key];
        self.refuse(key, client.frames.kind(&client.input), refusal, text);
    }

    /// Refuses a transaction that begins with a message of this kind, and of which nothing was passed on. The
    /// session goes on.
    fn refuse(&mut self, key: ClientKey, first: Option<u8>, refusal: Refusal, text: &str) {
        self.withdraw(key);
        if let Some(permit) = self.clients[key].permit.take() {
            self.leave_gate(permit);
        }
        let client = &mut self.clients[key];
        // A client of the extended protocol waits after Sync, others after their one message.
        let last = first.filter(|kind| matches!(kind, b'Q' | b'F')).unwrap_or(b'S');
        client.phase = Phase::Refused { last, has_begun: false };
        client.refusal = refusal.message(text);
        self.send_refusal(key);
    }

    /// Says why a transaction is refused. If part of a message of the server has come, that is after its end.
    pub(super) fn send_refusal(&mut self, key: ClientKey) {
        let Some(client) = self.clients.get_mut(key).filter(|client| !client.refusal.is_empty()) else {
            return;
        };
        let backend = client.backend.and_then(|backend| self.backends.get(backend));
        if !backend.is_some_and(Backend::is_inside_for_client) {
            let refusal = std::mem::take(&mut client.refusal);
            self.send_to_client(key, &refusal);
            self.resumed.push_back(key);
        }
    }

    /// A transaction has ended, and its permit goes to the next one.
    pub(super) fn leave_gate(&mut self, permit: Permit) {
        self.gate.leave(permit, self.at);
        self.admit_waiting();
    }

    /// Admits as many of those that wait as there is room for, but none that has waited too long.
    pub(super) fn admit_waiting(&mut self) {
        self.refuse_all_late();
        while let Some((key, permit)) = self.gate.admit(self.at) {
            self.admit(key, permit);
        }
    }

    /// A transaction that waited is admitted.
    pub(super) fn admit(&mut self, key: ClientKey, permit: Permit) {
        // Those that wait withdraw before they end.
        let client = &mut self.clients[key];
        client.permit = Some(permit);
        client.phase = Phase::Admitted;
        self.resumed.push_back(key);
    }

    /// After a refusal, up to the message after which the client waits.
    pub(super) fn take_refused(&mut self, key: ClientKey, input: &[u8], last: u8) -> Option<usize> {
        let client = &self.clients[key];
        if client.connection.is_full() || !client.refusal.is_empty() {
            return None;
        }
        let kind = client.frames.kind(input);
        if kind == Some(b'X') {
            self.remove_client(key);
            return Some(input.len());
        }
        let taken = self.skip(key, input)?;
        let Some(client) = self.clients.get_mut(key) else { return Some(taken) };
        if !matches!(client.phase, Phase::Refused { .. }) {
            return Some(taken);
        }
        if kind == Some(last) {
            client.phase = Phase::Refused { last, has_begun: true };
        }
        if client.phase == (Phase::Refused { last, has_begun: true }) && !client.frames.is_inside() {
            client.phase = Phase::Idle;
            self.send_to_client(key, &READY);
        }
        Some(taken)
    }
}
