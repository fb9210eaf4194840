//! The recorder that makes records: the eBPF probe.
//!
//! [`Recorder`] loads the probe (`src/bpf/`), follows a process and everything below it, and appends what the kernel
//! writes to an [`assay_trace::Writer`]; [`Held`] starts a program that waits until a recorder is there. It is the
//! successor of ktrace (Brown 1997, chapter 3) and needs root and a kernel with BTF; where it cannot run it says so
//! in one line ([`Unavailable`]). It interprets nothing: what a record means is said in `assay-trace`.

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
