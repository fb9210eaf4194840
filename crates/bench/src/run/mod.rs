//! A run: which samples are taken in which order, when they are enough, and what they cost.

pub mod alternate;
pub mod cost;
pub mod count;
pub mod plan;
pub mod simulated;
pub mod sweep;
