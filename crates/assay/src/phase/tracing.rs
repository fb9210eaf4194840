//! The tracing phase: repeats the work with a recorder, and returns a summary and a demand. Also opens and
//! prints recorded traces.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use assay_quantity::OperationDemand;
use assay_trace::container::{Origin, WriteError};
use assay_trace::record::Entry;
use assay_trace::view::demand::{Demanding, Named};
use assay_trace::view::sequence::{Sequence, SequenceRow};
use assay_trace::view::summary::{Summarise, Summary};
use assay_trace::view::{Filter, look};
use assay_trace::{Reader, Writer};
use assay_trace_probe::{Ended, Held, Options, Recorded, Recorder, Streams, opening};
use assay_workload::{CommandProgram, Operation, Server};

use crate::interrupt::{Interrupt, Interrupted};
use crate::output;

/// Interval at which the recorder and the interrupt flag are checked while a recorded command runs.
const PAUSE: Duration = Duration::from_millis(5);

/// Results of the trace of one operation.
#[derive(Debug)]
pub struct Traced {
    /// The calls (thesis, Figure 11).
    pub summary: Summary,
    /// The demand of one unit of work.
    pub demand: OperationDemand,
    /// Units of work that were traced.
    pub units: u64,
    /// Wall time of the traced part in ns, for comparison with the untraced time.
    pub elapsed_ns: u64,
    /// The result of the recording.
    pub recorded: Recorded,
    /// A sentence for each part that is missing in the demand; empty if it is complete.
    pub missing: Vec<String>,
}

/// Location of traces: a directory given by the user, or a temporary directory.
#[derive(Debug)]
pub enum Traces {
    /// Kept in this directory, one container for each operation.
    Kept(PathBuf),
    /// Removed with this temporary directory.
    Scratch(tempfile::TempDir),
}

impl Traces {
    /// Creates the directory for the traces of a run.
    pub fn new(kept: Option<&Path>) -> anyhow::Result<Self> {
        match kept {
            None => {
                Ok(Self::Scratch(tempfile::Builder::new().prefix("assay-").tempdir().with_context(|| {
                    let directory = std::env::temp_dir();
                    format!(
                        "cannot create a directory in {}; free some space, or set TMPDIR to another directory",
                        directory.display()
                    )
                })?))
            }
            Some(path) => {
                std::fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
                Ok(Self::Kept(path.to_owned()))
            }
        }
    }

    /// Fails if a trace of one of these operations could not be kept, before anything is measured.
    pub fn check(&self, operations: &[&str]) -> anyhow::Result<()> {
        let containers: Vec<PathBuf> = operations.iter().map(|name| self.container(name)).collect();
        for (position, container) in containers.iter().enumerate() {
            let shown = container.display();
            ensure!(!container.exists(), "{shown} already exists; give another directory, or remove it");
            let twice = containers[..position].contains(container);
            ensure!(!twice, "two operations would write the same trace {shown}; rename one in the workload");
        }
        Ok(())
    }

    fn container(&self, operation: &str) -> PathBuf {
        let name: String =
            operation.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(60).collect();
        let directory = match self {
            Self::Kept(path) => path,
            Self::Scratch(directory) => directory.path(),
        };
        directory.join(format!("{name}.trace"))
    }
}

/// Traces one round of an operation of a running server.
pub fn server(
    server: &Server,
    operation: &Operation,
    traces: &Traces,
    interrupt: &Interrupt,
) -> anyhow::Result<Traced> {
    announce(&operation.name);
    let container = traces.container(&operation.name);
    let root = u32::try_from(server.pid()).context("the server has no process")?;
    let recorder = attach(root, &container, Vec::new())?;
    let load = server.load(operation, None, interrupt.flag(), &mut |_| {});
    let recorded = recorder.stop()?;
    interrupt.check()?;
    let load = load?;
    read(&container, recorded, &operation.name, "request", load.requests, load.elapsed_ns)
}

/// Traces one run of a command.
pub fn command(program: &CommandProgram, traces: &Traces, interrupt: &Interrupt) -> anyhow::Result<Traced> {
    let name = program.command.join(" ");
    announce(&name);
    let container = traces.container(&name);
    let arguments: Vec<OsString> = program.command.iter().map(OsString::from).collect();
    let (recorded, ended) = run_recorded(&arguments, Streams::Null, &container, None, interrupt)?;
    interrupt.check()?;
    // A run without a duration ends early only after an interrupt.
    let ended = ended.ok_or(Interrupted::Measuring)?;
    read(&container, recorded, &name, "run", 1, ended.elapsed_ns)
}

/// Runs a command with a recorder attached from its first instruction until the command ends, `duration` has
/// passed, or an interrupt. A command that still runs then is terminated, as is one whose recorder has
/// failed.
pub fn run_recorded(
    arguments: &[OsString],
    streams: Streams,
    container: &Path,
    duration: Option<Duration>,
    interrupt: &Interrupt,
) -> anyhow::Result<(Recorded, Option<Ended>)> {
    let held = Held::fork(arguments, streams)?;
    let command = arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let recorder = attach(held.process(), container, command)?;
    if interrupt.check().is_err() {
        return Ok((recorder.stop()?, None));
    }
    let mut running = match held.release() {
        Ok(running) => running,
        Err(error) => {
            drop(recorder);
            remove(container);
            return Err(error.into());
        }
    };
    let mut left = duration.unwrap_or(Duration::MAX);
    let mut end = None;
    while end.is_none() && !left.is_zero() && recorder.is_recording() && interrupt.check().is_ok() {
        end = running.wait_for(PAUSE.min(left))?;
        left = left.saturating_sub(PAUSE);
    }
    // A command that still runs is terminated before the recording ends, so that the trace contains its end.
    // Otherwise the processes that it left behind end after the recording, as after a measured round: their
    // end is not part of its calls.
    let left_behind = end.is_some().then_some(running);
    let recorded = recorder.stop()?;
    drop(left_behind);
    // At a terminal Ctrl-C also reaches the command: its death is then not a failure.
    if let Some(Ended { exit, .. }) = end.filter(|_| interrupt.check().is_ok()) {
        ensure!(exit.is_success(), "'{}' {exit}; its trace is kept", arguments[0].display());
    }
    Ok((recorded, end))
}

