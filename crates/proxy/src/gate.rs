//! Which unit of work may enter the database now? At most as many as the limit are in flight; the others wait
//! in the order in which they arrive, and not longer than they may.
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
    /// The units that wait, and since when, by the order of their arrival.
    waiting: BTreeMap<u64, (T, Duration)>,
    arrived: u64,
}

/// The place of a unit among those that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

/// The right of a unit to be in flight. It has to be given back; until it is finished, the unit has failed.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a unit ends when its permit is given back"]
pub struct Permit {
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

/// A unit that waited.
#[derive(Debug, PartialEq, Eq)]
pub struct Admitted<T> {
    /// The unit.
    pub unit: T,
    /// Its right to be in flight.
    pub permit: Permit,
    /// How long it waited.
    pub waited: Duration,
}

impl Permit {
    /// The unit has succeeded.
    pub fn finish(&mut self) {
        self.outcome = Outcome::Finished;
    }
}

impl<T> Gate<T> {
    /// Opens a gate.
    #[must_use]
    pub fn new(limit: Limit, longest_wait: Duration) -> Self {
        Self { limit, longest_wait, meter: Meter::default(), waiting: BTreeMap::new(), arrived: 0 }
    }

    /// Returns the number of units that may be in flight.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// Returns how long a unit waits at most.
    #[must_use]
    pub fn longest_wait(&self) -> Duration {
        self.longest_wait
    }

    /// Changes the number of units that may be in flight. Those that are go on; if there is room for more,
    /// [`Self::admit`] returns them.
    pub fn allow(&mut self, limit: Limit) {
        self.limit = limit;
    }

    fn has_room(&self) -> bool {
        self.meter.in_flight() < self.limit.units() as usize
    }

    fn permit(&mut self, at: Duration) -> Permit {
        Permit { admission: self.meter.admit(at), outcome: Outcome::Failed }
    }

    /// A unit arrives. None waits while there is room, so that it overtakes no other.
    pub fn arrive(&mut self, unit: T, at: Duration) -> Arrival {
        self.meter.arrive(at);
        if self.has_room() {
            return Arrival::Admitted(self.permit(at));
        }
        let number = self.arrived;
        self.arrived += 1;
        self.waiting.insert(number, (unit, at));
        Arrival::Queued(Ticket(number))
    }

    /// A unit in flight ends. [`Self::admit`] returns the one that takes its place.
    pub fn leave(&mut self, Permit { admission, outcome }: Permit, at: Duration) {
        self.meter.end(admission, outcome, at);
    }

    /// Admits the first of those that wait, if one does and there is room.
    pub fn admit(&mut self, at: Duration) -> Option<Admitted<T>> {
        if self.has_room() { self.admit_beyond(at) } else { None }
    }

    /// Admits the first of those that wait, if one does, whatever the limit is.
    pub fn admit_beyond(&mut self, at: Duration) -> Option<Admitted<T>> {
        let (_, (unit, since)) = self.waiting.pop_first()?;
        Some(Admitted { unit, permit: self.permit(at), waited: at.saturating_sub(since) })
    }

    /// A unit that waits gives up.
    pub fn withdraw(&mut self, Ticket(number): Ticket, at: Duration) {
        if self.waiting.remove(&number).is_some() {
            self.meter.give_up(at);
        }
    }

    /// Returns a unit that has waited too long, if there is one. It waits no more.
    pub fn expire(&mut self, at: Duration) -> Option<T> {
        let oldest = self.waiting.first_entry()?;
        let waited = at.saturating_sub(oldest.get().1);
        if waited < self.longest_wait {
            return None;
        }
        let (unit, _) = oldest.remove();
        self.meter.give_up(at);
        Some(unit)
    }

