//! Selects records of a trace: the extraction of ktranal (Brown 1997, section 3.2).

use super::View;
use crate::{
    descriptor::Descriptor,
    record::{Abi, Content, Event, Lost, Record},
};

/// Conditions that a record must meet, all of them. An absent condition accepts every record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filter {
    /// A call with this number, finished or not.
    pub call: Option<u16>,
    /// A call on this kind of descriptor.
    pub descriptor: Option<Descriptor>,
    /// A record of this process.
    pub process: Option<u32>,
    /// A record of this thread.
    pub thread: Option<u32>,
    /// A call that took at least this long, ns.
    pub elapsed_ns_min: Option<u64>,
    /// A record that begins at this time of the monotonic clock or later, ns.
    pub from_ns: Option<u64>,
    /// A record that begins before this time of the monotonic clock, ns.
    pub to_ns: Option<u64>,
}

impl Filter {
    /// Returns whether the record meets every condition.
    #[must_use]
    pub fn accepts(&self, record: &Record) -> bool {
        let call = match &record.event {
            Event::Call(call) | Event::Unfinished(call) => Some(call),
            Event::PageFault { .. }
            | Event::OffCpu { .. }
            | Event::Fork { .. }
            | Event::Exec { .. }
            | Event::Exit { .. } => None,
        };
        let native = call.filter(|call| call.abi == Abi::Native).map(|call| call.number);
        meets(self.call, native)
            && meets(self.descriptor, call.map(|call| call.descriptor))
            && self.accepts_thread(record.process, record.thread)
            && self.elapsed_ns_min.is_none_or(|least| call.is_some_and(|call| call.elapsed_ns >= least))
            && self.is_in_period(record.begin_ns)
    }

    /// Returns whether the conditions for the process and the thread are met.
    #[must_use]
    pub fn accepts_thread(&self, process: u32, thread: u32) -> bool {
        meets(self.process, Some(process)) && meets(self.thread, Some(thread))
    }

    /// Returns whether the filter accepts only calls.
    #[must_use]
    pub fn selects_calls(&self) -> bool {
        self.call.is_some() || self.descriptor.is_some() || self.elapsed_ns_min.is_some()
    }

    /// Returns whether this time of the monotonic clock is in the period.
    #[must_use]
    pub fn is_in_period(&self, time_ns: u64) -> bool {
        self.from_ns.is_none_or(|from_ns| time_ns >= from_ns)
            && self.to_ns.is_none_or(|to_ns| time_ns < to_ns)
    }

    /// Returns the filter without its period.
    #[must_use]
    pub fn at_any_time(self) -> Self {
        Self { from_ns: None, to_ns: None, ..self }
    }

    /// Returns whether the gap may contain such a record: the lost records ended before it was noticed.
    #[must_use]
    pub fn accepts_gap(&self, lost: &Lost) -> bool {
        self.from_ns.is_none_or(|from_ns| lost.time_ns >= from_ns)
    }

    /// Returns `view` of the records that the filter accepts, and of the gaps that may contain such records.
    pub fn of<V: View>(self, view: V) -> Filtered<V> {
        Filtered { filter: self, view }
    }
}

/// A view of the records that a filter accepts.
#[derive(Debug)]
pub struct Filtered<V> {
    filter: Filter,
    view: V,
}

impl<V: View> View for Filtered<V> {
    type Shown = V::Shown;

    fn record(&mut self, record: &Record) {
        if self.filter.accepts(record) {
            self.view.record(record);
        }
    }

    fn record_with(&mut self, record: &Record, contents: &[Content]) {
        if self.filter.accepts(record) {
            self.view.record_with(record, contents);
        }
    }

    fn lost(&mut self, lost: &Lost) {
        if self.filter.accepts_gap(lost) {
            self.view.lost(lost);
        }
    }

    fn finish(self) -> V::Shown {
        self.view.finish()
    }
}

fn meets<T: PartialEq>(wanted: Option<T>, found: Option<T>) -> bool {
    wanted.is_none() || wanted == found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixture::{call, record},
        record::Call,
    };

    /// Which of these records are accepted, by their begin.
    fn accepted(filter: Filter, records: &[Record]) -> Vec<u64> {
        records.iter().filter(|record| filter.accepts(record)).map(|record| record.begin_ns).collect()
    }

    #[test]
    fn a_gap_that_was_noticed_before_the_period_is_not_in_it() {
        let lost = |filter: Filter| {
            let mut view = filter.of(crate::view::summary::Summarise::default());
            (1..4).for_each(|time_ns| view.lost(&Lost { time_ns, cpu: 0, records: 1 << time_ns }));
            view.finish().events.lost
        };
        assert_eq!(lost(Filter::default()), 14);
        assert_eq!(lost(Filter { from_ns: Some(2), to_ns: Some(3), ..Filter::default() }), 12);
    }

    #[test]
    fn a_record_must_meet_every_condition() {
        let read = |begin_ns, descriptor, elapsed_ns| {
            let event = Event::Call(Call { descriptor, elapsed_ns, ..call("read") });
            Record { begin_ns, ..record(event) }
        };
        let exit = Record { begin_ns: 4, ..record(Event::Exit { code: 0, whole_process: true }) };
        let write = Record { begin_ns: 5, process: 2, thread: 3, ..record(Event::Unfinished(call("write"))) };
        let records = [
            read(1, Descriptor::File, 10),
            read(2, Descriptor::File, 20),
            read(3, Descriptor::Tcp4, 30),
            exit,
            write,
        ];
        let of = |filter| accepted(filter, &records);
        let all = Filter::default();
        assert_eq!(of(all), [1, 2, 3, 4, 5]);
        assert_eq!(of(Filter { call: Some(call("read").number), ..all }), [1, 2, 3]);
        assert_eq!(of(Filter { descriptor: Some(Descriptor::File), ..all }), [1, 2]);
        assert_eq!(of(Filter { elapsed_ns_min: Some(20), ..all }), [2, 3]);
        let both = Filter { descriptor: Some(Descriptor::File), elapsed_ns_min: Some(20), ..all };
        assert_eq!(of(both), [2]);
        assert_eq!(
            [of(Filter { process: Some(2), ..all }), of(Filter { thread: Some(3), ..all })],
            [[5], [5]]
        );
        assert_eq!(of(Filter { from_ns: Some(2), to_ns: Some(4), ..all }), [2, 3]);
    }
}
