//! Compares the probe with known results: programs with known calls, and the counts of another tracer.
//! Requires root and a kernel with BTF.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod command;
mod contents;
mod counts;
mod losses;
mod memory;
mod support;
mod tree;
mod wakeups;
