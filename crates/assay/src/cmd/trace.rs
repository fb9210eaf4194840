//! `assay trace`: records the system calls and other kernel events of a program, or imports or exports them.

mod export;

use std::thread;
use std::time::Duration;

use assay_trace::import::{self, ImportError, Imported};
use assay_trace_probe::{Recorded, Streams};

use crate::cli::{ImportArgs, Instead, TraceArgs};
use crate::interrupt::{Interrupt, Interrupted};
use crate::output;
use crate::phase::tracing::{attach, gaps, run_recorded};

/// strace writes a line some microseconds after the end of its call, so the lines of two threads may be in
/// the other order by as much. More than this is a clock that was set back.
const MOVED_MIN_NS: u64 = 1_000_000;

/// Interval at which an attached recorder checks whether to stop.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs the subcommand.
pub fn run(args: &TraceArgs) -> anyhow::Result<()> {
    match &args.instead {
        Some(Instead::Import(args)) => import(args),
        Some(Instead::Export(args)) => export::run(args),
        None => record(args),
    }
}

fn record(args: &TraceArgs) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let duration = args.duration.map(Duration::from_secs);
    let recorded = match args.pid {
        Some(process) => attached(args, process, duration, &interrupt)?,
        None => {
            let (recorded, _) =
                run_recorded(&args.command, Streams::Inherit, &args.output, duration, &interrupt)?;
            interrupt.check().map_err(|_| Interrupted::Recording(args.output.clone()))?;
            recorded
        }
    };
    for gap in gaps(&recorded) {
        output::say(&gap);
    }
    output::say(&format!(
        "{} records in {}, {} lost; view them with 'assay view {}'",
        recorded.records,
        args.output.display(),
        recorded.lost,
        args.output.display()
    ));
    Ok(())
}

/// Records a running process until it ends, the duration has passed, or the user interrupts it, which is the
/// usual end.
fn attached(
    args: &TraceArgs,
    process: u32,
    duration: Option<Duration>,
    interrupt: &Interrupt,
) -> anyhow::Result<Recorded> {
    let recorder = attach(process, &args.output, Vec::new())?;
    output::say(&format!("tracing process {process}; press Ctrl-C to stop tracing, the process continues"));
    let mut left = duration.unwrap_or(Duration::MAX);
    let alive = || std::path::Path::new("/proc").join(process.to_string()).exists();
    while !left.is_zero() && alive() && recorder.is_recording() && interrupt.check().is_ok() {
        thread::sleep(PAUSE.min(left));
        left = left.saturating_sub(PAUSE);
    }
    Ok(recorder.stop()?)
}

/// Makes a trace from the log of strace.
fn import(args: &ImportArgs) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let imported = import::strace(&args.log, &args.output, std::env::consts::ARCH, interrupt.flag());
    if matches!(imported, Err(ImportError::Interrupted)) {
        return Err(Interrupted::Importing.into());
    }
    let imported = imported?;
    for remark in remarks(&imported) {
        output::say(&format!("{}: {remark}", args.log.display()));
    }
    output::say(&format!(
        "{} calls of {} processes in {}; view them with 'assay view {}'",
        imported.calls,
        imported.processes,
        args.output.display(),
        args.output.display()
    ));
    Ok(())
}

/// Returns what differs in a trace from its log.
fn remarks(imported: &Imported) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(first) = imported.first_skipped {
        let skipped = imported.skipped;
        remarks.push(format!(
            "lines that were not understood and are missing in the trace: {skipped}; the first is line {first}"
        ));
    }
    if imported.unnamed > 0 {
        remarks.push(format!(
            "arguments with constants whose value is not known, which are missing in the trace: {}",
            imported.unnamed
        ));
    }
    if imported.moved_ns >= MOVED_MIN_NS {
        let most_ms = imported.moved_ns / 1_000_000;
        remarks.push(format!(
            "its times go back by up to {most_ms} ms; these calls begin later in the trace than the log says"
        ));
    }
    if !imported.is_numbered {
        remarks.push(
            "has no process numbers, because strace ran without -f; the process is 1 in the trace".into(),
        );
    }
    if imported.roots > 1 {
        remarks.push(format!(
            "threads whose beginning the log does not show, each of which counts as a process: {}",
            imported.roots
        ));
    }
    remarks
}
