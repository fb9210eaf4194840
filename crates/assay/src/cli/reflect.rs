//! The command line of `assay reflect`.

use assay_reflect::law::{LAWS, Law};
use assay_reflect::plant::{PLANTS, Plant};
use assay_reflect::simulation::{SCENARIOS, Scenario};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};

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
    /// Run control laws on simulated servers that collapse in overload, and compare them with the best fixed
    /// limit.
    Simulate(ReflectSimulateArgs),
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

fn laws() -> impl TypedValueParser<Value = &'static Law> {
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
