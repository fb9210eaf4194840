//! The time sequence: one row per event, like ktranal's default mode and strace.
//!
//! A trace has millions of rows, so all of them are written into the same buffer.

mod argument;
mod content;
mod number;

use std::{fmt::Write, rc::Rc};

use self::number::{push_decimal, push_hexadecimal};
use super::{Filter, programs::Programs};
use crate::{
    container::Origin,
    descriptor::Descriptor,
    record::{Abi, Area, Call, Content, Entry, Event, Lost, Memory, Record, errno_name},
    syscall::{self, Kind},
};

/// One row of the sequence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SequenceRow {
    /// Start, on the clock of the trace.
    pub begin_ns: u64,
    /// Name of the program that the process executed last, or that its parent ran when it was created, as far
    /// as recorded: the part of the path after the last slash, or the beginning of the path with dots if it
    /// is longer than 47 bytes. Empty if the trace does not contain it, and for a gap.
    pub program: Rc<str>,
    /// Process; 0 for a gap.
    pub process: u32,
    /// Thread; 0 for a gap.
    pub thread: u32,
    /// CPU on which the event ended; `None` if the trace does not have it.
    pub cpu: Option<u16>,
    /// Number of the call in the native table; `None` for a call of another table and for another event.
    pub number: Option<u16>,
    /// The event, `openat(AT_FDCWD, "/etc/passwd", O_RDONLY) = 3`.
    pub text: String,
    /// Duration; `None` for an event without one.
    pub elapsed_ns: Option<u64>,
    /// Kind of descriptor.
    pub descriptor: Descriptor,
}

/// The rows of a trace, one for each record and each gap that a filter accepts, in the order of the trace.
#[derive(Debug, Default)]
pub struct Sequence {
    filter: Filter,
    origin: Origin,
    programs: Programs,
    row: SequenceRow,
}

impl Sequence {
    /// Returns the rows of a trace of this origin that the filter accepts.
    #[must_use]
    pub fn of(filter: Filter, origin: Origin) -> Self {
        Self { filter, origin, ..Self::default() }
    }

    /// Returns the row of the next entry, if the filter accepts it.
    pub fn row(&mut self, entry: &Entry) -> Option<&SequenceRow> {
        match entry {
            Entry::Record(record, contents) => {
                self.programs.add(record);
                self.filter.accepts(record).then(|| self.record(record, contents))
            }
            Entry::Lost(lost) => self.filter.accepts_gap(lost).then(|| self.lost(lost)),
        }
    }

    fn record(&mut self, record: &Record, contents: &[Content]) -> &SequenceRow {
        let row = &mut self.row;
        row.begin_ns = record.begin_ns;
        row.program.clone_from(self.programs.name(record.process));
        (row.process, row.thread) = (record.process, record.thread);
        row.cpu = (self.origin == Origin::Probe).then_some(record.cpu);
        (row.number, row.elapsed_ns, row.descriptor) = match &record.event {
            Event::Call(call) | Event::Unfinished(call) => {
                let is_native = call.abi == Abi::Native;
                (is_native.then_some(call.number), Some(call.elapsed_ns), call.descriptor)
            }
            Event::OffCpu { blocked_ns, waiting_ns } => {
                (None, Some(blocked_ns.saturating_add(*waiting_ns)), Descriptor::None)
            }
            Event::PageFault { .. } | Event::Fork { .. } | Event::Exec { .. } | Event::Exit { .. } => {
                (None, None, Descriptor::None)
            }
        };
        row.text.clear();
        push_event(&mut row.text, record, contents);
        row
    }

    fn lost(&mut self, lost: &Lost) -> &SequenceRow {
        self.row = SequenceRow {
            begin_ns: lost.time_ns,
            cpu: Some(lost.cpu),
            text: format!("{} records lost", lost.records),
            ..SequenceRow::default()
        };
        &self.row
    }
}

