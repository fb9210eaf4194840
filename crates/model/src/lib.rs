//! From vectors to predictions: how long one unit of an application's work takes on a machine, term by term,
//! and how accurate such predictions are.
//!
//! This crate alone computes the product of a demand and a machine (thesis, section 4.1); the subcommands of
//! `assay` supply the vectors and render the result. The crate is pure. It never omits a term: a primitive
//! that the machine lacks is [`Unpredictable`], calls without a primitive of their own are marked as a lower
//! bound, and the part of a measurement that the product does not explain is a value.
#![forbid(unsafe_code)]

mod predict;
mod validate;

pub use predict::{Prediction, Term, Unpredictable, predict};
pub use validate::{Measurement, Validated, Validation, validate};
