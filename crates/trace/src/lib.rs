//! Records, the trace container, import and the views over it.
//!
//! A recorder (the crate `assay-trace-probe`) records the system calls and events of a program. This crate
//! defines the meaning of a record, stores records in a container on disk ([`Writer`], [`Reader`]) and
//! evaluates them in one pass ([`View`]). It succeeds ktrace's file format and ktranal (Brown 1997, chapter
//! 3). It accesses only the files passed to it: no clock, no kernel interface, no environment.
#![forbid(unsafe_code)]

pub mod container;
pub mod descriptor;
#[cfg(test)]
mod fixture;
pub mod histogram;
pub mod import;
pub mod record;
pub mod syscall;
pub mod view;

pub use container::{Opening, Reader, Writer};
pub use descriptor::Descriptor;
pub use record::{Abi, Area, Call, Content, Entry, Event, Memory, Peer, Record, Wakeups};
pub use view::View;
