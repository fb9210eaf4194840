//! `assay view`: shows a recorded trace, in the views that are the rows of [`VIEWS`].

mod sequence;

use anyhow::bail;
use assay_quantity::Demand;
use assay_quantity::format::demand_to_json;
use assay_report::{Block, Report};
use assay_trace::container::Origin;
use assay_trace::record::{Abi, call_name, on_descriptor};
use assay_trace::view::calls::FindModes;
use assay_trace::view::demand::{Demanding, Named};
use assay_trace::view::phases::FindPhases;
use assay_trace::view::processes::CountByProcess;
use assay_trace::view::summary::Summarise;
use assay_trace::view::timeline::CollectTimeline;
use assay_trace::view::wakeups::CountWakeups;
use assay_trace::view::{Filter, look};
use assay_trace::{Descriptor, Reader};

use crate::cli::ViewArgs;
use crate::phase::tracing::open;
use crate::{output, section};

/// A view of a trace.
#[derive(Debug)]
pub struct View {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// Whether it can be written to a file (`--output`).
    has_file: bool,
    /// Whether it can show a part of the events (filters).
    has_filters: bool,
    /// Whether it shows one call, by its name.
    has_call: bool,
    /// Whether it divides by the number of units of work.
    has_units: bool,
    show: fn(Reader, &ViewArgs) -> anyhow::Result<()>,
}

/// Every view.
pub const VIEWS: &[View] = &[
    View {
        name: "summary",
        about: "count, times, percentiles, bytes and errors for each call and kind of descriptor",
        has_file: false,
        has_filters: true,
        has_call: false,
        has_units: true,
        show: summary,
    },
    View {
        name: "sequence",
        about: "all calls in order of time, with arguments, result and elapsed time",
        has_file: false,
        has_filters: true,
        has_call: false,
        has_units: false,
        show: sequence::print,
    },
    View {
        name: "calls",
        about: "how long one call takes: its distribution, its modes, and what explains them",
        has_file: false,
        has_filters: true,
        has_call: true,
        has_units: false,
        show: calls,
    },
    View {
        name: "demand",
        about: "the demand of the program, as primitives",
        has_file: true,
        has_filters: false,
        has_call: false,
        has_units: true,
        show: demand,
    },
    View {
        name: "processes",
        about: "program, threads, calls, failed calls, elapsed time and page faults of each process",
        has_file: false,
        has_filters: false,
        has_call: false,
        has_units: true,
        show: processes,
    },
    View {
        name: "timeline",
        about: "the trace in equal intervals: calls, failed calls, page faults, and what threads did",
        has_file: false,
        has_filters: true,
        has_call: false,
        has_units: false,
        show: timeline,
    },
    View {
        name: "phases",
        about: "what one request causes: its phases, their calls, and its variants",
        has_file: false,
        has_filters: false,
        has_call: false,
        has_units: false,
        show: phases,
    },
    View {
        name: "wakeups",
        about: "which calls sleep and wake threads, how often, and whether the processor was idle",
        has_file: false,
        has_filters: true,
        has_call: false,
        has_units: true,
        show: wakeups,
    },
];

/// Default name of a unit of work.
const UNIT_OF_WORK: &str = "unit of work";

/// Runs the subcommand.
pub fn run(args: &ViewArgs) -> anyhow::Result<()> {
    let views = |has: fn(&View) -> bool| {
        let names: Vec<&str> = VIEWS.iter().filter(|view| has(view)).map(|view| view.name).collect();
        names.join(" or ")
    };
    if args.output.is_some() && !args.view.has_file {
        bail!("--output requires the view {}", views(|view| view.has_file));
    }
    if args.named.is_some() && !args.view.has_call {
        bail!("a name after the view requires the view {}; use --call", views(|view| view.has_call));
    }
    if args.view.has_call && args.named.or(args.filter.since(0).call).is_none() {
        bail!("the view {} requires the name of a call, such as read", args.view.name);
    }
    if args.filter.is_given() && !args.view.has_filters {
        bail!("filters require the view {}", views(|view| view.has_filters));
    }
    args.filter.check()?;
    if args.units.is_some() && !args.view.has_units {
        bail!("--units requires the view {}", views(|view| view.has_units));
    }
    (args.view.show)(open(&args.trace)?, args)
}

fn summary(reader: Reader, args: &ViewArgs) -> anyhow::Result<()> {
    let (filter, origin) = (filter(&reader, args), reader.manifest().origin);
    let summary = look(reader, filter.of(Summarise::default()))?;
    report(args, section::trace::summary(&summary, origin, units(args), UNIT_OF_WORK))
}

