//! The recorder: produces records with an eBPF probe.
//!
//! [`Recorder`] loads the probe (`src/bpf/`), traces a process and its descendants, and appends the records
//! from the kernel to an [`assay_trace::Writer`]. [`Held`] starts a program that waits until a recorder is
//! attached. This crate succeeds ktrace (Brown 1997, chapter 3) and requires root and a kernel with BTF; if
//! it cannot run, it reports the reason in one line ([`Unavailable`]). It does not interpret records:
//! `assay-trace` defines their meaning.

mod held;
mod opening;
mod recorder;
mod running;
mod skeleton;
mod unavailable;

pub use held::{Held, SpawnError, Streams};
pub use opening::{Unreadable, opening};
pub use recorder::{Collect, DescriptorReads, Options, RecordError, Recorded, Recorder};
pub use running::{Ended, Running};
pub use unavailable::Unavailable;
