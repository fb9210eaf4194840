//! Tests of the gate.

use std::iter;

use proptest::prelude::*;

use super::*;
use crate::class::Order::{NewestFirst, OldestFirst};

const LONGEST: Duration = Duration::from_millis(50);

/// A class: its priority, longest wait, order, and the most that wait.
type Traits = (i32, Duration, Order, Option<usize>);

/// A gate with some classes.
fn gate<T>(limit: u32, classes: &[Traits]) -> (Gate<T>, Vec<ClassId>) {
    let mut gate = Gate::new(Limit::nearest(limit.into()));
    let classes = classes.iter().zip(["one", "two", "three", "four"]);
    let classes = classes.map(|((priority, longest_wait, order, most_waiting), name)| Class {
        name: name.to_owned(),
        priority: *priority,
        longest_wait: *longest_wait,
        order: *order,
        most_waiting: *most_waiting,
    });
    let ids = classes.map(|class| gate.set_class(class)).collect();
    (gate, ids)
}

#[test]
fn units_enter_in_the_order_in_which_they_arrive() {
    let ms = Duration::from_millis;
    let (mut gate, ids) = gate(1, &[(0, LONGEST, OldestFirst, None)]);
    let Arrival::Admitted(mut permit) = gate.arrive('a', ids[0], ms(0)) else { panic!("queued") };
    let Arrival::Queued(second) = gate.arrive('b', ids[0], ms(1)) else { panic!("admitted") };
    assert!(matches!(gate.arrive('c', ids[0], ms(2)), Arrival::Queued(_)));
    assert!(matches!(gate.arrive('d', ids[0], ms(3)), Arrival::Queued(_)));
    gate.withdraw(second, ms(4));
    permit.finish();
    gate.leave(permit, ms(10));
    let (third, permit) = gate.admit(ms(10)).unwrap();
    assert_eq!((third, permit.age(ms(10))), ('c', ms(8)));
    assert_eq!([52, 53, 99].map(|at| gate.expire(ms(at))), [None, Some(('d', ids[0])), None]);
    gate.leave(permit, ms(99));
    assert_eq!(gate.admit(ms(99)), None);
    assert!(matches!(gate.arrive('e', ids[0], ms(99)), Arrival::Admitted(_)));
    let signal = gate.period(ms(100), Overhead::default());
    assert_eq!((signal.finished, signal.failed, signal.oldest), (1, 1, Some(ms(1))));
    // The second one waits for 3 ms, the third one for 8, and the fourth one for 50.
    assert!((signal.waiting - 0.61).abs() < 1e-9 && (signal.in_flight - 1.0).abs() < 1e-9, "{signal:?}");
}

#[test]
fn a_unit_that_is_parked_gives_up_its_place_and_comes_back_in_front() {
    let ms = Duration::from_millis;
    let (mut gate, ids) = gate(1, &[(0, LONGEST, OldestFirst, None)]);
    let Arrival::Admitted(permit) = gate.arrive('a', ids[0], ms(0)) else { panic!("queued") };
    assert!(matches!(gate.arrive('b', ids[0], ms(0)), Arrival::Queued(_)));
    assert!(matches!(gate.arrive('c', ids[0], ms(0)), Arrival::Queued(_)));
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
    assert_eq!([50; 3].map(|at| gate.expire(ms(at))), [Some(('c', ids[0])), Some(('a', ids[0])), None]);
}

