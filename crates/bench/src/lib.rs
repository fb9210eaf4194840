//! The measurement harness and the microbenchmarks: the cost of each primitive on this machine.
//!
//! [`catalogue`] lists the benchmarks. [`measure`] runs them according to a [`Plan`], each sample in a new
//! process that calls [`sample_main`]. [`cost_of`] and [`machine`] compute the machine vector from the raw
//! samples. The method is that of hbench-OS (thesis, section 2.2) with the process as the unit of
//! replication. This crate never prints, and leaves every statistic to `statistics`.

pub mod alternate;
pub mod benchmark;
pub mod clock;
mod cold;
mod copies;
pub mod cost;
pub mod count;
mod counter;
#[cfg(target_arch = "x86_64")]
mod cpuid;
pub mod describe;
pub mod evidence;
pub mod harness;
pub mod layout;
pub mod noise;
pub mod plan;
pub mod process;
pub mod sabotage;
pub mod serve;
pub mod sweep;
pub mod table;

mod flush;
mod free_lists;
mod kernel;
mod partner;
mod primitive;
mod seed;

pub use alternate::alternate;
pub use benchmark::{Benchmark, Operation, Prepared, Refusal};
pub use clock::{Calibration, calibrate};
pub use cost::{NoMachineCost, cost_of, machine, pairs_of, typical_of, values_of};
pub use count::{Counts, NotCounted, count};
pub use describe::{describe, memory_nodes, usable_cpus};
pub use plan::{Finding, Measured, Outcome, Plan, all_failed, measure};
pub use process::{SampleError, Spawner, delayed_sample_main, sample_main, yields_sample_despite_sabotage};
pub use sabotage::Sabotage;
pub use table::{Profile, catalogue, find};
