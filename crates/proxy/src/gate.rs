//! Which unit of work may enter the database now? At most as many as the limit are in flight; the others wait
//! in the queues of their classes. Those of a class with a higher priority come first, classes with the same
//! priority take turns, and the units of a class come in its order. None waits longer than its class allows.
//!
//! A unit that is admitted and lacks something else than a place is parked: it gives its place to the next
//! one, and comes back to its place by the order of its class. One that has begun and stands still is set
//! aside: it has no place until it goes on.
//!
//! Pure: times are durations since a fixed moment, and never decrease.
//! A unit is of any type: the gate contains nothing of a protocol.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use assay_reflect::law::Limit;
use assay_reflect::meter::{Admission, Meter, Outcome};
use assay_reflect::{Overhead, Signal};

use crate::class::{Class, Order};

/// The state of a gate for units of this type.
#[derive(Debug)]
pub struct Gate<T> {
    limit: Limit,
    meter: Meter,
    queues: Vec<Queue<T>>,
    arrived: u64,
    /// Units that were admitted from a queue.
    taken: u64,
    /// Units that are set aside.
    aside: usize,
    /// Those of them that were set aside since one last went on.
    aside_in_a_row: usize,
    /// Units that may be in flight in a standstill, if the limit is lower.
    standstill: usize,
}

/// The units of a class that are not in flight, by the order of their arrival.
#[derive(Debug)]
struct Queue<T> {
    class: Class,
    /// Those that wait for a place.
    waiting: BTreeMap<u64, (T, Duration)>,
    /// Those that lack something else.
    parked: BTreeMap<u64, (T, Duration)>,
    /// The number of units that were admitted from any queue, up to the last one from this.
    last_taken: u64,
}

/// The number of a class at its gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassId(usize);

/// The place of a unit among those that wait or are parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    number: u64,
    class: ClassId,
}

/// The right of a unit to be in flight. It has to be given back; until it is finished, the unit has failed.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a unit ends when its permit is given back"]
pub struct Permit {
    ticket: Ticket,
    arrived: Duration,
    admission: Admission,
    outcome: Outcome,
    /// When the unit was admitted, if it is set aside.
    aside: Option<Duration>,
}

/// What a unit may do that arrives.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Begin at once.
    Admitted(Permit),
    /// Wait.
    Queued(Ticket),
    /// Neither: as many of its class wait as may.
    Refused,
}

impl ClassId {
    /// Returns the number: classes are numbered from zero.
    #[must_use]
    pub fn number(self) -> usize {
        self.0
    }
}

impl Permit {
    /// The unit has succeeded.
    pub fn finish(&mut self) {
        self.outcome = Outcome::Finished;
    }

    /// Returns the class of the unit.
    #[must_use]
    pub fn class(&self) -> ClassId {
        self.ticket.class
    }

    /// Whether the unit is set aside.
    #[must_use]
    pub fn is_aside(&self) -> bool {
        self.aside.is_some()
    }

    /// Returns the time since the unit arrived.
    #[must_use]
    pub fn age(&self, at: Duration) -> Duration {
        at.saturating_sub(self.arrived)
    }
}

impl<T> Gate<T> {
    /// Opens a gate, which has no class yet.
    #[must_use]
    pub fn new(limit: Limit) -> Self {
        Self {
            limit,
            meter: Meter::default(),
            queues: Vec::new(),
            arrived: 0,
            taken: 0,
            aside: 0,
            aside_in_a_row: 0,
            standstill: 0,
        }
    }

    /// Adds a class, or changes that with its name: also for the units that wait. None is ever removed.
    pub fn set_class(&mut self, class: Class) -> ClassId {
        let known = self.queues.iter().position(|queue| queue.class.name == class.name);
        let number = known.unwrap_or(self.queues.len());
        match self.queues.get_mut(number) {
            Some(queue) => queue.class = class,
            None => self.queues.push(Queue {
                class,
                waiting: BTreeMap::new(),
                parked: BTreeMap::new(),
                last_taken: 0,
            }),
        }
        ClassId(number)
    }

