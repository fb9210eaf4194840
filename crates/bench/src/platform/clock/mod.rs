//! Clocks. No other module of this crate reads a clock.
//!
//! The harness times batches with the cycle counter if it is invariant on this processor, otherwise with
//! `CLOCK_MONOTONIC_RAW`. The parent calibrates once per run (two windows of 100 ms, so that the error is far
//! below the noise of a batch) and passes the rate to every child: a calibration in each child would cost
//! more than the child's measurement, or would add its own error to every sample.

#[cfg(target_arch = "aarch64")]
mod cntvct;
pub mod monotonic;
#[cfg(target_arch = "x86_64")]
mod tsc;

#[cfg(target_arch = "aarch64")]
use cntvct as counter;
#[cfg(target_arch = "x86_64")]
use tsc as counter;

use std::time::Duration;

/// Measures the time that a section of code takes.
pub trait Clock {
    /// Reads the clock before the section: none of it has started.
    fn begin(&self) -> u64;
    /// Reads the clock after the section: all of it has completed.
    fn end(&self) -> u64;
    /// Returns the nanoseconds between two readings.
    fn elapsed_ns(&self, begin: u64, end: u64) -> f64;
}

/// The clock that times batches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Source {
    /// The processor's counter, with its rate.
    Counter {
        /// Ticks per nanosecond.
        ticks_per_ns: f64,
    },
    /// `clock_gettime(CLOCK_MONOTONIC_RAW)`.
    MonotonicRaw,
}

/// The calibrated clock of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// The clock.
    pub source: Source,
    /// Smallest step between two consecutive readings, ns.
    pub resolution_ns: f64,
    /// Difference between the rates of two calibration windows, parts per million; 0 if no calibration is
    /// needed.
    pub error_ppm: f64,
    /// Why the processor's counter is not used; `None` if it is used.
    pub refused: Option<String>,
}

impl Clock for Source {
    #[inline]
    fn begin(&self) -> u64 {
        match self {
            Source::Counter { .. } => counter::begin(),
            Source::MonotonicRaw => monotonic::now_ns(),
        }
    }

    #[inline]
    fn end(&self) -> u64 {
        match self {
            Source::Counter { .. } => counter::end(),
            Source::MonotonicRaw => monotonic::now_ns(),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a batch is far shorter than 2^52 ticks")]
    fn elapsed_ns(&self, begin: u64, end: u64) -> f64 {
        let ticks = end.wrapping_sub(begin) as f64;
        match self {
            Source::Counter { ticks_per_ns } => ticks / ticks_per_ns,
            Source::MonotonicRaw => ticks,
        }
    }
}

/// Length of each of the two calibration windows. The two reads at each end of a window differ by at most
/// about 50 ns, which is 0.5 ppm of 100 ms.
const WINDOW: Duration = Duration::from_millis(100);

/// Maximum difference between the two windows for the counter to be used: a clock that drifts by this much
/// adds a tenth of a per cent to every figure.
const ERROR_PPM_MAX: f64 = 1000.0;

/// Chooses and calibrates the clock of a run. Takes about 0.2 s.
#[must_use]
pub fn calibrate() -> Calibration {
    if let Err(reason) = counter::usable() {
        return fallback(reason);
    }
    let (first, second) = (rate(), rate());
    let ticks_per_ns = f64::midpoint(first, second);
    let error_ppm = (first - second).abs() / ticks_per_ns * 1e6;
    if !error_ppm.is_finite() || error_ppm > ERROR_PPM_MAX {
        return fallback(format!("two calibrations of the cycle counter differ by {error_ppm:.0} ppm"));
    }
    let source = Source::Counter { ticks_per_ns };
    Calibration { source, resolution_ns: resolution_ns(&source), error_ppm, refused: None }
}

fn fallback(reason: String) -> Calibration {
    let source = Source::MonotonicRaw;
    Calibration { source, resolution_ns: resolution_ns(&source), error_ppm: 0.0, refused: Some(reason) }
}

/// Returns the ticks of the counter per nanosecond over one window.
#[expect(clippy::cast_precision_loss, reason = "100 ms are far fewer than 2^52 ticks")]
fn rate() -> f64 {
    // With one tick per nanosecond, the elapsed time is in ticks of the counter.
    let counter = Source::Counter { ticks_per_ns: 1.0 };
    let (ticks_begin, ns_begin) = simultaneous(&counter);
    std::thread::sleep(WINDOW);
    let (ticks_end, ns_end) = simultaneous(&counter);
    ticks_end.wrapping_sub(ticks_begin) as f64 / (ns_end - ns_begin) as f64
}

/// Reads a clock and the kernel's clock at the same time: returns the attempt with the shortest time between
/// the readings.
fn simultaneous(clock: &impl Clock) -> (u64, u64) {
    (0..10)
        .map(|_| {
            let before = clock.begin();
            let ns = monotonic::now_ns();
            let after = clock.begin();
            (after.wrapping_sub(before), before + (after.wrapping_sub(before)) / 2, ns)
        })
        .min()
        .map_or((0, 0), |(_, ticks, ns)| (ticks, ns))
}

/// Returns the smallest step between two consecutive readings.
fn resolution_ns(clock: &impl Clock) -> f64 {
    (0..1000)
        .map(|_| {
            let begin = clock.begin();
            clock.elapsed_ns(begin, clock.end())
        })
        .filter(|step| *step > 0.0)
        .fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calibrated_clock_agrees_with_the_kernel_on_the_duration_of_a_sleep() {
        let calibration = calibrate();
        let clock = calibration.source;
        let (begin, kernel_begin) = simultaneous(&clock);
        std::thread::sleep(Duration::from_millis(20));
        let (end, kernel_end) = simultaneous(&clock);
        #[expect(clippy::cast_precision_loss, reason = "a short wait")]
        let kernel_ns = (kernel_end - kernel_begin) as f64;
        // The readings of a pair are far apart only if every attempt was interrupted.
        let ratio = clock.elapsed_ns(begin, end) / kernel_ns;
        assert!((0.99..1.01).contains(&ratio), "{ratio}");
        assert!(calibration.resolution_ns.is_finite() && calibration.resolution_ns < 1e6);
    }

    #[test]
    fn an_unusable_counter_is_replaced_and_the_reason_is_kept() {
        let calibration = fallback("not invariant".to_owned());
        assert_eq!(calibration.source, Source::MonotonicRaw);
        assert_eq!(calibration.refused.as_deref(), Some("not invariant"));
    }
}
