//! The second reading of a log: its lines become records.

use foldhash::HashMap;

use super::{
    ImportError, Imported, ONLY_THREAD,
    call::{self, Parsed},
    clock::Clock,
    line::{self, Defect, Event, LINE_MAX, Line},
    log::Log,
    object::Objects,
    order::Ordered,
    threads::{Birth, Births, Threads},
};
use crate::{
    container::{Closing, WriteError, Writer},
    record::{self, Abi, Call, ExecPath, Memory, Record},
    syscall,
};

/// The state between two lines.
#[derive(Debug)]
pub(super) struct Conversion {
    clock: Clock,
    threads: Threads,
    objects: Objects,
    /// Calls that have not returned, by thread.
    begun: HashMap<u32, Begun>,
    ordered: Ordered,
    imported: Imported,
}

/// A call that has begun.
#[derive(Debug)]
struct Begun {
    /// Number of the line.
    line: u64,
    begin_ns: u64,
    text: Vec<u8>,
    /// Whether the text is whole: the call will not return.
    is_whole: bool,
}

/// Why the conversion ends.
#[derive(Debug)]
enum Reason {
    Defect(Defect),
    Write(WriteError),
}

impl From<Defect> for Reason {
    fn from(defect: Defect) -> Self {
        Self::Defect(defect)
    }
}

impl From<WriteError> for Reason {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

impl Conversion {
    pub fn of(births: Births, writer: Writer) -> Self {
        Self {
            clock: Clock::default(),
            threads: Threads::of(births),
            objects: Objects::default(),
            begun: HashMap::default(),
            ordered: Ordered::of(writer),
            imported: Imported::default(),
        }
    }

    /// Converts the whole log and closes the trace.
    pub fn read(mut self, log: &Log<'_>) -> Result<Imported, ImportError> {
        log.for_each_line(|number, text| {
            let converted = match line::parse(text) {
                Ok(Some(line)) => self.line(number, &line),
                Ok(None) => {
                    self.skip(number);
                    Ok(())
                }
                Err(defect) => Err(defect.into()),
            };
            converted.map_err(|reason| match reason {
                Reason::Defect(defect) => log.defect(number, defect),
                Reason::Write(error) => error.into(),
            })
        })?;
        let mut threads: Vec<u32> = self.begun.keys().copied().collect();
        threads.sort_unstable();
        threads.into_iter().for_each(|thread| self.never_returned(thread));
        self.imported.processes = self.threads.processes;
        self.imported.roots = self.threads.roots;
        let moved_ns = self.ordered.close(Closing {
            monotonic_ns: self.clock.now_ns,
            drained: true,
            untracked_threads: 0,
            counters: Vec::new(),
            skipped_lines: self.imported.skipped,
        })?;
        Ok(Imported { moved_ns, ..self.imported })
    }

    fn skip(&mut self, line: u64) {
        self.imported.first_skipped.get_or_insert(line);
        self.imported.skipped += 1;
    }

    fn line(&mut self, number: u64, line: &Line<'_>) -> Result<(), Reason> {
        let time_ns = self.clock.at(line.stamp);
        let thread = line.thread.unwrap_or(ONLY_THREAD);
        let birth = self.threads.meet(thread, number);
        self.born(birth);
        let begun =
            |text: &[u8]| Begun { line: number, begin_ns: time_ns, text: text.to_owned(), is_whole: false };
        match line.event {
            Event::Signal => {}
            Event::Begins(text) => {
                self.forget(thread);
                self.begun.insert(thread, begun(text));
            }
            Event::Call(text) => {
                self.forget(thread);
                self.call(thread, begun(text))?;
            }
            Event::Continues(rest) => match self.begun.get_mut(&thread) {
                Some(begun) if !begun.is_whole && begun.text.len() < LINE_MAX => {
                    begun.text.extend_from_slice(rest);
                }
                _ => self.skip(number),
            },
            Event::Resumes(rest) => match self.begun.remove(&thread) {
                Some(mut begun) if !begun.is_whole => {
                    begun.text.extend_from_slice(rest);
                    self.call(thread, begun)?;
                }
                begun => {
                    self.begun.extend(begun.map(|begun| (thread, begun)));
                    self.skip(number);
                }
            },
            Event::Superseded(executing) => {
                let executes = self.begun.remove(&executing);
                self.never_returned(thread);
                self.begun.extend(executes.map(|begun| (thread, begun)));
                self.threads.end(executing);
            }
            Event::Ends(code) => {
                self.never_returned(thread);
                let process = self.threads.process(thread);
                let whole_process = self.threads.end(thread);
                self.add(time_ns, (process, thread), record::Event::Exit { code, whole_process });
            }
        }
        Ok(self.ordered.release(self.clock.now_ns)?)
    }