    /// Returns the number of units that may be in flight.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// Returns the number of units in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.meter.in_flight()
    }

    /// Returns the number of units that are set aside.
    #[must_use]
    pub fn aside(&self) -> usize {
        self.aside
    }

    /// Returns the numbers of units that wait, and that are parked, for each class.
    pub fn queued(&self) -> impl Iterator<Item = (usize, usize)> {
        self.queues.iter().map(|queue| (queue.waiting.len(), queue.parked.len()))
    }

    /// Whether units wait for a place.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.queues.iter().any(|queue| !queue.waiting.is_empty())
    }

    /// Changes the number of units that may be in flight. Those that are go on; if there is room for more,
    /// [`Self::admit`] returns them.
    pub fn allow(&mut self, limit: Limit) {
        self.limit = limit;
    }

    fn has_room(&self) -> bool {
        self.in_flight() < self.standstill.max(self.limit.units() as usize)
    }

    /// A unit of this class arrives. None waits while there is room, so that it overtakes no other.
    pub fn arrive(&mut self, unit: T, class: ClassId, at: Duration) -> Arrival {
        let ticket = Ticket { number: self.arrived, class };
        self.arrived += 1;
        if self.has_room() {
            self.meter.arrive(at);
            return Arrival::Admitted(self.permit(ticket, at, at));
        }
        let Queue { class, waiting, .. } = &mut self.queues[class.0];
        if class.most_waiting.is_some_and(|most| waiting.len() >= most) {
            return Arrival::Refused;
        }
        self.meter.arrive(at);
        waiting.insert(ticket.number, (unit, at));
        Arrival::Queued(ticket)
    }

    fn permit(&mut self, ticket: Ticket, arrived: Duration, at: Duration) -> Permit {
        let admission = self.meter.admit(at);
        Permit { ticket, arrived, admission, outcome: Outcome::Failed, aside: None }
    }

    /// A unit in flight ends. [`Self::admit`] returns the one that takes its place.
    pub fn leave(&mut self, mut permit: Permit, at: Duration) {
        self.take_back(&mut permit, at);
        self.meter.end(permit.admission, permit.outcome, at);
    }

    /// Admits the next of those that wait, if one does and there is room.
    pub fn admit(&mut self, at: Duration) -> Option<(T, Permit)> {
        if !self.has_room() {
            return None;
        }
        let queues = self.queues.iter_mut().enumerate().filter(|(_, queue)| !queue.waiting.is_empty());
        let (class, queue) =
            queues.min_by_key(|(_, queue)| (Reverse(queue.class.priority), queue.last_taken))?;
        let (number, (unit, arrived)) = queue.take_next(at)?;
        self.taken += 1;
        queue.last_taken = self.taken;
        Some((unit, self.permit(Ticket { number, class: ClassId(class) }, arrived, at)))
    }

    /// A unit in flight stands still, and gives up its place. [`Self::admit`] returns the one that takes it.
    /// Returns whether it had one.
    pub fn set_aside(&mut self, permit: &mut Permit, at: Duration) -> bool {
        let had_place = !permit.is_aside();
        if had_place {
            self.aside += 1;
            self.aside_in_a_row += 1;
            permit.aside = self.meter.retract(&permit.admission, at);
        }
        had_place
    }

    /// A unit that was set aside goes on: it is in flight, even if as many others are as the limit allows.
    /// Returns whether it was.
    pub fn take_back(&mut self, permit: &mut Permit, at: Duration) -> bool {
        let Some(admitted) = permit.aside.take() else { return false };
        self.aside -= 1;
        (self.aside_in_a_row, self.standstill) = (0, 0);
        self.meter.resume(&permit.admission, admitted, at);
        true
    }

    /// In a standstill, units wait and all that have begun are set aside. Then, as many may be in flight as
    /// were set aside since one last went on, if these are more than the limit, until one does or this is
    /// called again. So any number that have to be in flight together are, after few standstills.
    /// [`Self::admit`] returns the next ones.
    pub fn look_for_standstill(&mut self) {
        let stands_still = self.in_flight() == 0 && self.is_waiting();
        self.standstill = if stands_still { self.aside_in_a_row } else { 0 };
    }

    /// A unit cannot begin yet. [`Self::admit`] returns the one that takes its place.
    pub fn park(&mut self, unit: T, permit: Permit, at: Duration) -> Ticket {
        let Permit { ticket, arrived, admission, .. } = permit;
        self.meter.retract(&admission, at);
        self.queues[ticket.class.0].parked.insert(ticket.number, (unit, arrived));
        ticket
    }

    /// A parked unit could begin, and waits for a place, also if many do. [`Self::admit`] returns it when
    /// there is one.
    pub fn unpark(&mut self, Ticket { number, class }: Ticket, at: Duration) {
        let queue = &mut self.queues[class.0];
        if let Some(unit) = queue.parked.remove(&number) {
            self.meter.arrive(at);
            queue.waiting.insert(number, unit);
        }
    }

    /// A unit that waits or is parked gives up.
    pub fn withdraw(&mut self, Ticket { number, class }: Ticket, at: Duration) {
        let queue = &mut self.queues[class.0];
        queue.parked.remove(&number);
        if queue.waiting.remove(&number).is_some() {
            self.meter.give_up(at);
        }
    }

    /// Whether a unit that was admitted has waited, or been kept from its work, too long.
    #[must_use]
    pub fn is_late(&self, permit: &Permit, at: Duration) -> bool {
        permit.age(at) >= self.queues[permit.ticket.class.0].class.longest_wait
    }

    /// Returns a unit that has waited or was parked too long, and its class, if there is one. It does not any
    /// more.
    pub fn expire(&mut self, at: Duration) -> Option<(T, ClassId)> {
        for (number, Queue { class, waiting, parked, .. }) in self.queues.iter_mut().enumerate() {
            let is_late = |(_, arrived): &(T, Duration)| at.saturating_sub(*arrived) >= class.longest_wait;
            if let Some(oldest) = waiting.first_entry().filter(|oldest| is_late(oldest.get())) {
                self.meter.give_up(at);
                return Some((oldest.remove().0, ClassId(number)));
            }
            if let Some(oldest) = parked.first_entry().filter(|oldest| is_late(oldest.get())) {
                return Some((oldest.remove().0, ClassId(number)));
            }
        }
        None
    }

    /// Ends a period, whose work cost this much, and returns its signal. Units that are parked or set aside
    /// are not in it: a place is not what they lack.
    pub fn period(&mut self, at: Duration, overhead: Overhead) -> Signal {
        self.meter.period(at, overhead)
    }
}

impl<T> Queue<T> {
    /// Takes the unit that is the next.
    fn take_next(&mut self, at: Duration) -> Option<(u64, (T, Duration))> {
        let (_, (_, oldest)) = self.waiting.first_key_value()?;
        let Class { order, longest_wait, .. } = self.class;
        match order {
            Order::NewestFirst if at.saturating_sub(*oldest) >= longest_wait / 2 => self.waiting.pop_last(),
            Order::NewestFirst | Order::OldestFirst => self.waiting.pop_first(),
        }
    }
}

#[cfg(test)]
mod tests;
