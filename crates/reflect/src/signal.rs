//! What a server did in one period: its productivity, and the overhead of it (Fowler et al., *Using
//! Performance Reflection in Systems Software*, HotOS 2003, section 2).
//!
//! Overheads are compared per unit of productivity. Per second they have the wrong sign in a collapse: a
//! server that thrashes makes fewer context switches and has fewer lock waits in a second, because it does
//! less of everything.

use std::time::Duration;

/// One period of a server.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Signal {
    /// Length of the period.
    pub period: Duration,
    /// Units of work that succeeded in it: commits, requests.
    pub finished: u64,
    /// Units of work that failed in it: aborts, errors.
    pub failed: u64,
    /// Mean number of units that were admitted and had not ended.
    pub in_flight: f64,
    /// Mean number of units that waited for admission.
    pub waiting: f64,
    /// Mean time from admission to end of the units that ended; `None` if none did.
    pub latency: Option<Duration>,
    /// Age of the oldest unit in flight at the end; `None` if it is not known.
    pub oldest: Option<Duration>,
    /// What the work cost.
    pub overhead: Overhead,
}

/// Costs in one period, of all units together; `None` for what is not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overhead {
    /// Processor time.
    pub cpu: Option<Duration>,
    /// Time in which the server's threads could run and had no processor.
    pub run_queue_wait: Option<Duration>,
    /// Time in which units waited for a lock of another one.
    pub lock_wait: Option<Duration>,
}

impl Signal {
    /// Returns the productivity in units per second.
    #[must_use]
    pub fn productivity(&self) -> f64 {
        let seconds = self.period.as_secs_f64();
        if seconds > 0.0 { count(self.finished) / seconds } else { 0.0 }
    }

    /// Returns the waste of each finished unit in seconds: processor time and lock waits. `None` if neither
    /// is measured, or nothing finished.
    ///
    /// Time in the run queue is not in it: it also rises if the processors are given to others.
    #[must_use]
    pub fn waste_s(&self) -> Option<f64> {
        let Overhead { cpu, lock_wait, .. } = self.overhead;
        let waste = [cpu, lock_wait].into_iter().flatten().reduce(Duration::saturating_add)?;
        (self.finished > 0).then(|| waste.as_secs_f64() / count(self.finished))
    }

    /// Returns the share of the time in flight that was spent waiting for a processor or a lock. `None`
    /// unless both are measured and something was in flight: one alone is a lower bound.
    #[must_use]
    pub fn contention(&self) -> Option<f64> {
        let Overhead { run_queue_wait, lock_wait, .. } = self.overhead;
        let wait = run_queue_wait?.saturating_add(lock_wait?);
        let in_flight_s = self.in_flight * self.period.as_secs_f64();
        (in_flight_s > 0.0).then(|| wait.as_secs_f64() / in_flight_s)
    }
}

/// Counts of a period are far below 2^52.
#[expect(clippy::cast_precision_loss, reason = "a period has far fewer than 2^52 units")]
pub(crate) fn count(units: u64) -> f64 {
    units as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNAL: Signal = Signal {
        period: Duration::from_millis(100),
        finished: 50,
        failed: 0,
        in_flight: 4.0,
        waiting: 0.0,
        latency: None,
        oldest: None,
        overhead: Overhead {
            cpu: Some(Duration::from_millis(150)),
            run_queue_wait: Some(Duration::from_millis(100)),
            lock_wait: None,
        },
    };

    #[test]
    fn overheads_are_per_unit_and_shares_are_of_the_time_in_flight() {
        assert!((SIGNAL.productivity() - 500.0).abs() < 1e-9);
        assert!((SIGNAL.waste_s().unwrap() - 0.003).abs() < 1e-12);
        let overhead = Overhead { lock_wait: Some(Duration::from_millis(20)), ..SIGNAL.overhead };
        let contended = Signal { overhead, ..SIGNAL };
        assert!((contended.contention().unwrap() - 0.3).abs() < 1e-12);
        assert!((contended.waste_s().unwrap() - 0.0034).abs() < 1e-12);
    }

    #[test]
    fn what_is_not_measured_is_no_zero() {
        let unmeasured = Signal { overhead: Overhead::default(), ..SIGNAL };
        assert_eq!((unmeasured.waste_s(), unmeasured.contention()), (None, None));
        let nothing_finished = Signal { finished: 0, ..SIGNAL };
        assert_eq!(nothing_finished.waste_s(), None);
        assert_eq!(SIGNAL.contention(), None);
    }
}
