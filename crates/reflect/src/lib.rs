//! Performance reflection (Fowler et al., *Using Performance Reflection in Systems Software*, HotOS 2003): is
//! a server past its peak, and which limit brings it back?
//!
//! A [`Signal`] has the productivity and the overhead of one period. The control laws ([`law`]) make a limit
//! of it; they are pure, and [`simulation`] runs them on [`plant`]s, models of servers that collapse.
#![forbid(unsafe_code)]

pub mod law;
pub mod plant;
mod signal;
pub mod simulation;

pub use signal::{Overhead, Signal};
