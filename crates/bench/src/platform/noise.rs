//! The noise floor of a processor: the share of time that other activity takes even on a quiet machine.
//!
//! The binary calls [`probe`] before and after a run. It reads a clock repeatedly, as the kernel's `osnoise`
//! tracer does. A gap between two readings is time that interrupts, other processes or the hypervisor took.
//! The probe needs no privilege and cannot distinguish them. It does not evaluate the noise.

use std::fmt;
use std::io;
use std::time::Duration;

use assay_process::cpus::Pinned;

use super::clock::Clock;

/// Lower bounds of the classes of gap lengths, us: a gap belongs to the last bound that it reaches.
pub const BOUNDS_US: [f64; 13] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0];

/// The result of a probe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoiseFloor {
    /// The processor.
    pub cpu: usize,
    /// Duration of the probe, ns.
    pub watched_ns: f64,
    /// Time in gaps, ns.
    pub lost_ns: f64,
    /// The longest gap, ns.
    pub longest_ns: f64,
    /// Number of gaps in each class of [`BOUNDS_US`]; the last class is 10 ms and more.
    pub gaps: [u64; BOUNDS_US.len()],
}

impl NoiseFloor {
    /// Returns the share of the time that was lost, between 0 and 1.
    #[must_use]
    pub fn lost_share(&self) -> f64 {
        if self.watched_ns > 0.0 { self.lost_ns / self.watched_ns } else { 0.0 }
    }
}

/// Formats the result in one line.
impl fmt::Display for NoiseFloor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gaps: u64 = self.gaps.iter().sum();
        write!(
            f,
            "processor {}: {:.3} % of {:.0} ms lost in {gaps} gaps of at least {} us",
            self.cpu,
            self.lost_share() * 100.0,
            self.watched_ns / 1e6,
            BOUNDS_US[0]
        )?;
        if gaps == 0 {
            return Ok(());
        }
        write!(f, ", the longest {:.1} us", self.longest_ns / 1e3)?;
        let mut separator = ": ";
        for (position, count) in self.gaps.iter().enumerate().filter(|(_, count)| **count > 0) {
            match BOUNDS_US.get(position + 1) {
                Some(next) => write!(f, "{separator}{count} of {}-{next} us", BOUNDS_US[position])?,
                None => write!(f, "{separator}{count} of {} us and more", BOUNDS_US[position])?,
            }
            separator = ", ";
        }
        Ok(())
    }
}

/// Probes a processor for the duration `watch`. Binds the calling thread to the processor during the probe,
/// and restores its affinity afterwards.
///
/// # Errors
/// Fails if the thread cannot be bound, or if the steps of the clock are longer than the shortest gap.
pub fn probe(clock: &impl Clock, cpu: usize, watch: Duration) -> io::Result<NoiseFloor> {
    let pinned = Pinned::to(&[cpu])?;
    let found = spin(clock, cpu, watch);
    pinned.restore()?;
    found
}

