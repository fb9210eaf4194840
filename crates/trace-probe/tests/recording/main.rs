//! The probe against known truths: programs whose calls are known, and what another tracer counts. Needs root and a
//! kernel with BTF.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod command;
mod counts;
mod losses;
mod support;
mod tree;
