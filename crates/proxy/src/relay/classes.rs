//! The classes of the sessions, and what happened to the transactions, or the sessions, of each at the gate.

use std::time::Duration;

use super::client::ClientKey;
use super::{Counts, Relay};
use crate::class::{Classes, Session};
use crate::gate::{ClassId, Gate};
use crate::postgres::startup::Startup;

/// What happened to the transactions of a class, or to its sessions, whichever the limit counts.
#[derive(Debug, Clone, Default)]
pub struct ClassCounts {
    /// The name of the class.
    pub name: String,
    /// The waits of those that were admitted later than they arrived.
    pub waits: Waits,
    /// Those that waited too long.
    pub late: u64,
    /// Those that did not wait, as too many did.
    pub not_queued: u64,
}

/// Several waits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Waits {
    /// How many there were.
    pub number: u64,
    /// Their sum.
    pub sum: Duration,
    /// The longest one.
    pub longest: Duration,
}

impl Waits {
    pub(super) fn add(&mut self, waited: Duration) {
        self.number += 1;
        self.sum += waited;
        self.longest = self.longest.max(waited);
    }
}

/// The class of a session that begins so. The sessions of a pool have the same one.
pub fn class_of(classes: &Classes<ClassId>, startup: &Startup) -> ClassId {
    let (role, database, application) = (startup.role(), startup.database(), startup.application());
    *classes.of(Session { role, database, application })
}

/// The classes of the gate of transactions, and, with the same numbers, of that of sessions.
pub fn numbered(
    classes: Classes,
    (gate, entrance): (&mut Gate<ClientKey>, &mut Option<Gate<ClientKey>>),
    counts: &mut Counts,
) -> Classes<ClassId> {
    classes.map(|class| {
        let name = class.name.clone();
        if let Some(entrance) = entrance {
            entrance.set_class(class.clone());
        }
        let id = gate.set_class(class);
        if id.number() == counts.classes.len() {
            counts.classes.push(ClassCounts { name, ..ClassCounts::default() });
        }
        id
    })
}

impl Relay {
    /// Sessions have these classes from now on. Transactions that wait stay in their class; if it is not
    /// among these, as it was.
    pub(super) fn change_classes(&mut self, classes: Classes) {
        self.classes = numbered(classes, (&mut self.gate, &mut self.entrance), &mut self.counts);
        for pool in self.pools.values_mut() {
            pool.class = class_of(&self.classes, &pool.startup);
        }
    }

    /// What is counted of a class.
    pub(super) fn of_class(&mut self, class: ClassId) -> &mut ClassCounts {
        &mut self.counts.classes[class.number()]
    }
}