    /// Skips the call of a thread whose rest is not in the log although the thread went on.
    fn forget(&mut self, thread: u32) {
        if let Some(forgotten) = self.begun.remove(&thread) {
            self.skip(forgotten.line);
        }
    }

    /// Processes a call that may have returned.
    fn call(&mut self, thread: u32, begun: Begun) -> Result<(), Defect> {
        let Some(parsed) = call::parse(&begun.text, &mut self.objects) else {
            self.skip(begun.line);
            return Ok(());
        };
        let Some(result) = parsed.result else {
            self.begun.insert(thread, Begun { is_whole: true, ..begun });
            return Ok(());
        };
        let elapsed_ns = parsed.elapsed_ns.ok_or(Defect::NoElapsed)?;
        self.imported.calls += 1;
        self.imported.unnamed += parsed.unnamed;
        let birth = parsed.child.and_then(|child| self.threads.created(child));
        self.born(birth);
        let process = self.threads.process(thread);
        let call = Call { result, elapsed_ns, ..called(&parsed) };
        if result == 0 && matches!(syscall::name(call.number), Some("execve" | "execveat")) {
            let path = ExecPath::of(parsed.contents.first().map_or(&[][..], |path| &path.bytes));
            let end_ns = begun.begin_ns.saturating_add(elapsed_ns);
            self.add(end_ns, (process, process), record::Event::Exec { path });
        }
        let record = record(begun.begin_ns, (process, thread), record::Event::Call(call));
        self.ordered.add(record, parsed.contents);
        Ok(())
    }

    /// Ends the call of a thread that will not return.
    fn never_returned(&mut self, thread: u32) {
        let Some(begun) = self.begun.remove(&thread) else { return };
        let mut parse = |text: &[u8]| call::parse(text, &mut self.objects);
        let parsed = parse(&begun.text).or_else(|| parse(&[&begun.text, &b") = ?"[..]].concat()));
        let Some(parsed) = parsed else { return self.skip(begun.line) };
        self.imported.unnamed += parsed.unnamed;
        let elapsed_ns = self.clock.now_ns.saturating_sub(begun.begin_ns);
        let call = Call { elapsed_ns, ..called(&parsed) };
        let process = self.threads.process(thread);
        let event = record::Event::Unfinished(call);
        self.ordered.add(record(begun.begin_ns, (process, thread), event), parsed.contents);
    }

    /// Adds the creation of a thread.
    fn born(&mut self, birth: Option<Birth>) {
        let Some(Birth { parent, child, .. }) = birth else { return };
        let event = record::Event::Fork {
            child_process: self.threads.process(child.thread),
            child_thread: child.thread,
            memory: child.borrows.then_some(Memory::Borrowed),
        };
        self.add(self.clock.now_ns, (self.threads.process(parent), parent), event);
    }

    fn add(&mut self, time_ns: u64, of: (u32, u32), event: record::Event) {
        self.ordered.add(record(time_ns, of, event), Vec::new());
    }
}

/// Returns the record of an event of a process and thread.
fn record(begin_ns: u64, (process, thread): (u32, u32), event: record::Event) -> Record {
    Record { begin_ns, process, thread, cpu: 0, lost_before: 0, event }
}

/// Returns a call without its result and times.
fn called(parsed: &Parsed) -> Call {
    Call {
        number: parsed.number,
        abi: Abi::Native,
        args: parsed.args,
        descriptor: parsed.object.kind,
        inode: parsed.object.inode,
        ..Call::default()
    }
}
