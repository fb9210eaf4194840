//! Stalls: no transaction ends while others wait for admission. All in flight may wait for one lock, of a
//! session that does nothing, and those that wait may not need it. The server says which of them wait for a
//! lock. These are set aside: they give up their places until they go on, and so do those that wait for their
//! clients.

use std::collections::HashSet;
use std::time::Duration;

use super::backend::{BackendKey, Role};
use super::client::ClientKey;
use super::login::LOGINS;
use super::opening::Opening;
use super::pool::{Kind, Pool};
use super::{Relay, TICK};
use crate::postgres::locks;

/// What is known of the present stall.
#[derive(Debug, Default)]
pub struct Stall {
    /// Transactions that have ended so far.
    ended: u64,
    /// When that number was the last to change, or none waited.
    since: Duration,
    /// Until then, the server is asked again at each tick.
    spreads_until: Duration,
    /// Questions so far.
    asked: usize,
    question: Option<Question>,
    /// When the server is asked next, at the latest, whether those that are set aside go on.
    checks_at: Duration,
    /// When the guard may try to open a connection again.
    pub opens_at: Duration,
}

/// What the server was asked.
#[derive(Debug)]
struct Question {
    backend: BackendKey,
    since: Duration,
    purpose: Purpose,
}

/// Why the server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// In a stall, for the transactions that are to be set aside.
    Stall,
    /// For those that were, and may go on.
    Check,
}

/// Time without an end that is a stall: twice the default of PostgreSQL's `deadlock_timeout`. To admit others
/// in the stall of a deadlock only makes more deadlocks: with 0.2 s, `knee` had a sixth to a half of the
/// commits (`make overload CASE=deadlock`).
const STALL_TIME: Duration = Duration::from_secs(2);

/// Time between two questions whether transactions that are set aside go on.
const CHECK_TIME: Duration = Duration::from_secs(1);

/// Time for an answer. The settings of a role can make any query wait.
const ANSWER_TIME: Duration = Duration::from_secs(5);

impl Relay {
    /// Asks the server what its transactions wait for, if it finishes none, or if some are set aside.
    pub(super) fn look_for_stall(&mut self) {
        let ended = self.counts.committed + self.counts.rolled_back + self.counts.failed;
        let is_waiting = self.gate.queued().any(|(waiting, _)| waiting > 0);
        if ended != self.stall.ended || !is_waiting {
            (self.stall.ended, self.stall.since) = (ended, self.at);
        }
        if let Some(Question { backend, since, .. }) = self.stall.question {
            if self.backends.get(backend).is_some_and(|backend| backend.role == Role::Observing) {
                if self.at >= since + ANSWER_TIME {
                    self.server_fails(backend, "it does not answer");
                }
                return;
            }
            // The server has closed it.
            self.stall.question = None;
        }
        let shortest = if self.at < self.stall.spreads_until { TICK } else { STALL_TIME };
        if self.at >= self.stall.since + shortest {
            self.ask_for_locks(Purpose::Stall);
        } else if self.gate.aside() > 0 && self.at >= self.stall.checks_at {
            self.ask_for_locks(Purpose::Check);
        }
    }

    /// Asks over a connection that is free; if there is none, one is opened first. The pools take turns, as
    /// the settings of one may make the question fail.
    fn ask_for_locks(&mut self, purpose: Purpose) {
        let turn = self.stall.asked;
        let pool_that = |is: &dyn Fn(&Pool) -> bool| {
            let pools = self.pools.iter().filter(|(_, pool)| pool.kind != Kind::Lookups && is(pool));
            let pools: Vec<_> = pools.map(|(key, _)| key).collect();
            pools.get(turn % pools.len().max(1)).copied()
        };
        if let Some(pool) = pool_that(&|pool| !pool.idle.is_empty()) {
            if let Some(backend) = self.take_idle_backend(pool) {
                self.backends[backend].role = Role::Observing;
                self.stall.asked += 1;
                self.stall.checks_at = self.at + CHECK_TIME;
                self.stall.question = Some(Question { backend, since: self.at, purpose });
                self.send_to_backend(backend, &locks::question());
            }
        } else if let Some(pool) = pool_that(&|pool| pool.is_open && pool.opening == 0)
            && self.opening < LOGINS
            && self.at >= self.stall.opens_at
        {
            self.open_backend(pool, Opening::default());
        }
    }

    /// What the server answers. Returns the number of bytes that are done with.
    pub(super) fn locks_reply(&mut self, key: BackendKey, input: &[u8]) -> usize {
        let prepared = &mut self.backends[key].prepared;
        match locks::answer(input, |setting| prepared.read_setting(setting)) {
            Ok(None) => 0,
            Ok(Some((processes, length))) => {
                let question = self.stall.question.take();
                // If a transaction has ended since then, the stall is over.
                let is_stall = |it: Question| it.purpose == Purpose::Stall && self.stall.since < it.since;
                let purpose = if question.is_some_and(is_stall) { Purpose::Stall } else { Purpose::Check };
                processes.iter().for_each(|processes| self.sort(processes, purpose));
                self.release(key);
                self.admit_waiting();
                length
            }
            Err(error) => {
                self.server_fails(key, &error.to_string());
                input.len()
            }
        }
    }

    /// In a stall, sets the transactions aside that wait for a lock, in these processes of the server, or for
    /// their clients. The others have their places.
    fn sort(&mut self, processes: &HashSet<u32>, purpose: Purpose) {
        for backend in self.backends.values_mut() {
            let (permit, waits_for_client) = match backend.role {
                Role::Serving(client) => {
                    let client = &mut self.clients[client];
                    let waits = client.session.waits_for_client() || client.connection.is_full();
                    (&mut client.permit, waits)
                }
                _ => (&mut backend.permit, false),
            };
            let Some(permit) = permit else { continue };
            if !waits_for_client && !processes.contains(&backend.cancel_key.process()) {
                self.gate.take_back(permit, self.at);
            } else if purpose == Purpose::Stall && self.gate.set_aside(permit, self.at) {
                self.counts.set_aside += 1;
                self.stall.spreads_until = self.at + STALL_TIME;
            }
        }
    }

    /// A transaction goes on: it has its place again.
    pub(super) fn go_on(&mut self, client: ClientKey) {
        let permit = self.clients.get_mut(client).and_then(|client| client.permit.as_mut());
        if permit.is_some_and(|permit| self.gate.take_back(permit, self.at)) {
            self.stall.spreads_until = self.at;
        }
    }
}
