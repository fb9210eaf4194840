//! The clients that load a server, and their results. Prefer the built-in ones (`http`, `redis`, `postgres`):
//! they send a fixed number of requests and verify every response, so that a load is either complete and
//! correct or an error. `wrk` exists for comparison with published results.

mod chunked;
pub mod closed_loop;
pub mod http;
mod load;
pub mod postgres;
pub mod protocol;
pub mod redis;
pub mod response;
pub mod wrk;

pub use load::{Failure, Failures, Load, LoadError};