#[expect(clippy::cast_precision_loss, reason = "a probe is far shorter than 2^52 ns")]
fn spin(clock: &impl Clock, cpu: usize, watch: Duration) -> io::Result<NoiseFloor> {
    let watch_ns = watch.as_nanos() as f64;
    let mut floor =
        NoiseFloor { cpu, watched_ns: 0.0, lost_ns: 0.0, longest_ns: 0.0, gaps: [0; BOUNDS_US.len()] };
    let begun = clock.begin();
    let (mut last, mut shortest_ns) = (begun, f64::INFINITY);
    while floor.watched_ns < watch_ns {
        let now = clock.begin();
        let gap_ns = clock.elapsed_ns(last, now);
        if gap_ns > 0.0 {
            shortest_ns = shortest_ns.min(gap_ns);
        }
        if let Some(length) = BOUNDS_US.iter().rposition(|bound| gap_ns >= bound * 1e3) {
            floor.gaps[length] += 1;
            floor.lost_ns += gap_ns;
            floor.longest_ns = floor.longest_ns.max(gap_ns);
        }
        floor.watched_ns = clock.elapsed_ns(begun, now);
        last = now;
    }
    if shortest_ns >= BOUNDS_US[0] * 1e3 {
        return Err(io::Error::other(format!(
            "the clock steps by at least {shortest_ns:.0} ns, so that shorter gaps cannot be detected; \
             the noise floor requires a finer clock"
        )));
    }
    Ok(floor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::clock::calibrate;
    use assay_process::cpus;
    use std::cell::Cell;

    /// A clock whose readings increase by one step, except for delayed readings.
    struct Delayed {
        step_ns: u64,
        delays: &'static [(u64, u64)],
        reading: Cell<u64>,
        now: Cell<u64>,
    }

    fn delayed(step_ns: u64, delays: &'static [(u64, u64)]) -> Delayed {
        Delayed { step_ns, delays, reading: Cell::new(0), now: Cell::new(5_000) }
    }

    impl Clock for Delayed {
        fn begin(&self) -> u64 {
            let reading = self.reading.replace(self.reading.get() + 1);
            let delay = self.delays.iter().find(|(at, _)| *at == reading).map_or(0, |(_, delay)| *delay);
            self.now.set(self.now.get() + self.step_ns + delay);
            self.now.get()
        }

        fn end(&self) -> u64 {
            self.begin()
        }

        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        fn elapsed_ns(&self, begin: u64, end: u64) -> f64 {
            (end - begin) as f64
        }
    }

    #[test]
    fn every_gap_is_counted_by_its_length_and_shorter_intervals_are_not_gaps() {
        let clock = delayed(25, &[(3, 974), (10, 975), (20, 1_975), (30, 6_975), (31, 30_000_000)]);
        let floor = spin(&clock, 1, Duration::from_millis(40)).unwrap();
        // 999 ns is not a gap; 1, 2 and 7 us are gaps; 30 ms is in the class without an upper bound.
        assert_eq!(floor.gaps, [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let rounded = |ns: f64| format!("{ns:.0}");
        assert_eq!(rounded(floor.lost_ns), "30010025");
        assert_eq!(rounded(floor.longest_ns), "30000025");
        assert_eq!(rounded(floor.watched_ns), "40000024");
        assert_eq!(
            floor.to_string(),
            "processor 1: 75.025 % of 40 ms lost in 4 gaps of at least 1 us, the longest 30000.0 us: \
             1 of 1-2 us, 1 of 2-5 us, 1 of 5-10 us, 1 of 10000 us and more"
        );
    }

    #[test]
    fn an_undisturbed_processor_loses_no_time() {
        let floor = spin(&delayed(40, &[]), 0, Duration::from_micros(100)).unwrap();
        assert_eq!(floor.to_string(), "processor 0: 0.000 % of 0 ms lost in 0 gaps of at least 1 us");
        assert!(floor.lost_share().abs() < f64::EPSILON);
    }

    #[test]
    fn a_clock_that_is_too_coarse_to_detect_a_gap_is_an_error() {
        let error = spin(&delayed(1_000_000, &[]), 0, Duration::from_millis(10)).unwrap_err();
        assert!(error.to_string().contains("steps by at least 1000000 ns"), "{error}");
    }

    #[test]
    fn a_real_probe_runs_for_the_given_duration_and_restores_the_affinity() {
        let allowed = cpus::allowed().unwrap();
        let cpu = *allowed.last().unwrap();
        let floor = probe(&calibrate().source, cpu, Duration::from_millis(20)).unwrap();
        assert!(floor.watched_ns >= 20e6 && floor.lost_ns <= floor.watched_ns, "{floor}");
        assert_eq!(cpus::allowed().unwrap(), allowed);
    }

    #[test]
    fn a_missing_processor_is_an_error() {
        let allowed = cpus::allowed().unwrap();
        assert!(probe(&calibrate().source, 100_000, Duration::from_millis(1)).is_err());
        assert_eq!(cpus::allowed().unwrap(), allowed);
    }
}
