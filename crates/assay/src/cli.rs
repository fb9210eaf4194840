//! The command line: one definition of the parser, the help texts and the list of arguments that tests check.

mod diff;
mod filter;
pub mod guard;
mod reflect;
mod sim;
mod trace;
mod view;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use assay_quantity::Pair;
use assay_report::{FORMATS, Format};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand};

use crate::output::EXIT_CODES;
use crate::past;
use crate::phase::turns::States;

pub use diff::DiffArgs;
pub use filter::FilterArgs;
pub use guard::GuardArgs;
pub use reflect::{
    ReflectArgs, ReflectCommand, ReflectPlaceArgs, ReflectSimulateArgs, ReflectWatchArgs, Selected,
};
pub use sim::{
    BesideArgs, GuestArgs, Observe, SimArgs, SimCommand, SimDiffArgs, SimImageArgs, SimImageBuildArgs,
    SimImageCommand, SimMatrixArgs, SimRunArgs, SimShowArgs,
};
pub use trace::{ExportArgs, ExportFormat, ImportArgs, Instead, TraceArgs};
pub use view::ViewArgs;

/// Measures the costs of a machine's primitives, traces an application's demand for them, and predicts the
/// application's time from both.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, arg_required_else_help = true, disable_help_subcommand = true)]
#[command(after_help = EXIT_CODES)]
pub struct Cli {
    /// Subcommand to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands, one file each in `cmd`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure this machine and an application, trace the application, and predict and explain its time.
    Run(RunArgs),
    /// Measure the costs of this machine's primitives.
    Bench(BenchArgs),
    /// Record the system calls and other kernel events of a program (requires root).
    Trace(TraceArgs),
    /// Show a recorded trace.
    View(ViewArgs),
    /// Compare traces of a program before and after a change, call by call.
    Diff(DiffArgs),
    /// Predict the time of an application on one or more machines, from its demand and their costs.
    Predict(PredictArgs),
    /// Compare two machines, or one machine before and after a change, primitive by primitive.
    Compare(CompareArgs),
    /// List the runs in the store, or show one of them.
    History(HistoryArgs),
    /// Run programs in a simulated machine.
    Sim(SimArgs),
    /// Show what a system accomplishes and what that costs it, place processes, and compare control laws for
    /// servers in overload.
    Reflect(ReflectArgs),
    /// Relay a PostgreSQL database, and limit the transactions that are in flight, so that it does not
    /// collapse in overload.
    Guard(GuardArgs),
    /// Measure one sample of one primitive in this process; started by `bench` for each sample.
    #[command(hide = true)]
    Sample(SampleArgs),
}

/// Location of the store.
#[derive(Debug, Clone, Args)]
pub struct StoreArgs {
    /// Database of runs and raw samples [default: assay/assay.db in the XDG data directory].
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
}

/// Output format.
#[derive(Debug, Clone, Args)]
pub struct PrintArgs {
    /// Output format [default: text].
    #[arg(long, value_parser = formats())]
    format: Option<&'static Format>,
    /// Same as --format json.
    #[arg(long, conflicts_with_all = ["format", "csv"])]
    json: bool,
    /// Same as --format csv.
    #[arg(long, conflicts_with = "format")]
    csv: bool,
}

impl PrintArgs {
    /// Whether the selected format is text.
    pub fn is_text(&self) -> bool {
        self.format().name == "text"
    }

    /// Returns the selected format.
    pub fn format(&self) -> &'static Format {
        let name = match (self.json, self.csv) {
            (true, _) => "json",
            (_, true) => "csv",
            _ => "text",
        };
        self.format.or_else(|| Format::named(name)).unwrap_or(&FORMATS[0])
    }
}

/// Options for the measurement of the machine.
#[derive(Debug, Clone, Default, Args)]
pub struct EffortArgs {
    /// Time to spend measuring the machine, such as 60s or 10m [default: 54s, or 9m with --full].
    #[arg(long, value_name = "TIME", value_parser = budget)]
    pub budget: Option<Duration>,
    /// Stop measuring a primitive when the half-width of its interval is below this share of its cost
    /// [default: 1%].
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub precision: Option<f64>,
    /// Seed for the random layouts and measurement order [default: random, stored with the run].
    #[arg(long)]
    pub seed: Option<u64>,
}

