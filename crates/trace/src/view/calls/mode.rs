//! The modes of a distribution of times.
//!
//! A mode is a peak of the histogram on a logarithmic scale, together with the values around it. Two peaks
//! are two modes if the valley between them is deep, and too deep to be chance. (The modes of a cost in
//! `assay-statistics` are found among some tens of raw samples; here are millions of calls.)

use std::ops::Range;

use crate::histogram;

/// Depth of a valley in standard deviations of the difference between it and the lower of its peaks, if both
/// are Poisson counts. Of 300 samples each of seven distributions with one peak or none (log-normal with 10,
/// 50, 150 and 300 %, exponential, log-uniform over six decades, and 5 % in a long tail), of 30 to 50,000
/// calls, none had two modes. With 4, up to 13 had. So a mode beside another one has at least 25 calls.
const DEVIATIONS_MIN: f64 = 5.0;
/// Height of a valley as a share of the lower of its peaks: with many calls, chance explains no dent.
const HEIGHT_MAX: f64 = 0.5;
/// Buckets of a peak or a valley: times of many calls show valleys of one bucket, and those of few calls are
/// dense enough only in a whole octave.
const WIDTHS: [usize; 3] = [1, 3, 9];

/// Returns the modes as ranges of buckets, in order; together they are all of `counts`, which has a count for
/// each bucket of a histogram.
pub(super) fn modes(counts: &[u64]) -> Vec<Range<usize>> {
    let mut modes = Vec::new();
    Heights::of(counts).divide(0..counts.len(), &mut modes);
    modes
}

struct Heights {
    /// For each bucket, the calls in those before it.
    below: Vec<f64>,
    /// Where each bucket begins, in octaves.
    octaves: Vec<f64>,
}

/// Some neighbouring buckets.
#[derive(Debug, Clone, Copy)]
struct Window {
    calls: f64,
    octaves: f64,
}

impl Heights {
    fn of(counts: &[u64]) -> Self {
        let mut below = vec![0.0];
        below.extend(counts.iter().scan(0.0, |sum, count| {
            *sum += *count as f64;
            Some(*sum)
        }));
        Self { below, octaves: (0..=counts.len()).map(histogram::octaves).collect() }
    }

    fn window(&self, from: usize, width: usize) -> Window {
        let difference = |of: &[f64]| of[from + width] - of[from];
        Window { calls: difference(&self.below), octaves: difference(&self.octaves) }
    }

    /// Adds the modes of a range.
    fn divide(&self, range: Range<usize>, modes: &mut Vec<Range<usize>>) {
        match WIDTHS.iter().find_map(|width| self.border(&range, *width)) {
            Some(border) => {
                self.divide(range.start..border, modes);
                self.divide(border..range.end, modes);
            }
            None => modes.push(range),
        }
    }

    /// Returns the middle of the deepest valley of a range, the widest one of several; `None` if there is
    /// none that divides two modes.
    fn border(&self, range: &Range<usize>, width: usize) -> Option<usize> {
        let last = range.end.checked_sub(3 * width).filter(|last| *last >= range.start)?;
        let window = |from| self.window(from, width);
        let highest = |highest: &mut Option<Window>, from| {
            *highest = Some(highest.map_or(window(from), |so_far| so_far.higher(window(from))));
            *highest
        };
        // The highest peak before and after each valley from `range.start + width` on.
        let before = (range.start..=last).scan(None, highest);
        let mut after: Vec<_> =
            (range.start + 2 * width..=last + 2 * width).rev().scan(None, highest).collect();
        after.reverse();
        let valleys = before.zip(after).zip(range.start + width..);
        let depths = valleys.map(|((before, after), from)| {
            let valley = window(from);
            (valley.depth(&before).min(valley.depth(&after)), from..from + width)
        });
        let mut deepest = (0.0, 0..0);
        let mut current = (0.0, 0..0);
        for (depth, valley) in depths {
            current = match current {
                (same, wider) if depth.total_cmp(&same).is_eq() => (same, wider.start..valley.end),
                _ => (depth, valley),
            };
            if (current.0, current.1.len()) > (deepest.0, deepest.1.len()) {
                deepest.clone_from(&current);
            }
        }
        let (depth, valley) = deepest;
        (depth >= DEVIATIONS_MIN).then(|| valley.start + valley.len().div_ceil(2))
    }
}

impl Window {
    fn height(&self) -> f64 {
        self.calls / self.octaves
    }

    fn higher(self, other: Self) -> Self {
        if other.height() > self.height() { other } else { self }
    }

    /// Returns the depth of this valley beside a peak in standard deviations; 0 if it is too high.
    fn depth(&self, peak: &Self) -> f64 {
        if peak.calls == 0.0 || self.height() > peak.height() * HEIGHT_MAX {
            return 0.0;
        }
        // Scaled to the width of the peak, so that all empty valleys have exactly the same depth.
        let ratio = self.octaves / peak.octaves;
        let calls = self.calls / ratio;
        (peak.calls - calls) / (peak.calls + calls / ratio).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        fixture,
        histogram::{BUCKETS, bucket},
    };

    /// Returns where the modes begin.
    fn begins(counts: &[u64]) -> Vec<usize> {
        modes(counts).iter().map(|mode| mode.start).collect()
    }

    /// Returns the number of modes of so many calls at each of these times, ns.
    fn at(times: &[(u64, u64)]) -> usize {
        let mut counts = vec![0; BUCKETS];
        times.iter().for_each(|(time_ns, calls)| counts[bucket(*time_ns)] += calls);
        modes(&counts).len()
    }

