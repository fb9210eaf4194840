//! Starts processes, watches them and ends them reliably; reads what the kernel counts of processes and
//! processors.
//!
//! Shared by all parts that touch processes. `bench` starts its samples and `trace-probe` its commands as a
//! [`Child`], `workload` its servers and commands in a [`Group`]; one module kills them all. The readers of
//! `/proc`, of `getrusage` and of the kernel's counters return plain numbers, which the caller interprets.

pub mod accounting;
mod cgroup;
mod child;
pub mod clock;
pub mod counter;
pub mod cpus;
mod family;
mod group;
pub mod kernel_event;
mod processes;
mod program;
mod reread;
pub mod slice;

pub use cgroup::{Cgroup, CpuAccount, CpuUsed, NoCgroup, NoCpuAccount, cpu_times_ns, own_cgroup};
pub use child::{Child, Exit};
pub use family::descendants;
pub use group::{Group, StopError, StopRequest, Stopped};
pub use processes::{Process, is_gone, threads};
pub use program::{find_program, search_path};
pub use reread::Reread;

/// Adds the name of the call to an error.
fn named(call: &str, error: std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("{call}: {error}"))
}
