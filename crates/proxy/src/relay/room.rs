//! Sessions that wait for a connection of the server: transactions that were admitted while all connections of
//! their pool are in use, and all for which the server had no room (SQLSTATE 53300). The limit of transactions
//! may be higher than `max_connections` of the server, which no message of the protocol says.

use std::time::Duration;

use super::Relay;
use super::backend::{BackendKey, Role};
use super::client::{Client, ClientKey, Phase};
use super::login::Turn;
use crate::postgres::refusal::{Refusal, TERMINATE};

/// Time between two attempts to get a further connection of a server that had no room.
const RETRIED: Duration = Duration::from_secs(1);

impl Relay {
    /// A transaction that was admitted waits for a connection of the server that is opened or becomes free.
    pub(super) fn want_connection(&mut self, key: ClientKey) {
        let due = self.at + self.gate.longest_wait();
        let client = &mut self.clients[key];
        client.phase = Phase::Opening { due };
        self.openings.insert((due, key));
        // None overtakes another one of its pool.
        if client.pool.is_some_and(|pool| self.pools[pool].is_open && self.pools[pool].wanted.is_empty()) {
            self.open_backend(key, Role::Opening(key));
        } else {
            self.wait(key);
        }
    }

    /// The server has no room for a connection that a client needs.
    pub(super) fn no_room(&mut self, key: BackendKey, client: ClientKey) {
        self.counts.no_room += 1;
        self.backends.remove(key);
        self.set_turn(client, Turn::Client);
        self.clients[client].backend = None;
        if self.has_idle_connection(client) {
            // It has become free in the meantime.
            self.stop_waiting(client);
            self.clients[client].phase = Phase::Admitted;
            self.resumed.push_back(client);
            return;
        }
        let session = &mut self.clients[client];
        if session.phase == Phase::Login {
            session.phase = Phase::LoginQueued;
        }
        let was_waiting = session.waits_since.is_some();
        if let Some(idle) = self.pools.values().find_map(|pool| pool.idle.first().copied()) {
            self.make_room(idle);
        } else if was_waiting {
            // Connections of other pools may take all the room.
            self.makes_room = true;
        }
        // The others are asked for first: the server may refuse this role or database alone.
        self.leave_queues(client);
        self.wait(client);
    }

    /// Whether a transaction could run on a connection of its pool.
    fn has_idle_connection(&self, key: ClientKey) -> bool {
        let Client { phase, pool, .. } = &self.clients[key];
        matches!(phase, Phase::Opening { .. }) && pool.is_some_and(|pool| !self.pools[pool].idle.is_empty())
    }

    /// A client waits behind the others: a transaction for a connection of its pool, and all for which the
    /// server can be asked again for room.
    fn wait(&mut self, key: ClientKey) {
        let client = &mut self.clients[key];
        let Some(pool) = client.pool else { return };
        let pool = &mut self.pools[pool];
        client.waits_since = Some(self.at);
        if client.phase == Phase::LoginQueued {
            self.shut_out.insert((self.at, key));
            return;
        }
        pool.wanted.insert((self.at, key));
        if pool.is_open {
            self.shut_out.insert((self.at, key));
        }
    }

    /// A client waits neither for a connection of the server nor for room, whether it did or not.
    pub(super) fn stop_waiting(&mut self, key: ClientKey) {
        let Some(client) = self.clients.get(key) else { return };
        if let Phase::Opening { due } = client.phase {
            self.openings.remove(&(due, key));
        }
        self.leave_queues(key);
    }

    fn leave_queues(&mut self, key: ClientKey) {
        let client = &mut self.clients[key];
        let Some(since) = client.waits_since.take() else { return };
        self.shut_out.remove(&(since, key));
        if let Some(pool) = client.pool {
            self.pools[pool].wanted.remove(&(since, key));
        }
    }

    /// Gives a connection that is free to the transaction of its pool that has waited longest for one, and
    /// returns whether there was one.
    pub(super) fn hand_over(&mut self, key: BackendKey) -> bool {
        let backend = &mut self.backends[key];
        let Some(pool) = self.pools.get(backend.pool) else { return false };
        // The server is being asked for the others.
        let wanting =
            pool.wanted.iter().map(|(_, key)| *key).find(|key| self.clients[*key].backend.is_none());
        let Some(wanting) = wanting else { return false };
        backend.role = Role::Serving(wanting);
        self.clients[wanting].backend = Some(key);
        self.serve(wanting);
        true
    }

    /// A transaction has got the connection of the server that it waited for.
    pub(super) fn serve(&mut self, key: ClientKey) {
        self.stop_waiting(key);
        self.clients[key].phase = Phase::Active;
        self.resumed.push_back(key);
    }

    /// Ends a connection of the server that is free, so that there is room for another one when it has ended.
    pub(super) fn make_room(&mut self, key: BackendKey) {
        self.unshare(key);
        self.backends[key].role = Role::Ending;
        self.send_to_backend(key, &TERMINATE);
    }

    /// Finds out from time to time whether there is room now.
    pub(super) fn retry(&mut self) {
        if self.at >= self.retried {
            self.ask_again();
        }
    }

    /// Asks the server again for the client that has waited longest.
    pub(super) fn ask_again(&mut self) {
        let mut waiting = self.shut_out.iter().map(|(_, key)| *key);
        let Some(key) = waiting.find(|key| self.clients[*key].backend.is_none()) else { return };
        self.retried = self.at + RETRIED;
        if self.clients[key].phase == Phase::LoginQueued {
            self.begin_login(key);
        } else {
            self.open_backend(key, Role::Opening(key));
        }
    }

    /// Refuses transactions that have waited too long for a connection of the server.
    pub(super) fn expire_openings(&mut self) {
        while let Some((_, key)) = self.openings.first().copied().filter(|(due, _)| *due <= self.at) {
            self.stop_waiting(key);
            let client = &mut self.clients[key];
            let (backend, permit) = (client.backend.take(), client.permit.take());
            let text = "the transaction waited too long for a connection of the server";
            self.refuse(key, Refusal::FULL, text);
            backend.into_iter().for_each(|backend| self.terminate(backend));
            permit.into_iter().for_each(|permit| self.leave_gate(permit));
        }
    }
}