#[test]
fn a_higher_priority_comes_first_and_equal_ones_take_turns() {
    let ms = Duration::from_millis;
    let (mut gate, ids) = gate(
        1,
        &[
            (0, LONGEST, OldestFirst, None),
            (0, LONGEST, OldestFirst, Some(1)),
            (1, LONGEST, OldestFirst, None),
        ],
    );
    let Arrival::Admitted(mut permit) = gate.arrive("x", ids[0], ms(0)) else { panic!("queued") };
    for (unit, class) in [("1a", 0), ("1b", 0), ("1c", 0), ("2a", 1), ("3a", 2), ("3b", 2)] {
        assert!(matches!(gate.arrive(unit, ids[class], ms(0)), Arrival::Queued(_)), "{unit}");
    }
    assert_eq!(gate.arrive("2b", ids[1], ms(0)), Arrival::Refused);
    for unit in ["3a", "3b", "1a", "2a", "1b", "1c"] {
        gate.leave(permit, ms(0));
        let (admitted, next) = gate.admit(ms(0)).unwrap();
        assert_eq!(admitted, unit);
        permit = next;
    }
    assert!(matches!(gate.arrive("2c", ids[1], ms(0)), Arrival::Queued(_)));
    // Those that wait go by the class as it is changed.
    let changed = Class {
        name: "two".to_owned(),
        priority: 0,
        longest_wait: ms(9),
        order: OldestFirst,
        most_waiting: None,
    };
    assert_eq!(gate.set_class(changed), ids[1]);
    assert!(matches!(gate.arrive("2d", ids[1], ms(1)), Arrival::Queued(_)));
    assert_eq!([9; 2].map(|at| gate.expire(ms(at))), [Some(("2c", ids[1])), None]);
    gate.leave(permit, ms(9));
}

#[test]
fn the_newest_comes_first_when_the_oldest_has_waited_long() {
    let ms = Duration::from_millis;
    let (mut gate, ids) = gate(1, &[(0, LONGEST, NewestFirst, None)]);
    let Arrival::Admitted(mut permit) = gate.arrive(0, ids[0], ms(0)) else { panic!("queued") };
    for unit in 1..6 {
        assert!(matches!(gate.arrive(unit, ids[0], ms(unit)), Arrival::Queued(_)));
    }
    for (at, unit) in [(25, 1), (26, 2), (28, 5), (28, 4), (28, 3)] {
        gate.leave(permit, ms(at));
        let (admitted, next) = gate.admit(ms(at)).unwrap();
        assert_eq!(admitted, unit);
        permit = next;
    }
    gate.leave(permit, ms(28));
}

/// Sets all units aside, which is a standstill.
fn stand_still(gate: &mut Gate<u32>, permits: &mut [Permit], at: Duration) {
    for permit in permits {
        gate.set_aside(permit, at);
    }
    gate.look_for_standstill();
}

/// Admits as many units as there is room for.
fn admit_all(gate: &mut Gate<u32>, at: Duration) -> impl Iterator<Item = Permit> {
    iter::from_fn(move || gate.admit(at)).map(|(_, permit)| permit)
}

#[test]
fn in_each_standstill_twice_as_many_units_begin_until_one_goes_on() {
    let at = Duration::ZERO;
    let (mut gate, ids) = gate(2, &[(0, LONGEST, OldestFirst, None)]);
    let admitted = (0..40).filter_map(|unit| match gate.arrive(unit, ids[0], at) {
        Arrival::Admitted(permit) => Some(permit),
        Arrival::Queued(_) | Arrival::Refused => None,
    });
    let mut permits: Vec<_> = admitted.collect();
    let begun = [(); 4].map(|()| {
        stand_still(&mut gate, &mut permits, at);
        permits.extend(admit_all(&mut gate, at));
        permits.len()
    });
    assert_eq!(begun, [4, 8, 16, 32]);
    stand_still(&mut gate, &mut permits, at);
    assert!(gate.take_back(&mut permits[0], at));
    permits.extend(admit_all(&mut gate, at));
    assert_eq!((permits.len(), gate.in_flight()), (33, 2));
    assert!(gate.set_aside(&mut permits[32], at));
    // One is in flight.
    gate.look_for_standstill();
    permits.extend(admit_all(&mut gate, at));
    assert_eq!((permits.len(), gate.in_flight()), (34, 2));
    permits.into_iter().for_each(|permit| gate.leave(permit, at));
}

/// A unit: its number, when it arrived, and its class.
type Unit = (u32, Duration, usize);

/// The classes of the gates below.
const CLASSES: [Traits; 4] = [
    (0, LONGEST, OldestFirst, None),
    (0, Duration::from_millis(90), NewestFirst, Some(5)),
    (-1, LONGEST, NewestFirst, None),
    (1, LONGEST, OldestFirst, Some(1)),
];

