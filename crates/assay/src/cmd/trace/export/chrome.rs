//! A trace in the Trace Event Format, JSON for Perfetto.
//! Times are in microseconds, as the format requires, with three decimals.

use std::borrow::Cow;
use std::io::{self, Write};
use std::rc::Rc;

use assay_trace::Reader;
use assay_trace::descriptor::Descriptor;
use assay_trace::record::{Call, Entry, Event};
use assay_trace::view::Filter;
use assay_trace::view::sequence::SequenceRow;
use foldhash::HashMap;
use serde::Serialize;

use crate::output;
use crate::phase::tracing::print_rows;

/// Prints the events of a trace until the reader of stdout closes it.
pub fn print(reader: Reader, filter: Filter) -> anyhow::Result<()> {
    let mut printer = Printer::to(output::stdout());
    output::printed(printer.head())?;
    let (printed, read) =
        print_rows(reader, filter, |entry, row, since_ns| printer.event(entry, row, since_ns));
    super::say_losses(printer.lost);
    output::end(output::printed(printed.and_then(|()| printer.tail())), read)
}

struct Printer<W> {
    to: W,
    /// What separates the next event from the previous one.
    begin: &'static str,
    /// The names that were printed, by process; empty for `?`.
    names: HashMap<u32, Rc<str>>,
    lost: u64,
}

/// An event as the format defines it.
#[derive(Serialize)]
struct TraceEvent<'a> {
    name: Cow<'a, str>,
    cat: &'static str,
    /// `X` for an event with a duration, `i` for one without, `M` for the name of a process.
    ph: char,
    /// The scope of an instant: a thread (`t`) or the trace (`g`).
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<char>,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: u32,
    tid: u32,
    args: Details<'a>,
}

/// What a viewer shows of a selected event. Zeros are left out.
#[derive(Default, Serialize)]
struct Details<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<u16>,
    #[serde(skip_serializing_if = "is_zero")]
    blocked_ns: u64,
    #[serde(skip_serializing_if = "is_zero")]
    waiting_ns: u64,
    #[serde(skip_serializing_if = "is_zero")]
    irq_ns: u64,
    #[serde(skip_serializing_if = "is_zero")]
    softnet_ns: u64,
    #[serde(skip_serializing_if = "is_zero")]
    faults: u64,
}

impl<W: Write> Printer<W> {
    fn to(to: W) -> Self {
        Self { to, begin: "", names: HashMap::default(), lost: 0 }
    }

    fn head(&mut self) -> io::Result<()> {
        self.to.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")
    }

    fn event(&mut self, entry: &Entry, row: &SequenceRow, since_ns: u64) -> io::Result<()> {
        if let Entry::Lost(lost) = entry {
            self.lost = self.lost.saturating_add(lost.records);
        }
        if self.names.get(&row.process).map_or("", |name| name) != &*row.program {
            self.names.insert(row.process, Rc::clone(&row.program));
            self.write(&naming(row))?;
        }
        self.write(&event(entry, row, since_ns))
    }

    fn write(&mut self, event: &TraceEvent<'_>) -> io::Result<()> {
        self.to.write_all(self.begin.as_bytes())?;
        self.begin = ",\n";
        Ok(serde_json::to_writer(&mut self.to, event)?)
    }

    fn tail(&mut self) -> io::Result<()> {
        self.to.write_all(b"\n]}\n")?;
        self.to.flush()
    }
}

/// Returns the event that names the process of a row.
fn naming(row: &SequenceRow) -> TraceEvent<'_> {
    let name = if row.program.is_empty() { "?" } else { &row.program };
    let args = Details { name: Some(name), ..Details::default() };
    let (pid, tid) = (row.process, row.thread);
    TraceEvent { name: "process_name".into(), cat: "", ph: 'M', s: None, ts: 0.0, dur: None, pid, tid, args }
}

fn event<'a>(entry: &Entry, row: &'a SequenceRow, since_ns: u64) -> TraceEvent<'a> {
    let mut args = Details { event: &row.text, cpu: row.cpu, ..Details::default() };
    let (name, scope): (Cow<'a, str>, _) = match entry {
        Entry::Lost(_) => ("records lost".into(), 'g'),
        Entry::Record(record, _) => match &record.event {
            Event::Call(call) | Event::Unfinished(call) => {
                args = args.with_times(call);
                (call.name(), 't')
            }
            Event::OffCpu { blocked_ns, waiting_ns } => {
                args = Details { blocked_ns: *blocked_ns, waiting_ns: *waiting_ns, ..args };
                (row.text.as_str().into(), 't')
            }
            Event::PageFault { .. } => ("page fault".into(), 't'),
            Event::Fork { .. } => ("fork".into(), 't'),
            Event::Exec { .. } => ("exec".into(), 't'),
            Event::Exit { .. } => ("exit".into(), 't'),
        },
    };
    let (ph, s) = if row.elapsed_ns.is_some() { ('X', None) } else { ('i', Some(scope)) };
    let cat = if row.descriptor == Descriptor::None { "" } else { row.descriptor.name() };
    let (ts, dur) = (microseconds(since_ns), row.elapsed_ns.map(microseconds));
    TraceEvent { name, cat, ph, s, ts, dur, pid: row.process, tid: row.thread, args }
}

