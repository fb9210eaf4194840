//! The command line of `assay trace`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use super::FilterArgs;

/// `assay trace`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").args(["pid", "command"]).required(true))]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(override_usage = "assay trace [OPTIONS] <--pid PID | -- COMMAND...>
       assay trace import [OPTIONS] <LOG>
       assay trace export [OPTIONS] --format <FORMAT> <NAME.trace>")]
pub struct TraceArgs {
    /// Trace to write, a directory that must not exist yet.
    #[arg(short, long, value_name = "NAME.trace", default_value = "assay.trace")]
    pub output: PathBuf,
    /// Trace this running process and all its descendants, existing and new.
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Stop after this many seconds [default: at the end of the command or process, or at Ctrl-C].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub duration: Option<u64>,
    /// Command to run and trace.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// What else to do.
    #[command(subcommand)]
    pub instead: Option<Instead>,
}

/// What `assay trace` does instead of recording.
#[derive(Debug, Subcommand)]
pub enum Instead {
    /// Make a trace from a log of strace, for users who may not run the recorder.
    Import(ImportArgs),
    /// Print a trace in the format of another tool.
    Export(ExportArgs),
}

/// `assay trace import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Log that 'strace -f -ttt -T -y -o LOG' wrote.
    #[arg(value_name = "LOG")]
    pub log: PathBuf,
    /// Trace to write, a directory that must not exist yet.
    #[arg(short, long, value_name = "NAME.trace", default_value = "assay.trace")]
    pub output: PathBuf,
}

/// `assay trace export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Trace to read.
    #[arg(value_name = "NAME.trace")]
    pub trace: PathBuf,
    /// Format to print.
    #[arg(long)]
    pub format: ExportFormat,
    /// Filters for events.
    #[command(flatten)]
    pub filter: FilterArgs,
}

/// Formats of other tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// All events on a time axis, as JSON for Perfetto
    Chrome,
    /// Time in calls and off the CPU, by programs, call and state, for flame graphs: folded stacks, in ns
    Folded,
}
