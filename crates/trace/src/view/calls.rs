//! How long calls took: the distribution of their times, its modes, and what their times depend on (the
//! extraction of one call in ktranal, Brown 1997, section 3.2).
//!
//! The memory does not grow with the number of records: each property of a call has up to 1,024 values at a
//! time, and each value a counter for each bucket of the histogram that it occurs in.

mod dependence;
mod mode;
mod property;
#[cfg(test)]
mod tests;

use std::ops::Range;

use super::{Tally, View};
use crate::{
    histogram::{self, Histogram},
    record::{Content, Event, Lost, Record},
};
use property::{Group, Values};

pub use dependence::{Dependence, ValueTimes};
pub use property::Property;

/// Collects [`CallTimes`] of all calls; a [`super::Filter`] chooses those of one name.
#[derive(Debug)]
pub struct FindModes {
    times: CallTimes,
    /// The calls of each bucket of the histogram.
    buckets: Vec<Bucket>,
    values: Values,
}

/// How long calls took.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallTimes {
    /// Calls that failed.
    pub errors: u64,
    /// Calls that never returned; nothing else here includes them.
    pub unfinished: u64,
    /// All other calls; its `differences` are empty.
    pub all: Mode,
    /// Modes of the elapsed times, fastest first. Each call is in one.
    pub modes: Vec<Mode>,
    /// Properties that the elapsed times depend on, the one that explains most first.
    pub dependences: Vec<Dependence>,
    /// Properties with more values than could be counted, and how many calls had these.
    pub dropped: Vec<(Property, u64)>,
    /// Missing records.
    pub lost: u64,
}

/// A peak of the distribution, with the calls around it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mode {
    /// Its calls.
    pub tally: Tally,
    /// Shortest elapsed time, ns.
    pub min_ns: u64,
    /// Longest elapsed time, ns.
    pub max_ns: u64,
    /// The elapsed times, ns.
    pub elapsed: Histogram,
    /// What its calls have more often than the others, the clearest difference first.
    pub differences: Vec<Difference>,
}

/// A value that a property has more often in the calls of a mode than in the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The property.
    pub property: Property,
    /// The value, such as `EAGAIN`.
    pub value: String,
    /// Share of the calls of the mode with this value, 0 to 1.
    pub share: f64,
    /// Share of the other calls with this value, 0 to 1.
    pub share_of_others: f64,
}

/// The calls of a bucket of the histogram.
#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    tally: Tally,
    min_ns: u64,
    max_ns: u64,
}

impl Default for FindModes {
    fn default() -> Self {
        Self {
            times: CallTimes::default(),
            buckets: vec![Bucket::default(); histogram::BUCKETS],
            values: Values::default(),
        }
    }
}

impl View for FindModes {
    type Shown = CallTimes;

    fn record(&mut self, record: &Record) {
        self.record_with(record, &[]);
    }

    fn record_with(&mut self, record: &Record, contents: &[Content]) {
        match &record.event {
            Event::Call(call) => {
                self.times.errors += u64::from(call.errno().is_some());
                let position = histogram::bucket(call.elapsed_ns);
                let bucket = &mut self.buckets[position];
                let is_first = bucket.tally.calls == 0;
                bucket.min_ns = if is_first { call.elapsed_ns } else { bucket.min_ns.min(call.elapsed_ns) };
                bucket.max_ns = bucket.max_ns.max(call.elapsed_ns);
                bucket.tally.add(call);
                self.values.add(position, record, call, contents);
            }
            Event::Unfinished(_) => self.times.unfinished += 1,
            Event::PageFault { .. }
            | Event::OffCpu { .. }
            | Event::Fork { .. }
            | Event::Exec { .. }
            | Event::Exit { .. } => {}
        }
    }

    fn lost(&mut self, lost: &Lost) {
        self.times.lost = self.times.lost.saturating_add(lost.records);
    }

    fn finish(self) -> CallTimes {
        let all = self.within(0..histogram::BUCKETS);
        if all.tally.calls == 0 {
            return self.times;
        }
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.tally.calls).collect();
        let modes = mode::modes(&counts).into_iter().map(|range| {
            let differences = self.differences(&range, all.tally.calls);
            Mode { differences, ..self.within(range) }
        });
        let modes = modes.collect();
        let dependences = dependence::dependences(&self.values, &counts);
        let dropped = self.values.dropped();
        CallTimes { all, modes, dependences, dropped, ..self.times }
    }
}

impl FindModes {
    /// Returns the calls in a range of buckets.
    fn within(&self, range: Range<usize>) -> Mode {
        let mut mode = Mode::default();
        for (position, bucket) in range.clone().zip(&self.buckets[range]) {
            if bucket.tally.calls > 0 {
                mode.min_ns = if mode.tally.calls == 0 { bucket.min_ns } else { mode.min_ns };
                mode.max_ns = bucket.max_ns;
                mode.tally.merge(&bucket.tally);
                mode.elapsed.add_to(position, bucket.tally.calls);
            }
        }
        mode
    }

    /// Returns what the calls in a range of buckets have more often than the others: of each property, the
    /// value with the largest difference.
    fn differences(&self, range: &Range<usize>, calls: u64) -> Vec<Difference> {
        let inside: u64 = self.buckets[range.clone()].iter().map(|bucket| bucket.tally.calls).sum();
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let shares = self.values.all().map(|(property, group)| {
            let within = group.within(range.clone());
            (property, group, [share(within, inside), share(group.calls - within, calls - inside)])
        });
        let size = |(_, _, [share, others]): &(Property, &Group, [f64; 2])| share - others;
        let mut clear: Vec<_> = shares.filter(|it| size(it) >= DIFFERENCE_MIN && inside < calls).collect();
        // Of equal ones, a value before the class that it is in.
        let order =
            |(property, group, _): &(Property, &Group, _)| (*property, group.is_class, group.text.clone());
        clear.sort_by(|a, b| size(b).total_cmp(&size(a)).then_with(|| order(a).cmp(&order(b))));
        let mut differences: Vec<Difference> = Vec::new();
        for (property, group, [share, share_of_others]) in clear {
            if differences.iter().all(|it| it.property != property) {
                differences.push(Difference { property, value: group.text.clone(), share, share_of_others });
            }
        }
        differences
    }
}

/// A difference is shown if the shares differ by at least this. If calls are independent, one of two equally
/// frequent values is in that many more of 25 calls than of 25 others three times in 10,000.
pub const DIFFERENCE_MIN: f64 = 0.5;
