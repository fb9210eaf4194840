//! Stalls: no transaction ends while others wait for admission. All in flight may wait for one lock, of a
//! session that does nothing, and those that wait may not need it. The server says which of them wait for a
//! lock. These are set aside: they give up their places until they go on.

use std::collections::HashSet;
use std::mem;
use std::time::Duration;

use super::backend::{Backend, BackendKey, Role};
use super::login::LOGINS;
use super::opening::Opening;
use super::pool::{Kind, Pool, PoolKey};
use super::room::RETRIED;
use super::{Relay, TICK};
use crate::postgres::locks;

/// What is known of the present stall.
#[derive(Debug, Default)]
pub struct Stall {
    /// Transactions that have ended so far.
    ended: u64,
    /// Whether any waited at the last tick.
    is_waiting: bool,
    /// When that number was the last to change, or the first was seen to wait.
    since: Duration,
    /// Until then, the server is asked again at each tick.
    spreads_until: Duration,
    question: Option<Question>,
    /// Whether transactions that wait for a lock were set aside at the last answer.
    has_aside: bool,
    /// The last pool over which a question failed, or that could not be opened.
    failed: Option<PoolKey>,
    /// When the server may be asked again for transactions that are to be set aside.
    asks_at: Duration,
    /// When it is asked next whether those that are set aside go on.
    checks_at: Duration,
    /// When the guard may open a connection, after one was refused.
    opens_at: Duration,
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
/// in the stall of a deadlock only makes more deadlocks: with 0.2 s, 32 clients of the load `deadlock` had
/// 0.42 (0.33 to 0.76, six pairs of runs) of the commits.
const STALL_TIME: Duration = Duration::from_secs(2);

/// Time between two questions that change nothing.
const CHECK_TIME: Duration = Duration::from_secs(1);

/// Time for an answer. The settings of a role can make any query wait.
const ANSWER_TIME: Duration = Duration::from_secs(5);

impl Stall {
    /// The server has refused a connection of a pool.
    pub fn could_not_open(&mut self, pool: PoolKey, at: Duration) {
        (self.failed, self.opens_at) = (Some(pool), at + RETRIED);
    }
}

impl Relay {
    /// Transactions that have ended so far.
    fn ended(&self) -> u64 {
        self.counts.committed + self.counts.rolled_back + self.counts.failed
    }

    /// Asks the server what its transactions wait for, if it finishes none, or if some are set aside.
    pub(super) fn look_for_stall(&mut self) {
        let ended = self.ended();
        let is_waiting = self.gate.is_waiting();
        let has_waited = mem::replace(&mut self.stall.is_waiting, is_waiting);
        if ended != self.stall.ended || !(is_waiting && has_waited) {
            (self.stall.ended, self.stall.since) = (ended, self.at);
        }
        if let Some(Question { backend, since, .. }) = self.stall.question {
            let there = self.backends.get(backend).filter(|backend| backend.role == Role::Observing);
            if let Some(Backend { pool, .. }) = there {
                // One that the guard cannot replace is kept.
                if self.at >= since + ANSWER_TIME && self.pools.get(*pool).is_none_or(|pool| pool.is_open) {
                    self.stall.failed = Some(*pool);
                    self.server_fails(backend, "it does not answer");
                }
                return;
            }
            // The server has closed it.
            self.stall.question = None;
        }
        let shortest = if self.at < self.stall.spreads_until { TICK } else { STALL_TIME };
        if self.at >= self.stall.since + shortest && self.at >= self.stall.asks_at {
            self.ask_for_locks(Purpose::Stall);
        } else if self.stall.has_aside && self.at >= self.stall.checks_at {
            self.ask_for_locks(Purpose::Check);
        }
    }

    /// Asks over a connection that is free; if there is none, one is opened first. The settings of a pool may
    /// make the question fail: then, another one comes before it.
    fn ask_for_locks(&mut self, purpose: Purpose) {
        let may_open = self.opening < LOGINS && self.at >= self.stall.opens_at;
        for last in [self.stall.failed, None] {
            let pool_that = |is: fn(&Pool) -> bool| {
                let mut pools = self.pools.iter().filter(|(_, pool)| pool.kind != Kind::Lookups && is(pool));
                pools.find(|(key, _)| Some(*key) != last).map(|(key, _)| key)
            };
            let free = pool_that(|pool| !pool.idle.is_empty());
            let open = pool_that(|pool| pool.is_open && pool.opening == 0).filter(|_| may_open);
            if let Some(backend) = free.and_then(|pool| self.take_idle_backend(pool)) {
                self.backends[backend].role = Role::Observing;
                self.stall.checks_at = self.at + CHECK_TIME;
                self.stall.question = Some(Question { backend, since: self.at, purpose });
                self.send_to_backend(backend, &locks::question());
                return;
            } else if let Some(pool) = open {
                self.open_backend(pool, Opening::default());
                return;
            }
        }
    }

    /// What the server answers. Returns the number of bytes that are done with.
    pub(super) fn locks_reply(&mut self, key: BackendKey, input: &[u8]) -> usize {
        let prepared = &mut self.backends[key].prepared;
        match locks::answer(input, |setting| prepared.read_setting(setting)) {
            Ok(None) => 0,
            Ok(Some((processes, length))) => {
                let question = self.stall.question.take();
                // Unless there is something to set aside, the next answer may be the same.
                self.stall.asks_at = self.at + CHECK_TIME;
                if processes.is_none() {
                    self.stall.failed = Some(self.backends[key].pool);
                }
                // If a transaction has ended since then, the stall is over.
                let is_over = self.ended() != self.stall.ended
                    || question.is_none_or(|it| it.purpose == Purpose::Check || it.since <= self.stall.since);
                let purpose = if is_over { Purpose::Check } else { Purpose::Stall };
                processes.iter().for_each(|processes| self.sort(processes, purpose));
                self.gate.look_for_standstill();
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

    /// In a stall, sets the transactions aside that wait for a lock, in these processes of the server. The
    /// others have their places, unless they wait for their clients.
    fn sort(&mut self, processes: &HashSet<u32>, purpose: Purpose) {
        self.stall.has_aside = false;
        for backend in self.backends.values_mut() {
            let (permit, waits_for_client) = match backend.role {
                Role::Serving(client) => {
                    let client = &mut self.clients[client];
                    let waits = client.is_waited_for(&backend.connection);
                    (&mut client.permit, waits)
                }
                _ => (&mut backend.permit, false),
            };
            let Some(permit) = permit else { continue };
            if processes.contains(&backend.cancel_key.process()) {
                if purpose == Purpose::Stall && self.gate.set_aside(permit, self.at) {
                    self.counts.aside_for_lock += 1;
                    self.stall.spreads_until = self.at + STALL_TIME;
                    self.stall.asks_at = self.at;
                }
                self.stall.has_aside |= permit.is_aside();
            } else if !waits_for_client {
                self.gate.take_back(permit, self.at);
            }
        }
    }

    /// A transaction that waited for a lock goes on: the next question is no longer urgent.
    pub(super) fn stop_spreading(&mut self) {
        self.stall.spreads_until = self.at;
    }
}
