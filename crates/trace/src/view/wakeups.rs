//! Sleeping and waking: which calls sleep and which wake other threads, and whether the CPU was idle.
//!
//! A server that sleeps between requests costs the kernel more than one that always finds work: its CPU goes
//! idle and has to be woken. The view shows where that happens, by call and kind of descriptor.

use std::borrow::Cow;

use foldhash::HashMap;

use super::View;
use crate::{
    descriptor::Descriptor,
    histogram::Histogram,
    record::{Call, CallKind, Event, Lost, Record, Wakeups},
};

/// Collects [`WakeupTable`].
#[derive(Debug, Default)]
pub struct CountWakeups {
    calls: HashMap<CallKind, Tally>,
    unrecorded: u64,
    lost: u64,
}

/// Sleeps and wake-ups of a trace, by call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WakeupTable {
    /// One row per call and kind of descriptor that slept or woke a thread, most sleeps and wake-ups first.
    pub rows: Vec<WakeupRow>,
    /// Calls whose wake-ups were not recorded, in no row: all those of a trace of version 1.
    pub unrecorded: u64,
    /// Lost records: with losses, every count is a lower bound.
    pub lost: u64,
}

/// One call on one kind of descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WakeupRow {
    /// Name of the call.
    pub name: Cow<'static, str>,
    /// Kind of descriptor.
    pub descriptor: Descriptor,
    /// Calls, including those that never returned.
    pub calls: u64,
    /// Sleeps: context switches because the thread blocked.
    pub sleeps: u64,
    /// Sleeps after which the thread continued on an idle CPU, part of `sleeps`.
    pub idle_sleeps: u64,
    /// How long that CPU had been idle, median in ns within 6.25 %; `None` without such sleeps. For a call
    /// that slept several times it is their mean.
    pub idle_ns: Option<u64>,
    /// Threads woken on the CPU of the call.
    pub woken_same: u64,
    /// Threads woken on another CPU that ran a thread.
    pub woken_busy: u64,
    /// Threads woken on another CPU that was idle.
    pub woken_idle: u64,
    /// How long that CPU had been idle, as `idle_ns`.
    pub woken_idle_ns: Option<u64>,
}

#[derive(Debug, Default)]
struct Tally {
    calls: u64,
    sleeps: u64,
    idle_sleeps: u64,
    woken_same: u64,
    woken_busy: u64,
    woken_idle: u64,
    idle_time: Histogram,
    woken_idle_time: Histogram,
}

impl View for CountWakeups {
    type Shown = WakeupTable;

    fn record(&mut self, record: &Record) {
        let (Event::Call(call) | Event::Unfinished(call)) = &record.event else { return };
        match &call.wakeups {
            Some(wakeups) => {
                self.calls.entry(call.kind()).or_default().add(call, wakeups);
            }
            None => self.unrecorded += 1,
        }
    }

    fn lost(&mut self, lost: &Lost) {
        self.lost = self.lost.saturating_add(lost.records);
    }

    fn finish(self) -> WakeupTable {
        let mut rows: Vec<_> = self.calls.into_iter().filter(|(_, tally)| tally.events() > 0).collect();
        rows.sort_by_key(|(key, tally)| (std::cmp::Reverse(tally.events()), *key));
        let rows = rows.into_iter().map(|(key, tally)| tally.row(key)).collect();
        WakeupTable { rows, unrecorded: self.unrecorded, lost: self.lost }
    }
}

impl Tally {
    fn add(&mut self, call: &Call, wakeups: &Wakeups) {
        self.calls += 1;
        let counts = [
            (&mut self.sleeps, call.voluntary),
            (&mut self.idle_sleeps, wakeups.idle_sleeps),
            (&mut self.woken_same, wakeups.woken_same),
            (&mut self.woken_busy, wakeups.woken_busy),
            (&mut self.woken_idle, wakeups.woken_idle),
        ];
        for (total, count) in counts {
            *total = total.saturating_add(count.into());
        }
        let times = [
            (&mut self.idle_time, wakeups.idle_ns, wakeups.idle_sleeps),
            (&mut self.woken_idle_time, wakeups.woken_idle_ns, wakeups.woken_idle),
        ];
        for (histogram, total_ns, count) in times {
            let count = u64::from(count);
            if let Some(mean_ns) = total_ns.checked_div(count) {
                histogram.add_times(mean_ns, count);
            }
        }
    }

