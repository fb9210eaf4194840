//! The connections of the server that any session with the same first packet can use.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use slotmap::new_key_type;

use super::Relay;
use super::backend::{BackendKey, Role};
use super::classes::class_of;
use super::client::ClientKey;
use super::greeting::Greeting;
use crate::gate::{ClassId, Ticket};
use crate::postgres::startup::Startup;

new_key_type! {
    /// The name of a pool.
    pub struct PoolKey;
}

/// Sessions that begin in the same way: as the same user, in the same database, with the same settings.
#[derive(Debug)]
pub struct Pool {
    pub startup: Startup,
    /// The class of their transactions.
    pub class: ClassId,
    /// Those that have nothing to do, and since when. The one that was used last is the last, and is used
    /// first: what it needs is in the caches.
    pub idle: VecDeque<(BackendKey, Duration)>,
    /// All that are not bound to a session, and are logged in.
    pub shared: u32,
    /// Those that the guard opens.
    pub opening: u32,
    /// Clients that log in, on which the server works.
    pub logging_in: u32,
    /// Clients whose transactions keep their places while the guard opens connections.
    pub expecting: VecDeque<ClientKey>,
    /// Clients whose transactions lack one.
    pub parked: BTreeMap<Ticket, ClientKey>,
    /// Clients that the server had no room for when they logged in, and those behind them.
    pub logins: VecDeque<ClientKey>,
    /// The server has refused a further one, and is not asked before this time.
    pub full_until: Option<Duration>,
    /// When a connection was ended to make room, unless that has helped.
    pub freed: Option<Duration>,
    pub kind: Kind,
    /// Whether the guard can log in itself: with a secret, or because the server asked for no password.
    pub is_open: bool,
    /// Times that a statement of its sessions did not return any more what it did when it was prepared.
    pub changes: u64,
    /// What the server says to a session that begins.
    pub greeting: Option<Greeting>,
    /// Sessions. The pool ends with the last one, or some time later if the guard can open it anew.
    pub sessions: usize,
    /// When the last one has left, and the pool has not ended.
    pub left: Duration,
}

/// What a pool is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Sessions that log in at the server.
    AtServer,
    /// Sessions that log in at the guard, which has the secrets of their roles.
    AtGuard,
    /// Clients whose roles are looked up, after which they have another pool.
    Lookups,
}

/// Connections that a pool keeps to which the guard cannot add: the limit may rise. The peaks of the servers
/// that were measured are below (docs/control.md). As many are kept for pools without sessions.
const KEPT: u32 = 16;

/// Time after which a connection is closed that the limit has no use for, or for which no session is left. A
/// law compares two limits in turns, most often for less than a second each. Idle ones cost the server: 600
/// of them took 11 to 14 % of its rate with 256 clients.
const IDLE_TIME: Duration = Duration::from_secs(3);

impl Pool {
    /// One without connections.
    pub fn new(startup: Startup, class: ClassId, kind: Kind) -> Self {
        Self {
            startup,
            class,
            idle: VecDeque::new(),
            shared: 0,
            opening: 0,
            logging_in: 0,
            expecting: VecDeque::new(),
            parked: BTreeMap::new(),
            logins: VecDeque::new(),
            full_until: None,
            freed: None,
            kind,
            is_open: kind != Kind::AtServer,
            changes: 0,
            greeting: None,
            sessions: 0,
            left: Duration::ZERO,
        }
    }

    /// Whether logins wait until the guard has logged in.
    pub fn waits_for_guard(&self) -> bool {
        let lacks_login = match self.kind {
            Kind::AtServer => false,
            Kind::AtGuard => self.greeting.is_none(),
            Kind::Lookups => self.shared == 0,
        };
        lacks_login && !self.logins.is_empty()
    }

    /// Whether it has a connection, or one is on its way, that may become free.
    pub fn has_one(&self) -> bool {
        self.shared + self.opening + self.logging_in > 0
            || (self.kind == Kind::AtServer && !self.logins.is_empty())
    }

    /// Whether the server has refused a connection, and is not to be asked yet.
    pub fn is_full(&self, at: Duration) -> bool {
        self.full_until.is_some_and(|until| at < until)
    }

    /// Whether someone waits for a connection.
    pub fn is_waiting(&self) -> bool {
        !self.expecting.is_empty() || !self.parked.is_empty() || !self.logins.is_empty()
    }
}

impl Relay {
    /// A session begins.
    pub(super) fn join_pool(&mut self, startup: Startup) -> PoolKey {
        let pools = &mut self.pools;
        let kind = if self.users.is_some() { Kind::AtGuard } else { Kind::AtServer };
        let entry = self.pool_of.entry(startup);
        let new = |startup: &Startup| Pool::new(startup.clone(), class_of(&self.classes, startup), kind);
        let key = *entry.or_insert_with_key(|startup| pools.insert(new(startup)));
        self.enter_pool(key);
        key
    }

    /// A pool has one more session.
    pub(super) fn enter_pool(&mut self, key: PoolKey) {
        self.left.retain(|left| *left != key);
        self.pools[key].sessions += 1;
    }