fn push_event(text: &mut String, record: &Record, contents: &[Content]) {
    // Writing to a string cannot fail.
    let _ = match &record.event {
        Event::Call(call) => {
            push_call(text, call, contents);
            push_result(text, call);
            Ok(())
        }
        Event::Unfinished(call) => {
            push_call(text, call, contents);
            text.write_str(" = ?")
        }
        Event::PageFault { address, user, area, .. } => {
            let mode = if *user { "user" } else { "kernel" };
            let area = match area {
                None => "",
                Some(Area::Nothing) => ", outside every mapping",
                Some(Area::Anonymous) => ", anonymous memory",
                Some(Area::PrivateFile) => ", a private mapping of a file",
                Some(Area::Shared) => ", a shared mapping",
            };
            write!(text, "page fault at {address:#x} in {mode} mode{area}")
        }
        Event::OffCpu { blocked_ns: 0, .. } => text.write_str("preempted"),
        Event::OffCpu { .. } => text.write_str("blocked outside a call"),
        Event::Fork { child_process, child_thread, .. } if *child_process == record.process => {
            write!(text, "new thread {child_thread}")
        }
        Event::Fork { child_process, memory, .. } => {
            let memory = if *memory == Some(Memory::Borrowed) { " in the memory of its parent" } else { "" };
            write!(text, "new process {child_process}{memory}")
        }
        Event::Exec { path } => {
            text.push_str("runs ");
            content::push_escaped(text, path.bytes());
            text.push_str(if path.is_cut() { "..." } else { "" });
            Ok(())
        }
        Event::Exit { code, whole_process } => {
            write!(text, "{} exits with {code}", if *whole_process { "process" } else { "thread" })
        }
    };
}

fn push_call(text: &mut String, call: &Call, contents: &[Content]) {
    let is_native = call.abi == Abi::Native;
    let kinds = if is_native { syscall::arguments(call.number) } else { &[Kind::Hexadecimal; 6] };
    text.push_str(&call.name());
    text.push('(');
    for (position, (kind, argument)) in kinds.iter().zip(call.args).enumerate() {
        if is_native && !syscall::uses(call.number, &call.args, position) {
            continue;
        }
        if position > 0 {
            text.push_str(", ");
        }
        let content = contents.iter().find(|content| usize::from(content.argument) == position);
        push_argument(text, *kind, argument, content);
    }
    text.push(')');
}

/// Adds an argument of this kind with its content.
pub(super) fn push_argument(text: &mut String, kind: Kind, value: u64, content: Option<&Content>) {
    match content {
        Some(content) => content::push(text, kind, content),
        None => argument::push(text, kind, value),
    }
}

