//! How sessions begin where the guard has a list of users: each client proves to the guard that it has the
//! password of its role. The server sees none of these logins.

use super::client::{ClientKey, Phase};
use super::pool::{Pool, PoolKey};
use super::{Relay, random};
use crate::postgres::authentication::{Examination, Progress};
use crate::postgres::refusal::Refusal;
use crate::postgres::scram::BadMessage;

impl Relay {
    /// A client has to prove that it has the password of its role, which may have to be looked up first.
    pub(super) fn begin_proof(&mut self, key: ClientKey) {
        let role = self.clients[key].role();
        let is_listed = self.users.as_ref().is_some_and(|users| users.lists(role));
        if is_listed || self.lookups.is_none() {
            self.examine(key);
        } else {
            self.look_up(key);
        }
    }

    /// Asks a client for its first proof.
    pub(super) fn examine(&mut self, key: ClientKey) {
        let client = &mut self.clients[key];
        let (Some(users), Some(startup)) = (&mut self.users, &mut client.startup) else { return };
        let end_point = client.connection.channel().end_point();
        let check = users.check(startup.role(), &self.seed);
        let (examination, question) = Examination::new(check, end_point, random());
        let negotiated = startup.make_plain().unwrap_or_default();
        client.phase = Phase::Proving;
        client.examination = Some(Box::new(examination));
        self.send_to_client(key, &[negotiated, question].concat());
    }

    /// What a client sends while it proves who it is.
    pub(super) fn take_proof(&mut self, key: ClientKey, input: &[u8]) -> Option<usize> {
        let client = &mut self.clients[key];
        let (body, taken) = match client.frames.kind(input) {
            None => return None,
            Some(b'p') => match client.frames.next(input) {
                Ok(None) => return None,
                Ok(Some((piece, taken))) => (piece.body(), taken),
                Err(error) => {
                    self.turn_away(key, Refusal::VIOLATION, &error.to_string());
                    return Some(input.len());
                }
            },
            // It has no password, and leaves.
            Some(b'X') => {
                self.remove_client(key);
                return Some(input.len());
            }
            Some(_) => {
                self.turn_away(key, Refusal::VIOLATION, "the client has not answered with its password");
                return Some(input.len());
            }
        };
        let Some(examination) = client.examination.take() else { return Some(taken) };
        let role = client.role();
        match examination.take(body) {
            Ok(Progress::Asked(examination, question)) => {
                client.examination = Some(Box::new(examination));
                self.send_to_client(key, &question);
            }
            Ok(Progress::Proved(keys, last)) => {
                if let (Some(users), Some(keys)) = (&mut self.users, keys) {
                    users.learn(role, keys);
                }
                self.send_to_client(key, &last);
                self.has_proved(key);
            }
            Err(error @ BadMessage::Malformed(_)) => {
                self.turn_away(key, Refusal::VIOLATION, &error.to_string());
            }
            Err(BadMessage::Wrong) => {
                // As the server says it.
                let role = String::from_utf8_lossy(role);
                let text = format!("password authentication failed for user \"{role}\"");
                self.counts.not_proved += 1;
                self.send_to_client(key, &Refusal::NOT_PROVED.message(&text));
                self.end_client(key);
            }
        }
        Some(taken)
    }

    /// A client has proved who it is, and waits until the guard has a connection like its session.
    fn has_proved(&mut self, key: ClientKey) {
        let Some(startup) = self.clients.get_mut(key).and_then(|client| client.startup.take()) else {
            return;
        };
        let pool = self.join_pool(startup);
        self.end_left_pools();
        self.wait_for_login(key, pool);
        self.greet_all(pool);
        if self.pools.get(pool).is_some_and(Pool::waits_for_guard) {
            self.look_after(pool);
        } else {
            self.refresh_greeting(pool);
        }
    }

    /// A client waits until the guard has a connection of a pool.
    pub(super) fn wait_for_login(&mut self, key: ClientKey, pool: PoolKey) {
        let client = &mut self.clients[key];
        client.pool = Some(pool);
        client.phase = Phase::LoginQueued;
        self.pools[pool].logins.push_back(key);
    }
}
