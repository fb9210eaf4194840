//! The trace container: a directory `NAME.trace/` with a manifest, Parquet segments and, while a recorder runs, raw
//! spools.
//!
//! A recorder appends records as the kernel wrote them, one spool per CPU, since no compressor follows three million
//! records a second; closing the container turns every spool into a self-contained Parquet segment. A recorder that is
//! killed leaves the spools, which read up to their last whole block. [`Reader`] merges all of it by time with
//! bounded memory. The page `docs/trace.md` is the specification of the format.

mod checksum;
pub mod layout;
mod loss;
pub mod manifest;
mod reader;
mod segment;
mod spool;
mod writer;

pub use layout::RECORD_BYTES;
pub use manifest::{CpuCounters, Manifest, State};
pub use reader::{ReadError, Reader};
pub use writer::{Closing, Opening, WriteError, Writer};
