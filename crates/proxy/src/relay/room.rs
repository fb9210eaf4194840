//! Connections of the server for those that lack one: transactions that were admitted while all connections
//! of their pool are in use, and logins that the server had no room for (SQLSTATE 53300). The limit of
//! transactions may be higher than `max_connections` of the server, or the limit of a role or a database,
//! which no message of the protocol says.

use std::time::Duration;

use super::backend::{BackendKey, Role};
use super::client::{ClientKey, Phase};
use super::login::LOGINS;
use super::opening::Opening;
use super::pool::{Kind, Pool, PoolKey};
use super::{Relay, due};
use crate::postgres::frame::HEADER;
use crate::postgres::refusal::{self, Refusal, TERMINATE};

/// Time between two attempts where the server had no room: each one starts a process there, and a client
/// that waits notices a second.
pub const RETRIED: Duration = Duration::from_secs(1);

impl Relay {
    /// A transaction that was admitted lacks a connection. It keeps its place while the guard opens one.
    /// Otherwise its place is for another one.
    pub(super) fn lacks_connection(&mut self, key: ClientKey, pool: PoolKey) {
        let known = &mut self.pools[pool];
        if known.is_open && known.full_until.is_none() {
            self.clients[key].phase = Phase::Opening;
            known.expecting.push_back(key);
            self.open_backends(pool);
        } else {
            self.park(key);
            self.look_after(pool);
            self.admit_waiting();
        }
    }

    fn park(&mut self, key: ClientKey) {
        let client = &mut self.clients[key];
        let (Some(permit), Some(pool)) = (client.permit.take(), client.pool) else { return };
        let ticket = self.gate.park(key, permit, self.at);
        client.phase = Phase::Parked(ticket);
        self.pools[pool].parked.insert(ticket, key);
    }

    /// The guard opens no connection for a pool now: transactions that have kept their places give them up.
    fn park_expecting(&mut self, key: PoolKey) {
        for client in std::mem::take(&mut self.pools[key].expecting) {
            self.park(client);
        }
        self.admit_waiting();
    }

    /// A connection of a pool is free: the transaction that has waited longest for one may be admitted again.
    pub(super) fn unpark(&mut self, pool: PoolKey) {
        let Some(pool) = self.pools.get_mut(pool) else { return };
        if let Some((ticket, key)) = pool.parked.pop_first() {
            self.gate.unpark(ticket, self.at);
            self.clients[key].phase = Phase::Queued(ticket);
        }
    }

    /// Sees to it that a pool gets the connections that it lacks.
    pub(super) fn look_after(&mut self, key: PoolKey) {
        let Some(pool) = self.pools.get(key) else { return };
        if pool.is_full(self.at) {
            return;
        }
        if pool.is_open || pool.has_one() {
            self.open_backends(key);
            self.ask_again(key);
        } else {
            let text = "all connections to the server are in use by sessions that need their own, or are lost; \
                        connect again";
            self.give_up(key, &Refusal::NO_SERVER.message(text));
        }
    }

    /// Opens connections, as many as transactions of the pool lack that keep their places, or one for the
    /// logins that wait for its greeting.
    fn open_backends(&mut self, key: PoolKey) {
        while let Some(pool) = self.pools.get(key)
            && self.opening < LOGINS
            && (pool.opening as usize) < pool.expecting.len().max(pool.waits_for_guard().into())
        {
            if !self.open_backend(key, Opening::default()) {
                return;
            }
        }
    }

    /// The server has opened a connection of a pool.
    pub(super) fn opened(&mut self, key: PoolKey) {
        let Some(pool) = self.pools.get_mut(key) else { return };
        pool.freed = None;
        self.starved = self.starved.filter(|starved| *starved != key);
        if let Some(until) = &mut pool.full_until {
            *until = self.at;
        }
        self.look_after(key);
        self.admit_waiting();
    }

    /// A connection was not opened for another reason than room. If none of the pool can become free, its
    /// transactions get this message.
    pub(super) fn not_opened(&mut self, key: PoolKey, message: &[u8]) {
        self.stall.could_not_open(key, self.at);
        let Some(pool) = self.pools.get_mut(key) else { return };
        if pool.shared == 0 {
            pool.greeting = None;
        }
        if !pool.is_waiting() {
            return;
        }
        pool.full_until = Some(self.at + RETRIED);
        let has_one = pool.has_one();
        self.park_expecting(key);
        if !has_one {
            self.give_up(key, message);
        }
    }

    /// Ends the sessions that wait for a connection of a pool.
    fn give_up(&mut self, key: PoolKey, message: &[u8]) {
        let pool = &mut self.pools[key];
        let mut clients: Vec<_> = pool.parked.values().copied().collect();
        if pool.waits_for_guard() {
            clients.extend(pool.logins.drain(..));
        }
        // Logins may have been given up.
        clients
            .retain(|client| self.clients.get(*client).is_some_and(|client| client.phase != Phase::Ending));
        if pool.kind == Kind::Lookups {
            let reason = refusal::text(&message[HEADER..]);
            clients.into_iter().for_each(|client| self.not_looked_up(client, &reason));
            return;
        }
        for client in clients {
            self.counts.turned_away += 1;
            self.send_to_client(client, message);
            self.end_client(client);
        }
    }

