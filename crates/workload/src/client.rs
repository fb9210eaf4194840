//! The clients that load a server, and their results. Prefer the built-in client (`http`): it sends a fixed
//! number of requests and verifies every response, so that a load is either complete and correct or an error.
//! `wrk` exists for comparison with published results.

mod chunked;
pub mod http;
mod load;
pub mod response;
pub mod wrk;

pub use load::{Failure, Failures, Load, LoadError};
