//! Roles that are not in the list of users: the guard asks the server for the secret of each one that logs
//! in, every time, so that what the server keeps of a role counts at once.
//!
//! The connection for that belongs to a pool of its own, which no session shares: a session could change what
//! the query means. Clients wait there as logins do, and the server is asked for one role at a time.

use std::time::Duration;

use super::Relay;
use super::backend::{BackendKey, Role};
use super::classes::class_of;
use super::client::{ClientKey, Phase};
use super::pool::{Kind, Pool, PoolKey};
use crate::postgres::lookup::{BadResult, Found, answer, question};
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
    /// Why a role could not be looked up, until that is said.
    failure: Option<String>,
    /// When another failure is said.
    silent_until: Duration,
}

/// A question to the server.
#[derive(Debug)]
struct Asked {
    backend: BackendKey,
    client: ClientKey,
    role: Box<[u8]>,
    since: Duration,
}

/// Time that the server has for an answer (`statement_timeout`): a lock must not keep all others waiting.
const ANSWER_TIME: Duration = Duration::from_secs(20);

/// Time after which a server that has not even reported that this time is over is given up.
const LOST_TIME: Duration = Duration::from_secs(30);

/// Time between two messages on failures. Clients that have proved nothing can bring them about.
const SILENT_TIME: Duration = Duration::from_secs(10);

/// What a client gets whose role cannot be looked up. The reason is not for one that has proved nothing.
const NO_LOOKUP: &str = "the guard cannot look up this role at the server";

impl Lookup {
    fn startup(&self) -> Startup {
        let answer_time = ANSWER_TIME.as_millis().to_string();
        Startup::new(&[
            (b"user", self.role.as_bytes()),
            (b"database", self.database.as_bytes()),
            (b"application_name", b"assay guard"),
            (b"statement_timeout", answer_time.as_bytes()),
        ])
    }
}

impl Lookups {
    /// Nothing was asked yet.
    pub fn new(lookup: Lookup) -> Self {
        let (pool, silent_until) = (PoolKey::default(), Duration::ZERO);
        Self { lookup, pool, asked: None, failure: None, silent_until }
    }
}

impl Relay {
    /// A client waits until its role is looked up.
    pub(super) fn look_up(&mut self, key: ClientKey) {
        let Some(lookups) = &mut self.lookups else { return };
        if !self.pools.contains_key(lookups.pool) {
            let startup = lookups.lookup.startup();
            let class = class_of(&self.classes, &startup);
            lookups.pool = self.pools.insert(Pool::new(startup, class, Kind::Lookups));
        }
        let pool = lookups.pool;
        self.counts.looked_up += 1;
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
        let role = Box::from(self.clients[client].role());
        let Some(lookups) = &mut self.lookups else { return };
        let question = question(&lookups.lookup.query, &role);
        lookups.asked = Some(Asked { backend, client, role, since: self.at });
        self.backends[backend].role = Role::Asked;
        self.send_to_backend(backend, &question);
    }

    /// What the server answers. Returns the number of bytes that are done with.
    pub(super) fn lookup_reply(&mut self, key: BackendKey, input: &[u8]) -> usize {
        let Some(Lookups { asked: Some(asked), .. }) = &self.lookups else { return input.len() };
        match answer(input, &asked.role) {
            Ok(None) => 0,
            Ok(Some((found, length))) => {
                self.take_found(found);
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
    fn take_found(&mut self, found: Found) {
        let Some(asked) = self.take_asked() else { return };
        let secret = match found {
            Ok(secret) => secret,
            Err(error @ BadResult::Failed(_)) => return self.not_looked_up(asked.client, &error.to_string()),
            Err(error) => {
                // To the client, there is no such role.
                self.lookup_failed(asked.client, &error.to_string());
                None
            }
        };
        if let Some(users) = &mut self.users {
            users.found(&asked.role, secret);
        }
        if self.is_looked_up(asked.client) {
            let pool = self.clients[asked.client].pool.take();
            pool.into_iter().for_each(|pool| self.leave_pool(pool));
            self.examine(asked.client);
            // It may have sent its first message.
            self.resumed.push_back(asked.client);
        }
    }

    /// The connection for lookups is lost. If it has answered before, it may have been lost since then, and
    /// the server is asked again over another one.
    pub(super) fn lose_lookup(&mut self, key: BackendKey, reason: &str) {
        let Some(asked) = self.take_asked() else { return };
        // One that has given up has none.
        let pool = self.clients.get(asked.client).and_then(|client| client.pool);
        match pool.and_then(|pool| self.pools.get_mut(pool)) {
            Some(pool) if self.backends[key].opened < asked.since => pool.logins.push_front(asked.client),
            _ => self.not_looked_up(asked.client, reason),
        }
    }

    /// The connection for lookups cannot be used any more.
    pub(super) fn lookup_fails(&mut self, reason: &str) {
        if let Some(asked) = self.take_asked() {
            self.not_looked_up(asked.client, reason);
        }
    }

    fn take_asked(&mut self) -> Option<Asked> {
        self.lookups.as_mut()?.asked.take()
    }

    /// A client cannot log in, as its role was not looked up.
    pub(super) fn not_looked_up(&mut self, client: ClientKey, reason: &str) {
        self.lookup_failed(client, reason);
        if self.is_looked_up(client) {
            self.turn_away(client, Refusal::NO_SERVER, NO_LOOKUP);
        }
    }

    /// Whether a client waits until its role is looked up. It may have given up since it was asked for.
    fn is_looked_up(&self, client: ClientKey) -> bool {
        self.clients.get(client).is_some_and(|client| client.phase == Phase::LoginQueued)
    }

    /// The role of a client was not looked up.
    fn lookup_failed(&mut self, client: ClientKey, reason: &str) {
        self.counts.not_looked_up += u64::from(self.is_looked_up(client));
        if let Some(lookups) = &mut self.lookups
            && self.at >= lookups.silent_until
        {
            lookups.silent_until = self.at + SILENT_TIME;
            lookups.failure = Some(format!("cannot look up a role at the server: {reason}"));
        }
    }

    /// Returns why a role could not be looked up, if that is to be said.
    pub(super) fn lookup_failure(&mut self) -> Option<String> {
        self.lookups.as_mut()?.failure.take()
    }

    /// Goes on after a question that the server has not answered for too long.
    pub(super) fn look_after_lookups(&mut self) {
        if let Some(Lookups { asked: Some(asked), .. }) = &self.lookups
            && self.at >= asked.since + LOST_TIME
        {
            self.server_fails(asked.backend, "it does not answer");
        }
        self.ask();
    }
}