/// Attaches a recorder to a process. Removes the empty container if that fails.
pub fn attach(process: u32, container: &Path, command: Vec<String>) -> anyhow::Result<Recorder> {
    let writer = match Writer::create(container, opening(command)?) {
        Ok(writer) => writer,
        // The existing container must not be removed.
        Err(error @ WriteError::Exists(_)) => return Err(error.into()),
        Err(error) => {
            remove(container);
            return Err(error.into());
        }
    };
    Ok(Recorder::attach(process, Options::default(), writer).inspect_err(|_| remove(container))?)
}

/// Removes an empty container.
fn remove(container: &Path) {
    // The failure that made it useless is reported; a failure to remove it is less important.
    let _ = std::fs::remove_dir_all(container);
}

fn announce(operation: &str) {
    output::say(&format!("tracing '{operation}'"));
}

/// Opens a trace to view it. Prints what is missing in it, except lost records, which every view shows.
pub fn open(trace: &Path) -> anyhow::Result<Reader> {
    let reader = Reader::open(trace)?;
    let (recorded, here) = (&reader.manifest().architecture, std::env::consts::ARCH);
    ensure!(
        recorded == here,
        "{}: recorded on {recorded}, whose calls have other numbers; view it on such a machine",
        trace.display()
    );
    let remark = |text: &str| output::say(&format!("{}: {text}", trace.display()));
    if reader.manifest().origin == Origin::Strace {
        remark("imported from strace, whose own work is part of all times");
    }
    let skipped = reader.manifest().skipped_lines;
    if skipped > 0 {
        remark(&format!("lines of the log that were not understood and are missing: {skipped}"));
    }
    if !reader.is_complete() {
        remark("the recording is incomplete: everything after its last whole block is missing");
    }
    let untracked = reader.manifest().untracked_threads;
    if untracked > 0 {
        remark(&format!("{untracked} threads could not be traced: their events are missing"));
    }
    Ok(reader)
}

/// Passes each row of the sequence of a trace, with its record and the time since the beginning of the trace
/// in ns, to `print`, as it is read, because a trace may not fit in memory. Ends when printing fails. Returns
/// the results of printing and of reading.
pub fn print_rows(
    mut reader: Reader,
    filter: Filter,
    mut print: impl FnMut(&Entry, &SequenceRow, u64) -> io::Result<()>,
) -> (io::Result<()>, anyhow::Result<()>) {
    let start_ns = reader.manifest().start_monotonic_ns;
    let mut sequence = Sequence::of(filter, reader.manifest().origin);
    loop {
        let entry = match reader.next_entry() {
            Ok(Some(entry)) => entry,
            Ok(None) => return (Ok(()), Ok(())),
            Err(error) => return (Ok(()), Err(error.into())),
        };
        if let Some(row) = sequence.row(entry)
            && let Err(error) = print(entry, row, row.begin_ns.saturating_sub(start_ns))
        {
            return (Err(error), Ok(()));
        }
    }
}

/// Returns a sentence for each gap in a recording.
pub fn gaps(recorded: &Recorded) -> Vec<String> {
    let mut gaps = Vec::new();
    if recorded.lost > 0 {
        gaps.push(format!("{} records were LOST: every count is a lower bound.", recorded.lost));
    }
    let untracked = recorded.manifest.untracked_threads;
    if untracked > 0 {
        gaps.push(format!("{untracked} threads could not be traced: their events are missing."));
    }
    if !recorded.manifest.drained {
        gaps.push("The recorder ended before it had read all records.".to_owned());
    }
    gaps
}

fn read(
    container: &Path,
    recorded: Recorded,
    operation: &str,
    unit_of_work: &str,
    units: u64,
    elapsed_ns: u64,
) -> anyhow::Result<Traced> {
    ensure!(recorded.manifest.drained, "the recorder ended before it had read all records; trace again");
    let summary = look(Reader::open(container)?, Summarise::default())?;
    let demanded = look(Reader::open(container)?, Demanding::default())?;
    let mut missing = gaps(&recorded);
    if demanded.unfinished > 0 {
        missing.push(format!(
            "Calls that had not returned at the end of the recording: {}.",
            demanded.unfinished
        ));
    }
    if demanded.forgotten_corks > 0 {
        let forgotten = demanded.forgotten_corks;
        missing.push(format!(
            "{forgotten} corked connections exceeded the limit: bytes sent on them may count as not corked."
        ));
    }
    let named = Named { operation: operation.to_owned(), unit_of_work: unit_of_work.to_owned() };
    #[expect(clippy::cast_precision_loss, reason = "a trace contains fewer than 2^52 requests")]
    let demand = demanded.into_operation(named, units as f64);
    Ok(Traced { summary, demand, units, elapsed_ns, recorded, missing })
}
