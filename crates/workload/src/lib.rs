//! Runs a program, loads it with a known amount of work, counts the units of work, and stops it reliably.
//!
//! A workload file (`workloads/*.toml`, described in `docs/workload.md`) is read into a [`Workload`].
//! [`Server`] starts and stops its program, [`client`] loads it, and [`measure`] runs rounds of one operation
//! and returns them raw. The subcommands of `assay` call this crate. It computes no statistics, prints
//! nothing and does not interpret results.
#![forbid(unsafe_code)]

pub mod client;
mod command;
mod cpu;
mod file;
mod measure;
mod placement;
mod scratch;
mod server;
mod switch;
mod template;
mod workload;

pub use assay_process::{Exit, StopError, StopRequest, Stopped};
pub use command::{CommandError, CommandRuns};
pub use cpu::CpuError;
pub use file::WorkloadError;
pub use measure::{MeasureError, Plan, measure};
pub use placement::{Placement, PlacementError, Role};
pub use server::{Server, StartError};
pub use switch::{Switch, SwitchError};
pub use workload::{
    Client, ClosedLoop, CommandProgram, Content, Expect, ExpectedContent, ExpectedReply, ExpectedResult,
    Operation, Program, Ready, ReadySign, Request, Reuse, ScratchFile, ServerProgram, Workload, WrkOperation,
};