/// A gate as one would first write it.
#[derive(Debug, Default)]
struct Naive {
    limit: usize,
    in_flight: Vec<Unit>,
    waiting: Vec<Unit>,
    parked: Vec<Unit>,
    aside: Vec<Unit>,
    /// Whether units were set aside, or went on.
    turns: Vec<bool>,
    standstill: usize,
    /// The classes of the units that were admitted after they waited.
    taken: Vec<usize>,
    /// Time that was spent waiting, of all units.
    waited_s: f64,
}

impl Naive {
    fn pass(&mut self, passed: Duration) {
        self.waited_s += self.waiting.len() as f64 * passed.as_secs_f64();
    }

    fn has_room(&self) -> bool {
        self.in_flight.len() < self.limit || self.in_flight.len() < self.standstill
    }

    fn go_on(&mut self) {
        self.turns.push(false);
        self.standstill = 0;
    }

    fn look_for_standstill(&mut self) {
        let stands_still = self.in_flight.is_empty() && !self.waiting.is_empty();
        let in_a_row = self.turns.iter().rev().take_while(|aside| **aside).count();
        self.standstill = if stands_still { in_a_row } else { 0 };
    }

    /// Whether the unit is admitted, or refused.
    fn arrive(&mut self, unit: Unit) -> (bool, bool) {
        let has_room = self.has_room();
        let of_class = self.waiting.iter().filter(|waiting| waiting.2 == unit.2).count();
        let is_full = CLASSES[unit.2].3.is_some_and(|most| of_class >= most);
        match (has_room, is_full) {
            (true, _) => self.in_flight.push(unit),
            (false, false) => self.waiting.push(unit),
            (false, true) => {}
        }
        (has_room, !has_room && is_full)
    }

    fn admit(&mut self, at: Duration) -> Option<Unit> {
        if !self.has_room() {
            return None;
        }
        let highest = self.waiting.iter().map(|unit| CLASSES[unit.2].0).max()?;
        let last_taken = |class| self.taken.iter().rposition(|taken| *taken == class);
        let classes = self.waiting.iter().map(|unit| unit.2).filter(|class| CLASSES[*class].0 == highest);
        let class = classes.min_by_key(|class| (last_taken(*class), *class))?;
        self.taken.push(class);
        let of_class = |unit: &&Unit| unit.2 == class;
        let (oldest, newest) =
            (self.waiting.iter().filter(of_class).min()?, self.waiting.iter().filter(of_class).max()?);
        let (_, longest_wait, order, _) = CLASSES[class];
        let stands = (at - oldest.1) * 2 >= longest_wait;
        let unit = if order == NewestFirst && stands { *newest } else { *oldest };
        self.waiting.retain(|waiting| *waiting != unit);
        self.in_flight.push(unit);
        Some(unit)
    }

    fn expire(&mut self, at: Duration) -> Option<(u32, usize)> {
        let late = |unit: &Unit| at - unit.1 >= CLASSES[unit.2].1;
        let mut classes = 0..CLASSES.len();
        classes.find_map(|class| {
            let waiting = take_first(&mut self.waiting, class, late);
            let (unit, _, class) = waiting.or_else(|| take_first(&mut self.parked, class, late))?;
            Some((unit, class))
        })
    }
}

/// Takes the first unit of a class, if that is such a one.
fn take_first(units: &mut Vec<Unit>, class: usize, is: impl Fn(&Unit) -> bool) -> Option<Unit> {
    units.sort_unstable();
    let place = units.iter().position(|unit| unit.2 == class)?;
    is(&units[place]).then(|| units.remove(place))
}

