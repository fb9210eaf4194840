//! A log-linear histogram: eight buckets per doubling, so that the relative error of a quantile is at most
//! 6.25 %.
//!
//! Histograms of two traces merge exactly; quantiles do not. A histogram stores 496 counters and no samples.

use std::num::NonZeroUsize;

/// Buckets per doubling.
const PER_OCTAVE: u64 = 8;
const OCTAVE_BITS: u32 = PER_OCTAVE.trailing_zeros();
/// Buckets for the whole range of `u64`.
pub(crate) const BUCKETS: usize = 496;

/// Counts of values by size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0 }
    }
}

impl Histogram {
    /// Counts `value`.
    pub fn add(&mut self, value: u64) {
        self.add_times(value, 1);
    }

    /// Counts `value` `times` times.
    pub fn add_times(&mut self, value: u64, times: u64) {
        self.add_to(bucket(value), times);
    }

    /// Returns the values that are in these buckets so many times.
    pub(crate) fn of_buckets(buckets: impl Iterator<Item = (usize, u64)>) -> Self {
        let mut histogram = Self::default();
        buckets.for_each(|(bucket, times)| histogram.add_to(bucket, times));
        histogram
    }

    /// Returns the number of values in the bucket with this index.
    pub(crate) fn count(&self, bucket: usize) -> u64 {
        self.counts[bucket]
    }

    /// Counts a value in the bucket with this index `times` times.
    pub(crate) fn add_to(&mut self, bucket: usize, times: u64) {
        let count = &mut self.counts[bucket];
        *count = count.saturating_add(times);
        self.total = self.total.saturating_add(times);
    }

    /// Returns the values from the smallest to the largest one in classes of one, two, four or more
    /// neighbouring buckets, as few as `classes_max` allows: smallest and largest value, count.
    #[must_use]
    pub fn classes(&self, classes_max: NonZeroUsize) -> Vec<(u64, u64, u64)> {
        let is_full = |count: &u64| *count > 0;
        let Some(first) = self.counts.iter().position(is_full) else { return Vec::new() };
        let last = self.counts.iter().rposition(is_full).unwrap_or(first);
        let mut width = 1;
        while last / width - first / width >= classes_max.get() {
            width *= 2;
        }
        let class = |class: usize| {
            let buckets = class * width..BUCKETS.min((class + 1) * width);
            let count =
                self.counts[buckets.clone()].iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
            (lowest(buckets.start), highest(buckets.end - 1), count)
        };
        (first / width..=last / width).map(class).collect()
    }

    /// Returns the number of counted values.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the middle of the bucket that contains the value of rank `numerator/denominator`; `None` if
    /// the histogram is empty.
    #[must_use]
    pub fn quantile(&self, numerator: u32, denominator: u32) -> Option<u64> {
        let rank = (u128::from(self.total) * u128::from(numerator)).div_ceil(u128::from(denominator.max(1)));
        let mut seen = 0_u128;
        self.buckets().find_map(|(low, high, count)| {
            seen += u128::from(count);
            (seen >= rank.max(1)).then(|| low + (high - low) / 2)
        })
    }

    /// Returns the non-empty buckets: smallest value, largest value, count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let full = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        full.map(|(index, count)| (lowest(index), highest(index), *count))
    }
}

/// Returns the index of the bucket for `value`, below [`BUCKETS`].
#[must_use]
pub fn bucket(value: u64) -> usize {
    if value < PER_OCTAVE {
        return usize::try_from(value).unwrap_or(0);
    }
    let octave = value.ilog2();
    let within = (value >> (octave - OCTAVE_BITS)) & (PER_OCTAVE - 1);
    let index = u64::from(octave - OCTAVE_BITS + 1) * PER_OCTAVE + within;
    usize::try_from(index).unwrap_or(BUCKETS - 1)
}

/// Returns where a bucket begins on a logarithmic scale, in octaves. The buckets below 8, one for each value,
/// are an eighth of an octave wide.
pub(crate) fn octaves(index: usize) -> f64 {
    let (octave, within) =
        (index as u64 / PER_OCTAVE, (index as u64 % PER_OCTAVE) as f64 / PER_OCTAVE as f64);
    octave as f64 + if octave == 0 { within } else { within.ln_1p() / std::f64::consts::LN_2 }
}

fn lowest(index: usize) -> u64 {
    let index = index as u64;
    if index < PER_OCTAVE {
        return index;
    }
    (PER_OCTAVE + index % PER_OCTAVE) << (index / PER_OCTAVE - 1)
}

fn highest(index: usize) -> u64 {
    if index + 1 == BUCKETS { u64::MAX } else { lowest(index + 1) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_contains_its_values_and_its_width_is_at_most_an_eighth_of_them(value: u64) {
            let index = bucket(value);
            prop_assert!(lowest(index) <= value && value <= highest(index));
            prop_assert!(highest(index) - lowest(index) <= value / 8);
        }

        #[test]
        fn a_quantile_is_within_an_eighth_of_the_exact_quantile(
            mut values in proptest::collection::vec(0_u64..1 << 40, 1..300), percent in 1_u32..100
        ) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.add(*value));
            values.sort_unstable();
            let rank = (values.len() * percent as usize).div_ceil(100).max(1);
            let exact = values[rank - 1];
            let found = histogram.quantile(percent, 100).unwrap();
            prop_assert!(found.abs_diff(exact) <= exact / 8, "{} for {}", found, exact);
        }
    }

    #[test]
    fn classes_are_as_narrow_as_their_number_allows() {
        let mut histogram = Histogram::default();
        [100, 110, 127, 200, 1_000].iter().for_each(|value| histogram.add(*value));
        let classes = |most| histogram.classes(NonZeroUsize::new(most).unwrap());
        let octaves = [(64, 127, 3), (128, 255, 1), (256, 511, 0), (512, 1_023, 1)];
        assert_eq!(classes(4), octaves);
        assert_eq!(classes(6), octaves);
        assert_eq!(classes(7)[..2], [(96, 127, 3), (128, 191, 0)]);
        assert_eq!(classes(1), [(64, 1_023, 5)]);
        assert_eq!(Histogram::default().classes(NonZeroUsize::MIN), []);
    }

    #[test]
    fn an_empty_histogram_has_no_quantile_and_the_largest_value_has_a_bucket() {
        assert_eq!(Histogram::default().quantile(1, 2), None);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }
}