/// `assay run`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").args(["workload", "command"]).required(true))]
#[command(override_usage = "assay run [OPTIONS] <WORKLOAD.toml | -- COMMAND...>")]
pub struct RunArgs {
    /// Workload file; or give a command after `--`: one unit of work is then one run of the command.
    #[arg(value_name = "WORKLOAD.toml")]
    pub workload: Option<PathBuf>,
    /// Command to run.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Operation of the workload to run; can be repeated [default: the first, which is the main one].
    #[arg(long, value_name = "NAME", conflicts_with = "command")]
    pub operation: Vec<String>,
    /// Output format.
    #[command(flatten)]
    pub print: PrintArgs,
    /// HTML report to write.
    #[arg(long, value_name = "FILE", default_value = "assay-report.html")]
    pub report: PathBuf,
    /// Use this machine instead of measuring one: a file, or a run in the store (its number, `latest`,
    /// `latest~1`).
    #[arg(long, value_name = "NAME.machine.json")]
    pub machine: Option<PathBuf>,
    /// Also write the machine to this file.
    #[arg(long, value_name = "FILE")]
    pub save_machine: Option<PathBuf>,
    /// Also write the demand to this file.
    #[arg(long, value_name = "FILE")]
    pub save_demand: Option<PathBuf>,
    /// Keep the trace of each operation in this directory.
    #[arg(long, value_name = "DIRECTORY")]
    pub save_traces: Option<PathBuf>,
    /// Port of the server, overriding the workload file; 0 selects a free port.
    #[arg(long)]
    pub port: Option<u16>,
    /// Options for the measurement of the machine.
    #[command(flatten)]
    pub effort: EffortArgs,
    /// Location of the store.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// `assay bench`.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    /// Primitives to measure: ids, or prefixes of ids such as `tcp` or `file.read` [default: all in the
    /// profile].
    #[arg(value_name = "PRIMITIVE")]
    pub primitives: Vec<String>,
    /// List the primitives with their descriptions, keys and sources, without measuring.
    #[arg(long)]
    pub list: bool,
    /// Measure every family at its most important sizes (the default).
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Also measure the sweeps.
    #[arg(long)]
    pub full: bool,
    /// Read options that are not given on the command line from this plan file.
    #[arg(long, value_name = "FILE.toml")]
    pub plan: Option<PathBuf>,
    /// Run each primitive with 1, 2, 4, ... concurrent copies, up to this number.
    #[arg(short = 'P', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub copies: Option<u64>,
    /// Let the scheduler place the copies instead of binding each to a processor.
    #[arg(long)]
    pub free: bool,
    /// Empty every cache before each operation.
    #[arg(long)]
    pub cold: bool,
    /// Also count events with the performance counters of the processor and the kernel, in batches that are
    /// not timed.
    #[arg(long)]
    pub counters: bool,
    /// Also count the instructions, loads and stores of user-mode operations, with valgrind.
    #[arg(long)]
    pub count: bool,
    /// Exit with code 3 if a figure is disturbed, its interval is too wide, or a primitive has no figure.
    #[arg(long)]
    pub strict: bool,
    /// Largest half-width of an interval that `--strict` accepts, as a share of the figure [default: 10%].
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub tolerance: Option<f64>,
    /// Resume an incomplete run, given by its number, with its original options [default: the latest run].
    #[arg(long, value_name = "RUN", num_args = 0..=1, default_missing_value = "latest", conflicts_with_all = NOT_RESUMED)]
    pub resume: Option<String>,
    /// Serve the benchmarks of other hosts at this address, without measuring.
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = SERVED, conflicts_with_all = ["primitives", "plan", "list", "resume"])]
    pub serve: Option<SocketAddr>,
    /// Address at which another host runs `assay bench --serve`, to measure the path between the two hosts.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub peer: Option<SocketAddr>,
    /// Write the machine to this file, for `assay predict`.
    #[arg(short, long, value_name = "NAME.machine.json")]
    pub output: Option<PathBuf>,
    /// Name of the machine [default: the host name].
    #[arg(long)]
    pub name: Option<String>,
    /// Output format.
    #[command(flatten)]
    pub print: PrintArgs,
    /// Options for the measurement of the machine.
    #[command(flatten)]
    pub effort: EffortArgs,
    /// Location of the store.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Arguments that select what is measured and how; a resumed run keeps its own.
const NOT_RESUMED: [&str; 10] =
    ["primitives", "plan", "list", "quick", "full", "copies", "free", "cold", "counters", "seed"];

/// Default address of `--serve`: every address of the host.
const SERVED: &str = "0.0.0.0:7325";

