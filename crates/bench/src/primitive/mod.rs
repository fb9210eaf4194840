//! The benchmarks, one file per family. Each defines what is timed and how the kernel's work is checked;
//! how long and how often is the harness's business. The rows that name them are in [`crate::table`].

pub(crate) mod call;
pub(crate) mod connection;
pub(crate) mod cork;
pub(crate) mod event;
pub(crate) mod fault;
pub(crate) mod file;
pub(crate) mod memory;
pub(crate) mod pieces;
pub(crate) mod program;
pub(crate) mod ring;
pub(crate) mod signal;
pub(crate) mod socket;
pub(crate) mod stream;
pub(crate) mod wire;

use assay_quantity::PrimitiveId;

/// Bytes that one operation moves, for an id whose row requires a size.
fn size_of_operation(id: &PrimitiveId) -> usize {
    id.size().and_then(|size| usize::try_from(size.bytes()).ok()).unwrap_or(1)
}
