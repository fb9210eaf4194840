//! `manifest.json`: what a container holds and how its recording went.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// Version that this crate writes, and the only one that it reads.
pub const VERSION: &str = "assay.trace/1";
/// File name of the manifest.
pub const MANIFEST: &str = "manifest.json";

/// The manifest as it stands on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`VERSION`].
    pub version: String,
    /// Whether the recorder came to its end.
    pub state: State,
    /// Name of the machine.
    pub host: String,
    /// Kernel release and build.
    pub kernel: String,
    /// Instruction set, whose call numbers the records carry.
    pub architecture: String,
    /// Command that was recorded, empty when the recorder attached to running processes.
    pub command: Vec<String>,
    /// Processes from which the recorded tree starts.
    pub roots: Vec<u32>,
    /// Start on the monotonic clock, the clock of the records.
    pub start_monotonic_ns: u64,
    /// The same moment in Unix time.
    pub start_realtime_ns: u64,
    /// End on the monotonic clock; absent until the recorder stops.
    pub stop_monotonic_ns: Option<u64>,
    /// Everything that the kernel had kept was fetched; false when the recorder gave up.
    pub drained: bool,
    /// Threads of the tree that the kernel had no memory to follow.
    pub untracked_threads: u64,
    /// Final counters of every CPU; empty until the recorder stops.
    pub counters: Vec<CpuCounters>,
    /// Parquet segments: for each CPU in the order of its parts.
    pub segments: Vec<Segment>,
    /// CPUs that have a spool while the recorder runs.
    pub cpus: u16,
}

/// How far a recording came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The recorder runs, or was killed: spools are read up to their last whole block.
    Recording,
    /// Everything is in segments.
    Closed,
}

/// What one CPU counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuCounters {
    /// The CPU.
    pub cpu: u16,
    /// Records that its programs made, kept or not.
    pub made: u64,
    /// Records that found its ring full.
    pub lost: u64,
}

/// One Parquet file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// CPU whose records it holds.
    pub cpu: u16,
    /// Its place among the segments of that CPU, from 0.
    pub part: u32,
    /// Rows, counter marks included.
    pub rows: u64,
    /// Checksum of the file.
    pub checksum: u64,
}

impl Segment {
    /// Its file name.
    #[must_use]
    pub fn file(&self) -> String {
        format!("cpu{}-{:06}.parquet", self.cpu, self.part)
    }
}

/// A manifest that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The directory is not a container, or is out of reach.
    #[error("{}: {source}; a trace is a directory with a manifest.json in it", path.display())]
    Io {
        /// The manifest.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not JSON, or not ours.
    #[error("{}: the manifest is damaged ({source}); record again, or restore it from a copy", path.display())]
    Damaged {
        /// The manifest.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// Another version.
    #[error("{}: the format is '{version}', this program reads '{VERSION}'; use the version of assay that wrote it", path.display())]
    Version {
        /// The manifest.
        path: PathBuf,
        /// What it says.
        version: String,
    },
}

impl Manifest {
    /// Reads the manifest of the container in `directory`.
    pub fn read(directory: &Path) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: String,
        }
        let path = directory.join(MANIFEST);
        let bytes = fs::read(&path).map_err(|source| ManifestError::Io { path: path.clone(), source })?;
        let damaged = |source| ManifestError::Damaged { path: path.clone(), source };
        let Versioned { version } = serde_json::from_slice(&bytes).map_err(damaged)?;
        if version != VERSION {
            return Err(ManifestError::Version { path, version });
        }
        serde_json::from_slice(&bytes).map_err(damaged)
    }

    /// Writes it whole or not at all: a reader sees the former manifest or this one.
    pub fn write(&self, directory: &Path) -> Result<(), ManifestError> {
        let path = directory.join(MANIFEST);
        let failed = |source| ManifestError::Io { path: path.clone(), source };
        let text = serde_json::to_vec_pretty(self)
            .map_err(|source| ManifestError::Damaged { path: path.clone(), source })?;
        let draft = directory.join("manifest.json.new");
        let mut file = fs::File::create(&draft).map_err(failed)?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed)?;
        fs::rename(&draft, &path).map_err(failed)
    }

    /// Records that the kernel made; `None` until the recorder stops.
    #[must_use]
    pub fn made(&self) -> Option<u64> {
        self.sum(|counters| counters.made)
    }

    /// Records that were lost; `None` until the recorder stops.
    #[must_use]
    pub fn lost(&self) -> Option<u64> {
        self.sum(|counters| counters.lost)
    }

    fn sum(&self, field: impl Fn(&CpuCounters) -> u64) -> Option<u64> {
        let total = |sum: u64, counters: &CpuCounters| sum.saturating_add(field(counters));
        (!self.counters.is_empty()).then(|| self.counters.iter().fold(0, total))
    }
}
