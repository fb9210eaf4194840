//! What a program did over time: the trace in equal intervals.
//!
//! The memory grows with the number of threads that run at the same time and of processes that have executed
//! a program, not with the length of the trace.

mod intervals;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, mem};

use foldhash::HashMap;

use self::intervals::{Intervals, Sums};
use super::{
    Filter, View,
    programs::{Lineage, Programs},
    state::StateTimes,
};
use crate::record::{CallKind, Event, Lost, Record};

/// Intervals of a timeline, at most: rows that can be seen at a glance. A trace that is longer than 40 us has
/// at least half as many, or 16 where the next longer ones are 2.5 times as long.
pub const INTERVALS_MAX: u64 = 40;

/// Collects [`Timeline`].
#[derive(Debug)]
pub struct CollectTimeline {
    filter: Filter,
    /// Begin of the recording, on the monotonic clock.
    start_ns: u64,
    intervals: Intervals,
    programs: Programs,
    /// The threads that have not ended, as far as they are recorded.
    threads: HashMap<u32, Thread>,
    /// When the threads of a process ended, except for one if the process executed a program. The records of
    /// their ends may be lost.
    only_thread_since: HashMap<u32, u64>,
    /// The first and the last moment that the timeline shows, as the intervals count them.
    shown_ns: Option<(u64, u64)>,
    /// When the last event of the trace ended, on the monotonic clock.
    end_ns: u64,
    lost: u64,
}

/// A trace in equal intervals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// Length of an interval, ns: 1, 2 or 5 times a power of ten.
    pub interval_ns: u64,
    /// The intervals from the first to the last event.
    pub intervals: Vec<Interval>,
    /// Lost records: with losses, counts are lower bounds, and `user_ns` contains the time of lost calls, and
    /// of threads after their end if that is lost.
    pub lost: u64,
}

/// What happened in an interval of a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interval {
    /// When it begins, after the beginning of the recording, ns.
    pub begin_ns: u64,
    /// The part of its length between the first and the last event, ns.
    pub length_ns: u64,
    /// Calls that began there and returned.
    pub calls: u64,
    /// Calls that failed, part of `calls`.
    pub errors: u64,
    /// Page faults, in user mode and in the kernel. `None` if the filter selects calls.
    pub faults: Option<u64>,
    /// Lost records, where their gap was noticed.
    pub lost: u64,
    /// Time of threads on the CPU outside calls, ns; in a trace of strace, all their time outside calls.
    /// `None` if the filter selects calls.
    pub user_ns: Option<u64>,
    /// Time of threads in calls and off the CPU. That of a call in several intervals is divided evenly.
    pub times: StateTimes,
    /// The program with the most time on the CPU.
    pub program: Option<String>,
    /// The call for which the kernel worked longest, with its kind of descriptor.
    pub call: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct Thread {
    process: u32,
    /// The program that it runs.
    program: Lineage,
    /// When its last call or time off the CPU ended, or when it was created.
    since_ns: u64,
    /// Whether it has a record of its own: one that is only created waits for a CPU.
    has_run: bool,
}

impl CollectTimeline {
    /// Returns a view of the events that the filter accepts, in a trace that begins at `start_ns` on the
    /// monotonic clock. The others are needed to find out when a thread is outside calls. Of what is partly
    /// in the period of the filter, that part of the time counts.
    #[must_use]
    pub fn of(filter: Filter, start_ns: u64) -> Self {
        Self {
            filter,
            start_ns,
            intervals: Intervals::default(),
            programs: Programs::default(),
            threads: HashMap::default(),
            only_thread_since: HashMap::default(),
            shown_ns: None,
            end_ns: 0,
            lost: 0,
        }
    }

    /// Follows the thread, and returns what it was until now if it was outside calls and on the CPU.
    fn follow(&mut self, record: &Record) -> Option<Thread> {
        let (process, since_ns) = (record.process, record.end_ns());
        let program = self.programs.lineage(process);
        let now = Thread { process, program, since_ns, has_run: true };
        match &record.event {
            Event::Call(_) => self.threads.insert(record.thread, now),
            // It does not begin a thread: it may follow the end of one, whose number may be used again.
            Event::OffCpu { .. } => {
                self.threads.get_mut(&record.thread).map(|thread| mem::replace(thread, now))
            }
            Event::Unfinished(_) => self.threads.remove(&record.thread),
            Event::Exit { whole_process, .. } => {
                let thread = self.threads.remove(&record.thread);
                if *whole_process {
                    self.threads.remove(&process);
                    self.only_thread_since.insert(process, since_ns);
                }
                thread
            }
            Event::Fork { child_process, child_thread, .. } => {
                let program = self.programs.lineage(*child_process);
                let child = Thread { process: *child_process, program, since_ns, has_run: false };
                self.threads.insert(*child_thread, child);
                None
            }
            Event::Exec { .. } => {
                self.only_thread_since.insert(process, since_ns);
                None
            }
            Event::PageFault { .. } => None,
        }
    }

    /// Counts the time of a thread outside calls.
    fn add_user(&mut self, number: u32, thread: &Thread, until_ns: u64) {
        if !self.filter.selects_calls() && self.filter.accepts_thread(thread.process, number) {
            self.divide(thread.since_ns, until_ns, |sums, from_ns, to_ns| {
                sums.add_user(to_ns - from_ns, thread.program);
            });
        }
    }

