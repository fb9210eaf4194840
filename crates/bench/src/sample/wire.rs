//! The protocol between parent and child: a request as an argument, an answer as a line of JSON. The types
//! used in computations can change without changing these.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use assay_quantity::{Observation, Size};
use serde::{Deserialize, Serialize};

use crate::platform::describe::CacheSizes;

/// A request for a sample.
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
    /// Requests a single batch of this multiple of the fixed length, for a program that counts what is
    /// executed.
    pub(super) counted: Option<u64>,
    /// Requests snapshots of a simulator's counts around each batch, the first one with this number.
    pub(super) snapshots: Option<u64>,
    /// Whether to read counters.
    pub(super) counters: bool,
    /// Absent: the sizes that the machine reports.
    pub(super) effective: Option<WireCaches>,
    /// Absent: `CLOCK_MONOTONIC_RAW`.
    pub(super) ticks_per_ns: Option<f64>,
    pub(super) resolution_ns: f64,
}

/// Bytes of the three cache levels; `None` if unknown.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct WireCaches(Option<u64>, Option<u64>, Option<u64>);

impl From<CacheSizes> for WireCaches {
    fn from(CacheSizes { l1, l2, l3 }: CacheSizes) -> Self {
        let bytes = |size: Option<Size>| size.map(Size::bytes);
        Self(bytes(l1), bytes(l2), bytes(l3))
    }
}

impl From<WireCaches> for CacheSizes {
    fn from(WireCaches(l1, l2, l3): WireCaches) -> Self {
        Self { l1: l1.map(Size), l2: l2.map(Size), l3: l3.map(Size) }
    }
}

/// The answer of a measuring process.
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
    pub(super) observations: Vec<WireBatch>,
    pub(super) baseline: Vec<WireBatch>,
    pub(super) refused: usize,
    /// The readings of each kind.
    pub(super) evidence: BTreeMap<String, Vec<f64>>,
    pub(super) counted: Vec<WireCounted>,
}

/// An event, and its batches or the reason why there are none.
pub(super) type WireCounted = (String, Result<Vec<(u64, f64)>, String>);

/// A batch: its operations and its elapsed time, ns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct WireBatch(u64, f64);

impl From<Observation> for WireBatch {
    fn from(Observation { operations, elapsed_ns }: Observation) -> Self {
        Self(operations, elapsed_ns)
    }
}

impl From<WireBatch> for Observation {
    fn from(WireBatch(operations, elapsed_ns): WireBatch) -> Self {
        Self { operations, elapsed_ns }
    }
}
