//! The processes of a trace: their programs, and how much each of them asked of the kernel.
//!
//! The memory grows with the number of processes and of threads that run at the same time.
//!
//! A number that is used again after its process ended is another process. It begins with the record of its
//! fork, or, if that one is lost, with a call after the record of the end of the earlier process. If both are
//! lost, two processes are counted as one.

use foldhash::{HashMap, HashSet};

use super::View;
use crate::record::{Call, Event, ExecPath, Lost, Record};

/// Collects [`Processes`].
#[derive(Debug, Default)]
pub struct CountByProcess {
    /// The latest process with each number.
    latest: HashMap<u32, Tally>,
    /// Processes that ended before their number was used again.
    earlier: Vec<ProcessRow>,
    lost: u64,
}

/// Totals of a trace, by process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processes {
    /// One row per process, largest elapsed time first.
    pub rows: Vec<ProcessRow>,
    /// Lost records: with losses, every count is a lower bound.
    pub lost: u64,
}

/// One process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessRow {
    /// Its number.
    pub process: u32,
    /// Path of the program that it executed last, or that its parent ran when it was created, truncated to 47
    /// bytes; `None` if the trace does not contain it.
    pub program: Option<String>,
    /// Threads that were created, made a call, executed a program or ended in the trace.
    pub threads: u64,
    /// Calls that returned.
    pub calls: u64,
    /// Calls that failed, part of `calls`.
    pub errors: u64,
    /// Sum of the elapsed times of `calls`, ns.
    pub elapsed_ns: u64,
    /// Page faults, in user mode and in the kernel.
    pub faults: u64,
}

#[derive(Debug, Default)]
struct Tally {
    row: ProcessRow,
    program: Option<ExecPath>,
    /// Threads that have not ended; the number of an ended thread may be used again.
    threads: HashSet<u32>,
    ended: bool,
}

impl View for CountByProcess {
    type Shown = Processes;

    fn record(&mut self, record: &Record) {
        let tally = match &record.event {
            Event::Call(_) | Event::Fork { .. } | Event::Exec { .. } => self.running(record.process),
            Event::Unfinished(_) | Event::PageFault { .. } | Event::OffCpu { .. } | Event::Exit { .. } => {
                self.of(record.process)
            }
        };
        match &record.event {
            Event::Call(call) => {
                tally.count_thread(record.thread);
                tally.add(call);
            }
            Event::Unfinished(_) => tally.count_thread(record.thread),
            // A thread also faults and loses the CPU after the record of its end, so these events do not show
            // a new thread.
            Event::PageFault { .. } => tally.row.faults += 1,
            Event::OffCpu { .. } => {}
            Event::Fork { child_process, child_thread, .. } => {
                tally.count_thread(record.thread);
                let program = tally.program;
                if *child_process != record.process {
                    self.begin(*child_process).program = program;
                }
                self.of(*child_process).count_thread(*child_thread);
            }
            Event::Exec { path } => tally.execute(*path, record.thread),
            Event::Exit { whole_process, .. } => {
                tally.count_thread(record.thread);
                tally.threads.remove(&record.thread);
                tally.ended = *whole_process;
            }
        }
    }

    fn lost(&mut self, lost: &Lost) {
        self.lost = self.lost.saturating_add(lost.records);
    }

    fn finish(self) -> Processes {
        let latest = self.latest.into_values().map(Tally::row);
        let mut rows: Vec<_> = self.earlier.into_iter().chain(latest).collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.elapsed_ns), row.process));
        Processes { rows, lost: self.lost }
    }
}

impl CountByProcess {
    fn of(&mut self, process: u32) -> &mut Tally {
        self.latest.entry(process).or_insert_with(|| Tally::of(process))
    }

    /// Returns the process of an event that only a running process causes.
    fn running(&mut self, process: u32) -> &mut Tally {
        let tally = self.latest.entry(process).or_insert_with(|| Tally::of(process));
        if tally.ended {
            self.earlier.push(std::mem::replace(tally, Tally::of(process)).row());
        }
        tally
    }

    /// Returns a new process with this number.
    fn begin(&mut self, process: u32) -> &mut Tally {
        self.earlier.extend(self.latest.remove(&process).map(Tally::row));
        self.of(process)
    }
}

impl Tally {
    fn of(process: u32) -> Self {
        Self { row: ProcessRow { process, ..ProcessRow::default() }, ..Self::default() }
    }

    fn add(&mut self, call: &Call) {
        self.row.calls += 1;
        self.row.errors += u64::from(call.errno().is_some());
        self.row.elapsed_ns = self.row.elapsed_ns.saturating_add(call.elapsed_ns);
    }

    fn count_thread(&mut self, thread: u32) {
        self.row.threads += u64::from(self.threads.insert(thread));
    }

    /// The thread that executes a program ends all others and takes the number of the process.
    fn execute(&mut self, path: ExecPath, thread: u32) {
        if self.threads.is_empty() {
            self.row.threads += 1;
        }
        self.threads = HashSet::from_iter([thread]);
        self.program = Some(path);
    }

