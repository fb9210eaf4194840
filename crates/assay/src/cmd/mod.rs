//! The subcommands, one file each; they combine the other crates.

mod bench;
mod compare;
mod diff;
mod guard;
mod history;
mod predict;
mod reflect;
mod run;
mod sample;
mod sim;
mod trace;
pub mod view;

use crate::cli::Command;

/// Runs a subcommand.
pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::View(args) => view::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::History(args) => history::run(&args),
        Command::Guard(args) => guard::run(&args),
        Command::Reflect(args) => reflect::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Sample(args) => sample::run(&args),
    }
}