fn calls(reader: Reader, args: &ViewArgs) -> anyhow::Result<()> {
    let (filter, origin) = (filter(&reader, args), reader.manifest().origin);
    let number = filter.call.expect("`run` requires a call");
    let name = on_descriptor(&call_name(Abi::Native, number), filter.descriptor.unwrap_or(Descriptor::None));
    let times = look(reader, filter.of(FindModes::default()))?;
    report(args, section::calls::calls(&times, origin, &name))
}

fn demand(reader: Reader, args: &ViewArgs) -> anyhow::Result<()> {
    let command = reader.manifest().command.join(" ");
    let name = if command.is_empty() { args.trace.display().to_string() } else { command };
    let named = Named { operation: name.clone(), unit_of_work: UNIT_OF_WORK.to_owned() };
    let origin = reader.manifest().origin;
    let mut operation = look(reader, Demanding::default())?.into_operation(named, units(args));
    let mut source = format!("assay {}: {}", env!("CARGO_PKG_VERSION"), args.trace.display());
    if origin == Origin::Strace {
        // The elapsed time of a call is not the time that the kernel worked for it.
        operation.coefficients.iter_mut().for_each(|coefficient| coefficient.kernel_ns = 0.0);
        source.push_str(", imported from strace: without kernel times, page faults, sleeps and wake-ups");
    }
    let blocks = section::demand::vector(&operation, origin);
    if let Some(path) = &args.output {
        let demand = Demand { name, source, operations: vec![operation] };
        output::write_file(path, &demand_to_json(&demand))?;
    }
    report(args, blocks)
}

fn processes(reader: Reader, args: &ViewArgs) -> anyhow::Result<()> {
    let origin = reader.manifest().origin;
    let processes = look(reader, CountByProcess::default())?;
    report(args, section::trace::processes(&processes, origin, units(args), UNIT_OF_WORK))
}

fn timeline(reader: Reader, args: &ViewArgs) -> anyhow::Result<()> {
    let (filter, origin) = (filter(&reader, args), reader.manifest().origin);
    let start_ns = reader.manifest().start_monotonic_ns;
    let timeline = look(reader, CollectTimeline::of(filter, start_ns))?;
    report(args, section::timeline::timeline(&timeline, origin))
}

fn phases(reader: Reader, args: &ViewArgs) -> anyhow::Result<()> {
    let origin = reader.manifest().origin;
    let phases = look(reader, FindPhases::default())?;
    report(args, section::phases::phases(&phases, origin))
}

fn wakeups(reader: Reader, args: &ViewArgs) -> anyhow::Result<()> {
    if reader.manifest().origin == Origin::Strace {
        bail!("{}: strace does not record wake-ups; record with assay trace", args.trace.display());
    }
    let filter = filter(&reader, args);
    let wakeups = look(reader, filter.of(CountWakeups::default()))?;
    report(args, section::trace::wakeups(&wakeups, units(args), UNIT_OF_WORK))
}

fn filter(reader: &Reader, args: &ViewArgs) -> Filter {
    let filter = args.filter.since(reader.manifest().start_monotonic_ns);
    Filter { call: args.named.or(filter.call), ..filter }
}

fn units(args: &ViewArgs) -> f64 {
    args.units.unwrap_or(1.0)
}

fn report(args: &ViewArgs, blocks: Vec<Block>) -> anyhow::Result<()> {
    let named = args.named.map(|number| format!(" {}", call_name(Abi::Native, number))).unwrap_or_default();
    let title = format!("{}, {}{named}{}", args.trace.display(), args.view.name, args.filter.words());
    output::show(&Report { title, blocks }, args.print.format())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_view_has_a_unique_name_and_is_documented() {
        let page = include_str!("../../../../docs/trace.md");
        let readme = include_str!("../../../../README.md");
        let line = readme.lines().find(|line| line.starts_with("| `assay view")).unwrap();
        for (position, view) in VIEWS.iter().enumerate() {
            assert!(VIEWS[..position].iter().all(|other| other.name != view.name));
            assert!(!view.about.is_empty());
            let section = format!("### {}", view.name);
            assert!(page.lines().any(|line| line == section), "docs/trace.md has no section '{section}'");
            assert!(line.contains(&format!("{}`", view.name)), "README.md does not name {}", view.name);
        }
        for field in sequence::FIELDS {
            assert!(
                page.contains(&format!("`{field}`")),
                "docs/trace.md does not describe the field {field}"
            );
        }
    }
}
