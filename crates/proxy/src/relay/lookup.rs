//! Roles that are not in the list of users: the guard asks the server for the secret of each one that logs
//! in, every time, so that what the server keeps of a role counts at once.
//!
//! The connection for that belongs to a pool of its own, which no session shares: a session could change what
//! the query means. Clients wait there as logins do, and the server is asked for one role at a time.

use std::time::Duration;

use super::Relay;
use super::backend::{BackendKey, Role};
use super::client::{ClientKey, Phase};
use super::login::STARTUP_TIME;
use super::pool::{Kind, Pool, PoolKey};
use crate::postgres::lookup::{Found, answer, question};
use crate::postgres::refusal::Refusal;
use crate::postgres::startup::Startup;

/// How roles are looked up.
#[derive(Debug, Clone)]
pub struct Lookup {
    /// The role as which the guard asks.
    pub role: String,
    /// The database in which it asks.
    pub database: String,
    /// What it asks: a query whose result has the role `$1` and its secret.
    pub query: String,
}

/// Roles that are looked up.
#[derive(Debug)]
pub struct Lookups {
    lookup: Lookup,
    pool: PoolKey,
    asked: Option<Asked>,
}

/// A question to the server.
#[derive(Debug)]
struct Asked {
    backend: BackendKey,
    client: ClientKey,
    role: Box<[u8]>,
    since: Duration,
}

impl Lookup {
    fn startup(&self) -> Startup {
        Startup::new(&[
            (b"user", self.role.as_bytes()),
            (b"database", self.database.as_bytes()),
            (b"application_name", b"assay guard"),
        ])
    }
}

impl Lookups {
    /// Nothing was asked yet.
    pub fn new(lookup: Lookup) -> Self {
        Self { lookup, pool: PoolKey::default(), asked: None }
    }
}

impl Relay {
    /// A client waits until its role is looked up.
    pub(super) fn look_up(&mut self, key: ClientKey) {
        let Some(lookups) = &mut self.lookups else { return };
        if !self.pools.contains_key(lookups.pool) {
            lookups.pool = self.pools.insert(Pool::new(lookups.lookup.startup(), Kind::Lookups));
        }
        let pool = lookups.pool;
        self.enter_pool(pool);
        self.wait_for_login(key, pool);
        self.ask();
        self.look_after(pool);
    }

    /// Asks for the next role, if the connection for that is free.
    pub(super) fn ask(&mut self) {
        let Some(Lookups { pool, asked: None, .. }) = self.lookups else { return };
        if let Some(client) = self.pools.get(pool).and_then(|pool| pool.logins.front().copied())
            && let Some(backend) = self.take_idle_backend(pool)
        {
            self.pools[pool].logins.pop_front();
            self.ask_for(client, backend);
        }
    }

    fn ask_for(&mut self, client: ClientKey, backend: BackendKey) {
        let startup = self.clients[client].startup.as_ref();
        let role = Box::from(startup.map_or(&[][..], Startup::role));
        let Some(lookups) = &mut self.lookups else { return };
        let question = question(&lookups.lookup.query, &role);
        lookups.asked = Some(Asked { backend, client, role, since: self.at });
        self.backends[backend].role = Role::Asked;
        self.counts.looked_up += 1;
        self.send_to_backend(backend, &question);
    }

    /// What the server answers. Returns the number of bytes that are done with.
    pub(super) fn lookup_reply(&mut self, key: BackendKey, input: &[u8]) -> usize {
        let Some(Lookups { asked: Some(asked), .. }) = &self.lookups else { return input.len() };
        match answer(input, &asked.role) {
            Ok(None) => 0,
            Ok(Some((found, length))) => {
                self.looked_up(found);
                self.release(key);
                length
            }
            Err(error) => {
                self.server_fails(key, &error.to_string());
                input.len()
            }
        }
    }

    /// The server has answered: the client can prove that it has the secret.
    fn looked_up(&mut self, found: Found) {
        let Some(Asked { client, role, .. }) = self.take_asked() else { return };
        match (found, &mut self.users) {
            (Ok(secret), Some(users)) => {
                users.found(&role, secret);
                // It may have given up.
                if let Some(known) = self.clients.get_mut(client)
                    && known.phase == Phase::LoginQueued
                {
                    let pool = known.pool.take();
                    pool.into_iter().for_each(|pool| self.leave_pool(pool));
                    self.examine(client);
                }
            }
            (Ok(_), None) => {}
            (Err(error), _) => self.not_looked_up(client, &error.to_string()),
        }
    }

    /// The connection for lookups is lost.
    pub(super) fn lookup_fails(&mut self, reason: &str) {
        if let Some(asked) = self.take_asked() {
            self.not_looked_up(asked.client, reason);
        }
    }

    fn not_looked_up(&mut self, client: ClientKey, reason: &str) {
        if self.clients.get(client).is_some_and(|client| client.phase == Phase::LoginQueued) {
            self.turn_away(client, Refusal::NO_SERVER, &no_lookup_text(reason));
        }
    }

    fn take_asked(&mut self) -> Option<Asked> {
        self.lookups.as_mut()?.asked.take()
    }

    /// Goes on after a question that the server has not answered for too long.
    pub(super) fn look_after_lookups(&mut self) {
        if let Some(Lookups { asked: Some(asked), .. }) = &self.lookups
            && self.at >= asked.since + STARTUP_TIME
        {
            self.server_fails(asked.backend, "it does not answer");
        }
        self.ask();
    }
}

/// What a client learns whose role cannot be looked up.
pub fn no_lookup_text(reason: &str) -> String {
    format!("cannot look up the role at the server: {reason}")
}
