//! `assay trace`: records what a program asks of the operating system.

use std::ffi::OsString;
use std::thread;
use std::time::Duration;

use assay_trace::Writer;
use assay_trace_probe::{Options, Recorded, Recorder, opening};

use crate::cli::TraceArgs;
use crate::interrupt::Interrupt;
use crate::output;
use crate::phase::tracing::run_recorded;

/// How often an attached recorder looks whether it is to stop.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs the subcommand.
pub fn run(args: &TraceArgs) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let duration = args.duration.map(Duration::from_secs);
    let recorded = match args.pid {
        Some(process) => attached(args, process, duration, &interrupt)?,
        None => {
            let arguments: Vec<OsString> = args.command.iter().map(OsString::from).collect();
            run_recorded(&arguments, &args.output, duration, &interrupt)?
        }
    };
    output::say(&format!(
        "{} records in {}, {} lost; look at them with 'assay view {}'",
        recorded.records,
        args.output.display(),
        recorded.lost,
        args.output.display()
    ));
    Ok(())
}

/// Records a running process until it ends, the time is over or the user has seen enough: an interrupt is
/// the usual end here.
fn attached(
    args: &TraceArgs,
    process: u32,
    duration: Option<Duration>,
    interrupt: &Interrupt,
) -> anyhow::Result<Recorded> {
    let writer = Writer::create(&args.output, opening(Vec::new())?)?;
    let recorder = Recorder::attach(process, Options::default(), writer)?;
    let mut left = duration.unwrap_or(Duration::MAX);
    let alive = || std::path::Path::new("/proc").join(process.to_string()).exists();
    while !left.is_zero() && alive() && interrupt.check().is_ok() {
        thread::sleep(PAUSE.min(left));
        left = left.saturating_sub(PAUSE);
    }
    Ok(recorder.stop()?)
}
