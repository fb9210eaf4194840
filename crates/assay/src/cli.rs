//! The command line: one definition gives parser, help and the table that tests walk.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use assay_quantity::Pair;
use assay_report::{FORMATS, Format};
use assay_trace::descriptor::Descriptor;
use assay_trace::syscall;
use assay_trace::view::Filter;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand};

use crate::cmd::view::{VIEWS, View};
use crate::output::EXIT_CODES;
use crate::past;
use crate::phase::turns::States;

/// Measures what a machine offers, traces what an application asks of it, and predicts one from the other.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, arg_required_else_help = true, disable_help_subcommand = true)]
#[command(after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands, one file each in `cmd`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure this machine, run and trace an application, predict and explain it.
    Run(RunArgs),
    /// Measure what the primitives of this machine cost.
    Bench(BenchArgs),
    /// Record what a program asks of the operating system (root).
    Trace(TraceArgs),
    /// Look at a recorded trace.
    View(ViewArgs),
    /// Multiply a demand with machines: how long it would take there.
    Predict(PredictArgs),
    /// Compare two machines, or one before and after a change, primitive by primitive.
    Compare(CompareArgs),
    /// List the runs that were measured here, or show one.
    History(HistoryArgs),
    /// Measure one sample of one primitive in this process; what `bench` starts again and again.
    #[command(hide = true)]
    Sample(SampleArgs),
}

/// Where measurements are kept.
#[derive(Debug, Clone, Args)]
pub struct StoreArgs {
    /// Database of runs and raw samples [default: assay/assay.db in the XDG data directory].
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
}

/// How a result is printed.
#[derive(Debug, Clone, Args)]
pub struct PrintArgs {
    /// How the result is printed [default: text].
    #[arg(long, value_parser = formats())]
    format: Option<&'static Format>,
    /// The same as --format json.
    #[arg(long, conflicts_with_all = ["format", "csv"])]
    json: bool,
    /// The same as --format csv.
    #[arg(long, conflicts_with = "format")]
    csv: bool,
}

impl PrintArgs {
    /// The format asked for.
    pub fn format(&self) -> &'static Format {
        let name = match (self.json, self.csv) {
            (true, _) => "json",
            (_, true) => "csv",
            _ => "text",
        };
        self.format.or_else(|| Format::named(name)).unwrap_or(&FORMATS[0])
    }
}

/// How well the machine is measured.
#[derive(Debug, Clone, Default, Args)]
pub struct EffortArgs {
    /// Time to spend on measuring the machine, such as 60s or 10m [default: 54s; with --full 9m].
    #[arg(long, value_name = "TIME", value_parser = budget)]
    pub budget: Option<Duration>,
    /// Stop measuring a primitive when half of its interval is this share of its cost [default: 1%].
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub precision: Option<f64>,
    /// Seed of layouts and of the order of measuring [default: drawn anew, and kept with the run].
    #[arg(long)]
    pub seed: Option<u64>,
}

