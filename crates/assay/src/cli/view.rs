//! The command line of `assay view`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::filter::call;
use super::{FilterArgs, PrintArgs};
use crate::cmd::view::{VIEWS, View};

/// `assay view`.
#[derive(Debug, Args)]
pub struct ViewArgs {
    /// Trace to read.
    #[arg(value_name = "NAME.trace")]
    pub trace: PathBuf,
    /// View of the trace to print.
    #[arg(default_value = "summary", value_parser = views())]
    pub view: &'static View,
    /// Call that the view calls shows, such as read; with other views, use --call.
    #[arg(value_name = "CALL", value_parser = call, conflicts_with = "call")]
    pub named: Option<u16>,
    /// Number of units of work in the trace; counts, total times and the demand are divided by it
    /// [default: 1].
    #[arg(long, value_parser = units)]
    pub units: Option<f64>,
    /// Output format.
    #[command(flatten)]
    pub print: PrintArgs,
    /// Write the demand to this file, for `assay predict` (only with the view demand).
    #[arg(short, long, value_name = "NAME.demand.json")]
    pub output: Option<PathBuf>,
    /// Filters for events.
    #[command(flatten)]
    pub filter: FilterArgs,
}

/// Returns a parser for the names of the views.
fn views() -> impl TypedValueParser<Value = &'static View> {
    let names = VIEWS.iter().map(|view| PossibleValue::new(view.name).help(view.about));
    PossibleValuesParser::new(names)
        .map(|name| VIEWS.iter().find(|view| view.name == name).unwrap_or(&VIEWS[0]))
}

pub(super) fn units(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(units) if units.is_finite() && units > 0.0 => Ok(units),
        _ => Err("give a number above 0".to_owned()),
    }
}