    fn row(self) -> ProcessRow {
        ProcessRow { program: self.program.map(|path| path.to_text()), ..self.row }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{call, exec, record};

    fn by((process, thread): (u32, u32), event: Event) -> Record {
        Record { process, thread, ..record(event) }
    }

    fn read(elapsed_ns: u64, result: i64) -> Event {
        Event::Call(Call { elapsed_ns, result, ..call("read") })
    }

    fn fork((child_process, child_thread): (u32, u32)) -> Event {
        Event::Fork { child_process, child_thread, memory: None }
    }

    const THREAD_EXIT: Event = Event::Exit { code: 0, whole_process: false };
    const PROCESS_EXIT: Event = Event::Exit { code: 0, whole_process: true };

    fn processes(records: &[Record]) -> Processes {
        let mut view = CountByProcess::default();
        records.iter().for_each(|record| view.record(record));
        view.finish()
    }

    #[test]
    fn each_process_is_a_row_with_its_own_calls_and_the_largest_elapsed_time_is_first() {
        let fault = |user| Event::PageFault { address: 0, error: 0, user, area: None };
        let shown = processes(&[
            by((7, 7), exec("/bin/sh")),
            by((7, 7), read(100, 4)),
            by((7, 7), fork((8, 8))),
            by((8, 8), read(300, 4)),
            by((8, 8), read(200, -11)),
            by((8, 8), fault(true)),
            by((8, 8), fault(false)),
            by((8, 8), Event::Unfinished(Call { elapsed_ns: 900, ..call("exit_group") })),
        ]);
        let child = ProcessRow {
            process: 8,
            program: Some("/bin/sh".to_owned()),
            threads: 1,
            calls: 2,
            errors: 1,
            elapsed_ns: 500,
            faults: 2,
        };
        let parent = ProcessRow {
            process: 7,
            program: Some("/bin/sh".to_owned()),
            threads: 1,
            calls: 1,
            errors: 0,
            elapsed_ns: 100,
            faults: 0,
        };
        assert_eq!(shown, Processes { rows: vec![child, parent], lost: 0 });
    }

    #[test]
    fn the_program_is_the_last_one() {
        let shown = processes(&[by((1, 1), exec("/bin/env")), by((1, 1), exec("/bin/true"))]);
        assert_eq!((shown.rows[0].program.as_deref(), shown.rows[0].threads), (Some("/bin/true"), 1));
    }

    #[test]
    fn every_thread_is_counted_once_and_a_number_that_is_used_again_is_another_thread() {
        let off_cpu = Event::OffCpu { blocked_ns: 0, waiting_ns: 1 };
        let mut records = vec![
            by((1, 1), fork((1, 2))),
            by((1, 2), read(1, 1)),
            by((1, 2), read(1, 1)),
            by((1, 2), THREAD_EXIT),
            by((1, 2), off_cpu),
        ];
        assert_eq!(processes(&records).rows[0].threads, 2);
        records.extend([by((1, 1), fork((1, 2))), by((1, 2), THREAD_EXIT)]);
        assert_eq!(processes(&records).rows[0].threads, 3);
    }

    #[test]
    fn a_thread_that_executes_a_program_remains_one_thread_under_the_number_of_its_process() {
        let shown = processes(&[
            by((1, 1), fork((1, 2))),
            by((1, 1), THREAD_EXIT),
            by((1, 1), exec("/bin/true")),
            by((1, 1), read(1, 1)),
        ]);
        assert_eq!(shown.rows[0].threads, 2);
    }

    #[test]
    fn a_process_that_reuses_the_number_of_an_ended_one_is_another_row() {
        let begin = by((1, 1), fork((5, 5)));
        let life = [by((5, 5), exec("/bin/true")), by((5, 5), read(10, 1))];
        let end = by((5, 5), PROCESS_EXIT);
        let late = by((5, 5), Event::OffCpu { blocked_ns: 0, waiting_ns: 1 });
        let calls = |records: &[&[Record]]| {
            let rows = processes(&records.concat()).rows;
            rows.iter().filter(|row| row.process == 5).map(|row| row.calls).collect::<Vec<_>>()
        };
        assert_eq!(calls(&[&[begin], &life, &[end, late], &[begin], &life]), [1, 1]);
        let (without_end, without_fork) = ([begin], [end, late]);
        assert_eq!(calls(&[&[begin], &life, &without_end, &life]), [1, 1]);
        assert_eq!(calls(&[&[begin], &life, &without_fork, &life]), [1, 1]);
        assert_eq!(calls(&[&[begin], &life, &life]), [2], "nothing shows that there are two");
    }

    #[test]
    fn a_child_runs_the_program_of_its_parent_until_it_executes_one() {
        let mut records = vec![by((1, 1), exec("/bin/sh")), by((1, 1), fork((2, 2))), by((2, 2), read(9, 1))];
        let program = |records: &[Record]| processes(records).rows[0].program.clone();
        assert_eq!(program(&records).as_deref(), Some("/bin/sh"));
        records.push(by((2, 2), exec("/bin/ls")));
        assert_eq!(program(&records).as_deref(), Some("/bin/ls"));
    }

    #[test]
    fn the_memory_does_not_grow_with_the_threads_that_have_ended() {
        let mut view = CountByProcess::default();
        for thread in 2..1_000 {
            for event in
                [by((1, 1), fork((1, thread))), by((1, thread), read(1, 1)), by((1, thread), THREAD_EXIT)]
            {
                view.record(&event);
            }
        }
        assert_eq!(view.latest[&1].threads.len(), 1);
        assert_eq!(view.finish().rows[0].threads, 999);
    }

    #[test]
    fn lost_records_are_added_up() {
        let mut view = CountByProcess::default();
        for records in [3, 4] {
            view.lost(&Lost { time_ns: 0, cpu: 0, records });
        }
        assert_eq!(view.finish().lost, 7);
    }
}