/// `assay run`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").args(["workload", "command"]).required(true))]
#[command(override_usage = "assay run [OPTIONS] <WORKLOAD.toml | -- COMMAND...>")]
pub struct RunArgs {
    /// A workload file, or after `--` a command; one unit of work is then one run of it.
    #[arg(value_name = "WORKLOAD.toml")]
    pub workload: Option<PathBuf>,
    /// The command to run.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Operation of the workload to run, any number of times [default: its first, the main one].
    #[arg(long, value_name = "NAME", conflicts_with = "command")]
    pub operation: Vec<String>,
    /// How it is printed.
    #[command(flatten)]
    pub print: PrintArgs,
    /// Where the report is written.
    #[arg(long, value_name = "FILE", default_value = "assay-report.html")]
    pub report: PathBuf,
    /// Use this machine instead of measuring one now: a file, or a run of the store (its number, `latest`, `latest~1`).
    #[arg(long, value_name = "NAME.machine.json")]
    pub machine: Option<PathBuf>,
    /// Write the measured machine here as well.
    #[arg(long, value_name = "FILE")]
    pub save_machine: Option<PathBuf>,
    /// Write the demand here as well.
    #[arg(long, value_name = "FILE")]
    pub save_demand: Option<PathBuf>,
    /// Keep the trace of each operation in this directory.
    #[arg(long, value_name = "DIRECTORY")]
    pub save_traces: Option<PathBuf>,
    /// Port of the server, instead of the workload file's; 0 takes any that is free.
    #[arg(long)]
    pub port: Option<u16>,
    /// How the machine is measured.
    #[command(flatten)]
    pub effort: EffortArgs,
    /// Where measurements are kept.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// `assay bench`.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    /// Primitives to measure: an id, or the beginning of one such as `tcp` or `file.read`; all by default.
    #[arg(value_name = "PRIMITIVE")]
    pub primitives: Vec<String>,
    /// Print every primitive with what it measures, its keys and its source, and measure nothing.
    #[arg(long)]
    pub list: bool,
    /// Measure every family at the sizes that matter most; the default.
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Measure the sweeps as well.
    #[arg(long)]
    pub full: bool,
    /// Take what is not said here from this file.
    #[arg(long, value_name = "FILE.toml")]
    pub plan: Option<PathBuf>,
    /// Run up to so many copies at the same time, for the curve over 1, 2, 4, ... copies.
    #[arg(short = 'P', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub copies: Option<u64>,
    /// Let the scheduler place the copies instead of binding each to a processor.
    #[arg(long)]
    pub free: bool,
    /// Empty every cache before each operation.
    #[arg(long)]
    pub cold: bool,
    /// Read the processor's performance counters around every batch.
    #[arg(long)]
    pub counters: bool,
    /// Count the instructions, loads and stores of user-mode operations as well, with valgrind.
    #[arg(long)]
    pub count: bool,
    /// End with exit code 3 if a figure is disturbed, its interval is too wide, or a primitive has no figure.
    #[arg(long)]
    pub strict: bool,
    /// Widest interval that `--strict` accepts, half of it as a share of its figure [default: 10%].
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub tolerance: Option<f64>,
    /// Go on with a run that was cut off, with what it was asked for: its number [default: the latest].
    #[arg(long, value_name = "RUN", num_args = 0..=1, default_missing_value = "latest", conflicts_with_all = NOT_RESUMED)]
    pub resume: Option<String>,
    /// Answer the benchmarks of another host at this address, and measure nothing.
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = SERVED, conflicts_with_all = ["primitives", "plan", "list", "resume"])]
    pub serve: Option<SocketAddr>,
    /// Where another host runs `assay bench --serve`: measures what is between it and this one.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub peer: Option<SocketAddr>,
    /// Write the machine here, for `assay predict`.
    #[arg(short, long, value_name = "NAME.machine.json")]
    pub output: Option<PathBuf>,
    /// Name of the machine in that file [default: the host's name].
    #[arg(long)]
    pub name: Option<String>,
    /// How it is printed.
    #[command(flatten)]
    pub print: PrintArgs,
    /// How well the machine is measured.
    #[command(flatten)]
    pub effort: EffortArgs,
    /// Where measurements are kept.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// What says what is measured and how: a run that goes on keeps its own.
const NOT_RESUMED: [&str; 10] =
    ["primitives", "plan", "list", "quick", "full", "copies", "free", "cold", "counters", "seed"];

/// Where `--serve` listens unless told otherwise: every address of the host.
const SERVED: &str = "0.0.0.0:7325";

