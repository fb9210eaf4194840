//! Which unit of work may enter the database now? At most as many as the limit are in flight; the others wait
//! in the order in which they arrive, and not longer than they may.
//!
//! A unit that is admitted and lacks something else than a place is parked: it gives its place to the next
//! one, and comes back in front of those that arrived after it.
//!
//! Pure: times are durations since a fixed moment, and never decrease.
//! A unit is of any type: the gate contains nothing of a protocol.

use std::collections::BTreeMap;
use std::time::Duration;

use assay_reflect::law::Limit;
use assay_reflect::meter::{Admission, Meter, Outcome};
use assay_reflect::{Overhead, Signal};

/// The state of a gate for units of this type.
#[derive(Debug)]
pub struct Gate<T> {
    limit: Limit,
    longest_wait: Duration,
    meter: Meter,
    /// The units that wait for a place, by the order of their arrival.
    waiting: BTreeMap<u64, (T, Duration)>,
    /// Those that lack something else.
    parked: BTreeMap<u64, (T, Duration)>,
    arrived: u64,
}

/// The place of a unit among those that wait or are parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// The right of a unit to be in flight. It has to be given back; until it is finished, the unit has failed.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a unit ends when its permit is given back"]
pub struct Permit {
    ticket: Ticket,
    arrived: Duration,
    admission: Admission,
    outcome: Outcome,
}

/// What a unit may do that arrives.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Begin at once.
    Admitted(Permit),
    /// Wait.
    Queued(Ticket),
}

impl Permit {
    /// The unit has succeeded.
    pub fn finish(&mut self) {
        self.outcome = Outcome::Finished;
    }

    /// Returns the time since the unit arrived.
    #[must_use]
    pub fn age(&self, at: Duration) -> Duration {
        at.saturating_sub(self.arrived)
    }
}

impl<T> Gate<T> {
    /// Opens a gate.
    #[must_use]
    pub fn new(limit: Limit, longest_wait: Duration) -> Self {
        Self {
            limit,
            longest_wait,
            meter: Meter::default(),
            waiting: BTreeMap::new(),
            parked: BTreeMap::new(),
            arrived: 0,
        }
    }

    /// Returns the number of units that may be in flight.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// Changes the number of units that may be in flight. Those that are go on; if there is room for more,
    /// [`Self::admit`] returns them.
    pub fn allow(&mut self, limit: Limit) {
        self.limit = limit;
    }

    fn has_room(&self) -> bool {
        self.meter.in_flight() < self.limit.units() as usize
    }

    /// A unit arrives. None waits while there is room, so that it overtakes no other.
    pub fn arrive(&mut self, unit: T, at: Duration) -> Arrival {
        let ticket = Ticket(self.arrived);
        self.arrived += 1;
        self.meter.arrive(at);
        if self.has_room() {
            return Arrival::Admitted(self.permit(ticket, at, at));
        }
        self.waiting.insert(ticket.0, (unit, at));
        Arrival::Queued(ticket)
    }

    fn permit(&mut self, ticket: Ticket, arrived: Duration, at: Duration) -> Permit {
        Permit { ticket, arrived, admission: self.meter.admit(at), outcome: Outcome::Failed }
    }

    /// A unit in flight ends. [`Self::admit`] returns the one that takes its place.
    pub fn leave(&mut self, permit: Permit, at: Duration) {
        self.meter.end(permit.admission, permit.outcome, at);
    }

    /// Admits the first of those that wait, if one does and there is room.
    pub fn admit(&mut self, at: Duration) -> Option<(T, Permit)> {
        if self.has_room() { self.admit_beyond(at) } else { None }
    }

    /// Admits the first of those that wait, if one does, whatever the limit is.
    pub fn admit_beyond(&mut self, at: Duration) -> Option<(T, Permit)> {
        let (number, (unit, arrived)) = self.waiting.pop_first()?;
        Some((unit, self.permit(Ticket(number), arrived, at)))
    }

    /// A unit cannot begin yet. [`Self::admit`] returns the one that takes its place.
    pub fn park(&mut self, unit: T, permit: Permit, at: Duration) -> Ticket {
        let Permit { ticket, arrived, admission, .. } = permit;
        self.meter.retract(&admission, at);
        self.parked.insert(ticket.0, (unit, arrived));
        ticket
    }

    /// A parked unit could begin, and waits for a place. [`Self::admit`] returns it when there is one.
    pub fn unpark(&mut self, Ticket(number): Ticket, at: Duration) {
        if let Some(unit) = self.parked.remove(&number) {
            self.meter.arrive(at);
            self.waiting.insert(number, unit);
        }
    }

