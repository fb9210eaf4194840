//! How is a process started, watched and ended for certain, and what does the kernel say of processes and processors?
//!
//! The ground of the parts that touch processes. `bench` starts its samples and `trace-probe` its commands as a
//! [`Child`], `workload` its servers and commands in a [`Group`]: one rule ends them all. The readers of `/proc`, of
//! `getrusage` and of the kernel's counters give plain numbers; the caller decides what they mean.

pub mod accounting;
mod child;
pub mod clock;
pub mod counter;
pub mod cpus;
mod family;
mod group;
mod processes;
mod program;

pub use child::{Child, Exit};
pub use group::{Group, StopError, StopRequest, Stopped};
pub use processes::Process;
pub use program::{find_program, search_path};

/// An error that names the call.
fn named(call: &str, error: std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("{call}: {error}"))
}
