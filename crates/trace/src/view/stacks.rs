//! The time of the threads of a trace in calls and off the CPU, as stacks: the programs, the call, its kind
//! of descriptor, and the state of the thread.
//!
//! Tools for flame graphs draw them. The memory grows with the number of different stacks and processes.

use std::borrow::Cow;

use foldhash::HashMap;

use super::{
    Filter, View,
    programs::{Lineage, Programs},
    state::StateTimes,
};
use crate::{
    container::Origin,
    descriptor::Descriptor,
    record::{CallKind, Event, Lost, Record},
};

/// Collects [`Stacks`].
#[derive(Debug, Default)]
pub struct CollectStacks {
    filter: Filter,
    origin: Origin,
    programs: Programs,
    times: HashMap<(Lineage, Place), StateTimes>,
    lost: u64,
}

/// Times of a trace by stack.
#[derive(Debug)]
pub struct Stacks {
    programs: Programs,
    origin: Origin,
    times: Vec<((Lineage, Place), StateTimes)>,
    /// Lost records: with losses, times are missing, or are those of another program.
    pub lost: u64,
}

/// A stack and the time in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack<'a> {
    /// The programs by which the process was started and its own, as [`Programs::names`] returns them; then
    /// the call and the kind of its descriptor if it has one, or `outside calls`; then the state: `working`,
    /// `blocked`, `waiting` or `interrupts`, and `elapsed` in a trace of strace, which has no states.
    pub frames: Vec<Cow<'a, str>>,
    /// The time of all threads, ns.
    pub time_ns: u64,
}

/// Where a thread spends time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Place {
    Call(CallKind),
    OutsideCalls,
}

impl CollectStacks {
    /// Returns a view of the events of a trace of this origin that the filter accepts. The others are needed
    /// to find out which program makes a call.
    #[must_use]
    pub fn of(filter: Filter, origin: Origin) -> Self {
        Self { filter, origin, ..Self::default() }
    }
}

impl View for CollectStacks {
    type Shown = Stacks;

    fn record(&mut self, record: &Record) {
        self.programs.add(record);
        let (place, times) = match &record.event {
            Event::Call(call) | Event::Unfinished(call) => (Place::Call(call.kind()), StateTimes::of(call)),
            Event::OffCpu { blocked_ns, waiting_ns } => {
                (Place::OutsideCalls, StateTimes::off_cpu(*blocked_ns, *waiting_ns))
            }
            Event::PageFault { .. } | Event::Fork { .. } | Event::Exec { .. } | Event::Exit { .. } => return,
        };
        if self.filter.accepts(record) {
            let lineage = self.programs.lineage(record.process);
            self.times.entry((lineage, place)).or_default().add(&times);
        }
    }

    fn lost(&mut self, lost: &Lost) {
        // Also those that the filter would remove: the program of a later call may be unknown or wrong.
        self.lost = self.lost.saturating_add(lost.records);
    }

    fn finish(self) -> Stacks {
        let mut times: Vec<_> = self.times.into_iter().collect();
        times.sort_unstable_by_key(|(stack, _)| *stack);
        Stacks { programs: self.programs, origin: self.origin, times, lost: self.lost }
    }
}

impl Stacks {
    /// Returns the stacks with time in them.
    pub fn iter(&self) -> impl Iterator<Item = Stack<'_>> {
        self.times.iter().flat_map(|((lineage, place), times)| {
            let mut above: Vec<Cow<'_, str>> =
                self.programs.names(*lineage).into_iter().map(Cow::from).collect();
            place.push_to(&mut above);
            let with_time = by_state(times, self.origin).into_iter().filter(|(_, time_ns)| *time_ns > 0);
            with_time.map(move |(state, time_ns)| Stack {
                frames: above.iter().cloned().chain([state.into()]).collect(),
                time_ns,
            })
        })
    }
}

impl Place {
    fn push_to(self, frames: &mut Vec<Cow<'_, str>>) {
        match self {
            Self::Call(call) => {
                frames.push(call.name());
                if call.descriptor != Descriptor::None {
                    frames.push(call.descriptor.name().into());
                }
            }
            Self::OutsideCalls => frames.push("outside calls".into()),
        }
    }
}

