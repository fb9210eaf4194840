//! Equal intervals of time, as many as a limit allows: they become longer when the trace does.

use std::{collections::VecDeque, hash::Hash, mem};

use foldhash::HashMap;

use super::INTERVALS_MAX;
use crate::{
    record::CallKind,
    view::{programs::Lineage, state::StateTimes},
};

/// Intervals while the trace is read, at most. When there are more, each ten become one, so that the length
/// is a power of ten.
const FINE_MAX: u64 = 10 * INTERVALS_MAX;

/// Length of the first intervals, ns: shorter ones than the calls themselves show nothing.
const SHORTEST_NS: u64 = 1_000;

/// Programs and kinds of calls that are distinguished in an interval. A limit, because a trace that was made
/// for it could have millions in each; a machine does not run that many in a fraction of a trace.
const KEYS_MAX: usize = 1_024;

/// Intervals of one length, one after the other.
#[derive(Debug)]
pub struct Intervals {
    length_ns: u64,
    /// Number of the first one; that of an interval that begins at time 0 would be 0.
    first: u64,
    sums: VecDeque<Sums>,
}

/// What happened in an interval.
#[derive(Debug, Default)]
pub struct Sums {
    /// Calls that began there and returned.
    pub calls: u64,
    /// Calls that failed, part of `calls`.
    pub errors: u64,
    /// Page faults.
    pub faults: u64,
    /// Lost records, where their gap was noticed.
    pub lost: u64,
    /// Time of threads on the CPU outside calls, ns.
    pub user_ns: u64,
    /// Time of threads in calls and off the CPU.
    pub times: StateTimes,
    /// Time working by call, ns.
    working_ns: HashMap<CallKind, u64>,
    /// Time on the CPU by program, ns.
    on_cpu_ns: HashMap<Lineage, u64>,
}

impl Default for Intervals {
    fn default() -> Self {
        Self { length_ns: SHORTEST_NS, first: 0, sums: VecDeque::new() }
    }
}

impl Intervals {
    /// Returns the interval that contains this time.
    pub fn at(&mut self, time_ns: u64) -> &mut Sums {
        loop {
            let number = time_ns / self.length_ns;
            let first = if self.sums.is_empty() { number } else { self.first.min(number) };
            let end = (number + 1).max(self.first + length(&self.sums));
            if end - first > FINE_MAX {
                self.join(10);
                continue;
            }
            for _ in first..self.first {
                self.sums.push_front(Sums::default());
            }
            self.first = first;
            let position = position(number - first);
            if self.sums.len() <= position {
                self.sums.resize_with(position + 1, Sums::default);
            }
            return &mut self.sums[position];
        }
    }

    /// Divides what took from `begin_ns` to `end_ns` among the intervals: `add` adds the part between two
    /// times since `begin_ns`.
    pub fn divide(&mut self, begin_ns: u64, end_ns: u64, add: impl Fn(&mut Sums, u64, u64)) {
        let mut from_ns = begin_ns;
        while from_ns < end_ns {
            let next_ns = (from_ns / self.length_ns + 1).saturating_mul(self.length_ns);
            let to_ns = next_ns.min(end_ns);
            add(self.at(from_ns), from_ns - begin_ns, to_ns - begin_ns);
            from_ns = to_ns;
        }
    }

    /// Makes the intervals longer until there are at most [`INTERVALS_MAX`], and returns their length and
    /// each with the time at which it begins.
    pub fn shown(mut self) -> (u64, impl Iterator<Item = (u64, Sums)>) {
        let of = |factor: u64| {
            let last = self.first + length(&self.sums).saturating_sub(1);
            last / factor - self.first / factor < INTERVALS_MAX
        };
        let factor = [1, 2, 5, 10].into_iter().find(|factor| of(*factor)).unwrap_or(20);
        self.join(factor);
        let length_ns = self.length_ns;
        (length_ns, (self.first..).map(move |number| number * length_ns).zip(self.sums))
    }

    /// Joins each `factor` intervals, counted from time 0.
    fn join(&mut self, factor: u64) {
        let numbers = self.first..;
        self.length_ns *= factor;
        self.first /= factor;
        for (number, sums) in numbers.zip(mem::take(&mut self.sums)) {
            let position = position(number / factor - self.first);
            match self.sums.get_mut(position) {
                Some(joined) => joined.merge(sums),
                None => self.sums.push_back(sums),
            }
        }
    }
}

impl Sums {
    /// Adds time of a thread of this program on the CPU outside calls.
    pub fn add_user(&mut self, time_ns: u64, program: Lineage) {
        self.user_ns = self.user_ns.saturating_add(time_ns);
        add(&mut self.on_cpu_ns, program, time_ns);
    }

    /// Adds times of a thread of this program in this call, or off the CPU outside calls.
    pub fn add_times(&mut self, times: &StateTimes, program: Lineage, call: Option<CallKind>) {
        self.times.add(times);
        add(&mut self.on_cpu_ns, program, times.working_ns.saturating_add(times.interrupts_ns));
        if let Some(call) = call {
            add(&mut self.working_ns, call, times.working_ns);
        }
    }

    /// Returns the time on the CPU by program, ns.
    pub fn on_cpu_ns(&self) -> impl Iterator<Item = (Lineage, u64)> {
        self.on_cpu_ns.iter().map(|(program, time_ns)| (*program, *time_ns))
    }

    /// Returns the call in which the kernel worked longest.
    pub fn longest_working(&self) -> Option<CallKind> {
        let longest = self.working_ns.iter().max_by_key(|(call, working_ns)| (**working_ns, **call));
        longest.map(|(call, _)| *call)
    }

    fn merge(&mut self, other: Self) {
        let Self { calls, errors, faults, lost, user_ns, times, working_ns, on_cpu_ns } = other;
        self.calls += calls;
        self.errors += errors;
        self.faults += faults;
        self.lost = self.lost.saturating_add(lost);
        self.user_ns = self.user_ns.saturating_add(user_ns);
        self.times.add(&times);
        working_ns.into_iter().for_each(|(call, time_ns)| add(&mut self.working_ns, call, time_ns));
        on_cpu_ns.into_iter().for_each(|(program, time_ns)| add(&mut self.on_cpu_ns, program, time_ns));
    }
}

/// Adds the time to those of its key. A further key than [`KEYS_MAX`] is left out.
fn add<K: Eq + Hash>(times: &mut HashMap<K, u64>, key: K, time_ns: u64) {
    if time_ns > 0 && (times.len() < KEYS_MAX || times.contains_key(&key)) {
        let sum_ns = times.entry(key).or_default();
        *sum_ns = sum_ns.saturating_add(time_ns);
    }
}

fn length(sums: &VecDeque<Sums>) -> u64 {
    u64::try_from(sums.len()).expect("at most FINE_MAX")
}

fn position(intervals: u64) -> usize {
    usize::try_from(intervals).expect("less than FINE_MAX")
}
