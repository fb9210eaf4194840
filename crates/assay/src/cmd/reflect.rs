//! `assay reflect`: productivity, overhead, and the control laws that act on them.

use assay_reflect::law::LAWS;
use assay_reflect::plant::PLANTS;
use assay_reflect::simulation::{self, SCENARIOS};

use crate::cli::{ReflectArgs, ReflectCommand, ReflectSimulateArgs};
use crate::{output, section};

/// Runs the subcommand.
pub fn run(args: &ReflectArgs) -> anyhow::Result<()> {
    match &args.command {
        ReflectCommand::Simulate(args) => simulate(args),
    }
}

/// Runs laws on plants, and shows how good they were: of one law all figures, of one run also its course.
fn simulate(args: &ReflectSimulateArgs) -> anyhow::Result<()> {
    let laws = selected(&args.law, &LAWS);
    let plants = selected(&args.plant, &PLANTS);
    let scenarios = selected(&args.scenario, &SCENARIOS);
    let runs = plants.iter().flat_map(|plant| scenarios.iter().map(move |scenario| (*plant, *scenario)));
    let scored = runs.map(|(plant, scenario)| {
        let scores = laws.iter().map(|law| simulation::scores(law, plant, scenario, args.seed)).collect();
        (plant, scenario, scores)
    });
    let mut report = section::reflection::report(&laws, &scored.collect::<Vec<_>>());
    if let ([law], [plant], [scenario]) = (&laws[..], &plants[..], &scenarios[..]) {
        let run = simulation::run(law, plant, scenario, args.seed);
        let best_per_s = simulation::best(plant, scenario);
        report.blocks.push(section::reflection::course(&run, &best_per_s));
    }
    output::show(&report, args.print.format())
}

/// The rows that were given, once each and in the order of the table, or all.
fn selected<T>(given: &[&'static T], all: &'static [T]) -> Vec<&'static T> {
    let is_given = |row: &&T| given.iter().any(|given| std::ptr::eq(*given, *row));
    all.iter().filter(|row| given.is_empty() || is_given(row)).collect()
}
