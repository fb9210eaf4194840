//! A relay as who runs it sees it.

use std::collections::BTreeMap;

use super::pool::Kind;
use super::{Counts, Level, Relay};
use crate::control::Course;

/// A relay at a moment.
#[derive(Debug, Clone)]
pub struct State {
    /// What the limit counts.
    pub level: Level,
    /// What happened so far.
    pub counts: Counts,
    /// The limits so far; the last one is that of now.
    pub limits: Course,
    /// Transactions, or sessions, that hold a place.
    pub in_flight: usize,
    /// Transactions that are set aside.
    pub aside: usize,
    /// Transactions, or sessions, of each class that wait for admission, in the order of [`Counts::classes`].
    pub waiting: Vec<usize>,
    /// Transactions of each class that lack a connection of the server.
    pub parked: Vec<usize>,
    /// Connections of clients, those that log in included.
    pub clients: usize,
    /// Connections of the server, those that are not open yet included.
    pub backends: usize,
    /// Sessions by role, those that log in at the server included.
    pub sessions: BTreeMap<Vec<u8>, usize>,
    /// Whether all sessions end as soon as they can.
    pub is_draining: bool,
}

impl Relay {
    /// Returns the state.
    #[must_use]
    pub fn state(&self) -> State {
        let (level, limited) = match &self.entrance {
            None => (Level::Transactions, &self.gate),
            Some(entrance) => (Level::Sessions, entrance),
        };
        let mut sessions = BTreeMap::<&[u8], usize>::new();
        for pool in self.pools.values().filter(|pool| pool.kind != Kind::Lookups && pool.sessions > 0) {
            *sessions.entry(pool.startup.role()).or_default() += pool.sessions;
        }
        State {
            level,
            counts: self.counts.clone(),
            limits: self.control.course(),
            in_flight: limited.in_flight(),
            aside: self.gate.aside(),
            waiting: limited.queued().map(|(waiting, _)| waiting).collect(),
            parked: self.gate.queued().map(|(_, parked)| parked).collect(),
            clients: self.clients.len(),
            backends: self.backends.len(),
            sessions: sessions.into_iter().map(|(role, number)| (role.to_vec(), number)).collect(),
            is_draining: self.is_draining(),
        }
    }
}
