//! Conversion of values to blocks of a report: one file for each kind of value.

pub mod answer;
pub mod application;
pub mod calls;
pub mod comparison;
pub mod counters;
pub mod counts;
pub mod demand;
pub mod difference;
pub mod explained;
pub mod facts;
pub mod guard;
pub mod hierarchy;
pub mod machine;
pub mod matrix;
pub mod measured;
pub mod phases;
pub mod prediction;
pub mod profile;
pub mod reflection;
pub mod scaling;
pub mod simulation;
pub mod summary;
pub mod timeline;
pub mod trace;
pub mod whole;

/// A count as a figure.
#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
fn real(count: u64) -> f64 {
    count as f64
}
