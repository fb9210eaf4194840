//! How sessions enter: at once, or through a gate of their own (paper, section 4.1).

use super::Relay;
use super::classes::class_of;
use super::client::{ClientKey, Phase};
use crate::gate::{Arrival, ClassId, Permit};
use crate::postgres::refusal::Refusal;
use crate::postgres::startup::Startup;

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Transactions: a session that is in none holds no place.
    Transactions,
    /// Sessions: each one holds its place from its admission to its end, before its login and after it.
    Sessions,
}

impl Level {
    /// Returns the name of what the limit counts, in the plural.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Transactions => "transactions",
            Self::Sessions => "sessions",
        }
    }
}

impl Relay {
    /// A client asks for a session.
    pub(super) fn ask_to_enter(&mut self, key: ClientKey, startup: Startup) {
        let class = class_of(&self.classes, &startup);
        let client = &mut self.clients[key];
        client.startup = Some(startup);
        let Some(gate) = &mut self.entrance else { return self.enter(key) };
        match gate.arrive(key, class, self.at) {
            Arrival::Queued(ticket) => client.phase = Phase::Waiting(ticket),
            Arrival::Admitted(place) => {
                self.give_place(key, place);
                self.enter(key);
            }
            Arrival::Refused => {
                self.of_class(class).not_queued += 1;
                let text = "too many sessions wait for admission; the database is in overload";
                self.turn_away(key, Refusal::NO_ROOM, text);
            }
        }
    }

    /// A session is admitted.
    fn give_place(&mut self, key: ClientKey, place: Permit) {
        self.clients[key].place = Some(place);
        self.expect_login(key);
    }

    /// A session that was admitted logs in.
    pub(super) fn enter(&mut self, key: ClientKey) {
        if self.users.is_some() {
            self.begin_proof(key);
        } else {
            self.queue_login(key);
        }
    }

    /// A session ends.
    pub(super) fn give_up_place(&mut self, place: Permit) {
        if let Some(gate) = &mut self.entrance {
            gate.leave(place, self.at);
            self.admit_sessions();
        }
    }

    /// Admits as many sessions as there is room for, but none that has waited too long.
    pub(super) fn admit_sessions(&mut self) {
        while let Some((key, class)) = self.entrance.as_mut().and_then(|gate| gate.expire(self.at)) {
            self.refuse_session(key, class);
        }
        while let Some((key, place)) = self.entrance.as_mut().and_then(|gate| gate.admit(self.at)) {
            let waited = place.age(self.at);
            self.of_class(place.class()).waits.add(waited);
            // Those that wait withdraw before they end.
            self.clients[key].phase = Phase::Entering;
            self.give_place(key, place);
            self.resumed.push_back(key);
        }
    }

    /// A session has waited too long.
    fn refuse_session(&mut self, key: ClientKey, class: ClassId) {
        self.of_class(class).late += 1;
        let text = "the session waited too long for admission; the database is in overload";
        self.turn_away(key, Refusal::NO_ROOM, text);
    }
}
