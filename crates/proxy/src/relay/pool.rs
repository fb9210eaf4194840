//! The connections of the server that any session with the same first packet can use.

use std::collections::BTreeSet;
use std::time::Duration;

use slotmap::new_key_type;

use super::Relay;
use super::backend::{BackendKey, Role};
use super::client::ClientKey;
use crate::postgres::refusal::TERMINATE;
use crate::postgres::startup::Startup;

new_key_type! {
    /// The name of a pool.
    pub struct PoolKey;
}

/// Sessions that begin in the same way: as the same user, in the same database, with the same settings.
#[derive(Debug)]
pub struct Pool {
    pub startup: Startup,
    /// Those that have nothing to do. The one that was used last is the last, and is used first: what it
    /// needs is in the caches.
    pub idle: Vec<BackendKey>,
    /// Clients whose transactions wait for one, and since when.
    pub wanted: BTreeSet<(Duration, ClientKey)>,
    /// All that are not bound to a session, and are logged in.
    pub shared: u32,
    /// Whether the server asked for no password, so that the guard can log in itself.
    pub is_open: bool,
    /// Sessions. The pool ends with the last one.
    pub sessions: usize,
}

/// Connections that a pool keeps which the guard cannot add to, for a limit that rises later.
const KEPT: u32 = 32;

impl Relay {
    /// A session begins.
    pub(super) fn join_pool(&mut self, startup: Startup) -> PoolKey {
        let pools = &mut self.pools;
        let key = *self.pool_of.entry(startup).or_insert_with_key(|startup| {
            let startup = startup.clone();
            pools.insert(Pool {
                startup,
                idle: Vec::new(),
                wanted: BTreeSet::new(),
                shared: 0,
                is_open: false,
                sessions: 0,
            })
        });
        self.pools[key].sessions += 1;
        key
    }

    /// A session ends.
    pub(super) fn leave_pool(&mut self, key: PoolKey) {
        let pool = &mut self.pools[key];
        pool.sessions -= 1;
        if pool.sessions > 0 {
            return;
        }
        let Some(pool) = self.pools.remove(key) else { return };
        self.pool_of.remove(&pool.startup);
        for backend in pool.idle {
            self.terminate(backend);
        }
    }

    /// A connection of the server is logged in: all sessions of its pool may use it.
    pub(super) fn share(&mut self, key: BackendKey) {
        let backend = &mut self.backends[key];
        if let Some(pool) = self.pools.get_mut(backend.pool) {
            backend.is_shared = true;
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
            pool.idle.retain(|idle| *idle != key);
        }
    }

    /// A connection of the server has nothing to do: the next transaction may use it, unless there are more
    /// than can be in use.
    pub(super) fn release(&mut self, key: BackendKey) {
        if std::mem::take(&mut self.makes_room) {
            self.make_room(key);
            return;
        }
        if self.hand_over(key) {
            return;
        }
        let backend = &mut self.backends[key];
        // One more than the limit, for a transaction that is admitted beyond it.
        let used = self.gate.limit().units() + 1;
        match self.pools.get_mut(backend.pool) {
            Some(pool) if pool.shared <= if pool.is_open { used } else { used.max(KEPT) } => {
                backend.role = Role::Idle;
                pool.idle.push(key);
            }
            _ => self.terminate(key),
        }
    }

    /// Ends a connection of the server in good order.
    pub(super) fn terminate(&mut self, key: BackendKey) {
        if !self.backends.contains_key(key) {
            return;
        }
        self.unshare(key);
        if let Some(mut backend) = self.backends.remove(key) {
            // If it is gone, it has ended.
            let _ = backend.connection.send(&TERMINATE);
        }
    }
}
