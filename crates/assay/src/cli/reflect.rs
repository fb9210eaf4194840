//! The command line of `assay reflect`.

use std::ffi::OsStr;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use assay_database as database;
use assay_reflect::KernelEvent;
use assay_reflect::facility::{self, Measure, Side};
use assay_reflect::law::{LAWS, Law};
use assay_reflect::plant::{PLANTS, Plant};
use assay_reflect::simulation::{SCENARIOS, Scenario};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, Command, Subcommand, value_parser};

use super::PrintArgs;

/// `assay reflect`.
#[derive(Debug, Args)]
pub struct ReflectArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ReflectCommand,
}

/// The subcommands of `assay reflect`.
#[derive(Debug, Subcommand)]
pub enum ReflectCommand {
    /// Show what a process, a control group or the machine accomplishes, what that costs it, and whether it
    /// is in overload.
    Watch(ReflectWatchArgs),
    /// Measure what processes do to each other, and move them to processors, or lengthen the time slices of
    /// batch jobs, so that they do more; undo it at the end.
    Place(ReflectPlaceArgs),
    /// Run control laws on simulated servers that collapse in overload, and compare them with the best fixed
    /// limit.
    Simulate(ReflectSimulateArgs),
}

/// `assay reflect watch`.
#[derive(Debug, Args)]
pub struct ReflectWatchArgs {
    /// Watch this process with all its threads, without its children [default: the machine].
    #[arg(short, long, value_name = "PID", conflicts_with = "cgroup", value_parser = value_parser!(i32).range(1..))]
    pub pid: Option<i32>,
    /// Watch this control group of the unified hierarchy, with the groups below it.
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,
    /// Take the units of work from this progress counter of the application; several are added up.
    #[arg(long, value_name = "FILE")]
    pub progress: Vec<PathBuf>,
    /// Count commits and lock waits of this PostgreSQL database, such as postgres://user@host:5432/database
    /// or "host=/run/postgresql user=postgres"; PGPASSWORD is used if it has no password.
    #[arg(long, value_name = "ADDRESS")]
    pub postgres: Option<String>,
    /// Measure of productivity, of which the region and the plots are made, or a kernel event as for --event
    /// [default: progress if a counter is given, otherwise commits if a database is given, otherwise
    /// instructions if the processor counts them, otherwise user time].
    #[arg(long, value_name = "MEASURE", value_parser = Measures(Side::Productivity))]
    pub productivity: Option<Selected>,
    /// Measure of overhead, likewise.
    #[arg(long, value_name = "MEASURE", default_value = "processor time", value_parser = Measures(Side::Overhead))]
    pub overhead: Selected,
    /// Count this event of the kernel, too: a tracepoint, such as syscalls:sys_enter_fsync, or the calls of a
    /// function, such as kprobe:vfs_fsync_range; can be repeated.
    #[arg(long, value_name = "EVENT")]
    pub event: Vec<KernelEvent>,
    /// Time between two readings, such as 100ms.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = period)]
    pub period: Duration,
    /// Stop after this time, such as 60s or 10m [default: when interrupted, or when the process ends].
    #[arg(long, value_name = "TIME", value_parser = super::budget)]
    pub duration: Option<Duration>,
    /// Answer Prometheus at this address, such as 127.0.0.1:9100.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Print each period as a line of JSON, and no report.
    #[arg(long, conflicts_with_all = ["format", "json", "csv"])]
    pub lines: bool,
    /// Output format of the report at the end.
    #[command(flatten)]
    pub print: PrintArgs,
}

/// `assay reflect place`.
#[derive(Debug, Args)]
#[group(id = "processes", required = true, args = ["pid", "cgroup"])]
pub struct ReflectPlaceArgs {
    /// Place these processes, each with all its threads.
    #[arg(short, long, value_name = "PID", value_delimiter = ',', conflicts_with = "cgroup", value_parser = value_parser!(i32).range(1..))]
    pub pid: Vec<i32>,
    /// Place the processes of this control group of the unified hierarchy, and of the groups below it.
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,
    /// Show what would be placed, and where; pause and move nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Time for each of the measurements, such as 200ms, in which each process should finish many units.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = period)]
    pub period: Duration,
    /// Undo it after this time, such as 10m or 8h [default: when interrupted, or when a process ends].
    #[arg(long, value_name = "TIME", value_parser = super::budget)]
    pub duration: Option<Duration>,
    /// Output format.
    #[command(flatten)]
    pub print: PrintArgs,
}

