//! From vectors to predictions: how long one unit of an application's work takes on a machine, term by
//! term, and how good such predictions are.
//!
//! The product of a demand and a machine (thesis, section 4.1) is computed here and nowhere else; the
//! subcommands of `assay` hand in the vectors and render what comes out. The crate is pure. It never
//! leaves a term out: a primitive that the machine lacks is [`Unpredictable`], calls without a primitive
//! of their own are a bound that is shown as one, and what the product does not explain of a measurement
//! is a value.
#![forbid(unsafe_code)]

mod predict;
mod validate;

pub use predict::{Prediction, Term, Unpredictable, predict};
pub use validate::{Measurement, Validated, Validation, validate};
