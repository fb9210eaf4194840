//! Clocks: the only place of this crate that reads one.
//!
//! The harness times batches with the cycle counter where the processor keeps it invariant, and with
//! `CLOCK_MONOTONIC_RAW` where not. The parent calibrates once per run (two windows of 100 ms, so that
//! the error is far below a batch's noise) and hands the rate to every child: a calibration in each child
//! would cost more than the child's measurement, or would add its own error to every sample.

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

/// Something that tells how much time a stretch of code took.
pub trait Clock {
    /// Reading before the stretch: nothing of it has begun.
    fn begin(&self) -> u64;
    /// Reading after the stretch: all of it has ended.
    fn end(&self) -> u64;
    /// Nanoseconds between two readings.
    fn elapsed_ns(&self, begin: u64, end: u64) -> f64;
}

/// Which clock times batches.
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

/// How a run reads time.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// The clock.
    pub source: Source,
    /// Smallest step between two readings in a row, ns.
    pub resolution_ns: f64,
    /// Difference between the rates of two calibration windows, parts per million; 0 where none is needed.
    pub error_ppm: f64,
    /// Why the processor's counter is not used; `None` when it is.
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

/// Length of each of the two calibration windows. The two reads that bound a window differ by about 50 ns
/// at worst, which is 0.5 ppm of 100 ms.
const WINDOW: Duration = Duration::from_millis(100);

/// Disagreement of the two windows above which the counter is not trusted: a clock that wanders by this
/// much would add a tenth of a per cent to every figure.
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

/// Ticks of the counter per nanosecond over one window.
#[expect(clippy::cast_precision_loss, reason = "100 ms are far fewer than 2^52 ticks")]
fn rate() -> f64 {
    // At one tick per nanosecond the counter's own ticks are what is read.
    let counter = Source::Counter { ticks_per_ns: 1.0 };
    let (ticks_begin, ns_begin) = simultaneous(&counter);
    std::thread::sleep(WINDOW);
    let (ticks_end, ns_end) = simultaneous(&counter);
    ticks_end.wrapping_sub(ticks_begin) as f64 / (ns_end - ns_begin) as f64
}

/// A clock and the kernel's at one moment: of several attempts, the one with the shortest way between the
/// readings.
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

/// Smallest step that two readings in a row show.
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
    fn the_calibrated_clock_agrees_with_the_kernel_on_how_long_a_wait_was() {
        let calibration = calibrate();
        let clock = calibration.source;
        let (begin, kernel_begin) = simultaneous(&clock);
        std::thread::sleep(Duration::from_millis(20));
        let (end, kernel_end) = simultaneous(&clock);
        #[expect(clippy::cast_precision_loss, reason = "a short wait")]
        let kernel_ns = (kernel_end - kernel_begin) as f64;
        // A pair of readings is torn apart only if every attempt at it was interrupted.
        let ratio = clock.elapsed_ns(begin, end) / kernel_ns;
        assert!((0.99..1.01).contains(&ratio), "{ratio}");
        assert!(calibration.resolution_ns.is_finite() && calibration.resolution_ns < 1e6);
    }

    #[test]
    fn a_refused_counter_is_replaced_and_says_why() {
        let calibration = fallback("not invariant".to_owned());
        assert_eq!(calibration.source, Source::MonotonicRaw);
        assert_eq!(calibration.refused.as_deref(), Some("not invariant"));
    }
}
