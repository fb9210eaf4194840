//! The names of the programs that the processes of a trace run.
//!
//! The memory grows with the number of process numbers in the trace, of which the kernel has four million.

use std::rc::Rc;

use foldhash::HashMap;

use crate::record::{Event, ExecPath, Record};

/// The programs by process, as far as they are recorded.
#[derive(Debug, Default)]
pub(super) struct Programs {
    programs: HashMap<u32, Program>,
    /// The process that was asked for last.
    latest: (u32, Program),
}

#[derive(Debug, Clone, Default)]
struct Program {
    name: Rc<str>,
    /// Page faults and the like may follow. After a call, the number is that of another process.
    is_ended: bool,
}

impl Programs {
    /// Processes the next record.
    pub fn add(&mut self, record: &Record) {
        match &record.event {
            Event::Call(_) if self.of(record.process).is_ended => {
                self.set(record.process, Program::default())
            }
            Event::Exec { path } => self.set(record.process, Program { name: name(path), is_ended: false }),
            Event::Fork { child_process, .. } => {
                let name = Rc::clone(self.name(record.process));
                self.set(*child_process, Program { name, is_ended: false });
            }
            Event::Exit { whole_process: true, .. } => {
                let name = Rc::clone(self.name(record.process));
                self.set(record.process, Program { name, is_ended: true });
            }
            Event::Call(_)
            | Event::Unfinished(_)
            | Event::PageFault { .. }
            | Event::OffCpu { .. }
            | Event::Exit { whole_process: false, .. } => {}
        }
    }

    /// Returns the name of the program that the process runs; empty if it is not recorded.
    pub fn name(&mut self, process: u32) -> &Rc<str> {
        &self.of(process).name
    }

    fn of(&mut self, process: u32) -> &Program {
        if self.latest.0 != process {
            self.latest = (process, self.programs.get(&process).cloned().unwrap_or_default());
        }
        &self.latest.1
    }

    fn set(&mut self, process: u32, program: Program) {
        self.latest = (process, program.clone());
        self.programs.insert(process, program);
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
}
