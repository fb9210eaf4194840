//! The trace container: a directory `NAME.trace/` with a manifest, Parquet segments and, while a recorder
//! runs, raw spools.
//!
//! A recorder appends records in the format of the kernel, one spool per CPU, because no compressor keeps up
//! with three million records per second. Closing the container converts every spool into a self-contained
//! Parquet segment. A killed recorder leaves its spools, which are readable up to their last complete block.
//! [`Reader`] merges all files by time with bounded memory. The page `docs/trace.md` specifies the format.

mod assembly;
mod checksum;
pub mod layout;
mod loss;
pub mod manifest;
mod reader;
mod segment;
mod spool;
mod writer;

pub use layout::RECORD_BYTES;
pub use manifest::{CpuCounters, Manifest, Origin, State};
pub use reader::{ReadError, Reader};
pub use writer::{Closing, Opening, WriteError, Writer};