    /// Ends a period, whose work cost this much, and returns its signal.
    pub fn period(&mut self, at: Duration, overhead: Overhead) -> Signal {
        self.meter.period(at, overhead)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const LONGEST: Duration = Duration::from_millis(50);

    /// A gate as one would first write it.
    #[derive(Debug, Default)]
    struct Naive {
        in_flight: Vec<Permit>,
        waiting: VecDeque<(u32, Duration)>,
        /// Time that was spent waiting, of all units.
        waited_s: f64,
    }

    impl Naive {
        /// Compares who is admitted.
        fn admit(
            &mut self,
            next: Option<(u32, Duration)>,
            admitted: Option<Admitted<u32>>,
            at: Duration,
        ) -> Result<(), Option<Admitted<u32>>> {
            let next = next.map(|(unit, since)| (unit, at - since));
            if next != admitted.as_ref().map(|next| (next.unit, next.waited)) {
                return Err(admitted);
            }
            self.in_flight.extend(admitted.map(|next| next.permit));
            Ok(())
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
        let third = gate.admit(ms(10)).unwrap();
        assert_eq!((third.unit, third.waited), ('c', ms(8)));
        assert_eq!((gate.expire(ms(52)), gate.expire(ms(53)), gate.expire(ms(99))), (None, Some('d'), None));
        gate.leave(third.permit, ms(99));
        assert_eq!(gate.admit(ms(99)), None);
        assert!(matches!(gate.arrive('e', ms(99)), Arrival::Admitted(_)));
        let signal = gate.period(ms(100), Overhead::default());
        assert_eq!((signal.finished, signal.failed, signal.oldest), (1, 1, Some(ms(1))));
        // The second one waits for 3 ms, the third one for 8, and the fourth one until it has waited too long.
        assert!((signal.waiting - 0.61).abs() < 1e-9 && (signal.in_flight - 1.0).abs() < 1e-9, "{signal:?}");
    }

    proptest! {
        #[test]
        fn a_gate_does_what_a_naive_one_does(events in prop::collection::vec((0..7u8, 0..20usize), 0..200)) {
            let (mut limit, mut naive) = (1, Naive::default());
            let mut gate = Gate::new(Limit::nearest(1.0), LONGEST);
            let mut tickets = Vec::new();
            let mut at = Duration::ZERO;
            for (number, (event, place)) in (0..).zip(events) {
                let passed = Duration::from_millis(place as u64);
                naive.waited_s += naive.waiting.len() as f64 * passed.as_secs_f64();
                at += passed;
                match event {
                    0 | 1 => {
                        let admitted = naive.in_flight.len() < limit;
                        match gate.arrive(number, at) {
                            Arrival::Admitted(permit) => {
                                prop_assert!(admitted);
                                naive.in_flight.push(permit);
                            }
                            Arrival::Queued(ticket) => {
                                prop_assert!(!admitted);
                                naive.waiting.push_back((number, at));
                                tickets.push((number, ticket));
                            }
                        }
                    }
                    2 if !naive.in_flight.is_empty() => {
                        let permit = naive.in_flight.remove(place % naive.in_flight.len());
                        let has_room = naive.in_flight.len() < limit;
                        let next = if has_room { naive.waiting.pop_front() } else { None };
                        gate.leave(permit, at);
                        let admitted = gate.admit(at);
                        prop_assert_eq!(naive.admit(next, admitted, at), Ok(()));
                    }
                    3 if !tickets.is_empty() => {
                        // It may have been admitted in the meantime.
                        let (unit, ticket) = tickets.remove(place % tickets.len());
                        gate.withdraw(ticket, at);
                        naive.waiting.retain(|(waiting, _)| *waiting != unit);
                    }
                    4 => {
                        let next = naive.waiting.pop_front();
                        let admitted = gate.admit_beyond(at);
                        prop_assert_eq!(naive.admit(next, admitted, at), Ok(()));
                    }
                    5 => {
                        limit = 1 + place % 5;
                        gate.allow(Limit::nearest(limit as f64));
                        loop {
                            let has_room = naive.in_flight.len() < limit;
                            let next = if has_room { naive.waiting.pop_front() } else { None };
                            prop_assert_eq!(naive.admit(next, gate.admit(at), at), Ok(()));
                            if next.is_none() {
                                break;
                            }
                        }
                    }
                    _ => {
                        let is_late = naive.waiting.front().is_some_and(|(_, since)| at - *since >= LONGEST);
                        let late = if is_late { naive.waiting.pop_front() } else { None };
                        prop_assert_eq!(gate.expire(at), late.map(|(unit, _)| unit));
                    }
                }
                prop_assert_eq!(gate.meter.in_flight(), naive.in_flight.len());
            }
            let signal = gate.period(at, Overhead::default());
            let waited_s = signal.waiting * at.as_secs_f64();
            prop_assert!((waited_s - naive.waited_s).abs() < 1e-9, "{:?}", signal);
        }
    }
}
