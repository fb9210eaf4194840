//! Which unit of work may enter the database now? At most as many as the limit are in flight; the others wait
//! in the order in which they arrive, and not longer than they may.
//!
//! Pure: times are durations since a fixed moment, and never decrease.
//! A unit is of any type: the gate contains nothing of a protocol.

use std::collections::BTreeMap;
use std::time::Duration;

/// The state of a gate for units of this type.
#[derive(Debug)]
pub struct Gate<T> {
    limit: u32,
    longest_wait: Duration,
    in_flight: u32,
    /// The units that wait, and since when, by the order of their arrival.
    waiting: BTreeMap<u64, (T, Duration)>,
    arrived: u64,
}

/// The place of a unit among those that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

/// The right of a unit to be in flight. It has to be given back.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a unit ends when its permit is given back"]
pub struct Permit(());

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

impl<T> Gate<T> {
    /// Opens a gate.
    #[must_use]
    pub fn new(limit: u32, longest_wait: Duration) -> Self {
        Self { limit, longest_wait, in_flight: 0, waiting: BTreeMap::new(), arrived: 0 }
    }

    /// Returns the number of units that may be in flight.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// A unit arrives. None waits while there is room, so that it overtakes no other.
    pub fn arrive(&mut self, unit: T, at: Duration) -> Arrival {
        if self.in_flight < self.limit {
            self.in_flight += 1;
            return Arrival::Admitted(Permit(()));
        }
        let number = self.arrived;
        self.arrived += 1;
        self.waiting.insert(number, (unit, at));
        Arrival::Queued(Ticket(number))
    }

    /// A unit in flight ends. Returns the one that is admitted in its place, if one waits.
    pub fn leave(&mut self, Permit(()): Permit, at: Duration) -> Option<Admitted<T>> {
        // There are as many permits as units in flight.
        self.in_flight -= 1;
        if self.in_flight < self.limit { self.admit_beyond(at) } else { None }
    }

    /// Admits the first of those that wait, if one does, whatever the limit is.
    pub fn admit_beyond(&mut self, at: Duration) -> Option<Admitted<T>> {
        let (_, (unit, since)) = self.waiting.pop_first()?;
        self.in_flight += 1;
        Some(Admitted { unit, permit: Permit(()), waited: at.saturating_sub(since) })
    }

    /// A unit that waits gives up.
    pub fn withdraw(&mut self, Ticket(number): Ticket) {
        self.waiting.remove(&number);
    }

    /// Returns a unit that has waited too long, if there is one. It waits no more.
    pub fn expire(&mut self, at: Duration) -> Option<T> {
        let oldest = self.waiting.first_entry()?;
        let waited = at.saturating_sub(oldest.get().1);
        (waited >= self.longest_wait).then(|| oldest.remove().0)
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
        let mut gate = Gate::new(1, LONGEST);
        let Arrival::Admitted(permit) = gate.arrive('a', ms(0)) else { panic!("queued") };
        let Arrival::Queued(second) = gate.arrive('b', ms(1)) else { panic!("admitted") };
        assert!(matches!(gate.arrive('c', ms(2)), Arrival::Queued(_)));
        assert!(matches!(gate.arrive('d', ms(3)), Arrival::Queued(_)));
        gate.withdraw(second);
        let third = gate.leave(permit, ms(10)).unwrap();
        assert_eq!((third.unit, third.waited), ('c', ms(8)));
        assert_eq!((gate.expire(ms(52)), gate.expire(ms(53)), gate.expire(ms(99))), (None, Some('d'), None));
        assert_eq!(gate.leave(third.permit, ms(99)), None);
        assert!(matches!(gate.arrive('e', ms(99)), Arrival::Admitted(_)));
    }

    proptest! {
        #[test]
        fn a_gate_does_what_a_naive_one_does(limit in 1..5u32, events in prop::collection::vec((0..5u8, 0..20usize), 0..200)) {
            let (mut gate, mut naive) = (Gate::new(limit, LONGEST), Naive::default());
            let mut tickets = Vec::new();
            let mut at = Duration::ZERO;
            for (number, (event, place)) in (0..).zip(events) {
                at += Duration::from_millis(place as u64);
                match event {
                    0 | 1 => {
                        let admitted = naive.in_flight.len() < limit as usize;
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
                        let has_room = naive.in_flight.len() < limit as usize;
                        let next = if has_room { naive.waiting.pop_front() } else { None };
                        let admitted = gate.leave(permit, at);
                        prop_assert_eq!(naive.admit(next, admitted, at), Ok(()));
                    }
                    3 if !tickets.is_empty() => {
                        // It may have been admitted in the meantime.
                        let (unit, ticket) = tickets.remove(place % tickets.len());
                        gate.withdraw(ticket);
                        naive.waiting.retain(|(waiting, _)| *waiting != unit);
                    }
                    4 => {
                        let next = naive.waiting.pop_front();
                        let admitted = gate.admit_beyond(at);
                        prop_assert_eq!(naive.admit(next, admitted, at), Ok(()));
                    }
                    _ => {
                        let is_late = naive.waiting.front().is_some_and(|(_, since)| at - *since >= LONGEST);
                        let late = if is_late { naive.waiting.pop_front() } else { None };
                        prop_assert_eq!(gate.expire(at), late.map(|(unit, _)| unit));
                    }
                }
                prop_assert_eq!(gate.in_flight as usize, naive.in_flight.len());
            }
        }
    }
}
