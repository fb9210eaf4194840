//! The summary: Figure 11 of Brown 1997, split by kind of descriptor and with additional columns.

use std::borrow::Cow;

use foldhash::HashMap;

use super::View;
use crate::{
    descriptor::Descriptor,
    histogram::Histogram,
    record::{Abi, Call, CallKind, Event, Lost, Record},
};

/// Collects a [`Summary`].
#[derive(Debug, Default)]
pub struct Summarise {
    calls: HashMap<CallKind, Tally>,
    events: Events,
}

/// Totals of a trace, by call.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// One row per call and kind of descriptor, largest total first.
    pub rows: Vec<SummaryRow>,
    /// Counts of events of all kinds.
    pub events: Events,
}

/// One call on one kind of descriptor.
#[derive(Debug, Clone, PartialEq)]
pub struct SummaryRow {
    /// Number of the call.
    pub number: u16,
    /// Binary interface of the number.
    pub abi: Abi,
    /// Name of the call.
    pub name: Cow<'static, str>,
    /// Kind of descriptor.
    pub descriptor: Descriptor,
    /// Calls that returned.
    pub calls: u64,
    /// Calls that failed, part of `calls`.
    pub errors: u64,
    /// Calls that never returned; no other column includes them.
    pub unfinished: u64,
    /// Sum of the elapsed times, ns.
    pub total_ns: u64,
    /// Share of the sum over all calls, 0 to 1.
    pub share: f64,
    /// Shortest elapsed time, ns.
    pub min_ns: u64,
    /// Longest elapsed time, ns.
    pub max_ns: u64,
    /// Mean elapsed time, ns.
    pub mean_ns: f64,
    /// Sample standard deviation, 0 for a single call.
    pub deviation_ns: f64,
    /// Median, within 6.25 %.
    pub p50_ns: u64,
    /// 99th percentile, within 6.25 %.
    pub p99_ns: u64,
    /// Part of the total: not runnable.
    pub blocked_ns: u64,
    /// Part of the total: runnable but not running.
    pub waiting_ns: u64,
    /// Part of the total: interrupts that the CPU handled during the calls, except network softirqs.
    pub irq_ns: u64,
    /// Part of the total: network softirqs that ran on top of the call.
    pub softnet_ns: u64,
    /// Bytes moved; `None` for a call that moves none.
    pub bytes: Option<u64>,
}

/// Counts of all events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Events {
    /// Calls that returned, for the total row.
    pub calls: u64,
    /// Their elapsed times together, ns.
    pub calls_ns: u64,
    /// Page faults in user mode.
    pub user_faults: u64,
    /// Page faults inside the kernel.
    pub kernel_faults: u64,
    /// Periods off the CPU outside calls.
    pub off_cpu: u64,
    /// Part of these periods not runnable, ns.
    pub off_cpu_blocked_ns: u64,
    /// Part of these periods runnable but not running, ns.
    pub off_cpu_waiting_ns: u64,
    /// Processes created.
    pub processes: u64,
    /// Threads created inside a process.
    pub threads: u64,
    /// Programs started.
    pub execs: u64,
    /// Threads that ended.
    pub exits: u64,
    /// Calls that never returned.
    pub unfinished: u64,
    /// Missing records.
    pub lost: u64,
}

#[derive(Debug, Default)]
struct Tally {
    calls: u64,
    errors: u64,
    unfinished: u64,
    total_ns: u64,
    min_ns: u64,
    max_ns: u64,
    mean_ns: f64,
    /// Sum of the squared distances from the mean (Welford), as a float: squares of nanoseconds overflow an
    /// integer.
    squares: f64,
    blocked_ns: u64,
    waiting_ns: u64,
    irq_ns: u64,
    softnet_ns: u64,
    bytes: Option<u64>,
    elapsed: Histogram,
}

impl View for Summarise {
    type Shown = Summary;

    fn record(&mut self, record: &Record) {
        match &record.event {
            Event::Call(call) => self.tally(call).add(call),
            Event::Unfinished(call) => self.tally(call).unfinished += 1,
            _ => {}
        }
        self.events.add(record);
    }

    fn lost(&mut self, lost: &Lost) {
        self.events.add_lost(lost);
    }

    fn finish(self) -> Summary {
        let all_ns = self.events.calls_ns;
        let mut rows: Vec<_> = self.calls.into_iter().map(|(key, tally)| tally.row(key, all_ns)).collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.total_ns), row.abi, row.number, row.descriptor));
        Summary { rows, events: self.events }
    }
}

impl Summarise {
    fn tally(&mut self, call: &Call) -> &mut Tally {
        self.calls.entry(call.kind()).or_default()
    }
}

impl Events {
    pub(super) fn add(&mut self, record: &Record) {
        match &record.event {
            Event::Call(call) => {
                self.calls += 1;
                self.calls_ns = self.calls_ns.saturating_add(call.elapsed_ns);
            }
            Event::Unfinished(_) => self.unfinished += 1,
            Event::PageFault { user: true, .. } => self.user_faults += 1,
            Event::PageFault { user: false, .. } => self.kernel_faults += 1,
            Event::OffCpu { blocked_ns, waiting_ns } => {
                self.off_cpu += 1;
                self.off_cpu_blocked_ns = self.off_cpu_blocked_ns.saturating_add(*blocked_ns);
                self.off_cpu_waiting_ns = self.off_cpu_waiting_ns.saturating_add(*waiting_ns);
            }
            Event::Fork { child_process, .. } if *child_process == record.process => self.threads += 1,
            Event::Fork { .. } => self.processes += 1,
            Event::Exec { .. } => self.execs += 1,
            Event::Exit { .. } => self.exits += 1,
        }
    }