/// Returns the states that a trace of this origin distinguishes, with their times.
fn by_state(times: &StateTimes, origin: Origin) -> Vec<(&'static str, u64)> {
    match origin {
        Origin::Probe => vec![
            ("working", times.working_ns),
            ("blocked", times.blocked_ns),
            ("waiting", times.waiting_ns),
            ("interrupts", times.interrupts_ns),
        ],
        Origin::Strace => vec![("elapsed", times.working_ns)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixture::{call, exec, record},
        record::Call,
    };

    fn stacks(origin: Origin, filter: Filter, records: &[(u32, Event)]) -> Vec<(String, u64)> {
        let mut view = CollectStacks::of(filter, origin);
        records
            .iter()
            .for_each(|(process, event)| view.record(&Record { process: *process, ..record(*event) }));
        let stacks = view.finish();
        stacks.iter().map(|stack| (stack.frames.join(";"), stack.time_ns)).collect()
    }

    fn read() -> Event {
        let times = Call { elapsed_ns: 100, blocked_ns: 50, waiting_ns: 20, irq_ns: 10, ..call("read") };
        Event::Call(Call { descriptor: Descriptor::File, softnet_ns: 5, ..times })
    }

    #[test]
    fn the_time_of_a_call_belongs_to_its_programs_and_is_divided_by_state() {
        let fork = Event::Fork { child_process: 2, child_thread: 2, memory: None };
        let exit = Event::Unfinished(Call { elapsed_ns: 3, ..call("exit_group") });
        let events = [
            (1, read()),
            (1, exec("/usr/bin/make")),
            (1, fork),
            (2, exec("/bin/sh")),
            (2, read()),
            (1, read()),
            (2, Event::OffCpu { blocked_ns: 0, waiting_ns: 7 }),
            (2, read()),
            (2, exit),
        ];
        let due = |stack: &str, time_ns| (stack.to_owned(), time_ns);
        let parts = |stack: &str, times: u64| {
            [("working", 20), ("blocked", 50), ("waiting", 20), ("interrupts", 10)]
                .map(|(state, time_ns)| due(&format!("{stack};{state}"), times * time_ns))
        };
        let all = [
            &parts("?;read;file", 1)[..],
            &parts("make;read;file", 1),
            &parts("make;sh;read;file", 2),
            &[due("make;sh;exit_group;working", 3), due("make;sh;outside calls;waiting", 7)],
        ];
        assert_eq!(stacks(Origin::Probe, Filter::default(), &events), all.concat());
        let filter = Filter { process: Some(2), call: Some(call("read").number), ..Filter::default() };
        assert_eq!(stacks(Origin::Probe, filter, &events), parts("make;sh;read;file", 2));
    }

    #[test]
    fn a_trace_of_strace_has_elapsed_times() {
        let read = Event::Call(Call { elapsed_ns: 100, ..call("read") });
        let due = |stack: &str| [(stack.to_owned(), 200)];
        let of = |path| stacks(Origin::Strace, Filter::default(), &[(1, exec(path)), (1, read), (1, read)]);
        assert_eq!(of("cat"), due("cat;read;elapsed"));
        assert_eq!(of("/bin/"), due("?;read;elapsed"), "a frame is not empty");
    }

    #[test]
    fn the_parts_of_a_call_add_up_to_its_elapsed_time() {
        for times in [[100, 0, 0], [50, 60, 7], [101, 1, 1], [40, 20, 50], [u64::MAX; 3]] {
            let [blocked_ns, waiting_ns, irq_ns] = times;
            let call = Call { elapsed_ns: 100, blocked_ns, waiting_ns, irq_ns, ..call("read") };
            let parts = stacks(Origin::Probe, Filter::default(), &[(1, Event::Call(call))]);
            assert_eq!(parts.iter().map(|(_, time_ns)| time_ns).sum::<u64>(), 100, "{parts:?}");
        }
    }

    #[test]
    fn a_gap_before_the_period_counts() {
        let mut view = CollectStacks::of(Filter { from_ns: Some(6), ..Filter::default() }, Origin::Probe);
        view.lost(&Lost { time_ns: 5, cpu: 0, records: 3 });
        assert_eq!(view.finish().lost, 3);
    }
}
