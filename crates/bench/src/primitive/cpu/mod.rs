//! What the processor does without the kernel: arithmetic, branches, atomic operations, stores, calls of
//! functions, instruction fetch, and lines that move between the caches of processors.

pub(crate) mod arithmetic;
pub(crate) mod atomic;
pub(crate) mod branch;
pub(crate) mod cache;
pub(crate) mod code;
pub(crate) mod expression;
pub(crate) mod procedure;
pub(crate) mod store;