    pub(super) fn add_lost(&mut self, lost: &Lost) {
        self.lost = self.lost.saturating_add(lost.records);
    }
}

impl Tally {
    fn add(&mut self, call: &Call) {
        self.min_ns = if self.calls == 0 { call.elapsed_ns } else { self.min_ns.min(call.elapsed_ns) };
        self.max_ns = self.max_ns.max(call.elapsed_ns);
        self.calls += 1;
        self.errors += u64::from(call.errno().is_some());
        self.total_ns = self.total_ns.saturating_add(call.elapsed_ns);
        let elapsed_ns = call.elapsed_ns as f64;
        let distance = elapsed_ns - self.mean_ns;
        self.mean_ns += distance / self.calls as f64;
        self.squares += distance * (elapsed_ns - self.mean_ns);
        self.blocked_ns = self.blocked_ns.saturating_add(call.blocked_ns);
        self.waiting_ns = self.waiting_ns.saturating_add(call.waiting_ns);
        self.irq_ns = self.irq_ns.saturating_add(call.irq_ns);
        self.softnet_ns = self.softnet_ns.saturating_add(call.softnet_ns);
        if let Some(bytes) = call.bytes() {
            self.bytes = Some(self.bytes.unwrap_or(0).saturating_add(bytes));
        }
        self.elapsed.add(call.elapsed_ns);
    }

    fn row(self, call: CallKind, all_ns: u64) -> SummaryRow {
        let deviation = |calls: u64| (self.squares / (calls - 1) as f64).sqrt();
        SummaryRow {
            number: call.number,
            abi: call.abi,
            name: call.name(),
            descriptor: call.descriptor,
            calls: self.calls,
            errors: self.errors,
            unfinished: self.unfinished,
            total_ns: self.total_ns,
            share: if all_ns == 0 { 0.0 } else { self.total_ns as f64 / all_ns as f64 },
            min_ns: self.min_ns,
            max_ns: self.max_ns,
            mean_ns: self.mean_ns,
            deviation_ns: if self.calls > 1 { deviation(self.calls) } else { 0.0 },
            p50_ns: self.elapsed.quantile(50, 100).unwrap_or(0),
            p99_ns: self.elapsed.quantile(99, 100).unwrap_or(0),
            blocked_ns: self.blocked_ns,
            waiting_ns: self.waiting_ns,
            irq_ns: self.irq_ns,
            softnet_ns: self.softnet_ns,
            bytes: self.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{call, record};

    fn summary(records: &[Record]) -> Summary {
        let mut view = Summarise::default();
        records.iter().for_each(|record| view.record(record));
        view.finish()
    }

    #[test]
    fn reads_of_two_kinds_of_descriptor_are_two_rows_that_add_up() {
        let read = |descriptor, elapsed_ns, result| {
            record(Event::Call(Call { descriptor, elapsed_ns, result, ..call("read") }))
        };
        let shown = summary(&[
            read(Descriptor::File, 100, 10),
            read(Descriptor::File, 300, -4),
            read(Descriptor::File, 200, 30),
            read(Descriptor::Tcp4, 1_400, 1),
        ]);
        assert_eq!(shown.rows.len(), 2);
        let (tcp, file) = (&shown.rows[0], &shown.rows[1]);
        assert_eq!((tcp.descriptor, tcp.calls, tcp.bytes), (Descriptor::Tcp4, 1, Some(1)));
        assert_eq!((tcp.share, tcp.deviation_ns), (0.7, 0.0));
        assert_eq!((file.calls, file.errors, file.bytes), (3, 1, Some(40)));
        assert_eq!((file.min_ns, file.max_ns, file.total_ns), (100, 300, 600));
        assert_eq!((file.mean_ns, file.deviation_ns), (200.0, 100.0));
        assert_eq!((shown.events.calls, shown.events.calls_ns), (4, 2_000));
    }

    #[test]
    fn hours_of_blocked_time_do_not_overflow() {
        let hour_ns = 3_600_000_000_000;
        let wait = Call { elapsed_ns: hour_ns, blocked_ns: hour_ns, ..call("epoll_wait") };
        let shown = summary(&[record(Event::Call(wait)); 100]);
        assert_eq!(shown.rows[0].total_ns, 100 * hour_ns);
        assert!(shown.rows[0].deviation_ns < 1.0);
        let forever = Call { elapsed_ns: u64::MAX, ..call("pause") };
        assert_eq!(summary(&[record(Event::Call(forever)); 3]).rows[0].total_ns, u64::MAX);
    }

    #[test]
    fn an_unfinished_call_is_counted_but_its_time_is_not() {
        let exit = Call { elapsed_ns: 50, ..call("exit_group") };
        let shown = summary(&[record(Event::Unfinished(exit))]);
        assert_eq!((shown.rows[0].unfinished, shown.rows[0].calls, shown.rows[0].total_ns), (1, 0, 0));
        assert_eq!(shown.events.calls, 0);
    }

    #[test]
    fn interrupts_and_network_softirqs_are_summed_separately() {
        let send = Call { elapsed_ns: 100, irq_ns: 7, softnet_ns: 60, ..call("sendto") };
        let shown = summary(&[record(Event::Call(send)); 2]);
        assert_eq!((shown.rows[0].irq_ns, shown.rows[0].softnet_ns), (14, 120));
        assert_eq!(
            (send.on_cpu_ns(), send.kernel_ns()),
            (100, 93),
            "the softirq of a send is part of its work"
        );
    }

    #[test]
    fn bytes_are_none_for_a_call_that_moves_none() {
        let map = Call { result: 0x7f00_0000_0000, ..call("mmap") };
        assert_eq!(summary(&[record(Event::Call(map))]).rows[0].bytes, None);
    }
}
