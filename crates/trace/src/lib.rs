//! Records, the trace container and the views over it.
//!
//! A recorder (the crate `assay-trace-probe`) turns what a program asks of the kernel into records; this crate
//! says what a record means, keeps records in a container on disk ([`Writer`], [`Reader`]) and looks at them in one
//! pass ([`View`]). It is the successor of ktrace's file and of ktranal (Brown 1997, chapter 3). It touches the
//! files that it is given and nothing else: no clock, no kernel, no environment.
#![forbid(unsafe_code)]

pub mod container;
pub mod descriptor;
pub mod histogram;
pub mod record;
pub mod syscall;
pub mod view;

pub use container::{Opening, Reader, Writer};
pub use descriptor::Descriptor;
pub use record::{Abi, Call, Entry, Event, Record};
pub use view::View;
