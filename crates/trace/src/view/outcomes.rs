//! Calls by their outcome: what they were made on and how they ended, for comparisons of traces.
//!
//! The summary counts `openat` once. Here, an `openat` that fails with `ENOENT` is apart from one that
//! succeeds: a program that looks for a file in more places makes more of the former.

use std::collections::BTreeMap;

use foldhash::HashMap;

use super::{Tally, View, summary::Events};
use crate::{
    record::{Call, CallKind, Event, Lost, Record, errno_name},
    syscall::{self, Direction},
};

/// A call, what it was made on, and how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Outcome {
    pub(super) call: CallKind,
    end: End,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum End {
    /// It succeeded.
    Done,
    /// It read nothing: the end of a file or of a stream.
    Nothing,
    /// It failed with this errno.
    Failed(u16),
}

impl Outcome {
    pub(super) fn of(call: &Call) -> Self {
        let moves_in = call.rule().result == syscall::Outcome::Bytes(Direction::In);
        let end = match call.errno() {
            Some(errno) => End::Failed(errno),
            None if moves_in && call.result == 0 => End::Nothing,
            None => End::Done,
        };
        Self { call: call.kind(), end }
    }

    /// Returns the call with its descriptor and its failure, `openat = ENOENT` or `read tcp4 = 0`.
    #[must_use]
    pub fn text(&self) -> String {
        let end = match self.end {
            End::Done => String::new(),
            End::Nothing => " = 0".to_owned(),
            End::Failed(errno) => format!(" = {}", errno_name(errno)),
        };
        self.call.text() + &end
    }
}

/// Collects [`Outcomes`].
#[derive(Debug, Default)]
pub struct CountOutcomes {
    calls: HashMap<Outcome, Tally>,
    events: Events,
}

/// The calls of a trace by their outcome, and its other events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Calls that returned.
    pub calls: BTreeMap<Outcome, Tally>,
    /// Everything else.
    pub events: Events,
}

impl View for CountOutcomes {
    type Shown = Outcomes;

    fn record(&mut self, record: &Record) {
        if let Event::Call(call) = &record.event {
            self.calls.entry(Outcome::of(call)).or_default().add(call);
        }
        self.events.add(record);
    }

    fn lost(&mut self, lost: &Lost) {
        self.events.add_lost(lost);
    }

    fn finish(self) -> Outcomes {
        Outcomes { calls: self.calls.into_iter().collect(), events: self.events }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        descriptor::Descriptor,
        fixture::{call, record},
        record::Abi,
    };

    #[test]
    fn calls_are_told_apart_by_descriptor_and_by_how_they_ended() {
        let read = |descriptor, result| Call { descriptor, result, elapsed_ns: 10, ..call("read") };
        let open = |result| Call { result, elapsed_ns: 10, ..call("openat") };
        let calls = [
            read(Descriptor::Tcp4, 5),
            read(Descriptor::Tcp4, 0),
            read(Descriptor::Tcp4, 7),
            read(Descriptor::File, 5),
            open(-i64::from(libc::ENOENT)),
            open(3),
            open(-i64::from(libc::EACCES)),
            // It moves no bytes in, so 0 is no end of a stream.
            Call { result: 0, elapsed_ns: 10, ..call("close") },
            Call { abi: Abi::Compat, result: 0, elapsed_ns: 10, ..call("read") },
        ];
        let mut view = CountOutcomes::default();
        calls.iter().for_each(|call| view.record(&record(Event::Call(*call))));
        view.record(&record(Event::Unfinished(call("read"))));
        view.lost(&Lost { time_ns: 0, cpu: 0, records: 4 });
        let shown = view.finish();
        let mut counts: Vec<(String, u64)> =
            shown.calls.iter().map(|(outcome, tally)| (outcome.text(), tally.calls)).collect();
        counts.sort();
        let expected = [
            ("close", 1),
            ("compat call 0", 1),
            ("openat", 1),
            ("openat = EACCES", 1),
            ("openat = ENOENT", 1),
            ("read file", 1),
            ("read tcp4", 2),
            ("read tcp4 = 0", 1),
        ];
        assert_eq!(counts, expected.map(|(name, calls)| (name.to_owned(), calls)));
        let Events { calls, calls_ns, unfinished, lost, .. } = shown.events;
        assert_eq!((calls, calls_ns, unfinished, lost), (9, 90, 1, 4));
    }
}
