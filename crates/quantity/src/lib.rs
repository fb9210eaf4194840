//! The vocabulary of the workspace: what a number means.
//!
//! Every crate that computes with numbers depends on this one, and this one on no other of ours. It is pure:
//! no clock, no network, no environment, no randomness. It holds units, primitive ids, raw samples,
//! estimates, cost curves, the two vectors whose product is a prediction ([`Machine`] and [`Demand`]; thesis,
//! section 4.1) and the [`Matrix`] below them, with their versioned file formats. The crate `statistics`
//! makes the estimates.
#![forbid(unsafe_code)]

pub mod cost;
pub mod curve;
pub mod demand;
pub mod estimate;
pub mod evidence;
pub mod format;
pub mod machine;
pub mod matrix;
pub mod pair;
pub mod pattern;
pub mod primitive;
pub mod round;
pub mod sample;
pub mod size;
pub mod unit;

pub use cost::{Cost, Doubt, Mode, Verdict};
pub use curve::{Basis, CostCurve, Evaluation};
pub use demand::{CallCount, Coefficient, Demand, Mapping, NULL_CALL, OperationDemand, Use};
pub use estimate::{Estimate, Interval, Method};
pub use evidence::Evidence;
pub use machine::{Conditions, Description, Fact, Machine, NoCost, Unmeasured};
pub use matrix::{Executed, Matrix};
pub use pair::{Pair, Which};
pub use pattern::Pattern;
pub use primitive::{Key, Kind, NotAPrimitive, PrimitiveId, Value};
pub use round::{ClientSide, CpuTime, Latency, Round};
pub use sample::{Counted, Observation, Sample};
pub use size::Size;
pub use unit::Unit;
