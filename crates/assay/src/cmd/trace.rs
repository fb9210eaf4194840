//! `assay trace`: records the system calls and other kernel events of a program.

use std::thread;
use std::time::Duration;

use assay_trace_probe::{Recorded, Streams};

use crate::cli::TraceArgs;
use crate::interrupt::{Interrupt, Interrupted};
use crate::output;
use crate::phase::tracing::{attach, gaps, run_recorded};

/// Interval at which an attached recorder checks whether to stop.
const PAUSE: Duration = Duration::from_millis(20);

/// Runs the subcommand.
pub fn run(args: &TraceArgs) -> anyhow::Result<()> {
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
