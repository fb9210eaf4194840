//! The time sequence: one row per event, like ktranal's default mode and strace.

mod argument;
mod content;

use super::View;
use crate::{
    descriptor::Descriptor,
    record::{Abi, Area, Call, Content, Event, Lost, Memory, Record, errno_name},
    syscall::{self, Kind},
};

/// One row of the sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequenceRow {
    /// Start, on the clock of the trace.
    pub begin_ns: u64,
    /// Process; 0 for a gap.
    pub process: u32,
    /// Thread; 0 for a gap.
    pub thread: u32,
    /// CPU on which the event ended.
    pub cpu: u16,
    /// The event, `openat(AT_FDCWD, "/etc/passwd", O_RDONLY) = 3`.
    pub text: String,
    /// Duration; `None` for an event without one.
    pub elapsed_ns: Option<u64>,
    /// Kind of descriptor.
    pub descriptor: Descriptor,
}

/// Passes every row to `sink`, in the order of the trace. A gap is a row too.
#[derive(Debug)]
pub struct Sequence<F> {
    sink: F,
}

impl<F: FnMut(SequenceRow)> Sequence<F> {
    /// Creates a view.
    pub fn new(sink: F) -> Self {
        Self { sink }
    }
}

impl<F: FnMut(SequenceRow)> View for Sequence<F> {
    type Shown = ();

    fn record(&mut self, record: &Record) {
        self.record_with(record, &[]);
    }

    fn record_with(&mut self, record: &Record, contents: &[Content]) {
        let (elapsed_ns, descriptor) = match &record.event {
            Event::Call(call) | Event::Unfinished(call) => (Some(call.elapsed_ns), call.descriptor),
            Event::OffCpu { blocked_ns, waiting_ns } => {
                (Some(blocked_ns.saturating_add(*waiting_ns)), Descriptor::None)
            }
            Event::PageFault { .. } | Event::Fork { .. } | Event::Exec { .. } | Event::Exit { .. } => {
                (None, Descriptor::None)
            }
        };
        (self.sink)(SequenceRow {
            begin_ns: record.begin_ns,
            process: record.process,
            thread: record.thread,
            cpu: record.cpu,
            text: text(record, contents),
            elapsed_ns,
            descriptor,
        });
    }

    fn lost(&mut self, lost: &Lost) {
        (self.sink)(SequenceRow {
            begin_ns: lost.time_ns,
            process: 0,
            thread: 0,
            cpu: lost.cpu,
            text: format!("{} records lost", lost.records),
            elapsed_ns: None,
            descriptor: Descriptor::None,
        });
    }

    fn finish(self) {}
}

fn text(record: &Record, contents: &[Content]) -> String {
    match &record.event {
        Event::Call(call) => format!("{} = {}", invocation(call, contents), result(call)),
        Event::Unfinished(call) => format!("{} = ?", invocation(call, contents)),
        Event::PageFault { address, user, area, .. } => {
            let mode = if *user { "user" } else { "kernel" };
            let area = match area {
                None => "",
                Some(Area::Nothing) => ", outside every mapping",
                Some(Area::Anonymous) => ", anonymous memory",
                Some(Area::PrivateFile) => ", a private mapping of a file",
                Some(Area::Shared) => ", a shared mapping",
            };
            format!("page fault at {address:#x} in {mode} mode{area}")
        }
        Event::OffCpu { blocked_ns, .. } => {
            (if *blocked_ns > 0 { "blocked outside a call" } else { "preempted" }).to_owned()
        }
        Event::Fork { child_process, child_thread, .. } if *child_process == record.process => {
            format!("new thread {child_thread}")
        }
        Event::Fork { child_process, memory, .. } => {
            let memory = if *memory == Some(Memory::Borrowed) { " in the memory of its parent" } else { "" };
            format!("new process {child_process}{memory}")
        }
        Event::Exec { path } => format!("runs {}", path.to_text()),
        Event::Exit { code, whole_process } => {
            format!("{} exits with {code}", if *whole_process { "process" } else { "thread" })
        }
    }
}

fn invocation(call: &Call, contents: &[Content]) -> String {
    let is_native = call.abi == Abi::Native;
    let kinds = if is_native { syscall::arguments(call.number) } else { &[Kind::Hexadecimal; 6] };
    let mut text = format!("{}(", call.name());
    for (position, (kind, argument)) in kinds.iter().zip(call.args).enumerate() {
        if is_native && !syscall::uses(call.number, &call.args, position) {
            continue;
        }
        if position > 0 {
            text.push_str(", ");
        }
        let content = contents.iter().find(|content| usize::from(content.argument) == position);
        push_argument(&mut text, *kind, argument, content);
    }
    text.push(')');
    text
}

/// Adds an argument of this kind with its content.
pub(super) fn push_argument(text: &mut String, kind: Kind, value: u64, content: Option<&Content>) {
    match content {
        Some(content) => text.push_str(&content::text(kind, content)),
        None => argument::push(text, kind, value),
    }
}

fn result(call: &Call) -> String {
    match call.errno() {
        Some(errno) => format!("-1 {}", errno_name(errno)),
        None if call.result > 0xf_ffff => format!("{:#x}", call.result),
        None => call.result.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixture::{call, record},
        view::Filter,
    };

    fn rows(filter: Filter, records: &[Record]) -> Vec<SequenceRow> {
        let mut rows = Vec::new();
        let mut view = filter.of(Sequence::new(|row| rows.push(row)));
        records.iter().for_each(|record| view.record(record));
        view.lost(&Lost { time_ns: 9, cpu: 1, records: 3 });
        view.finish();
        rows
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
    fn a_compat_call_is_not_named_from_the_native_table() {
        let foreign = Call { abi: Abi::Compat, number: 3, ..call("read") };
        assert!(
            rows(Filter::default(), &[record(Event::Call(foreign))])[0].text.starts_with("compat call 3(")
        );
    }
}