proptest! {
    #[test]
    fn a_gate_does_what_a_naive_one_does(
        events in prop::collection::vec((0..10u8, 0..20usize, 0..CLASSES.len()), 0..200),
    ) {
        let mut naive = Naive { limit: 1, ..Naive::default() };
        let (mut gate, ids) = gate(1, &CLASSES);
        let (mut permits, mut tickets) = (Vec::new(), Vec::new());
        let mut at = Duration::ZERO;
        for (number, (event, place, class)) in (0..).zip(events) {
            let passed = Duration::from_millis(place as u64);
            naive.pass(passed);
            at += passed;
            match event {
                0 | 1 => match (naive.arrive((number, at, class)), gate.arrive(number, ids[class], at)) {
                    ((true, false), Arrival::Admitted(permit)) => permits.push((number, permit)),
                    ((false, false), Arrival::Queued(ticket)) => tickets.push((number, ticket)),
                    ((false, true), Arrival::Refused) => {}
                    other => prop_assert!(false, "{:?}", other),
                },
                2 | 3 if !permits.is_empty() => {
                    let (unit, permit) = permits.remove(place % permits.len());
                    let is_it = |known: &mut Unit| known.0 == unit;
                    let known = if permit.is_aside() { &mut naive.aside } else { &mut naive.in_flight };
                    let known = known.extract_if(.., is_it).next().unwrap();
                    if permit.is_aside() {
                        naive.go_on();
                    }
                    if event == 2 || permit.is_aside() {
                        gate.leave(permit, at);
                    } else {
                        prop_assert_eq!(gate.is_late(&permit, at), at - known.1 >= CLASSES[known.2].1);
                        naive.parked.push(known);
                        tickets.push((unit, gate.park(unit, permit, at)));
                    }
                }
                4 if !tickets.is_empty() => {
                    // It may have been admitted in the meantime, here and below.
                    let (unit, ticket) = tickets.remove(place % tickets.len());
                    gate.withdraw(ticket, at);
                    naive.waiting.retain(|waiting| waiting.0 != unit);
                    naive.parked.retain(|parked| parked.0 != unit);
                }
                5 if !tickets.is_empty() => {
                    let (unit, ticket) = tickets[place % tickets.len()];
                    gate.unpark(ticket, at);
                    naive.waiting.extend(naive.parked.extract_if(.., |parked| parked.0 == unit));
                }
                6 if !permits.is_empty() => {
                    let index = place % permits.len();
                    let (unit, permit) = &mut permits[index];
                    let (from, to) = if permit.is_aside() {
                        prop_assert!(gate.take_back(permit, at) && !gate.take_back(permit, at));
                        naive.go_on();
                        (&mut naive.aside, &mut naive.in_flight)
                    } else {
                        prop_assert!(gate.set_aside(permit, at) && !gate.set_aside(permit, at));
                        naive.turns.push(true);
                        (&mut naive.in_flight, &mut naive.aside)
                    };
                    to.extend(from.extract_if(.., |known| known.0 == *unit));
                }
                7 => {
                    if place > 0 {
                        for (_, permit) in &mut permits {
                            gate.set_aside(permit, at);
                        }
                        naive.turns.extend(naive.in_flight.iter().map(|_| true));
                        naive.aside.append(&mut naive.in_flight);
                    }
                    naive.look_for_standstill();
                    gate.look_for_standstill();
                }
                8 => {
                    naive.limit = 1 + place % 5;
                    gate.allow(Limit::nearest(naive.limit as f64));
                }
                _ => {
                    let expired = gate.expire(at).map(|(unit, class)| (unit, class.number()));
                    prop_assert_eq!(expired, naive.expire(at));
                }
            }
            while let Some((unit, arrived, _)) = naive.admit(at) {
                let (admitted, permit) = gate.admit(at).unwrap();
                prop_assert_eq!((admitted, permit.age(at)), (unit, at - arrived));
                permits.push((unit, permit));
            }
            prop_assert_eq!(gate.admit(at), None);
            let numbers = [gate.in_flight(), gate.aside()];
            prop_assert_eq!(numbers, [&naive.in_flight, &naive.aside].map(Vec::len));
        }
        let signal = gate.period(at, Overhead::default());
        let waited_s = signal.waiting * at.as_secs_f64();
        prop_assert!((waited_s - naive.waited_s).abs() < 1e-9, "{:?}", signal);
    }
}