    #[test]
    fn a_deep_valley_divides_two_modes_in_its_middle() {
        assert_eq!(begins(&[0, 50, 90, 50, 0, 0, 0, 0, 40, 60, 0]), [0, 6]);
        assert_eq!(begins(&[90, 0, 0, 0, 30, 0, 0, 0, 90]), [0, 3, 7]);
        assert_eq!(begins(&[90, 0, 0, 0, 24, 0, 0, 0, 24]), [0], "too few calls");
        assert_eq!(begins(&[0, 900, 500, 500, 500, 500, 900, 0]), [0], "a shallow valley");
        assert_eq!(begins(&[0, 900, 440, 440, 440, 440, 900, 0]), [0, 4]);
    }

    #[test]
    fn a_valley_is_compared_with_as_wide_a_part_of_its_peak() {
        let valley = Window { calls: 100.0, octaves: 0.5 };
        let depth = valley.depth(&Window { calls: 400.0, octaves: 1.0 });
        assert!((depth - 100.0 / 200.0_f64.sqrt()).abs() < 1e-9, "{depth}");
        assert!(valley.depth(&Window { calls: 399.0, octaves: 1.0 }).abs() < 1e-9, "too high");
    }

    #[test]
    fn modes_that_are_half_as_slow_again_are_two_at_any_weights() {
        for (fast, slow) in [(10_000, 10_000), (19_600, 400), (400, 19_600)] {
            assert_eq!(at(&[(500, fast), (750, slow)]), 2, "{fast} and {slow}");
            assert_eq!(at(&[(1_024, fast), (1_535, slow)]), 2, "{fast} and {slow}");
        }
    }

    #[test]
    fn a_peak_that_is_no_mode_belongs_to_the_nearer_one() {
        for (between_ns, mode) in [(1_500, 0), (4_000, 0), (600_000, 1)] {
            let mut counts = vec![0; BUCKETS];
            for (time_ns, calls) in [(1_000, 1_000), (between_ns, 24), (1_000_000, 1_000)] {
                counts[bucket(time_ns)] = calls;
            }
            let modes = modes(&counts);
            assert!(modes.len() == 2 && modes[mode].contains(&bucket(between_ns)), "{between_ns}: {modes:?}");
        }
    }

    #[test]
    fn few_calls_in_an_octave_are_a_mode_beside_an_empty_one() {
        let slow: Vec<_> = (0..26).map(|call| (200_000 + 5_000 * call, 1)).collect();
        assert_eq!(at(&[&[(2_000, 100)], &slow[..]].concat()), 2);
        assert_eq!(at(&[&[(2_000, 100)], &slow[..20]].concat()), 1);
    }

    /// Numbers from 0 to 1.
    fn uniform(state: &mut u64) -> f64 {
        (fixture::random(state) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A log-normal factor.
    fn factor(state: &mut u64, deviation: f64) -> f64 {
        let radius = (-2.0 * (1.0 - uniform(state)).ln()).sqrt();
        (deviation * radius * (std::f64::consts::TAU * uniform(state)).cos()).exp()
    }

    /// Returns how many of 30 samples of `calls` times have several modes.
    fn divided(calls: u64, time_ns: impl Fn(&mut u64) -> f64) -> usize {
        let mut state = calls;
        let sample = |_: &u64| {
            let mut counts = vec![0; BUCKETS];
            for _ in 0..calls {
                let time = std::time::Duration::try_from_secs_f64(time_ns(&mut state) / 1e9);
                counts[bucket(time.map_or(0, |time| time.as_nanos().try_into().unwrap()))] += 1;
            }
            modes(&counts).len() > 1
        };
        (0..30_u64).filter(sample).count()
    }

    #[test]
    fn a_distribution_with_one_peak_or_none_is_one_mode_at_any_width() {
        for calls in [30, 300, 3_000, 30_000] {
            let several = [
                divided(calls, |state| 500.0 * factor(state, 0.1)),
                divided(calls, |state| 500.0 * factor(state, 0.5)),
                divided(calls, |state| 500.0 * factor(state, 1.5)),
                divided(calls, |state| 500_000.0 * factor(state, 3.0)),
                divided(calls, |state| 500.0 - 400.0 * (1.0 - uniform(state)).ln()),
                divided(calls, |state| 1_000.0 * 1e6_f64.powf(uniform(state))),
                divided(calls, |state| match uniform(state) {
                    rest if rest < 0.95 => 500.0 * factor(state, 0.1),
                    _ => 500.0 / (1.0 - uniform(state)),
                }),
            ];
            assert!(several.iter().all(|several| *several <= 1), "{calls} calls: {several:?}");
        }
        let two = |state: &mut u64| factor(state, 0.1) * if uniform(state) < 0.1 { 1_000.0 } else { 500.0 };
        assert_eq!(divided(3_000, two), 30);
    }

    proptest! {
        #[test]
        fn modes_cover_every_bucket_once_and_do_not_depend_on_the_direction(
            half in proptest::collection::vec(0_u64..100, 1..8)
        ) {
            let mut counts = vec![0; BUCKETS];
            counts[..half.len()].copy_from_slice(&half);
            let found = modes(&counts);
            prop_assert_eq!((found[0].start, found[found.len() - 1].end), (0, counts.len()));
            prop_assert!(found.iter().all(|mode| mode.start < mode.end));
            prop_assert!(found.windows(2).all(|two| two[0].end == two[1].start));
            let mut mirrored = half.clone();
            mirrored.reverse();
            // The first eight buckets are equally wide.
            prop_assert_eq!(modes(&half).len(), modes(&mirrored).len());
        }
    }
}
