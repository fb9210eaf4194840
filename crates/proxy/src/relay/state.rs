//! A relay as who runs it sees it.

use assay_reflect::law::Limit;

use super::{Counts, Relay};

/// A relay at a moment.
#[derive(Debug, Clone)]
pub struct State {
    /// What happened so far.
    pub counts: Counts,
    /// Transactions that may be in flight.
    pub limit: Limit,
    /// Transactions in flight.
    pub in_flight: usize,
    /// Transactions of each class that wait for admission, in the order of [`Counts::classes`].
    pub waiting: Vec<usize>,
    /// Transactions of each class that lack a connection of the server.
    pub parked: Vec<usize>,
    /// Connections of clients, those that log in included.
    pub clients: usize,
    /// Connections of the server, those that are not open yet included.
    pub backends: usize,
    /// Whether the law has failed.
    pub law_has_failed: bool,
    /// Whether sessions end as soon as they can.
    pub is_draining: bool,
}

impl Relay {
    /// Returns the state.
    pub(super) fn state(&self) -> State {
        let (waiting, parked) = self.gate.queued().unzip();
        State {
            counts: self.counts.clone(),
            limit: self.gate.limit(),
            in_flight: self.gate.in_flight(),
            waiting,
            parked,
            clients: self.clients.len(),
            backends: self.backends.len(),
            law_has_failed: self.control.course().has_failed,
            is_draining: self.is_draining(),
        }
    }
}
