//! The gate with real threads.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use assay_reflect::Signal;
use assay_reflect::advice::{Advice, Class, Queue};
use assay_reflect::gate::{Gate, Permit};
use assay_reflect::law::{Decision, Law, Limit, Tuning};

/// After this time, a test has failed.
const LONG: Duration = Duration::from_secs(60);

/// A gate, and what its law sees and decides.
fn gate(law: &str, start: u32) -> (Gate, Receiver<(Signal, Decision)>) {
    let (sender, receiver) = channel();
    let tuning = Tuning { start: Limit::nearest(f64::from(start)), gain: 1.0 };
    let observe = move |signal: &Signal, decision| {
        let _ = sender.send((*signal, decision));
    };
    (Gate::open(Law::named(law).unwrap(), tuning, observe).unwrap(), receiver)
}

fn advice(class: Class, queue: Queue) -> Advice {
    Advice { class, queue, ..Advice::default() }
}

/// Waits for a period whose signal is so.
fn await_signal(periods: &Receiver<(Signal, Decision)>, is_it: impl Fn(&Signal) -> bool) -> Signal {
    let mut waited = Duration::ZERO;
    loop {
        let (signal, _) = periods.recv_timeout(LONG).unwrap();
        if is_it(&signal) {
            return signal;
        }
        waited += signal.period;
        assert!(waited < LONG, "{signal:?}");
    }
}

/// Waits for a period in which this number of units waited all the time.
fn await_waiting(periods: &Receiver<(Signal, Decision)>, number: f64) {
    await_signal(periods, |signal| (signal.waiting - number).abs() < 1e-9);
}

#[test]
fn no_more_units_are_in_flight_than_the_limit_and_each_is_counted() {
    let (gate, periods) = gate("fixed", 3);
    let (in_flight, most) = (AtomicU32::new(0), AtomicU32::new(0));
    let works = advice(Class::Interactive, Queue::Allowed);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for unit in 0..50 {
                    let permit = gate.enter(&works);
                    most.fetch_max(1 + in_flight.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
                    thread::yield_now();
                    in_flight.fetch_sub(1, Ordering::Relaxed);
                    // A unit whose permit is dropped has failed.
                    if unit % 10 > 0 {
                        permit.finished();
                    }
                }
            });
        }
    });
    assert!((1..=3).contains(&most.into_inner()));
    let (mut finished, mut failed) = (0, 0);
    while finished + failed < 800 {
        let (signal, decision) = periods.recv_timeout(LONG).unwrap();
        assert!(signal.in_flight <= 3.0 + 1e-9 && signal.overhead.cpu.is_some(), "{signal:?}");
        assert_eq!(decision.limit.units(), 3);
        (finished, failed) = (finished + signal.finished, failed + signal.failed);
    }
    assert_eq!((finished, failed), (720, 80));
}

#[test]
fn urgent_units_come_first_and_those_of_a_class_in_their_order() {
    let (gate, periods) = gate("fixed", 1);
    let (sender, entered) = channel();
    thread::scope(|scope| {
        let first = gate.enter(&Advice::default());
        for (number, class) in
            [Class::Batch, Class::Interactive, Class::Batch, Class::Interactive].into_iter().enumerate()
        {
            let (sender, gate) = (sender.clone(), &gate);
            scope.spawn(move || {
                let permit = gate.enter(&advice(class, Queue::Allowed));
                sender.send(number).unwrap();
                permit.finished();
            });
            await_waiting(&periods, f64::from(u8::try_from(number).unwrap()) + 1.0);
        }
        first.finished();
    });
    assert_eq!(entered.try_iter().collect::<Vec<_>>(), [1, 3, 0, 2]);
}

#[test]
fn as_many_units_are_admitted_as_the_limit_and_the_next_one_waits() {
    let (gate, periods) = gate("fixed", 3);
    let held: Vec<_> = (0..3).map(|_| gate.enter(&Advice::default())).collect();
    let (sender, entered) = channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            gate.enter(&Advice::default()).finished();
            sender.send(()).unwrap();
        });
        await_waiting(&periods, 1.0);
        assert!(entered.try_recv().is_err());
        drop(held);
    });
    entered.recv_timeout(LONG).unwrap();
}

#[test]
fn a_unit_that_may_not_be_queued_takes_no_place() {
    let (gate, periods) = gate("fixed", 1);
    let ((sender, entered), (go, end)) = (channel(), channel());
    // If one of them had to wait, this thread would wait without an end.
    thread::spawn(move || {
        let never = advice(Class::Batch, Queue::Never);
        // More than the limit, before and after a unit that has the only place.
        let before = [gate.enter(&never), gate.enter(&never)];
        let held = gate.enter(&Advice::default());
        let after = gate.enter(&never);
        sender.send(()).unwrap();
        end.recv().unwrap();
        before.into_iter().for_each(Permit::finished);
        after.finished();
        held.finished();
        let () = end.recv().unwrap_or_default();
    });
    entered.recv_timeout(LONG).unwrap();
    await_signal(&periods, |signal| (signal.in_flight - 1.0).abs() < 1e-9);
    go.send(()).unwrap();
    let signal = await_signal(&periods, |signal| signal.finished + signal.failed > 0);
    assert_eq!((signal.finished, signal.failed), (1, 0));
}

#[test]
fn a_limit_that_rises_admits_those_that_wait() {
    // It adds one to the limit in each period in which units wait.
    let (gate, _periods) = gate("aimd", 1);
    let gate = Arc::new(gate);
    let (sender, entered) = channel();
    for _ in 0..4 {
        let (theirs, sender) = (Arc::clone(&gate), sender.clone());
        thread::spawn(move || {
            let _permit = theirs.enter(&Advice::default());
            sender.send(()).unwrap();
            // It never ends.
            thread::sleep(10 * LONG);
        });
    }
    (0..4).for_each(|_| entered.recv_timeout(LONG).unwrap());
}

#[test]
fn the_thread_of_the_law_ends_with_the_gate() {
    let (gate, periods) = gate("fixed", 1);
    gate.enter(&Advice::default()).finished();
    drop(gate);
    // It may be in the middle of a period, but a hundred are too many.
    let end = (0..100).find_map(|_| periods.recv_timeout(LONG).err());
    assert_eq!(end, Some(RecvTimeoutError::Disconnected));
}