    fn events(&self) -> u64 {
        let woken = [self.woken_same, self.woken_busy, self.woken_idle];
        woken.iter().fold(self.sleeps, |sum, count| sum.saturating_add(*count))
    }

    fn row(self, call: CallKind) -> WakeupRow {
        WakeupRow {
            name: call.name(),
            descriptor: call.descriptor,
            calls: self.calls,
            sleeps: self.sleeps,
            idle_sleeps: self.idle_sleeps,
            idle_ns: self.idle_time.quantile(1, 2),
            woken_same: self.woken_same,
            woken_busy: self.woken_busy,
            woken_idle: self.woken_idle,
            woken_idle_ns: self.woken_idle_time.quantile(1, 2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{call, record};

    fn shown(calls: &[Call]) -> WakeupTable {
        let mut view = CountWakeups::default();
        calls.iter().for_each(|call| view.record(&record(Event::Call(*call))));
        view.finish()
    }

    fn with(name: &str, voluntary: u32, wakeups: Wakeups) -> Call {
        Call { voluntary, wakeups: Some(wakeups), ..call(name) }
    }

    #[test]
    fn sleeps_and_wake_ups_add_up_by_call_and_calls_without_any_have_no_row() {
        let wait = |idle_ns| with("epoll_wait", 1, Wakeups { idle_sleeps: 1, idle_ns, ..Wakeups::default() });
        let write =
            Wakeups { woken_same: 1, woken_busy: 2, woken_idle: 3, woken_idle_ns: 90, ..Wakeups::default() };
        let busy = with("epoll_wait", 1, Wakeups::default());
        let awake = with("epoll_wait", 0, Wakeups::default());
        let calls = [
            wait(8),
            wait(64),
            wait(9),
            busy,
            awake,
            with("write", 0, write),
            with("read", 0, Wakeups::default()),
        ];
        let row = |name: &'static str| WakeupRow {
            name: name.into(),
            descriptor: Descriptor::None,
            calls: 0,
            sleeps: 0,
            idle_sleeps: 0,
            idle_ns: None,
            woken_same: 0,
            woken_busy: 0,
            woken_idle: 0,
            woken_idle_ns: None,
        };
        let write = WakeupRow {
            calls: 1,
            woken_same: 1,
            woken_busy: 2,
            woken_idle: 3,
            woken_idle_ns: Some(30),
            ..row("write")
        };
        let wait = WakeupRow { calls: 5, sleeps: 4, idle_sleeps: 3, idle_ns: Some(9), ..row("epoll_wait") };
        assert_eq!(shown(&calls), WakeupTable { rows: vec![write, wait], unrecorded: 0, lost: 0 });
    }

    #[test]
    fn a_call_that_slept_several_times_counts_as_often_with_the_mean() {
        let slept = |idle_sleeps, idle_ns| {
            with("read", idle_sleeps, Wakeups { idle_sleeps, idle_ns, ..Wakeups::default() })
        };
        let row = &shown(&[slept(1, 1), slept(1, 2), slept(3, 21)]).rows[0];
        assert_eq!((row.idle_sleeps, row.idle_ns), (5, Some(7)));
    }

    #[test]
    fn a_call_that_never_returned_counts_too() {
        let mut view = CountWakeups::default();
        view.record(&record(Event::Unfinished(with("pause", 1, Wakeups::default()))));
        let rows = view.finish().rows;
        assert_eq!((rows[0].name.as_ref(), rows[0].calls, rows[0].sleeps), ("pause", 1, 1));
    }

    #[test]
    fn calls_without_recorded_wake_ups_are_counted_apart_and_losses_are_added_up() {
        let mut view = CountWakeups::default();
        view.record(&record(Event::Call(Call { voluntary: 1, ..call("read") })));
        for records in [3, 4] {
            view.lost(&Lost { time_ns: 0, cpu: 0, records });
        }
        assert_eq!(view.finish(), WakeupTable { rows: Vec::new(), unrecorded: 1, lost: 7 });
    }
}
