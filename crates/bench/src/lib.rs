//! The measurement harness and the microbenchmarks: the cost of each primitive on this machine.
//!
//! [`catalogue()`] lists the benchmarks, [`catalogue_here()`] those of this machine. [`measure`] runs them
//! according to a [`Plan`], each sample in a new process that calls [`sample_main`]. [`cost_of`] and
//! [`machine`] compute the machine vector from the raw samples. The method is that of hbench-OS (thesis,
//! section 2.2) with the process as the unit of replication. This crate never prints, and leaves every
//! statistic to `statistics`.
//!
//! Its directories are floors, each of which uses those before it only: `platform`, `benchmark`,
//! `primitive/kit`, the other directories of `primitive`, `catalogue`, `sample`, `run`.

pub mod benchmark;
mod catalogue;
pub mod platform;
mod primitive;
mod run;
pub mod sample;

pub use benchmark::{Benchmark, Operation, Prepared, Profile, Refusal};
pub use catalogue::{catalogue, catalogue_here, find};
pub use platform::clock::{Calibration, calibrate};
pub use platform::describe::{describe, usable_cpus};
pub use platform::noise;
pub use primitive::net::serve;
pub use run::alternate::alternate;
pub use run::cost::{NoMachineCost, cost_of, machine, pairs_of, typical_of, values_of};
pub use run::count::{Counts, NotCounted, count};
pub use run::plan::{Finding, Measured, Plan, all_failed, measure};
pub use run::simulated;
pub use run::sweep;
pub use sample::sabotage::{self, Sabotage};
pub use sample::{
    Outcome, SNAPSHOT, SampleError, Spawner, delayed_sample_main, sample_main, yields_sample_despite_sabotage,
};
