//! `assay`: measures what a machine offers, traces what an application asks, predicts one from the other.
#![forbid(unsafe_code)]

mod again;
mod cli;
mod cmd;
mod interrupt;
mod journal;
mod output;
mod past;
mod phase;
mod plan;
mod progress;
mod section;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match cmd::run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::complain(&error),
    }
}
