//! A log-linear histogram: eight buckets per doubling, so that the relative error of a quantile is at most
//! 6.25 %.
//!
//! Histograms of two traces merge exactly; quantiles do not. A histogram stores 496 counters and no samples.

/// Buckets per doubling.
const PER_OCTAVE: u64 = 8;
const OCTAVE_BITS: u32 = PER_OCTAVE.trailing_zeros();
/// Buckets for the whole range of `u64`.
const BUCKETS: usize = 496;

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
        let count = &mut self.counts[bucket(value)];
        *count = count.saturating_add(times);
        self.total = self.total.saturating_add(times);
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

/// Returns the index of the bucket for `value`.
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
    fn an_empty_histogram_has_no_quantile_and_the_largest_value_has_a_bucket() {
        assert_eq!(Histogram::default().quantile(1, 2), None);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }
}
