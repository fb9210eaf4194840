//! `assay`: measures the costs of a machine's primitives, traces an application's demand for them, and
//! predicts the application's time from both.
#![forbid(unsafe_code)]

mod again;
mod cli;
mod cmd;
mod data;
mod http;
mod interrupt;
mod journal;
mod open_files;
mod output;
mod past;
mod phase;
mod plan_file;
mod progress;
mod prometheus;
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