    /// Counts the time of the threads that are outside calls at the end of the trace.
    fn add_users_at_end(&mut self) {
        for (number, thread) in mem::take(&mut self.threads) {
            let alone_since_ns = self.only_thread_since.get(&thread.process);
            let has_not_ended = number == thread.process
                || alone_since_ns.is_none_or(|alone_since_ns| thread.since_ns >= *alone_since_ns);
            if has_not_ended && thread.has_run {
                self.add_user(number, &thread, self.end_ns);
            }
        }
    }

    /// Counts the time of a call, or off the CPU.
    fn add_times(&mut self, record: &Record, times: &StateTimes, call: Option<CallKind>) {
        let (begin_ns, end_ns) = (record.begin_ns, record.end_ns());
        let program = self.programs.lineage(record.process);
        let until = |ns| times.map(|time_ns| proportion(time_ns, ns, end_ns - begin_ns));
        self.divide(begin_ns, end_ns, |sums, from_ns, to_ns| {
            sums.add_times(&until(to_ns).less(&until(from_ns)), program, call);
        });
    }

    /// Counts what took from `begin_ns` to `end_ns` on the monotonic clock, as far as it is in the period:
    /// `add` adds the part between two times since `begin_ns`.
    fn divide(&mut self, begin_ns: u64, end_ns: u64, add: impl Fn(&mut Sums, u64, u64)) {
        let Filter { from_ns, to_ns, .. } = self.filter;
        let (from_ns, to_ns) = (begin_ns.max(from_ns.unwrap_or(0)), end_ns.min(to_ns.unwrap_or(u64::MAX)));
        if from_ns < to_ns {
            let [from, to] = [from_ns, to_ns].map(|time_ns| self.position(time_ns));
            self.show(from, to);
            let before_ns = from_ns - begin_ns;
            self.intervals.divide(from, to, |sums, from, to| add(sums, before_ns + from, before_ns + to));
        }
    }

    /// Returns the interval that contains this time of the monotonic clock, if it is in the period.
    fn at(&mut self, time_ns: u64) -> Option<&mut Sums> {
        let position = self.position(time_ns);
        self.filter.is_in_period(time_ns).then(|| {
            self.show(position, position);
            self.intervals.at(position)
        })
    }

    /// Returns where a time of the monotonic clock is in the intervals, which begin with the recording.
    fn position(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.start_ns)
    }

    /// Extends what the timeline shows.
    fn show(&mut self, from: u64, to: u64) {
        let (first, last) = self.shown_ns.unwrap_or((from, to));
        self.shown_ns = Some((first.min(from), last.max(to)));
    }
}

impl View for CollectTimeline {
    type Shown = Timeline;

    fn record(&mut self, record: &Record) {
        self.end_ns = self.end_ns.max(record.end_ns());
        self.programs.add(record);
        if let Some(thread) = self.follow(record) {
            self.add_user(record.thread, &thread, record.begin_ns);
        }
        if !self.filter.at_any_time().accepts(record) {
            return;
        }
        match &record.event {
            Event::Call(call) => {
                self.add_times(record, &StateTimes::of(call), Some(call.kind()));
                if let Some(sums) = self.at(record.begin_ns) {
                    sums.calls += 1;
                    sums.errors += u64::from(call.errno().is_some());
                }
            }
            Event::Unfinished(call) => {
                self.add_times(record, &StateTimes::of(call), Some(call.kind()));
            }
            Event::OffCpu { blocked_ns, waiting_ns } => {
                self.add_times(record, &StateTimes::off_cpu(*blocked_ns, *waiting_ns), None);
            }
            Event::PageFault { .. } => {
                if let Some(sums) = self.at(record.begin_ns) {
                    sums.faults += 1;
                }
            }
            Event::Fork { .. } | Event::Exec { .. } | Event::Exit { .. } => {}
        }
    }

    fn lost(&mut self, lost: &Lost) {
        if self.filter.accepts_gap(lost) {
            self.lost = self.lost.saturating_add(lost.records);
            if let Some(sums) = self.at(lost.time_ns) {
                sums.lost = sums.lost.saturating_add(lost.records);
            }
        }
    }

    fn finish(mut self) -> Timeline {
        self.add_users_at_end();
        let shows_all = !self.filter.selects_calls();
        let (first, last) = self.shown_ns.unwrap_or_default();
        let (interval_ns, intervals) = self.intervals.shown();
        let interval = |(begin, sums): (u64, Sums)| Interval {
            begin_ns: begin,
            length_ns: begin.saturating_add(interval_ns).min(last).saturating_sub(begin.max(first)),
            calls: sums.calls,
            errors: sums.errors,
            faults: shows_all.then_some(sums.faults),
            lost: sums.lost,
            user_ns: shows_all.then_some(sums.user_ns),
            times: sums.times,
            program: busiest(&self.programs, &sums),
            call: sums.longest_working().map(|call| call.text()),
        };
        Timeline { interval_ns, intervals: intervals.map(interval).collect(), lost: self.lost }
    }
}

/// Returns the name of the program with the most time on the CPU.
fn busiest(programs: &Programs, sums: &Sums) -> Option<String> {
    let mut times_ns: BTreeMap<&str, u64> = BTreeMap::new();
    for (program, time_ns) in sums.on_cpu_ns() {
        let sum_ns = times_ns.entry(programs.last_name(program)).or_default();
        *sum_ns = sum_ns.saturating_add(time_ns);
    }
    times_ns.into_iter().max_by_key(|(_, time_ns)| *time_ns).map(|(name, _)| name.to_owned())
}

/// Returns the share of a value that belongs to a part of the whole, which is not 0.
fn proportion(value: u64, part: u64, whole: u64) -> u64 {
    let wide = u128::from(value) * u128::from(part) / u128::from(whole);
    u64::try_from(wide).expect("a part is not more than the whole")
}
