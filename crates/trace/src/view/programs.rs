//! The programs that the processes of a trace run, and those that the processes they descend from ran.
//!
//! The memory grows with the number of different lineages and of process numbers in the trace, of which the
//! kernel has four million.

use std::rc::Rc;

use foldhash::HashMap;

use crate::record::{Event, ExecPath, Record};

/// The programs by process, as far as they are recorded.
#[derive(Debug)]
pub(super) struct Programs {
    running: HashMap<u32, Running>,
    /// The process that was asked for last.
    latest: (u32, Running),
    /// The first one is that of [`Lineage::UNKNOWN`].
    lineages: Vec<Program>,
    /// Positions in `lineages`.
    positions: HashMap<Program, Lineage>,
}

/// A program, and the programs by whose processes it was started, one after the other: the place of a process
/// in the tree of processes, without the numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Lineage(usize);

impl Lineage {
    /// The lineage of a process whose program is not recorded, the default.
    const UNKNOWN: Self = Self(0);
}

/// Programs in a lineage, more than a tree of processes usually has. In a longer one `...` replaces those so
/// far. A limit, because the output would grow with the square of the length of a chain of programs that
/// execute each other.
const PROGRAMS_MAX: usize = 64;

/// The last program of a lineage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Program {
    /// The lineage of the process that created the process of this program, if that is recorded.
    parent: Option<Lineage>,
    name: Rc<str>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Running {
    lineage: Lineage,
    /// The lineage of its parent when it was created, if that is recorded.
    parent: Option<Lineage>,
    /// Page faults and the like may follow. A process that does something is another one with its number.
    is_ended: bool,
}

impl Default for Programs {
    fn default() -> Self {
        Self {
            running: HashMap::default(),
            latest: Default::default(),
            lineages: vec![Program::default()],
            positions: [(Program::default(), Lineage::UNKNOWN)].into_iter().collect(),
        }
    }
}

impl Programs {
    /// Processes the next record.
    pub fn add(&mut self, record: &Record) {
        let acts = matches!(record.event, Event::Call(_) | Event::Exec { .. } | Event::Fork { .. });
        if acts && self.of(record.process).is_ended {
            self.set(record.process, Running::default());
        }
        match &record.event {
            Event::Exec { path } => {
                let parent = self.of(record.process).parent.map(|parent| self.shortened(parent));
                let lineage = self.lineage_of(Program { parent, name: name(path) });
                self.set(record.process, Running { lineage, parent, is_ended: false });
            }
            // A thread keeps the lineage of its process.
            Event::Fork { child_process, .. } if *child_process != record.process => {
                let lineage = self.of(record.process).lineage;
                self.set(*child_process, Running { lineage, parent: Some(lineage), is_ended: false });
            }
            Event::Exit { whole_process: true, .. } => {
                let running = self.of(record.process);
                self.set(record.process, Running { is_ended: true, ..running });
            }
            Event::Call(_)
            | Event::Unfinished(_)
            | Event::PageFault { .. }
            | Event::OffCpu { .. }
            | Event::Fork { .. }
            | Event::Exit { whole_process: false, .. } => {}
        }
    }

    /// Returns the name of the program that the process runs; empty if it is not recorded.
    pub fn name(&mut self, process: u32) -> &Rc<str> {
        let lineage = self.lineage(process);
        &self.lineages[lineage.0].name
    }

    /// Returns the lineage of the process.
    pub fn lineage(&mut self, process: u32) -> Lineage {
        self.of(process).lineage
    }

    /// Returns the name of the last program of a lineage; `?` if it is not recorded.
    pub fn last_name(&self, lineage: Lineage) -> &str {
        self.lineages[lineage.0].shown()
    }

    /// Returns the names of the programs of a lineage, that of the process last; `?` for one that is not
    /// recorded.
    pub fn names(&self, lineage: Lineage) -> Vec<&str> {
        let mut names: Vec<&str> = self.upwards(lineage).map(Program::shown).collect();
        names.reverse();
        names
    }

    /// Returns the programs of a lineage, that of the process first.
    fn upwards(&self, lineage: Lineage) -> impl Iterator<Item = &Program> {
        let program = |lineage: Lineage| &self.lineages[lineage.0];
        std::iter::successors(Some(program(lineage)), move |child| child.parent.map(program))
    }

    /// Returns a lineage to which another program can be added.
    fn shortened(&mut self, lineage: Lineage) -> Lineage {
        if self.upwards(lineage).count() < PROGRAMS_MAX {
            return lineage;
        }
        self.lineage_of(Program { parent: None, name: "...".into() })
    }

    fn of(&mut self, process: u32) -> Running {
        if self.latest.0 != process {
            self.latest = (process, self.running.get(&process).copied().unwrap_or_default());
        }
        self.latest.1
    }

    fn set(&mut self, process: u32, running: Running) {
        self.latest = (process, running);
        self.running.insert(process, running);
    }

    fn lineage_of(&mut self, program: Program) -> Lineage {
        let next = Lineage(self.lineages.len());
        let lineages = &mut self.lineages;
        *self.positions.entry(program).or_insert_with_key(|program| {
            lineages.push(program.clone());
            next
        })
    }
}

impl Program {
    /// Returns its name; `?` if it is not recorded.
    fn shown(&self) -> &str {
        if self.name.is_empty() { "?" } else { &self.name }
    }
}