/// `assay predict`.
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// Demand of the application.
    #[arg(value_name = "NAME.demand.json")]
    pub demand: PathBuf,
    /// Machines: files, or runs in the store (a number, `latest`, `latest~1`).
    #[arg(value_name = "NAME.machine.json", required = true)]
    pub machines: Vec<PathBuf>,
    /// Measured throughput to compare with: a CSV file with the columns machine, workload and per_second.
    #[arg(long, value_name = "FILE.csv")]
    pub measured: Option<PathBuf>,
    /// Output format.
    #[command(flatten)]
    pub print: PrintArgs,
    /// Location of the store.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// `assay compare`.
#[derive(Debug, Args)]
#[command(override_usage = "assay compare [OPTIONS] <A> <B> [PRIMITIVE]...
       assay compare [OPTIONS] --between <COMMAND> <COMMAND> [--] [PRIMITIVE]...
       assay compare [OPTIONS] --between-wrapper <WRAPPER> <WRAPPER> [--] [PRIMITIVE]...")]
#[command(after_help = format!("Historical machines: {}.\n\n{EXIT_CODES}", past::names()))]
pub struct CompareArgs {
    /// Baseline machine: a file, a run in the store (its number, `latest`, or `latest~1` for the run before
    /// the latest), or a historical machine.
    #[arg(value_name = "A", required_unless_present = "states")]
    before: Option<PathBuf>,
    /// Machine to compare with the baseline, given in the same way.
    #[arg(value_name = "B", required_unless_present = "states")]
    after: Option<PathBuf>,
    /// Compare only these primitives: ids, or prefixes of ids.
    #[arg(value_name = "PRIMITIVE")]
    primitives: Vec<String>,
    /// Compare two states of this machine, measured alternately: the first command enters state A, which is
    /// restored at the end, and the second enters state B. Detects smaller changes than a comparison of two
    /// runs.
    #[arg(long, num_args = 2, value_name = "COMMAND", group = "states")]
    between: Option<Vec<String>>,
    /// Compare two states of the measuring processes, measured alternately: each process is started through
    /// the first wrapper in state A and through the second in state B, such as 'env LD_PRELOAD=FILE'; '' is
    /// no wrapper.
    #[arg(long, num_args = 2, value_name = "WRAPPER", group = "states")]
    between_wrapper: Option<Vec<String>>,
    /// Time to spend measuring two states [default: 20s for each primitive, at most 9m].
    #[arg(long, value_name = "TIME", value_parser = budget, requires = "states")]
    pub budget: Option<Duration>,
    /// Seed for the random layouts and measurement order of two states [default: random, stored with the
    /// runs].
    #[arg(long, requires = "states")]
    pub seed: Option<u64>,
    /// Exit with code 4 if the typical cost of a primitive is higher on B by more than this share, and not by
    /// chance; with code 3 if a primitive that cannot be judged may be slower by more than this share, if a
    /// primitive has no cost on B, or if no primitive can be judged.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub fail_over: Option<f64>,
    /// Output format.
    #[command(flatten)]
    pub print: PrintArgs,
    /// Location of the store.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// The two sides of a comparison.
#[derive(Debug)]
pub enum Compared<'a> {
    /// Two machines that are already measured.
    Machines(Pair<&'a Path>),
    /// Two states of this machine.
    States(States),
}

impl CompareArgs {
    /// Returns what is compared and the selected primitives; an empty list selects all.
    pub fn asked(&self) -> (Compared<'_>, Vec<String>) {
        let primitives = self.primitives.iter().cloned();
        let states = match (&self.between, &self.between_wrapper) {
            (Some(commands), _) => Some(States::Commands(pair(commands))),
            (_, Some(wrappers)) => Some(States::Wrappers(pair(wrappers))),
            _ => None,
        };
        // When two states are compared, every positional argument is a primitive.
        let [before, after] = [&self.before, &self.after].map(|word| word.as_deref());
        let words = [before, after].into_iter().flatten().map(|word| word.to_string_lossy().into_owned());
        match states {
            Some(states) => (Compared::States(states), words.chain(primitives).collect()),
            None => {
                let [a, b] = [before, after].map(|name| name.unwrap_or(Path::new("")));
                (Compared::Machines(Pair { a, b }), primitives.collect())
            }
        }
    }
}

fn pair(words: &[String]) -> Pair<String> {
    let word = |position| words.get(position).cloned().unwrap_or_default();
    Pair { a: word(0), b: word(1) }
}

/// `assay history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Run to show: its number, `latest`, or `latest~1` for the run before the latest [default: list all
    /// runs].
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
    /// Write the run's machine to this file, re-estimated from its raw samples.
    #[arg(short, long, value_name = "NAME.machine.json", requires = "run")]
    pub output: Option<PathBuf>,
    /// Output format.
    #[command(flatten)]
    pub print: PrintArgs,
    /// Location of the store.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// `assay sample`.
#[derive(Debug, Args)]
pub struct SampleArgs {
    /// Arguments, passed unchanged to the harness.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

/// Returns a parser for the names of the report formats.
fn formats() -> impl TypedValueParser<Value = &'static Format> {
    let names = FORMATS.iter().map(|format| PossibleValue::new(format.name).help(format.about));
    PossibleValuesParser::new(names).map(|name| Format::named(&name).unwrap_or(&FORMATS[0]))
}

/// Parses a share: `1%` or `0.01`.
pub fn share(text: &str) -> Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    match number {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err("give a share such as 2% or 0.02".to_owned()),
    }
}

