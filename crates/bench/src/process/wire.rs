//! What parent and child say to each other: a request as an argument, an answer as a line of JSON. The types
//! computed with can change without these.

use std::net::SocketAddr;
use std::path::PathBuf;

use assay_quantity::Contamination;
use serde::{Deserialize, Serialize};

/// What a process is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    pub(super) primitive: String,
    pub(super) seed: u64,
    pub(super) cpu: usize,
    pub(super) other_cpu: Option<usize>,
    pub(super) directory: PathBuf,
    pub(super) shared_directory: PathBuf,
    pub(super) peer: Option<SocketAddr>,
    /// One batch only, of so many times the usual length, for a program that counts what it executes.
    pub(super) counted: Option<u64>,
    /// Whether counters are read as well.
    pub(super) counters: bool,
    /// Absent: `CLOCK_MONOTONIC_RAW`.
    pub(super) ticks_per_ns: Option<f64>,
    pub(super) resolution_ns: f64,
    /// Width of the core alone, as far as it is known; 0: not known.
    pub(super) core_width: f64,
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(super) enum Answer {
    Sample(WireSample),
    Unavailable(String),
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireSample {
    pub(super) observations: Vec<(u64, f64)>,
    pub(super) baseline: Vec<(u64, f64)>,
    #[serde(with = "WireContamination")]
    pub(super) contamination: Contamination,
    pub(super) counted: Vec<WireCounted>,
}

/// An event, and its batches or why there are none.
pub(super) type WireCounted = (String, Result<Vec<(u64, f64)>, String>);

/// [`Contamination`] on the wire: the compiler sees that neither has a field more than the other.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Contamination", deny_unknown_fields)]
struct WireContamination {
    wall_ns: f64,
    stolen_ns: f64,
    involuntary_switches: u64,
    major_faults: u64,
    interrupt_ns: f64,
    neighbours: f64,
    core_width: f64,
    shared: f64,
    cycle_ns: f64,
    translation_ns: f64,
}