/// `assay trace`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").args(["pid", "command"]).required(true))]
#[command(override_usage = "assay trace [OPTIONS] <--pid PID | -- COMMAND...>")]
pub struct TraceArgs {
    /// The trace to write, a directory that does not exist yet.
    #[arg(short, long, value_name = "NAME.trace", default_value = "assay.trace")]
    pub output: PathBuf,
    /// Trace this running process with everything that it started and starts.
    #[arg(short, long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Stop after so many seconds [default: at the end of the command, or at Ctrl-C].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub duration: Option<u64>,
    /// The command to run and trace.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `assay view`.
#[derive(Debug, Args)]
pub struct ViewArgs {
    /// The trace.
    #[arg(value_name = "NAME.trace")]
    pub trace: PathBuf,
    /// How to look at it.
    #[arg(default_value = "summary", value_parser = views())]
    pub view: &'static View,
    /// Units of work in the trace: the demand is divided by it.
    #[arg(long, default_value_t = 1.0, value_parser = units)]
    pub units: f64,
    /// How it is printed.
    #[command(flatten)]
    pub print: PrintArgs,
    /// Write the demand here, for `assay predict` (with the view demand).
    #[arg(short, long, value_name = "NAME.demand.json")]
    pub output: Option<PathBuf>,
    /// Which events are shown.
    #[command(flatten)]
    pub filter: FilterArgs,
}

/// Which events of a trace are shown; with the view sequence. A gap is always shown.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Filters (with the view sequence; an event must pass all)")]
pub struct FilterArgs {
    /// Only calls of this name, such as read.
    #[arg(long, value_name = "NAME", value_parser = call)]
    call: Option<u16>,
    /// Only calls on this kind of descriptor, such as file or tcp4.
    #[arg(long, value_name = "KIND")]
    descriptor: Option<Descriptor>,
    /// Only what this process did.
    #[arg(long, value_name = "PID")]
    process: Option<u32>,
    /// Only what this thread did.
    #[arg(long, value_name = "TID")]
    thread: Option<u32>,
    /// Only calls that took at least this long, such as 20us or 1ms.
    #[arg(long, value_name = "TIME", value_parser = elapsed_ns)]
    slower: Option<u64>,
}

impl FilterArgs {
    /// The filter asked for; the one that everything passes if none was.
    pub fn filter(&self) -> Filter {
        let Self { call, descriptor, process, thread, slower: elapsed_ns_min } = *self;
        Filter { call, descriptor, process, thread, elapsed_ns_min }
    }
}

/// `assay predict`.
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// The application's demand.
    #[arg(value_name = "NAME.demand.json")]
    pub demand: PathBuf,
    /// The machines: files, or runs of the store (number, `latest`, `latest~1`).
    #[arg(value_name = "NAME.machine.json", required = true)]
    pub machines: Vec<PathBuf>,
    /// Throughput that was really measured: CSV with the columns machine, workload, per_second.
    #[arg(long, value_name = "FILE.csv")]
    pub measured: Option<PathBuf>,
    /// How it is printed.
    #[command(flatten)]
    pub print: PrintArgs,
    /// Where measurements are kept.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// `assay compare`.
#[derive(Debug, Args)]
#[command(override_usage = "assay compare [OPTIONS] <A> <B> [PRIMITIVE]...
       assay compare [OPTIONS] --between <COMMAND> <COMMAND> [--] [PRIMITIVE]...
       assay compare [OPTIONS] --between-wrapper <WRAPPER> <WRAPPER> [--] [PRIMITIVE]...")]
#[command(after_help = format!("Machines of the past: {}.\n\n{EXIT_CODES}", past::names()))]
pub struct CompareArgs {
    /// The machine that is the measure: a file, a run of the store (its number, `latest`, or `latest~1` for the one
    /// before that), or a machine of the past.
    #[arg(value_name = "A", required_unless_present = "states")]
    before: Option<PathBuf>,
    /// The machine that is compared with it.
    #[arg(value_name = "B", required_unless_present = "states")]
    after: Option<PathBuf>,
    /// Compare only these primitives: ids, or beginnings of them.
    #[arg(value_name = "PRIMITIVE")]
    primitives: Vec<String>,
    /// Compare two states of this machine, measured in turns: the first command puts it into state A, in which it is
    /// left at the end, the second into state B. This shows smaller changes than two runs do.
    #[arg(long, num_args = 2, value_name = "COMMAND", group = "states")]
    between: Option<Vec<String>>,
    /// The same, with each process that measures started through the first wrapper in state A and through the second in
    /// state B, such as 'env LD_PRELOAD=FILE'; '' starts it as usual.
    #[arg(long, num_args = 2, value_name = "WRAPPER", group = "states")]
    between_wrapper: Option<Vec<String>>,
    /// Time to spend on measuring two states [default: 20s for each primitive, 9m at most].
    #[arg(long, value_name = "TIME", value_parser = budget, requires = "states")]
    pub budget: Option<Duration>,
    /// Seed of layouts and of the order of measuring two states [default: drawn anew, and kept with the runs].
    #[arg(long, requires = "states")]
    pub seed: Option<u64>,
    /// End with exit code 4 if the typical cost of a primitive is higher on B by more than this share, and not by
    /// chance; with 3 if one that cannot be judged may be, has no cost on B, or if none can be judged.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub fail_over: Option<f64>,
    /// How it is printed.
    #[command(flatten)]
    pub print: PrintArgs,
    /// Where measurements are kept.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// What `assay compare` is to compare.
#[derive(Debug)]
pub enum Compared<'a> {
    /// Two machines that were measured before.
    Machines(Pair<&'a Path>),
    /// Two states of this machine.
    States(States),
}

impl CompareArgs {
    /// What is compared, and for which primitives: all for none.
    pub fn asked(&self) -> (Compared<'_>, Vec<String>) {
        let primitives = self.primitives.iter().cloned();
        let states = match (&self.between, &self.between_wrapper) {
            (Some(commands), _) => Some(States::Commands(pair(commands))),
            (_, Some(wrappers)) => Some(States::Wrappers(pair(wrappers))),
            _ => None,
        };
        // Without machines to compare, every word is a primitive.
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
    /// The run to show: its number, `latest`, or `latest~1` for the one before that; all runs are listed without it.
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
    /// Write the run's machine here, estimated anew from its raw samples.
    #[arg(short, long, value_name = "NAME.machine.json", requires = "run")]
    pub output: Option<PathBuf>,
    /// How it is printed.
    #[command(flatten)]
    pub print: PrintArgs,
    /// Where measurements are kept.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// `assay sample`.
#[derive(Debug, Args)]
pub struct SampleArgs {
    /// Passed on to the harness as they are.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

/// The formats of the report crate, by name.
fn formats() -> impl TypedValueParser<Value = &'static Format> {
    let names = FORMATS.iter().map(|format| PossibleValue::new(format.name).help(format.about));
    PossibleValuesParser::new(names).map(|name| Format::named(&name).unwrap_or(&FORMATS[0]))
}

/// The views, by name.
fn views() -> impl TypedValueParser<Value = &'static View> {
    let names = VIEWS.iter().map(|view| PossibleValue::new(view.name).help(view.about));
    PossibleValuesParser::new(names)
        .map(|name| VIEWS.iter().find(|view| view.name == name).unwrap_or(&VIEWS[0]))
}

/// A share: `1%` or `0.01`.
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

/// A time: `60s`, `10m`, `1h`, or a number of seconds.
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

/// The number of a call of this machine's.
fn call(name: &str) -> Result<u16, String> {
    syscall::number(name)
        .ok_or_else(|| "no call of this architecture has this name; give one such as read".to_owned())
}

/// A short time, in ns.
fn elapsed_ns(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let factor = units.into_iter().find(|(name, _)| *name == unit);
    let elapsed_ns =
        number.parse::<u64>().ok().zip(factor).and_then(|(n, (_, factor))| n.checked_mul(factor));
    elapsed_ns.ok_or_else(|| "give a time in ns, us, ms or s, such as 20us".to_owned())
}

fn units(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(units) if units.is_finite() && units > 0.0 => Ok(units),
        _ => Err("give a number above 0".to_owned()),
    }
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
    fn a_run_that_goes_on_is_not_told_anew_what_it_measures() {
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
    fn what_can_be_given_in_two_ways_is_asked_for_as_such() {
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
    fn the_usual_address_to_serve_at_has_the_port_that_askers_expect() {
        let address: SocketAddr = SERVED.parse().unwrap();
        assert_eq!(address.port(), assay_bench::serve::PORT);
    }

    #[test]
    fn every_subcommand_and_every_argument_says_what_it_does() {
        for subcommand in Cli::command().get_subcommands() {
            assert!(subcommand.get_about().is_some(), "{}", subcommand.get_name());
            for argument in subcommand.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {}", subcommand.get_name(), argument.get_id());
            }
        }
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
