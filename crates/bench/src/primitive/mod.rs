//! The benchmarks, one file per family. Each defines what is timed and how the kernel's work is checked;
//! the harness decides how long and how often. The rows that name them are in [`crate::table`].

pub(crate) mod address_space;
pub(crate) mod arithmetic;
pub(crate) mod atomic;
pub(crate) mod branch;
pub(crate) mod bulk;
pub(crate) mod cache;
pub(crate) mod call;
pub(crate) mod channel;
pub(crate) mod child;
pub(crate) mod code;
pub(crate) mod connection;
pub(crate) mod cork;
pub(crate) mod datagram;
pub(crate) mod disk;
pub(crate) mod echo;
pub(crate) mod event;
pub(crate) mod exception;
pub(crate) mod expression;
pub(crate) mod fault;
pub(crate) mod file;
pub(crate) mod file_fault;
pub(crate) mod futex;
pub(crate) mod handover;
pub(crate) mod http;
pub(crate) mod interrupts;
pub(crate) mod ipi;
pub(crate) mod lateness;
pub(crate) mod limit;
pub(crate) mod mapping;
pub(crate) mod memory;
pub(crate) mod memory_management;
pub(crate) mod mutex;
pub(crate) mod notify;
pub(crate) mod pieces;
pub(crate) mod placement;
pub(crate) mod procedure;
mod processor;
pub(crate) mod program;
pub(crate) mod random;
pub(crate) mod ready;
pub(crate) mod record_lock;
pub(crate) mod region;
pub(crate) mod remote;
pub(crate) mod round_trip;
pub(crate) mod rpc;
pub(crate) mod semaphore;
pub(crate) mod shared;
pub(crate) mod signal;
pub(crate) mod socket;
pub(crate) mod socket_call;
pub(crate) mod spinner;
pub(crate) mod splice;
pub(crate) mod step;
pub(crate) mod storage;
pub(crate) mod store;
pub(crate) mod stream;
pub(crate) mod switch;
pub(crate) mod thread;
pub(crate) mod timer;
pub(crate) mod timer_setting;
pub(crate) mod translation;
pub(crate) mod unix_socket;
pub(crate) mod uring;
pub(crate) mod wakeup;
pub(crate) mod wakeup_here;
pub(crate) mod wire;
pub(crate) mod yielding;

use assay_quantity::PrimitiveId;

/// Bytes that one operation moves, for an id whose row requires a size.
fn size_of_operation(id: &PrimitiveId) -> usize {
    id.size().and_then(|size| usize::try_from(size.bytes()).ok()).unwrap_or(1)
}
