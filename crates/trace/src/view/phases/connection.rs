//! A connection, and the unit of work that it carries at the moment.

use super::{
    Side,
    step::{Progress, Role, Step},
    unit::Unit,
};
use crate::{
    record::{Call, Record},
    syscall::Direction,
};

/// A socket that carries requests.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) side: Side,
    /// Position of its kind in the list of kinds.
    pub(super) kind: usize,
    /// Number of units of work that ended.
    pub(super) units_ended: u64,
    /// Whether it had a request.
    has_request: bool,
    /// Whether one side has ended it.
    is_closing: bool,
    pub(super) unit: Unit,
}

impl Connection {
    pub(super) fn new(side: Side, kind: usize) -> Self {
        Self { side, kind, units_ended: 0, has_request: false, is_closing: false, unit: Unit::default() }
    }

    /// Returns whether its request has not been answered.
    pub(super) fn is_asked(&self) -> bool {
        self.unit.asked_ns.is_some() && self.unit.answered_ns.is_none()
    }

    /// Ends the unit of work and returns it if a call with this role begins the next one: a request after an
    /// answer.
    pub(super) fn next_unit(&mut self, role: Role) -> Option<Unit> {
        let begins =
            role == Role::Moves(self.side.requests()) && self.unit.answered_ns.is_some() && !self.is_closing;
        begins.then(|| {
            self.units_ended += 1;
            std::mem::take(&mut self.unit)
        })
    }

    /// Returns the step of a call on the connection.
    pub(super) fn step(&mut self, record: &Record, call: &Call, role: Role) -> Step {
        match role {
            Role::Moves(direction) if direction == self.side.requests() && !self.is_closing => {
                self.has_request = true;
                let asked_ns = match self.side {
                    // A read that blocks began before the request arrived.
                    Side::Answers => record.end_ns(),
                    Side::Asks => record.begin_ns,
                };
                self.unit.asked_ns.get_or_insert(asked_ns);
            }
            Role::Moves(direction) if direction != self.side.requests() && self.unit.asked_ns.is_some() => {
                self.unit.answered_ns = Some(record.end_ns());
            }
            Role::Ends => self.is_closing = true,
            // The client of a server may end its direction and still read the answer.
            Role::FindsEnd => self.is_closing |= self.side == Side::Asks || !self.is_asked(),
            Role::Moves(_) | Role::Opens | Role::FindsNothing | Role::Adjusts => {}
        }
        Step::on_connection(call, role, self.side, self.progress())
    }

    /// Returns what the unit of work has seen so far.
    pub(super) fn progress(&self) -> Progress {
        if self.is_closing {
            Progress::Ends
        } else if !self.has_request {
            Progress::Opens
        } else if self.is_asked() {
            Progress::Asked
        } else {
            Progress::Answered
        }
    }
}

impl Side {
    /// Returns the direction of requests.
    pub(super) fn requests(self) -> Direction {
        match self {
            Self::Answers => Direction::In,
            Self::Asks => Direction::Out,
        }
    }
}
