//! `assay reflect simulate`: runs the control laws on simulated servers.

use assay_reflect::law::{LAWS, Law};
use assay_reflect::plant::PLANTS;
use assay_reflect::simulation::{self, Run, SCENARIOS};

use crate::cli::ReflectSimulateArgs;
use crate::{output, section};

/// Runs laws on plants, and shows how good they were: of one law all figures, of one run also its course.
pub fn run(args: &ReflectSimulateArgs) -> anyhow::Result<()> {
    let laws = selected(&args.law, &LAWS);
    let plants = selected(&args.plant, &PLANTS);
    let scenarios = selected(&args.scenario, &SCENARIOS);
    let is_one_run = [laws.len(), plants.len(), scenarios.len()] == [1; 3];
    let (mut scored, mut details) = (Vec::new(), Vec::new());
    for (plant, scenario) in plants.iter().flat_map(|plant| scenarios.iter().map(move |s| (*plant, *s))) {
        let scores = laws.iter().map(|law| simulation::scores(law, plant, scenario, args.seed)).collect();
        scored.push((plant, scenario, scores));
        if !is_one_run && !args.plot {
            continue;
        }
        let run = |law: &&'static Law| (*law, simulation::run(law, plant, scenario, args.seed));
        let runs: Vec<(&Law, Run)> = laws.iter().map(run).collect();
        let best_per_s = simulation::best(plant, scenario);
        if args.plot {
            details.extend(section::reflection::plots((plant, scenario), &runs, &best_per_s)?);
        }
        if let ([(_, run)], true) = (&runs[..], is_one_run) {
            details.push(section::reflection::course(run, &best_per_s));
        }
    }
    let mut report = section::reflection::report(&laws, &scored);
    report.blocks.append(&mut details);
    output::show(&report, args.print.format())
}

/// The rows that were given, once each and in the order of the table, or all.
fn selected<T>(given: &[&'static T], all: &'static [T]) -> Vec<&'static T> {
    let is_given = |row: &&T| given.iter().any(|given| std::ptr::eq(*given, *row));
    all.iter().filter(|row| given.is_empty() || is_given(row)).collect()
}
