//! The command line of `assay diff`.

use std::path::PathBuf;

use assay_quantity::Pair;
use clap::Args;

use super::PrintArgs;
use super::view::units;

/// `assay diff`.
#[derive(Debug, Args)]
#[command(override_usage = "assay diff [OPTIONS] <A.trace> <B.trace>
       assay diff [OPTIONS] <A.trace>... --with <B.trace>...")]
pub struct DiffArgs {
    /// Trace before the change and trace after it; with --with, traces before the change.
    #[arg(value_name = "NAME.trace", required = true)]
    traces: Vec<PathBuf>,
    /// Traces after the change. Record them in turns with those before it: from three of each on, differences
    /// are judged, and more traces show smaller differences.
    #[arg(long, value_name = "NAME.trace", num_args = 1..)]
    with: Vec<PathBuf>,
    /// Number of units of work in each trace, by which counts and times are divided; two numbers, such as
    /// 1000,2000, if those of A and of B have different ones [default: 1].
    #[arg(long, value_parser = units, value_delimiter = ',')]
    units: Vec<f64>,
    /// Output format.
    #[command(flatten)]
    pub print: PrintArgs,
}

impl DiffArgs {
    /// Returns the traces of each side.
    ///
    /// # Errors
    /// What is missing, or too much.
    pub fn traces(&self) -> Result<Pair<&[PathBuf]>, &'static str> {
        match (&self.traces[..], &self.with[..]) {
            ([_, _], []) => Ok(Pair { a: &self.traces[..1], b: &self.traces[1..] }),
            (_, []) => Err("give two traces, or those after the change with --with"),
            (a, b) => Ok(Pair { a, b }),
        }
    }

    /// Returns the units of work in each trace of a side; `None` if the user gave none.
    ///
    /// # Errors
    /// Too many numbers.
    pub fn units(&self) -> Result<Option<Pair<f64>>, &'static str> {
        match self.units[..] {
            [] => Ok(None),
            [both] => Ok(Some(Pair { a: both, b: both })),
            [a, b] => Ok(Some(Pair { a, b })),
            _ => Err("--units requires one number, or one for A and one for B"),
        }
    }
}
