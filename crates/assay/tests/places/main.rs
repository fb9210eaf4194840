//! Every place where `assay` can be stopped by the world: each must end with one line that says what to do, an
//! exit code that is not 0, servers stopped and files whole. The real binary, the real kernel, the real nginx.
//!
//! Tests here run as root with BTF, and take both away where that is the question.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

mod disk;
mod input;
mod killed;
mod place;
mod signal;
mod stream;
mod unavailable;
