//! How sure a number is: computes estimates with intervals from raw samples, and verdicts and comparisons
//! from estimates.
//!
//! One cost is made in this order: [`slope`] gives one value per process, [`disturbance`] leaves out the
//! batches that lost time, [`estimator`] makes a point with an interval, [`calm`](mod@calm) and
//! [`again`](mod@again) make two more, [`modes`] and [`verdict`] say whether the point can be believed.
//! [`dip`] is the test behind [`modes`], and [`outlier`] counts outliers. [`conditions`] judges what the
//! machine was like, [`aspect`] names and describes it, and [`dependence`](mod@dependence) finds the aspect
//! that modes depend on. [`comparison`] compares two costs, and [`knee`] finds the levels of a hierarchy from
//! many.
//!
//! Pure, like the vocabulary it computes with: values in, values out.
#![forbid(unsafe_code)]

pub mod again;
pub mod aspect;
pub mod calm;
pub mod comparison;
pub mod conditions;
pub mod dependence;
pub mod dip;
pub mod disturbance;
pub mod estimator;
pub mod knee;
pub mod modes;
pub mod outlier;
pub mod slope;
pub mod verdict;

pub use again::again;
pub use calm::calm;
pub use dependence::dependence;
pub use disturbance::{Sifted, sift};
pub use estimator::{median, trimmed_mean};
pub use slope::cost_ns;
pub use verdict::judge;
