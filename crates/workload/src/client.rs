//! The clients that load a server, and what they report. Our own (`http`) is the one to trust: a fixed number of
//! requests, every answer verified, so that a load is either complete and right or an error. `wrk` is there for
//! comparison with other people's numbers.

mod chunked;
pub mod http;
mod load;
pub mod response;
pub mod wrk;

pub use load::{Failure, Failures, Load, LoadError};
