//! Which properties the time of a call depends on.
//!
//! A property explains a share of the variance of the logarithm of the time: that between the calls with
//! different values. The share is corrected for the number of values (epsilon squared), because many values
//! explain some variance by chance.

use super::property::{Group, Property, Values};
use crate::histogram::Histogram;

/// A property that the time depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Dependence {
    /// The property.
    pub property: Property,
    /// Share of the variance of the logarithm of the time that it explains by itself, 0 to 1.
    pub share: f64,
    /// Its most frequent values, the most frequent first.
    pub values: Vec<ValueTimes>,
    /// The elapsed times of the calls with another value, or without the property, ns.
    pub others: Histogram,
}

/// The times of the calls with one value of a property.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueTimes {
    /// The value.
    pub value: String,
    /// The elapsed times, ns.
    pub elapsed: Histogram,
}

/// A property that explains less is not shown.
const SHARE_MIN: f64 = 0.1;
/// The calls of rarer values are taken together with those that do not have the property.
const CALLS_MIN: u64 = 25;
/// Variance between the values that is more than chance, in standard deviations of its distribution if the
/// property explains nothing (that of chi square), of which the tail is long.
const DEVIATIONS_MIN: f64 = 10.0;
/// Properties that are shown: the next ones are mostly others that go along with the first.
const DEPENDENCES_MAX: usize = 3;
/// Values of a property that are shown.
const VALUES_SHOWN: usize = 6;

/// Returns the properties that explain most, the largest share first; `counts` is the histogram of all calls.
pub(super) fn dependences(values: &Values, counts: &[u64]) -> Vec<Dependence> {
    let all = Moments::of(counts.iter().copied().enumerate());
    let shares = values.groups(VALUES_SHOWN).filter_map(|(property, mut groups)| {
        groups.retain(|group| group.calls >= CALLS_MIN);
        Some((property, share(&all, &groups)?, groups))
    });
    let mut shares: Vec<_> = shares.filter(|(_, share, _)| *share >= SHARE_MIN).collect();
    // Of properties that explain about the same, the first: a size is in the result and in an argument.
    let per_cent = |share: f64| (share * 100.0).round();
    shares.sort_by(|(first, a, _), (second, b, _)| {
        per_cent(*b).total_cmp(&per_cent(*a)).then_with(|| first.cmp(second))
    });
    shares.truncate(DEPENDENCES_MAX);
    let dependences = shares.into_iter().map(|(property, share, groups)| {
        let values: Vec<ValueTimes> = groups.into_iter().take(VALUES_SHOWN).map(ValueTimes::of).collect();
        let others = counts.iter().enumerate().map(|(bucket, calls)| {
            let shown = values.iter().fold(0, |shown, value| shown + value.elapsed.count(bucket));
            (bucket, calls - shown)
        });
        Dependence { property, share, others: Histogram::of_buckets(others), values }
    });
    dependences.collect()
}

/// Returns the share of the variance that these values explain, together with the calls that have none of
/// them; `None` if it may be chance.
fn share(all: &Moments, groups: &[&Group]) -> Option<f64> {
    let mut rest = *all;
    let mut between = 0.0;
    let mut values = 0.0;
    for group in groups {
        let moments = Moments::of(group.buckets.iter().map(|(bucket, calls)| (*bucket, *calls)));
        between += moments.sum * moments.sum / moments.calls;
        rest.calls -= moments.calls;
        rest.sum -= moments.sum;
        values += 1.0;
    }
    if rest.calls > 0.0 {
        between += rest.sum * rest.sum / rest.calls;
        values += 1.0;
    }
    let from_mean = all.sum * all.sum / all.calls;
    let (total, within) = (all.squares - from_mean, (all.squares - between).max(0.0));
    if total <= 0.0 || values < 2.0 || all.calls <= values {
        return None;
    }
    let chance = within / (all.calls - values);
    let ratio = (between - from_mean) / (values - 1.0) / chance;
    let is_chance = ratio < 1.0 + DEVIATIONS_MIN * (2.0 / (values - 1.0)).sqrt();
    (!is_chance).then(|| 1.0 - chance / (total / (all.calls - 1.0)))
}

/// Sums over calls of the number of their bucket, which is about the logarithm of their time.
#[derive(Debug, Clone, Copy)]
struct Moments {
    calls: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    fn of(buckets: impl Iterator<Item = (usize, u64)>) -> Self {
        buckets.fold(Self { calls: 0.0, sum: 0.0, squares: 0.0 }, |sums, (bucket, calls)| {
            let (bucket, calls) = (bucket as f64, calls as f64);
            Self {
                calls: sums.calls + calls,
                sum: sums.sum + calls * bucket,
                squares: sums.squares + calls * bucket * bucket,
            }
        })
    }
}

impl ValueTimes {
    fn of(group: &Group) -> Self {
        let buckets = group.buckets.iter().map(|(bucket, calls)| (*bucket, *calls));
        Self { value: group.text.clone(), elapsed: Histogram::of_buckets(buckets) }
    }
}