impl Details<'_> {
    fn with_times(self, call: &Call) -> Self {
        let Call { blocked_ns, waiting_ns, irq_ns, softnet_ns, faults, .. } = *call;
        Self { blocked_ns, waiting_ns, irq_ns, softnet_ns, faults: faults.into(), ..self }
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact to the nanosecond for 101 days")]
fn microseconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1e3
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use assay_trace::container::Origin;
    use assay_trace::record::{Lost, Record};
    use assay_trace::syscall;
    use assay_trace::view::sequence::Sequence;
    use serde_json::{Value, json};

    use super::*;

    fn printed(events: &[Event]) -> Vec<Value> {
        let mut sequence = Sequence::of(Filter::default(), Origin::Probe);
        let mut printer = Printer::to(Vec::new());
        printer.head().unwrap();
        let record = |event| Record { begin_ns: 5, process: 7, thread: 8, cpu: 1, lost_before: 0, event };
        let records = events.iter().map(|event| Entry::Record(record(*event), Vec::new()));
        for entry in records.chain([Entry::Lost(Lost { time_ns: 9, cpu: 1, records: 3 })]) {
            printer.event(&entry, sequence.row(&entry).unwrap(), 1_000_000_002).unwrap();
        }
        printer.tail().unwrap();
        let whole: Value = serde_json::from_slice(&printer.to).unwrap();
        assert_eq!(whole["displayTimeUnit"], "ns");
        whole["traceEvents"].as_array().unwrap().clone()
    }

    #[test]
    fn a_call_has_a_duration_and_its_details_without_zeros() {
        let number = syscall::number("read").unwrap();
        let call = Call { number, args: [3, 0x10, 5, 0, 0, 0], result: 5, ..Call::default() };
        let call =
            Call { descriptor: Descriptor::File, elapsed_ns: 1_234, blocked_ns: 1_000, faults: 2, ..call };
        assert_eq!(
            printed(&[Event::Call(call)])[0],
            json!({"name": "read", "cat": "file", "ph": "X", "ts": 1_000_000.002, "dur": 1.234, "pid": 7, "tid": 8,
                "args": {"event": "read(3, 0x10, 5) = 5", "cpu": 1, "blocked_ns": 1_000, "faults": 2}})
        );
    }

    #[test]
    fn a_process_is_named_again_when_its_program_changes() {
        let mut printer = Printer::to(Vec::new());
        printer.head().unwrap();
        for program in ["", "sh", "sh", "\"\x1b", "", ""] {
            let row = SequenceRow { program: program.into(), process: 7, ..SequenceRow::default() };
            printer.event(&Entry::Lost(Lost { time_ns: 9, cpu: 1, records: 3 }), &row, 0).unwrap();
        }
        printer.tail().unwrap();
        let whole: Value = serde_json::from_slice(&printer.to).unwrap();
        let events = whole["traceEvents"].as_array().unwrap().iter();
        let names = events.filter(|event| event["ph"] == "M").map(|event| &event["args"]["name"]);
        assert_eq!(names.collect::<Vec<_>>(), ["sh", "\"\x1b", "?"]);
        assert_eq!(printer.lost, 18);
    }

    #[test]
    fn events_without_a_duration_are_instants_of_a_thread_and_gaps_are_instants_of_the_trace() {
        let preempted = Event::OffCpu { blocked_ns: 0, waiting_ns: 6 };
        let exit = Event::Exit { code: 0, whole_process: true };
        let fork = Event::Fork { child_process: 9, child_thread: 9, memory: None };
        let fault = Event::PageFault { address: 16, error: 0, user: true, area: None };
        let events = printed(&[preempted, fault, fork, exit]);
        let due = json!({"name": "preempted", "cat": "", "ph": "X", "ts": 1_000_000.002, "dur": 0.006, "pid": 7,
            "tid": 8, "args": {"event": "preempted", "cpu": 1, "waiting_ns": 6}});
        assert_eq!(events[0], due);
        let instants = events[1..].iter().map(|event| {
            assert_eq!((&event["ph"], &event["dur"]), (&json!("i"), &Value::Null));
            [&event["name"], &event["s"], &event["args"]["event"]].map(|value| value.as_str().unwrap())
        });
        let due = [
            ["page fault", "t", "page fault at 0x10 in user mode"],
            ["fork", "t", "new process 9"],
            ["exit", "t", "process exits with 0"],
            ["records lost", "g", "3 records lost"],
        ];
        assert_eq!(instants.collect::<Vec<_>>(), due);
    }
}
