//! Makes the signals of a law out of the moments at which units of work arrive, are admitted and end.
//!
//! A meter has no clock: times are durations since a fixed moment, and never decrease.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::signal::{Overhead, Signal, count};

/// What passes through a gate.
#[derive(Debug, Default)]
pub struct Meter {
    /// When each unit in flight was admitted, by its number.
    in_flight: BTreeMap<u64, Duration>,
    admitted: u64,
    waiting: u64,
    /// When the period began, and the time of the last change.
    begun: Duration,
    changed: Duration,
    /// Numbers in flight and waiting in this period, integrated over time in seconds.
    in_flight_s: f64,
    waiting_s: f64,
    /// Of the units that ended in this period.
    latency: Duration,
    finished: u64,
    failed: u64,
}

/// A unit of work in flight: the number of units that were admitted before it.
#[derive(Debug, PartialEq, Eq)]
pub struct Admission(u64);

/// How a unit of work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Finished,
    /// It failed.
    Failed,
}

impl Meter {
    /// A unit arrives, and waits.
    pub fn arrive(&mut self, at: Duration) {
        self.pass(at);
        self.waiting += 1;
    }

    /// A unit that waits is admitted.
    pub fn admit(&mut self, at: Duration) -> Admission {
        self.pass(at);
        self.waiting = self.waiting.saturating_sub(1);
        let number = self.admitted;
        self.admitted += 1;
        self.in_flight.insert(number, at);
        Admission(number)
    }

