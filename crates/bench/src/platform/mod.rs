//! The machine beneath the benchmarks: its clock, its processors and caches, calls of its kernel, its
//! description, and the layout of memory. No file here uses a type of `benchmark`.

pub mod clock;
#[cfg(target_arch = "x86_64")]
mod cpuid;
pub mod describe;
pub(crate) mod flush;
pub(crate) mod kernel;
pub mod layout;
pub mod noise;
pub(crate) mod partner;
mod refusal;

pub use refusal::Refusal;