    /// A session ends.
    pub(super) fn leave_pool(&mut self, key: PoolKey) {
        let pool = &mut self.pools[key];
        pool.sessions -= 1;
        if pool.sessions > 0 {
            return;
        }
        if pool.kind == Kind::AtServer {
            self.end_pool(key);
        } else {
            // Programs that connect anew for each request find their connections.
            pool.left = self.at;
            self.left.push_back(key);
        }
    }

    /// Ends the pools that have had no session for some time, and the oldest of several that have more
    /// connections than one may keep.
    pub(super) fn end_left_pools(&mut self) {
        while let Some(first) = self.left.front().copied() {
            let connections: u32 = self.left.iter().map(|left| self.pools[*left].shared.max(1)).sum();
            let is_due = self.at >= self.pools[first].left + IDLE_TIME;
            if !is_due && (connections <= KEPT || self.left.len() == 1) {
                return;
            }
            self.left.pop_front();
            self.end_pool(first);
        }
    }

    fn end_pool(&mut self, key: PoolKey) {
        let Some(pool) = self.pools.remove(key) else { return };
        if pool.kind != Kind::Lookups {
            self.pool_of.remove(&pool.startup);
        }
        for (backend, _) in pool.idle {
            self.terminate(backend);
        }
    }

    /// A connection of the server is logged in: all sessions of its pool may use it.
    pub(super) fn share(&mut self, key: BackendKey) {
        let backend = &mut self.backends[key];
        if let Some(pool) = self.pools.get_mut(backend.pool) {
            backend.is_shared = true;
            backend.opened = self.at;
            pool.shared += 1;
        }
    }

    /// A connection of the server is bound to its session, or ends.
    pub(super) fn unshare(&mut self, key: BackendKey) {
        let backend = &mut self.backends[key];
        if !std::mem::take(&mut backend.is_shared) {
            return;
        }
        if let Some(pool) = self.pools.get_mut(backend.pool) {
            pool.shared -= 1;
            pool.idle.retain(|(idle, _)| *idle != key);
        }
    }

    /// Connections that a pool keeps. One more than the limit, for a transaction that is set aside; of a high
    /// limit, not more than there are sessions, each of which has one transaction at a time.
    pub(super) fn kept(&self, key: PoolKey) -> u32 {
        let pool = &self.pools[key];
        let used = self.gate.limit().units() + 1;
        let used = if pool.is_open { used } else { used.max(KEPT) };
        u32::try_from(pool.sessions).map_or(used, |sessions| used.min(sessions.max(KEPT)))
    }

    /// A connection of the server that a login has brought may be used by all, if the pool lacks one.
    pub(super) fn offer(&mut self, key: BackendKey) {
        let pool = self.backends[key].pool;
        if self.pools.get(pool).is_some_and(|known| known.shared <= self.kept(pool)) {
            self.release(key);
        } else {
            self.terminate(key);
        }
    }

    /// A connection of the server has nothing to do: the next transaction may use it.
    pub(super) fn release(&mut self, key: BackendKey) {
        let backend = &self.backends[key];
        let pool = backend.pool;
        let Some(known) = self.pools.get(pool) else { return self.terminate(key) };
        if known.has_other_settings(backend.opened) {
            self.make_room(key, pool);
        } else if let Some(starved) = self.starved_by(pool) {
            self.make_room(key, starved);
        } else {
            self.give_back(key);
        }
    }

    /// A connection of the server is for its own pool.
    pub(super) fn give_back(&mut self, key: BackendKey) {
        let backend = &mut self.backends[key];
        let Some(pool) = self.pools.get_mut(backend.pool) else { return self.terminate(key) };
        // A notice that has begun is for none of the sessions.
        if !backend.is_between_messages() {
            return self.terminate(key);
        }
        if let Some(client) = pool.expecting.pop_front() {
            backend.role = Role::Serving(client);
            self.clients[client].backend = Some(key);
            self.begin_transaction(client);
            self.resumed.push_back(client);
        } else {
            backend.role = Role::Idle;
            pool.idle.push_back((key, self.at));
            let (pool, kind) = (backend.pool, pool.kind);
            match kind {
                Kind::AtServer | Kind::AtGuard => self.unpark(pool),
                Kind::Lookups => self.ask(),
            }
        }
    }

    /// Takes the connection that was used last. One that is in the middle of a notice ends: the notice is for
    /// none of the sessions.
    pub(super) fn take_idle_backend(&mut self, pool: PoolKey) -> Option<BackendKey> {
        while let Some((key, _)) = self.pools[pool].idle.pop_back() {
            if self.backends[key].is_between_messages() {
                return Some(key);
            }
            self.terminate(key);
        }
        None
    }

    /// Closes connections that had nothing to do for some time, if there are more than the limit has a use
    /// for.
    pub(super) fn close_idle(&mut self, key: PoolKey) {
        let kept = self.kept(key);
        while let Some(pool) = self.pools.get(key)
            && pool.shared > kept
            && let Some((idle, since)) = pool.idle.front().copied()
            && self.at >= since + IDLE_TIME
        {
            self.terminate(idle);
        }
    }

    /// Ends a connection of the server in good order.
    pub(super) fn terminate(&mut self, key: BackendKey) {
        if !self.backends.contains_key(key) {
            return;
        }
        self.unshare(key);
        if let Some(mut backend) = self.backends.remove(key) {
            backend.terminate();
        }
    }
}
