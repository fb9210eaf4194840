//! How sessions begin where the guard has a list of users: each client proves to the guard that it has the
//! password of its role. The server is not asked.

use super::client::{ClientKey, Phase};
use super::pool::Pool;
use super::{Relay, random};
use crate::postgres::authentication::{Examination, Progress};
use crate::postgres::refusal::Refusal;
use crate::postgres::scram::BadMessage;
use crate::postgres::startup::Startup;

/// A client that proves who it is.
#[derive(Debug)]
pub struct Proof {
    startup: Startup,
    examination: Examination,
}

impl Relay {
    /// A client has to prove that it has the password of its role.
    pub(super) fn begin_proof(&mut self, key: ClientKey, mut startup: Startup) {
        let Some(users) = &mut self.users else { return };
        let client = &mut self.clients[key];
        let end_point = client.connection.channel().end_point();
        let check = users.check(startup.role(), &self.seed);
        let (examination, question) = Examination::new(check, end_point, random());
        let negotiated = startup.make_plain().unwrap_or_default();
        client.phase = Phase::Proving;
        client.proof = Some(Box::new(Proof { startup, examination }));
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
        let Some(proof) = client.proof.take() else { return Some(taken) };
        let Proof { startup, examination } = *proof;
        match examination.take(body) {
            Ok(Progress::Asked(examination, question)) => {
                client.proof = Some(Box::new(Proof { startup, examination }));
                self.send_to_client(key, &question);
            }
            Ok(Progress::Proved(keys, last)) => {
                if let (Some(users), Some(keys)) = (&mut self.users, keys) {
                    users.learn(startup.role(), keys);
                }
                self.send_to_client(key, &last);
                self.has_proved(key, startup);
            }
            Err(error @ BadMessage::Malformed(_)) => {
                self.turn_away(key, Refusal::VIOLATION, &error.to_string());
            }
            Err(BadMessage::Wrong) => {
                // As the server says it.
                let role = String::from_utf8_lossy(startup.role());
                let text = format!("password authentication failed for user \"{role}\"");
                self.counts.not_proved += 1;
                self.send_to_client(key, &Refusal::NOT_PROVED.message(&text));
                self.end_client(key);
            }
        }
        Some(taken)
    }

    /// A client has proved who it is, and waits until the guard has a connection like its session.
    fn has_proved(&mut self, key: ClientKey, startup: Startup) {
        if !self.clients.contains_key(key) {
            return;
        }
        let pool = self.join_pool(startup);
        self.end_left_pools();
        let client = &mut self.clients[key];
        client.pool = Some(pool);
        client.phase = Phase::LoginQueued;
        self.pools[pool].logins.push_back(key);
        self.greet_all(pool);
        if self.pools.get(pool).is_some_and(Pool::waits_for_greeting) {
            self.look_after(pool);
        } else {
            self.refresh_greeting(pool);
        }
    }
}