fn push_result(text: &mut String, call: &Call) {
    text.push_str(" = ");
    match call.errno() {
        Some(errno) => {
            text.push_str("-1 ");
            text.push_str(&errno_name(errno));
        }
        None if call.result > 0xf_ffff => push_hexadecimal(text, call.result.cast_unsigned()),
        None => push_decimal(text, call.result),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{call, exec, record};

    fn rows(filter: Filter, records: &[Record]) -> Vec<SequenceRow> {
        let mut sequence = Sequence::of(filter, Origin::Probe);
        let records = records.iter().map(|record| Entry::Record(*record, Vec::new()));
        let gap = Entry::Lost(Lost { time_ns: 9, cpu: 1, records: 3 });
        records.chain([gap]).filter_map(|entry| sequence.row(&entry).cloned()).collect()
    }

    #[test]
    fn a_row_has_the_format_of_strace() {
        let read = Call { args: [3, 0x7ffe_1000, 512, 9, 9, 9], result: 512, ..call("read") };
        let missing =
            Call { args: [0xffff_ff9c, 0x7ffe_2000, 0x80000, 0, 9, 9], result: -2, ..call("openat") };
        let exit = Call { args: [1, 0, 0, 0, 0, 0], ..call("exit_group") };
        let shown = rows(
            Filter::default(),
            &[record(Event::Call(read)), record(Event::Call(missing)), record(Event::Unfinished(exit))],
        );
        let texts: Vec<_> = shown.iter().map(|row| row.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "read(3, 0x7ffe1000, 512) = 512",
                "openat(AT_FDCWD, 0x7ffe2000, O_RDONLY|O_CLOEXEC) = -1 ENOENT",
                "exit_group(1) = ?",
                "3 records lost",
            ]
        );
    }

    #[test]
    fn a_page_fault_shows_what_is_mapped_and_a_new_process_whose_memory_it_has() {
        let fault = |user, area| record(Event::PageFault { address: 0x1000, error: 0, user, area });
        let fork = |memory| record(Event::Fork { child_process: 99, child_thread: 99, memory });
        let shown = rows(
            Filter::default(),
            &[
                fault(true, None),
                fault(false, Some(Area::Nothing)),
                fault(true, Some(Area::Anonymous)),
                fault(true, Some(Area::PrivateFile)),
                fault(true, Some(Area::Shared)),
                fork(None),
                fork(Some(Memory::Copied { anonymous_bytes: 1 })),
                fork(Some(Memory::Borrowed)),
            ],
        );
        let texts: Vec<_> = shown.iter().map(|row| row.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "page fault at 0x1000 in user mode",
                "page fault at 0x1000 in kernel mode, outside every mapping",
                "page fault at 0x1000 in user mode, anonymous memory",
                "page fault at 0x1000 in user mode, a private mapping of a file",
                "page fault at 0x1000 in user mode, a shared mapping",
                "new process 99",
                "new process 99",
                "new process 99 in the memory of its parent",
                "3 records lost",
            ]
        );
    }

    #[test]
    fn the_path_of_a_program_is_escaped_and_may_be_cut() {
        let texts = |path: &str| rows(Filter::default(), &[record(exec(path))])[0].text.clone();
        assert_eq!(texts("/bin/\x1b[2Jé"), r"runs /bin/\33[2J\303\251");
        assert_eq!(texts(&"l".repeat(47)), format!("runs {}...", "l".repeat(47)));
        assert_eq!(texts(&"l".repeat(46)), format!("runs {}", "l".repeat(46)));
    }

    #[test]
    fn a_gap_before_the_period_has_no_row() {
        let rows = |from_ns| rows(Filter { from_ns: Some(from_ns), ..Filter::default() }, &[]).len();
        assert_eq!([rows(9), rows(10)], [1, 0]);
    }

    #[test]
    fn a_filter_removes_calls_but_never_a_gap() {
        let filter = Filter { call: crate::syscall::number("read"), ..Filter::default() };
        let shown = rows(
            filter,
            &[
                record(Event::Call(call("write"))),
                record(Event::Call(call("read"))),
                record(Event::Exit { code: 0, whole_process: true }),
            ],
        );
        assert_eq!(shown.len(), 2);
        assert!(shown[0].text.starts_with("read("));
        assert_eq!(shown[1].text, "3 records lost");
    }

    #[test]
    fn a_row_has_the_program_and_the_number_of_its_call_also_if_the_filter_removes_the_others() {
        let records = [
            record(exec("/bin/cat")),
            record(Event::Call(call("read"))),
            record(Event::Unfinished(call("exit_group"))),
        ];
        let of = |filter| {
            let rows = rows(filter, &records).into_iter();
            rows.map(|row| (row.program.to_string(), row.number)).collect::<Vec<_>>()
        };
        let number = |name| syscall::number(name);
        let row = |number| ("cat".to_owned(), number);
        let gap = (String::new(), None);
        assert_eq!(
            of(Filter::default()),
            [row(None), row(number("read")), row(number("exit_group")), gap.clone()]
        );
        assert_eq!(of(Filter { call: number("read"), ..Filter::default() }), [row(number("read")), gap]);
    }

    #[test]
    fn a_compat_call_is_not_named_from_the_native_table() {
        let foreign = Call { abi: Abi::Compat, number: 3, ..call("read") };
        assert_eq!(rows(Filter::default(), &[record(Event::Call(foreign))])[0].number, None);
        assert!(
            rows(Filter::default(), &[record(Event::Call(foreign))])[0].text.starts_with("compat call 3(")
        );
    }
}
