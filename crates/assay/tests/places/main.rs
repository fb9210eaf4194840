//! External failures of `assay`: each must end with one line that contains the remedy, a nonzero exit code,
//! servers stopped and files whole. The tests use the real binary, kernel and nginx.
//!
//! They run as root with BTF, and drop either where its absence is tested.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

mod diff;
mod disk;
mod export;
mod guest;
mod import;
mod input;
mod killed;
mod place;
mod signal;
mod stream;
mod unavailable;