    /// The server has no room for a further connection of a pool.
    pub(super) fn no_room(&mut self, key: PoolKey) {
        self.counts.no_room += 1;
        self.stall.could_not_open(key, self.at);
        let Some(pool) = self.pools.get_mut(key).filter(|pool| pool.is_waiting()) else { return };
        pool.full_until = Some(self.at + RETRIED);
        self.park_expecting(key);
        self.free_room(key);
    }

    /// Ends a connection, if that may help a pool.
    fn free_room(&mut self, key: PoolKey) {
        // It does not if the server refuses this role or this database alone.
        if self.pools[key].freed.is_some_and(|freed| self.at < freed + RETRIED) {
            return;
        }
        let is_starved = self.is_starved(key);
        // Transactions get a connection of their pool that becomes free, logins do not.
        let spare = self.pools.iter().filter(|(other, _)| self.can_spare_one(*other, key));
        let idle = spare.filter_map(|(_, pool)| pool.idle.front().copied()).min_by_key(|(_, since)| *since);
        match idle {
            Some((idle, since)) if is_starved || self.at >= since + RETRIED => self.make_room(idle, key),
            _ if is_starved => self.starved = Some(key),
            _ => return,
        }
        self.pools[key].freed = Some(self.at);
    }

    /// Whether none of the connections that a pool has can help those that wait.
    fn is_starved(&self, key: PoolKey) -> bool {
        self.pools
            .get(key)
            .is_some_and(|pool| !pool.logins.is_empty() || (pool.shared == 0 && !pool.parked.is_empty()))
    }

    /// Whether a pool can do without a connection, for another one. A login brings one to its own pool.
    fn can_spare_one(&self, key: PoolKey, other: PoolKey) -> bool {
        let pool = &self.pools[key];
        if key == other { !pool.logins.is_empty() } else { pool.is_open || pool.shared > self.kept(key) }
    }

    /// Ends a connection that is free for another pool, which asks the server when it has ended.
    pub(super) fn make_room(&mut self, backend: BackendKey, key: PoolKey) {
        self.unshare(backend);
        self.backends[backend].role = Role::MakingRoom(key);
        self.send_to_backend(backend, &TERMINATE);
    }

    /// Returns the pool that lacks a connection most, if one that becomes free in this one should end for it.
    pub(super) fn starved_by(&mut self, key: PoolKey) -> Option<PoolKey> {
        let starved = self.starved.filter(|starved| self.can_spare_one(key, *starved))?;
        self.starved = None;
        self.is_starved(starved).then_some(starved)
    }

    /// Asks the server again for a connection of a pool that it had no room for: for one, whose answer
    /// decides on the others.
    pub(super) fn ask_again(&mut self, key: PoolKey) {
        let Some(pool) = self.pools.get_mut(key) else { return };
        if pool.opening + pool.logging_in > 0 {
            return;
        }
        while pool.kind == Kind::AtServer
            && let Some(login) = pool.logins.pop_front()
        {
            // It may have given up.
            if self.clients.get(login).is_some_and(|client| client.phase == Phase::LoginQueued) {
                self.begin_login(login);
                return;
            }
        }
        if pool.is_open && (!pool.parked.is_empty() || pool.waits_for_guard()) {
            if self.opening < LOGINS {
                self.open_backend(key, Opening::default());
            }
        } else {
            pool.full_until = None;
        }
    }

    /// Looks after all pools, from time to time.
    pub(super) fn look_after_pools(&mut self) {
        while let Some(backend) = due(&mut self.openings, self.at) {
            match self.backends.get(backend).map(|backend| backend.role) {
                Some(Role::Opening) => self.server_fails(backend, "it does not answer"),
                Some(Role::Cancelling(..)) => self.backend_ended(backend),
                _ => {}
            }
        }
        self.look_after_lookups();
        self.end_left_pools();
        for key in self.pools.keys().collect::<Vec<_>>() {
            self.close_idle(key);
            self.expire_expecting(key);
            if self.pools.get(key).is_some_and(Pool::is_waiting) {
                self.look_after(key);
            }
            // Transactions for which these became free may have been given up.
            for _ in 0..self.pools.get(key).map_or(0, |pool| pool.idle.len()) {
                self.unpark(key);
            }
        }
        self.admit_waiting();
    }

    /// Refuses transactions for which a connection is opened for too long.
    fn expire_expecting(&mut self, key: PoolKey) {
        for client in self.pools.get(key).map_or(vec![], |pool| pool.expecting.iter().copied().collect()) {
            if let Some(permit) = self.clients.get(client).and_then(|client| client.permit.as_ref())
                && self.gate.is_late(permit, self.at)
            {
                self.refuse_late(client, permit.class());
            }
        }
    }
}