    /// A unit that waits gives up.
    pub fn give_up(&mut self, at: Duration) {
        self.pass(at);
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// A unit in flight ends. Units of another meter are ignored.
    pub fn end(&mut self, admission: Admission, outcome: Outcome, at: Duration) {
        self.pass(at);
        let Some(admitted) = self.in_flight.remove(&admission.0) else { return };
        self.latency += at.saturating_sub(admitted);
        match outcome {
            Outcome::Finished => self.finished += 1,
            Outcome::Failed => self.failed += 1,
        }
    }

    /// A unit that was admitted did not begin, or stands still. It counts no more, as if it had not arrived.
    /// Returns when it was admitted, if it was in flight.
    pub fn retract(&mut self, admission: &Admission, at: Duration) -> Option<Duration> {
        self.pass(at);
        self.in_flight.remove(&admission.0)
    }

    /// A unit that stood still goes on: it has been in flight since it was admitted, at this time.
    pub fn resume(&mut self, admission: &Admission, admitted: Duration, at: Duration) {
        self.pass(at);
        self.in_flight.insert(admission.0, admitted);
    }

    /// Returns the number of units in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Ends a period, whose work cost this much, and returns its signal.
    pub fn period(&mut self, at: Duration, overhead: Overhead) -> Signal {
        self.pass(at);
        let period = at.saturating_sub(self.begun);
        let mean = |sum_s: f64| if period.is_zero() { 0.0 } else { sum_s / period.as_secs_f64() };
        let ended = self.finished + self.failed;
        let signal = Signal {
            period,
            finished: self.finished,
            failed: self.failed,
            in_flight: mean(self.in_flight_s),
            waiting: mean(self.waiting_s),
            latency: (ended > 0).then(|| self.latency.div_f64(count(ended))),
            oldest: self.in_flight.first_key_value().map(|(_, admitted)| at.saturating_sub(*admitted)),
            overhead,
        };
        *self = Self {
            in_flight: std::mem::take(&mut self.in_flight),
            admitted: self.admitted,
            waiting: self.waiting,
            begun: at,
            changed: at,
            ..Self::default()
        };
        signal
    }

    /// Integrates up to this time.
    fn pass(&mut self, at: Duration) {
        let passed_s = at.saturating_sub(self.changed).as_secs_f64();
        self.in_flight_s += count(self.in_flight.len() as u64) * passed_s;
        self.waiting_s += count(self.waiting) * passed_s;
        self.changed = self.changed.max(at);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_signal_has_means_over_its_own_period() {
        let mut meter = Meter::default();
        meter.arrive(ms(0));
        meter.arrive(ms(0));
        let first = meter.admit(ms(10));
        let second = meter.admit(ms(40));
        meter.end(first, Outcome::Finished, ms(70));
        let overhead = Overhead { cpu: Some(ms(50)), ..Overhead::default() };
        let signal = meter.period(ms(100), overhead);
        // Two wait for 10 ms, one for 30 ms; one is in flight for 60 ms, and one for the 60 ms that are left.
        assert!((signal.waiting - 0.5).abs() < 1e-9 && (signal.in_flight - 1.2).abs() < 1e-9, "{signal:?}");
        assert_eq!((signal.period, signal.finished, signal.failed), (ms(100), 1, 0));
        assert_eq!((signal.latency, signal.oldest, signal.overhead), (Some(ms(60)), Some(ms(60)), overhead));
        meter.arrive(ms(100));
        meter.arrive(ms(100));
        meter.give_up(ms(100));
        let third = meter.admit(ms(100));
        meter.arrive(ms(100));
        let retracted = meter.admit(ms(100));
        assert_eq!(meter.retract(&retracted, ms(100)), Some(ms(100)));
        assert_eq!(meter.period(ms(100), overhead).oldest, Some(ms(60)));
        meter.end(second, Outcome::Failed, ms(150));
        meter.end(third, Outcome::Finished, ms(150));
        let signal = meter.period(ms(200), Overhead::default());
        assert!(signal.waiting.abs() < 1e-9 && (signal.in_flight - 1.0).abs() < 1e-9, "{signal:?}");
        assert_eq!((signal.finished, signal.failed), (1, 1));
        assert_eq!((signal.latency, signal.oldest), (Some(ms(80)), None));
    }

    #[test]
    fn a_unit_that_stood_still_has_been_in_flight_since_it_was_admitted() {
        let mut meter = Meter::default();
        meter.arrive(ms(0));
        let unit = meter.admit(ms(10));
        let admitted = meter.retract(&unit, ms(30)).unwrap();
        assert_eq!((meter.in_flight(), meter.retract(&unit, ms(40))), (0, None));
        meter.resume(&unit, admitted, ms(90));
        let signal = meter.period(ms(100), Overhead::default());
        assert!((signal.in_flight - 0.3).abs() < 1e-9 && signal.oldest == Some(ms(90)), "{signal:?}");
        meter.end(unit, Outcome::Finished, ms(120));
        assert_eq!(meter.period(ms(200), Overhead::default()).latency, Some(ms(110)));
    }

    #[test]
    fn a_period_without_length_or_units_has_no_means() {
        let mut meter = Meter::default();
        assert_eq!(meter.period(ms(0), Overhead::default()), Signal::default());
        assert_eq!(meter.period(ms(1), Overhead::default()), Signal { period: ms(1), ..Signal::default() });
    }

    proptest! {
        /// Little's law: if all units begin and end in a period, what was in flight on average is the rate
        /// times the latency, and so it is with those that wait.
        #[test]
        fn means_rates_and_latencies_agree(units in prop::collection::vec([0..1000u64, 0..1000, 0..1000], 1..50)) {
            let mut events = Vec::new();
            for (unit, times) in units.iter().enumerate() {
                let mut times = *times;
                times.sort_unstable();
                events.extend(times.into_iter().enumerate().map(|(event, time)| (time, event, unit)));
            }
            events.sort_unstable();
            let mut meter = Meter::default();
            let mut admissions: Vec<_> = units.iter().map(|_| None).collect();
            for (time, event, unit) in &events {
                match event {
                    0 => meter.arrive(ms(*time)),
                    1 => admissions[*unit] = Some(meter.admit(ms(*time))),
                    _ => meter.end(admissions[*unit].take().unwrap(), Outcome::Finished, ms(*time)),
                }
            }
            let signal = meter.period(ms(1000), Overhead::default());
            let mut waited_ms = 0;
            for times in &units {
                let mut times = *times;
                times.sort_unstable();
                waited_ms += times[1] - times[0];
            }
            prop_assert_eq!(signal.finished, units.len() as u64);
            let in_flight = signal.latency.unwrap().as_secs_f64() * signal.productivity();
            prop_assert!((signal.in_flight - in_flight).abs() < 1e-6, "{:?}", signal);
            prop_assert!((signal.waiting - count(waited_ms) / 1000.0).abs() < 1e-6, "{:?}", signal);
            prop_assert_eq!(meter.in_flight(), 0);
        }
    }
}