/// Parses a time: `60s`, `10m`, `1h`, or a number of seconds.
pub fn budget(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = [("", 1), ("s", 1), ("m", 60), ("h", 3600)].into_iter().find(|(name, _)| *name == unit);
    let seconds = number.parse::<u64>().ok().zip(factor).and_then(|(n, (_, factor))| n.checked_mul(factor));
    match seconds {
        Some(seconds) if (1..=86_400).contains(&seconds) => Ok(Duration::from_secs(seconds)),
        _ => Err("give a time between 1s and 24h, such as 60s or 10m".to_owned()),
    }
}

/// Units of a short time, with their length in ns.
const TIME_UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// Parses a short time into ns.
fn time_ns(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = TIME_UNITS.iter().find(|(name, _)| *name == unit);
    let time_ns = number.parse::<u64>().ok().zip(factor).and_then(|(n, (_, factor))| n.checked_mul(*factor));
    time_ns.ok_or_else(|| "give a time in ns, us, ms or s, such as 20us".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_resumed_run_rejects_arguments_that_select_what_is_measured() {
        let parsed = |words: &str| Cli::try_parse_from(format!("assay bench --resume 1 {words}").split(' '));
        for other in
            ["--quick", "--full", "-P 2", "--cold", "--counters", "--seed 1", "--plan p.toml", "call.null"]
        {
            assert!(parsed(other).is_err(), "{other}");
        }
        for fine in ["--count", "--name x", "--peer 10.0.0.1:1", "--budget 9s", "--precision 2%", "--strict"]
        {
            assert!(parsed(fine).is_ok(), "{fine}");
        }
    }

    #[test]
    fn a_missing_argument_is_reported_with_both_alternatives() {
        for (words, alternatives) in
            [("assay run", "<WORKLOAD.toml|COMMAND>"), ("assay trace", "<--pid <PID>|COMMAND>")]
        {
            let refused = Cli::try_parse_from(words.split(' ')).unwrap_err().to_string();
            assert!(refused.contains(alternatives), "{refused}");
        }
        for both in ["assay run x.toml -- true", "assay trace -p 1 -- true"] {
            assert!(Cli::try_parse_from(both.split(' ')).is_err(), "{both}");
        }
    }

    #[test]
    fn help_lists_the_exit_codes_and_the_machines_of_the_past() {
        let help = |words: &[&str]| Cli::try_parse_from(words).unwrap_err().to_string();
        assert!(help(&["assay", "--help"]).contains(EXIT_CODES));
        let compare = help(&["assay", "compare", "--help"]);
        assert!(compare.contains("1996/linux-i686") && compare.contains("1997/pro-200"), "{compare}");
        assert!(compare.contains("130"), "{compare}");
    }

    #[test]
    fn the_default_address_to_serve_has_the_port_that_clients_use() {
        let address: SocketAddr = SERVED.parse().unwrap();
        assert_eq!(address.port(), assay_bench::serve::PORT);
    }

    #[test]
    fn every_subcommand_and_every_argument_has_a_help_text() {
        fn check(subcommands: &clap::Command) {
            for subcommand in subcommands.get_subcommands() {
                assert!(subcommand.get_about().is_some(), "{}", subcommand.get_name());
                for argument in subcommand.get_arguments() {
                    assert!(argument.get_help().is_some(), "{} {}", subcommand.get_name(), argument.get_id());
                }
                check(subcommand);
            }
        }
        check(&Cli::command());
    }

    #[test]
    fn the_readme_shows_every_subcommand_that_help_shows() {
        let readme = include_str!("../../../README.md");
        for subcommand in Cli::command().get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
            let shown = format!("assay {}", subcommand.get_name());
            assert!(readme.contains(&shown), "README.md does not show '{shown}'");
        }
    }
}
