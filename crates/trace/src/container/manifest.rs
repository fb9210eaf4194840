//! `manifest.json`: the content of a container and the outcome of its recording.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// The version that this crate writes.
pub const VERSION: &str = "assay.trace/3";
/// The version before, which this crate also reads. Its manifests have no origin, which is the probe.
const VERSION_2: &str = "assay.trace/2";
/// The first version, which this crate also reads. Its records end before the sleeps and wake-ups.
const VERSION_1: &str = "assay.trace/1";
/// File name of the manifest.
pub const MANIFEST: &str = "manifest.json";

/// The manifest as stored on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`VERSION`], or one before.
    pub version: String,
    /// Whether the recording ended.
    pub state: State,
    /// What made it.
    #[serde(default)]
    pub origin: Origin,
    /// Name of the machine.
    pub host: String,
    /// Kernel release and build.
    pub kernel: String,
    /// Instruction set, which determines the call numbers of the records.
    pub architecture: String,
    /// Recorded command, empty if the recorder attached to running processes.
    pub command: Vec<String>,
    /// Root processes of the recorded tree.
    pub roots: Vec<u32>,
    /// Start on the monotonic clock, the clock of the records.
    pub start_monotonic_ns: u64,
    /// The same moment in Unix time.
    pub start_realtime_ns: u64,
    /// End on the monotonic clock; absent until the recorder stops.
    pub stop_monotonic_ns: Option<u64>,
    /// True if all records in the kernel's buffers were fetched, false if the recorder gave up.
    pub drained: bool,
    /// Number of threads of the tree that could not be traced because the kernel had no memory for them.
    pub untracked_threads: u64,
    /// Number of lines of an imported log that are not in the trace, because strace does not write such
    /// lines.
    #[serde(default)]
    pub skipped_lines: u64,
    /// Final counters of every CPU; empty until the recorder stops.
    pub counters: Vec<CpuCounters>,
    /// Parquet segments, in part order for each CPU.
    pub segments: Vec<Segment>,
    /// Number of CPUs with a spool while the recorder runs.
    pub cpus: u16,
}

/// State of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The recorder runs or was killed: spools are readable up to their last complete block.
    Recording,
    /// All records are in segments.
    Closed,
}

/// What made a trace, which determines what it contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The probe: everything that [`crate::record`] describes.
    #[default]
    Probe,
    /// strace: the calls and the processes. Of a call, only the elapsed time is known, which contains the
    /// stops of strace; the CPU is always 0, and what happened in its time (sleeps, wake-ups, interrupts,
    /// page faults) was not recorded, nor was anything outside calls.
    Strace,
}

/// Counters of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuCounters {
    /// The CPU.
    pub cpu: u16,
    /// Records that the probe produced on this CPU, kept or lost.
    pub made: u64,
    /// Records lost because the ring was full.
    pub lost: u64,
}

/// One Parquet file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// CPU of the records.
    pub cpu: u16,
    /// Index among the segments of that CPU, from 0.
    pub part: u32,
    /// Number of rows, including counter marks.
    pub rows: u64,
    /// Checksum of the file.
    pub checksum: u64,
}

impl Segment {
    /// Returns the file name.
    #[must_use]
    pub fn file(&self) -> String {
        format!("cpu{}-{:06}.parquet", self.cpu, self.part)
    }
}

/// A manifest could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The directory is not a container or not accessible.
    #[error("{}: {source}; a trace is a directory that contains manifest.json", path.display())]
    Io {
        /// The manifest.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is not valid JSON or not a manifest.
    #[error("{}: the manifest is damaged ({source}); record again, or restore it from a copy", path.display())]
    Damaged {
        /// The manifest.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// The version is not supported.
    #[error("{}: the format is '{version}', but this program reads '{VERSION_1}', '{VERSION_2}' and '{VERSION}'; use the version of assay that wrote it", path.display())]
    Version {
        /// The manifest.
        path: PathBuf,
        /// Version of the file.
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
        if ![VERSION, VERSION_2, VERSION_1].contains(&version.as_str()) {
            return Err(ManifestError::Version { path, version });
        }
        serde_json::from_slice(&bytes).map_err(damaged)
    }

    /// Writes the manifest atomically: a reader sees either the previous manifest or this one.
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

    /// Returns whether the records end before the sleeps and wake-ups.
    pub(crate) fn is_version_1(&self) -> bool {
        self.version == VERSION_1
    }

    /// Returns the number of records that the kernel produced; `None` until the recorder stops.
    #[must_use]
    pub fn made(&self) -> Option<u64> {
        self.sum(|counters| counters.made)
    }

    /// Returns the number of lost records; `None` until the recorder stops.
    #[must_use]
    pub fn lost(&self) -> Option<u64> {
        self.sum(|counters| counters.lost)
    }

    fn sum(&self, field: impl Fn(&CpuCounters) -> u64) -> Option<u64> {
        let total = |sum: u64, counters: &CpuCounters| sum.saturating_add(field(counters));
        (!self.counters.is_empty()).then(|| self.counters.iter().fold(0, total))
    }
}
