//! `assay diff`: compares traces of a program before and after a change, call by call.

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::{Error, ensure};
use assay_quantity::Pair;
use assay_trace::container::Origin;
use assay_trace::view::look;
use assay_trace::view::outcomes::CountOutcomes;

use crate::cli::DiffArgs;
use crate::phase::difference::{Side, difference};
use crate::phase::tracing::open;
use crate::{output, section};

/// Runs the subcommand.
pub fn run(args: &DiffArgs) -> anyhow::Result<()> {
    let traces = args.traces().map_err(Error::msg)?;
    let units = args.units().map_err(Error::msg)?;
    let mut seen = HashSet::new();
    for trace in traces.a.iter().chain(traces.b) {
        ensure!(
            seen.insert(trace.canonicalize().unwrap_or_else(|_| trace.clone())),
            "{} is given twice: each trace counts once",
            trace.display()
        );
    }
    let sides = Pair {
        a: side(traces.a, units.map_or(1.0, |units| units.a))?,
        b: side(traces.b, units.map_or(1.0, |units| units.b))?,
    };
    let per = if units.is_some() { "unit of work" } else { "trace" };
    let report = section::difference::report(&difference(&sides), traces.map(names), per);
    output::show(&report, args.print.format())
}

fn side(paths: &[PathBuf], units: f64) -> anyhow::Result<Side> {
    let (mut traces, mut incomplete) = (Vec::new(), 0);
    for path in paths {
        let reader = open(path)?;
        ensure!(
            reader.manifest().origin == Origin::Probe,
            "{}: imported from strace; diff compares traces that assay recorded",
            path.display()
        );
        incomplete += usize::from(!reader.is_complete() || reader.manifest().untracked_threads > 0);
        traces.push(look(reader, CountOutcomes::default())?);
    }
    Ok(Side { traces, units, incomplete })
}

/// Returns the name of the first trace, and how many others there are.
fn names(traces: &[PathBuf]) -> String {
    let first = traces.first().map(|trace| trace.display().to_string()).unwrap_or_default();
    match traces.len() {
        0 | 1 => first,
        2 => format!("{first} and another one"),
        all => format!("{first} and {} others", all - 1),
    }
}
