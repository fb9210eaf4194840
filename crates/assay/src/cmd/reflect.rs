//! `assay reflect`: productivity, overhead, and the control laws that act on them.

mod endpoint;
mod lines;
mod place;
mod simulate;
mod watch;

use crate::cli::{ReflectArgs, ReflectCommand};

/// Runs the subcommand.
pub fn run(args: &ReflectArgs) -> anyhow::Result<()> {
    match &args.command {
        ReflectCommand::Watch(args) => watch::run(args),
        ReflectCommand::Place(args) => place::run(args),
        ReflectCommand::Simulate(args) => simulate::run(args),
    }
}
