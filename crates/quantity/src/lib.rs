//! The vocabulary of the house: what a number means.
//!
//! Every other part depends on this crate and on nothing else of ours. It is pure: no clock, no network, no
//! environment, no randomness. It holds units, primitive ids, raw samples and the estimates made of them, cost curves,
//! and the two vectors whose product is a prediction ([`Machine`] and [`Demand`]; thesis, section 4.1) with their
//! versioned file formats.
#![forbid(unsafe_code)]

pub mod again;
pub mod calm;
pub mod comparison;
pub mod condition;
pub mod curve;
pub mod demand;
pub mod dip;
pub mod disturbance;
pub mod estimate;
pub mod format;
pub mod knee;
pub mod machine;
pub mod modes;
pub mod outlier;
pub mod primitive;
pub mod round;
pub mod sample;
pub mod size;
pub mod unit;
pub mod verdict;

pub use again::again;
pub use calm::calm;
pub use condition::{Aspect, Condition, Conditions};
pub use curve::{Basis, CostCurve, Evaluation};
pub use demand::{CallCount, Coefficient, Demand, Mapping, OperationDemand, Use};
pub use disturbance::{Sifted, sift};
pub use estimate::{Estimate, Interval, Method};
pub use machine::{Cost, Description, Doubt, Fact, Machine, Unmeasured};
pub use modes::Mode;
pub use primitive::{Key, Kind, NotAPrimitive, PrimitiveId, Value};
pub use round::{ClientSide, CpuTime, Latency, Round};
pub use sample::{Counted, Observation, Sample};
pub use size::Size;
pub use unit::Unit;
pub use verdict::Verdict;
