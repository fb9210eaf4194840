//! Performance reflection (Fowler et al., *Using Performance Reflection in Systems Software*, HotOS 2003): is
//! a server past its peak, and which limit brings it back?
//!
//! The [`facility`] reads what a process, a control group or the machine accomplishes, and what that costs;
//! an application counts its own units of work by a [`progress`] counter. The [`region`] says whether the
//! system is in overload.
//!
//! A [`Signal`] has the productivity and the overhead of one period of a server, and a [`curve`] the
//! productivity under each load. The control laws ([`law`]) make a limit of it; they are pure, and
//! [`simulation`] runs them on [`plant`]s, models of servers that collapse.
//!
//! An application tunes itself with a [`gate`], which runs a law on what the [`meter`] makes of its units of
//! work, and says what these are by [`advice`]. A [`placement`] decides which processes share a processor.

pub mod advice;
pub mod curve;
pub mod facility;
pub mod gate;
pub mod law;
pub mod meter;
pub mod observation;
pub mod placement;
pub mod plant;
pub mod progress;
pub mod region;
mod signal;
pub mod simulation;

pub use assay_process::Cgroup;
pub use assay_process::kernel_event::KernelEvent;
pub use signal::{Overhead, Signal};