/// `assay reflect simulate`.
#[derive(Debug, Args)]
pub struct ReflectSimulateArgs {
    /// Control law; can be repeated [default: all].
    #[arg(long, value_name = "LAW", value_parser = laws())]
    pub law: Vec<&'static Law>,
    /// Simulated server; can be repeated [default: all].
    #[arg(long, value_name = "PLANT", value_parser = plants())]
    pub plant: Vec<&'static Plant>,
    /// How the run begins, and what disturbs it; can be repeated [default: all].
    #[arg(long, value_name = "SCENARIO", value_parser = scenarios())]
    pub scenario: Vec<&'static Scenario>,
    /// Seed of the noise.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Draw each run, or with noise the first of several, over time.
    #[arg(long)]
    pub plot: bool,
    /// Output format.
    #[command(flatten)]
    pub print: PrintArgs,
}

/// A measure for the region and the plots.
#[derive(Debug, Clone)]
pub enum Selected {
    /// One that has a name of its own.
    Measure(&'static Measure),
    /// An event of the kernel.
    Event(KernelEvent),
}

impl fmt::Display for Selected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measure(measure) => f.write_str(&measure.name),
            Self::Event(event) => event.fmt(f),
        }
    }
}

/// Parses a measure of this side, or an event of the kernel.
#[derive(Debug, Clone)]
struct Measures(Side);

impl Measures {
    fn of_side(&self) -> impl Iterator<Item = &'static Measure> {
        let side = self.0;
        facility::measures().chain(&database::MEASURES).filter(move |measure| measure.side == side)
    }

    fn parse(&self, text: &str) -> Result<Selected, String> {
        if let Some(measure) = self.of_side().find(|measure| measure.name == text) {
            return Ok(Selected::Measure(measure));
        }
        text.parse().map(Selected::Event).map_err(|error| {
            let names: Vec<&str> = self.of_side().map(|measure| &*measure.name).collect();
            format!("give {}; of the kernel's events, {error}", names.join(", "))
        })
    }
}

impl TypedValueParser for Measures {
    type Value = Selected;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Selected, clap::Error> {
        let measures = self.clone();
        (move |text: &str| measures.parse(text)).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.of_side().map(|measure| PossibleValue::new(&*measure.name).help(measure.about))))
    }
}

/// Parses the time between two readings.
fn period(text: &str) -> Result<Duration, String> {
    let period = Duration::from_nanos(super::time_ns(text)?);
    if (Duration::from_millis(10)..=Duration::from_secs(60)).contains(&period) {
        Ok(period)
    } else {
        Err("give a time between 10ms and 60s".to_owned())
    }
}

pub(super) fn laws() -> impl TypedValueParser<Value = &'static Law> {
    named(&LAWS, |law| (law.name, law.about))
}

fn plants() -> impl TypedValueParser<Value = &'static Plant> {
    named(&PLANTS, |plant| (plant.name, plant.about))
}

fn scenarios() -> impl TypedValueParser<Value = &'static Scenario> {
    named(&SCENARIOS, |scenario| (scenario.name, scenario.about))
}

/// Returns a parser for the names of the rows of a table, with what `--help` says of each.
fn named<T: Send + Sync>(
    rows: &'static [T],
    names: fn(&T) -> (&'static str, &'static str),
) -> impl TypedValueParser<Value = &'static T> {
    let values = rows.iter().map(move |row| {
        let (name, about) = names(row);
        PossibleValue::new(name).help(about)
    });
    PossibleValuesParser::new(values)
        .map(move |name| rows.iter().find(|row| names(row).0 == name).unwrap_or(&rows[0]))
}
