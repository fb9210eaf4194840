//! Attributes the instructions of a simulated machine to the services of its kernel (Rosenblum et al., *The
//! Impact of Architectural Trends on Operating System Performance*, SOSP 1995, section 2.1.1).
//!
//! [`Plan::new`] finds the addresses of the kernel at which something begins or ends, from its symbols
//! ([`symbols`]) and the layout of its structures ([`btf`]). The simulator reports each execution of such an
//! address as an [`Event`], with the instructions executed so far; [`Attribution`] follows which process runs
//! which service and returns a [`Profile`]. The crate contains no simulator and reads no file: `sim-plugin`
//! drives it inside QEMU, and tests drive it with lists of events.
#![forbid(unsafe_code)]

mod annotation;
mod attribution;
pub mod btf;
mod event;
mod format;
mod instruction;
mod profile;
mod routine;
mod run;
mod snapshot;
pub mod symbols;

pub use annotation::{Action, FunctionError, Plan, PlanError, Point, TaskOffsets};
pub use attribution::Attribution;
pub use event::{Counts, Event, Kind, Moment, Name, Task};
pub use format::FormatError;
pub use instruction::{BEGIN, END, SNAPSHOT, is_repeated, is_return, reads_clock};
pub use profile::{Contradiction, Elapsed, Image, Interval, Latency, Profile, Service, Spent, Timeline};
pub use routine::Routines;
pub use run::{Observed, Run, Setup};
pub use snapshot::{Snapshot, Snapshots};