/// Returns the part of the path after the last slash. If the path may continue, it may have other slashes.
fn name(path: &ExecPath) -> Rc<str> {
    let text = path.to_text();
    match text.rsplit_once('/') {
        Some((_, name)) if !path.is_cut() => name.into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixture::{call, exec, record},
        record::Call,
    };

    const FORK: Event = Event::Fork { child_process: 2, child_thread: 2, memory: None };
    const END: Event = Event::Exit { code: 0, whole_process: true };
    const PREEMPTED: Event = Event::OffCpu { blocked_ns: 0, waiting_ns: 0 };

    /// Returns the name of the process of each event after it.
    fn names<const N: usize>(events: [(u32, Event); N]) -> [String; N] {
        let mut programs = Programs::default();
        events.map(|(process, event)| {
            programs.add(&Record { process, ..record(event) });
            programs.name(process).to_string()
        })
    }

    #[test]
    fn a_process_has_the_name_of_its_parent_until_it_executes_a_program() {
        let call = Event::Call(call("read"));
        let thread = Event::Fork { child_process: 1, child_thread: 9, memory: None };
        let events = [(2, call), (1, FORK), (2, call), (1, exec("/bin/sh")), (1, FORK), (2, call)];
        assert_eq!(names(events), ["", "", "", "sh", "sh", "sh"]);
        let events = [(1, exec("/bin/sh")), (1, call), (1, exec("cat")), (1, call), (1, thread), (1, call)];
        assert_eq!(names(events), ["sh", "sh", "cat", "cat", "cat", "cat"]);
        let events = [(1, exec("/bin/sh")), (1, FORK), (2, exec("./cat")), (1, call), (2, call), (1, call)];
        assert_eq!(names(events), ["sh", "sh", "cat", "sh", "cat", "sh"]);
    }

    #[test]
    fn an_ended_process_has_its_name_until_a_call_shows_that_its_number_is_another_process() {
        let call = Event::Call(Call { result: 1, ..call("read") });
        let thread = Event::Exit { code: 0, whole_process: false };
        let events =
            [(1, exec("sh")), (1, thread), (1, call), (1, END), (2, PREEMPTED), (1, PREEMPTED), (1, call)];
        assert_eq!(names(events), ["sh", "sh", "sh", "sh", "", "sh", ""]);
        assert_eq!(names([(2, exec("sh")), (2, END), (1, FORK), (2, call)]), ["sh", "sh", "", ""]);
        assert_eq!(
            names([(2, exec("sh")), (2, END), (2, exec("cat")), (2, call)]),
            ["sh", "sh", "cat", "cat"]
        );
    }

    #[test]
    fn a_path_that_may_continue_is_the_name() {
        let long = format!("/{}", "l".repeat(46));
        assert_eq!(names([(1, exec(&long)), (1, exec(&long[..46]))]), [format!("{long}..."), "l".repeat(45)]);
        assert_eq!(names([(1, exec(&"/".repeat(47)))]), [format!("{}...", "/".repeat(47))]);
    }

    #[test]
    fn a_lineage_has_the_programs_of_the_processes_that_a_process_descends_from() {
        let fork = |child| Event::Fork { child_process: child, child_thread: child, memory: None };
        let mut programs = Programs::default();
        let mut after = |process, event| {
            programs.add(&Record { process, ..record(event) });
            let lineage = programs.lineage(process);
            programs.names(lineage).join(";")
        };
        assert_eq!(after(1, Event::Call(call("read"))), "?");
        assert_eq!(after(1, exec("/bin/env")), "env");
        assert_eq!(after(1, exec("/usr/bin/make")), "make", "it replaces the program of the process");
        assert_eq!(after(1, fork(2)), "make");
        assert_eq!(after(2, fork(3)), "make", "a process without a program of its own is not in the lineage");
        assert_eq!(after(3, exec("sh")), "make;sh");
        assert_eq!(after(3, fork(4)), "make;sh");
        assert_eq!(after(4, exec("cc")), "make;sh;cc");
        assert_eq!(after(3, exec("cc")), "make;cc");
        assert_eq!(after(4, Event::Fork { child_process: 4, child_thread: 5, memory: None }), "make;sh;cc");
        assert_eq!(after(4, exec("cc1")), "make;sh;cc1", "a thread is no child");
        assert_eq!(after(2, exec("cc")), "make;cc");
        assert_eq!(after(4, END), "make;sh;cc1");
        assert_eq!(
            after(4, exec("cc")),
            "cc",
            "another process with its number, whose parent is not recorded"
        );
        assert_eq!(after(4, END), "cc");
        assert_eq!(after(4, fork(5)), "?", "so is one that creates a process");
        assert_eq!(after(5, exec("")), "?;?");
        assert_eq!(after(5, exec("as")), "?;as");
        assert_eq!(after(6, exec("/bin/")), "?");
        assert_eq!(programs.lineage(2), programs.lineage(3));
        assert_eq!(programs.lineage(6), Lineage::UNKNOWN);
    }

    #[test]
    fn the_beginning_of_a_long_lineage_is_replaced() {
        let mut programs = Programs::default();
        let names = |process: u32| {
            let fork = Event::Fork { child_process: process + 1, child_thread: process + 1, memory: None };
            for event in [exec(&process.to_string()), fork] {
                programs.add(&Record { process, ..record(event) });
            }
            let lineage = programs.lineage(process);
            programs.names(lineage).join(";")
        };
        let all: Vec<String> = (1..=66).map(names).collect();
        assert!(all[63].starts_with("1;2;") && all[63].ends_with(";63;64"), "{}", all[63]);
        assert_eq!(all[64..], ["...;65", "...;65;66"]);
    }
}