    /// A unit that waits or is parked gives up.
    pub fn withdraw(&mut self, Ticket(number): Ticket, at: Duration) {
        self.parked.remove(&number);
        if self.waiting.remove(&number).is_some() {
            self.meter.give_up(at);
        }
    }

    /// Whether a unit that was admitted has waited, or been kept from its work, too long.
    #[must_use]
    pub fn is_late(&self, permit: &Permit, at: Duration) -> bool {
        permit.age(at) >= self.longest_wait
    }

    /// Returns a unit that has waited or was parked too long, if there is one. It does not any more.
    pub fn expire(&mut self, at: Duration) -> Option<T> {
        let is_late = |(_, arrived): &(T, Duration)| at.saturating_sub(*arrived) >= self.longest_wait;
        if let Some(oldest) = self.waiting.first_entry().filter(|oldest| is_late(oldest.get())) {
            let (unit, _) = oldest.remove();
            self.meter.give_up(at);
            return Some(unit);
        }
        let oldest = self.parked.first_entry().filter(|oldest| is_late(oldest.get()))?;
        Some(oldest.remove().0)
    }

    /// Ends a period, whose work cost this much, and returns its signal. Units that are parked are not in it:
    /// no limit would let them begin.
    pub fn period(&mut self, at: Duration, overhead: Overhead) -> Signal {
        self.meter.period(at, overhead)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LONGEST: Duration = Duration::from_millis(50);

    /// A unit, and when it arrived.
    type Unit = (u32, Duration);

    /// A gate as one would first write it.
    #[derive(Debug, Default)]
    struct Naive {
        limit: usize,
        in_flight: Vec<Unit>,
        waiting: Vec<Unit>,
        parked: Vec<Unit>,
        /// Time that was spent waiting, of all units.
        waited_s: f64,
    }

    impl Naive {
        fn pass(&mut self, passed: Duration) {
            self.waited_s += self.waiting.len() as f64 * passed.as_secs_f64();
        }

        fn arrive(&mut self, unit: Unit) -> bool {
            let has_room = self.in_flight.len() < self.limit;
            let list = if has_room { &mut self.in_flight } else { &mut self.waiting };
            list.push(unit);
            has_room
        }

        fn admit_beyond(&mut self) -> Option<Unit> {
            self.waiting.sort_unstable();
            let unit = (!self.waiting.is_empty()).then(|| self.waiting.remove(0))?;
            self.in_flight.push(unit);
            Some(unit)
        }

        fn admit(&mut self) -> Option<Unit> {
            if self.in_flight.len() < self.limit { self.admit_beyond() } else { None }
        }

        fn expire(&mut self, at: Duration) -> Option<u32> {
            for list in [&mut self.waiting, &mut self.parked] {
                list.sort_unstable();
                if list.first().is_some_and(|(_, arrived)| at - *arrived >= LONGEST) {
                    return Some(list.remove(0).0);
                }
            }
            None
        }
    }

    #[test]
    fn units_enter_in_the_order_in_which_they_arrive() {
        let ms = Duration::from_millis;
        let mut gate = Gate::new(Limit::nearest(1.0), LONGEST);
        let Arrival::Admitted(mut permit) = gate.arrive('a', ms(0)) else { panic!("queued") };
        let Arrival::Queued(second) = gate.arrive('b', ms(1)) else { panic!("admitted") };
        assert!(matches!(gate.arrive('c', ms(2)), Arrival::Queued(_)));
        assert!(matches!(gate.arrive('d', ms(3)), Arrival::Queued(_)));
        gate.withdraw(second, ms(4));
        permit.finish();
        gate.leave(permit, ms(10));
        let (third, permit) = gate.admit(ms(10)).unwrap();
        assert_eq!((third, permit.age(ms(10))), ('c', ms(8)));
        assert_eq!((gate.expire(ms(52)), gate.expire(ms(53)), gate.expire(ms(99))), (None, Some('d'), None));
        gate.leave(permit, ms(99));
        assert_eq!(gate.admit(ms(99)), None);
        assert!(matches!(gate.arrive('e', ms(99)), Arrival::Admitted(_)));
        let signal = gate.period(ms(100), Overhead::default());
        assert_eq!((signal.finished, signal.failed, signal.oldest), (1, 1, Some(ms(1))));
        // The second one waits for 3 ms, the third one for 8, and the fourth one for 50.
        assert!((signal.waiting - 0.61).abs() < 1e-9 && (signal.in_flight - 1.0).abs() < 1e-9, "{signal:?}");
    }

    #[test]
    fn a_unit_that_is_parked_gives_up_its_place_and_comes_back_in_front() {
        let ms = Duration::from_millis;
        let mut gate = Gate::new(Limit::nearest(1.0), LONGEST);
        let Arrival::Admitted(permit) = gate.arrive('a', ms(0)) else { panic!("queued") };
        assert!(matches!(gate.arrive('b', ms(0)), Arrival::Queued(_)));
        assert!(matches!(gate.arrive('c', ms(0)), Arrival::Queued(_)));
        let parked = gate.park('a', permit, ms(0));
        let (second, permit) = gate.admit(ms(0)).unwrap();
        gate.unpark(parked, ms(20));
        assert_eq!((second, gate.admit(ms(20))), ('b', None));
        gate.leave(permit, ms(40));
        let (first, permit) = gate.admit(ms(40)).unwrap();
        assert_eq!((first, permit.age(ms(40))), ('a', ms(40)));
        let signal = gate.period(ms(40), Overhead::default());
        // The third one waits all the time, the first one for 20 ms; it did not fail.
        assert!((signal.waiting - 1.5).abs() < 1e-9 && (signal.in_flight - 1.0).abs() < 1e-9, "{signal:?}");
        assert_eq!((signal.finished, signal.failed), (0, 1));
        gate.park('a', permit, ms(40));
        assert_eq!(
            [gate.expire(ms(50)), gate.expire(ms(50)), gate.expire(ms(50))],
            [Some('c'), Some('a'), None]
        );
    }

    proptest! {
        #[test]
        fn a_gate_does_what_a_naive_one_does(events in prop::collection::vec((0..9u8, 0..20usize), 0..200)) {
            let mut naive = Naive { limit: 1, ..Naive::default() };
            let mut gate = Gate::new(Limit::nearest(1.0), LONGEST);
            let (mut permits, mut tickets) = (Vec::new(), Vec::new());
            let mut at = Duration::ZERO;
            for (number, (event, place)) in (0..).zip(events) {
                let passed = Duration::from_millis(place as u64);
                naive.pass(passed);
                at += passed;
                match event {
                    0 | 1 => match (naive.arrive((number, at)), gate.arrive(number, at)) {
                        (true, Arrival::Admitted(permit)) => permits.push((number, permit)),
                        (false, Arrival::Queued(ticket)) => tickets.push((number, ticket)),
                        other => prop_assert!(false, "{:?}", other),
                    },
                    2 | 3 if !permits.is_empty() => {
                        let (unit, permit) = permits.remove(place % permits.len());
                        let known = naive.in_flight.iter().position(|(known, _)| *known == unit).unwrap();
                        let known = naive.in_flight.remove(known);
                        if event == 2 {
                            gate.leave(permit, at);
                        } else {
                            naive.parked.push(known);
                            tickets.push((unit, gate.park(unit, permit, at)));
                        }
                    }
                    4 if !tickets.is_empty() => {
                        // It may have been admitted in the meantime, here and below.
                        let (unit, ticket) = tickets.remove(place % tickets.len());
                        gate.withdraw(ticket, at);
                        naive.waiting.retain(|(waiting, _)| *waiting != unit);
                        naive.parked.retain(|(parked, _)| *parked != unit);
                    }
                    5 if !tickets.is_empty() => {
                        let (unit, ticket) = tickets[place % tickets.len()];
                        gate.unpark(ticket, at);
                        naive.waiting.extend(naive.parked.extract_if(.., |(parked, _)| *parked == unit));
                    }
                    6 => {
                        let admitted = gate.admit_beyond(at);
                        prop_assert_eq!(admitted.as_ref().map(|one| one.0), naive.admit_beyond().map(|one| one.0));
                        permits.extend(admitted);
                    }
                    7 => {
                        naive.limit = 1 + place % 5;
                        gate.allow(Limit::nearest(naive.limit as f64));
                    }
                    _ => prop_assert_eq!(gate.expire(at), naive.expire(at)),
                }
                while let Some((unit, arrived)) = naive.admit() {
                    let (admitted, permit) = gate.admit(at).unwrap();
                    prop_assert_eq!((admitted, permit.age(at)), (unit, at - arrived));
                    permits.push((unit, permit));
                }
                prop_assert_eq!(gate.admit(at), None);
                prop_assert_eq!(gate.meter.in_flight(), naive.in_flight.len());
            }
            let signal = gate.period(at, Overhead::default());
            let waited_s = signal.waiting * at.as_secs_f64();
            prop_assert!((waited_s - naive.waited_s).abs() < 1e-9, "{:?}", signal);
        }
    }
}
