//! Writes a container: raw blocks during the recording, Parquet segments at the end.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use super::{
    checksum,
    layout::{Mark, RECORD_BYTES, Stored},
    manifest::{CpuCounters, MANIFEST, Manifest, ManifestError, Origin, Segment, State, VERSION},
    segment::{SegmentError, SegmentWriter},
    spool::{self, SpoolError, SpoolReader, SpoolWriter},
};
use crate::record::{Content, Record};

/// Records per spool: 176 MiB, which limits the size of a segment.
const PART_RECORDS: u64 = 1 << 20;

/// Properties of a recording at its start. The caller passes the times: this crate reads no clock.
#[derive(Debug, Clone)]
pub struct Opening {
    /// What records.
    pub origin: Origin,
    /// Name of the machine.
    pub host: String,
    /// Kernel release and build.
    pub kernel: String,
    /// Instruction set, which determines the call numbers of the records.
    pub architecture: String,
    /// Command to record, empty if the recorder attaches to running processes.
    pub command: Vec<String>,
    /// Root processes of the recorded tree; [`Writer::roots`] may set them later.
    pub roots: Vec<u32>,
    /// Number of CPUs that may produce records: each has a spool.
    pub cpus: u16,
    /// Current time on the clock of the records.
    pub monotonic_ns: u64,
    /// Current Unix time.
    pub realtime_ns: u64,
}

/// Properties of a recording at its end.
#[derive(Debug, Clone)]
pub struct Closing {
    /// Current time on the clock of the records.
    pub monotonic_ns: u64,
    /// True if all records in the kernel's buffers were appended.
    pub drained: bool,
    /// Number of threads of the tree that could not be traced.
    pub untracked_threads: u64,
    /// Final counters.
    pub counters: Vec<CpuCounters>,
    /// Number of lines of an imported log that are not in the trace.
    pub skipped_lines: u64,
}

/// A container could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The path exists already.
    #[error("{}: already exists; choose another name or remove it", .0.display())]
    Exists(PathBuf),
    /// A file could not be written.
    #[error("{}: {source}; is the disk full?", path.display())]
    Io {
        /// File that was written.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A spool could not be converted into a segment. The spool is kept.
    #[error("{}: cannot be converted: {reason}; the file still contains its records", path.display())]
    Convert {
        /// The spool.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The manifest could not be written.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A record is from a CPU outside [`Opening::cpus`].
    #[error("a record is from CPU {cpu}, but the container was created for {cpus} CPUs; record again")]
    Cpu {
        /// The CPU.
        cpu: u16,
        /// Number of CPUs of the container.
        cpus: u16,
    },
}

/// A container that is being written.
///
/// Invariant: the spools of each CPU are numbered without gaps from 0, and only the last one is open.
///
/// A writer that is dropped before anything was appended removes its container.
#[derive(Debug)]
pub struct Writer {
    directory: PathBuf,
    holds: Holds,
    manifest: Manifest,
    spools: Vec<Spool>,
}

/// Whether a container has content to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// No record was appended, and the container was not closed.
    Nothing,
    /// Records, or a closed recording without records.
    Recording,
}

#[derive(Debug)]
struct Spool {
    part: u32,
    open: SpoolWriter,
}

impl Writer {
    /// Creates the directory `path` with an empty spool for every CPU.
    pub fn create(path: &Path, opening: Opening) -> Result<Self, WriteError> {
        match fs::create_dir(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(WriteError::Exists(path.to_owned()));
            }
            Err(source) => return Err(WriteError::Io { path: path.to_owned(), source }),
        }
        let manifest = Manifest {
            version: VERSION.to_owned(),
            state: State::Recording,
            origin: opening.origin,
            host: opening.host,
            kernel: opening.kernel,
            architecture: opening.architecture,
            command: opening.command,
            roots: opening.roots,
            start_monotonic_ns: opening.monotonic_ns,
            start_realtime_ns: opening.realtime_ns,
            stop_monotonic_ns: None,
            drained: false,
            untracked_threads: 0,
            skipped_lines: 0,
            counters: Vec::new(),
            segments: Vec::new(),
            cpus: opening.cpus,
        };
        let mut writer =
            Self { directory: path.to_owned(), holds: Holds::Nothing, manifest, spools: Vec::new() };
        writer.manifest.write(path)?;
        for cpu in 0..opening.cpus {
            writer.spools.push(Spool::create(path, cpu, 0)?);
        }
        Ok(writer)
    }

    /// Sets the root processes of the tree if they were unknown when the container was created.
    pub fn roots(&mut self, roots: Vec<u32>) -> Result<(), WriteError> {
        self.manifest.roots = roots;
        Ok(self.manifest.write(&self.directory)?)
    }

    /// Appends one record of `cpu` in the format of the kernel. The records of one CPU must be sorted by end
    /// time.
    pub fn append(&mut self, cpu: u16, record: &[u8; RECORD_BYTES]) -> Result<(), WriteError> {
        let cpus = self.manifest.cpus;
        let spool = self.spools.get_mut(usize::from(cpu)).ok_or(WriteError::Cpu { cpu, cpus })?;
        let failed = |part: u32, source| WriteError::Io {
            path: self.directory.join(spool::file_name(cpu, part)),
            source,
        };
        self.holds = Holds::Recording;
        spool.open.append(record).map_err(|source| failed(spool.part, source))?;
        if spool.open.written < PART_RECORDS {
            return Ok(());
        }
        spool.open.flush().map_err(|source| failed(spool.part, source))?;
        *spool = Spool::create(&self.directory, cpu, spool.part + 1)?;
        Ok(())
    }

    /// Appends a record with the contents of its arguments. The records of one CPU must be sorted by end
    /// time.
    pub fn append_record(&mut self, record: &Record, contents: &[Content]) -> Result<(), WriteError> {
        let stored = Stored::of(record);
        for piece in contents.iter().flat_map(|content| stored.pieces(content)) {
            self.append(record.cpu, &piece.to_bytes())?;
        }
        self.append(record.cpu, &stored.to_bytes())
    }

    /// Records that `cpu` has lost `lost_so_far` records up to `time_ns`: this limits the time of a gap that
    /// is still growing.
    pub fn mark(&mut self, cpu: u16, time_ns: u64, lost_so_far: u64) -> Result<(), WriteError> {
        self.append(cpu, &Stored::mark(Mark { time_ns, cpu, lost_so_far }).to_bytes())
    }

    /// Writes all buffered records to the kernel: records appended so far survive the death of this process.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        for (cpu, spool) in (0..).zip(&mut self.spools) {
            spool.open.flush().map_err(|source| WriteError::Io {
                path: self.directory.join(spool::file_name(cpu, spool.part)),
                source,
            })?;
        }
        Ok(())
    }

    /// Converts the spools and writes the final manifest. After an error, the remaining spools are still
    /// readable.
    pub fn close(mut self, closing: Closing) -> Result<Manifest, WriteError> {
        self.holds = Holds::Recording;
        self.flush()?;
        self.manifest.stop_monotonic_ns = Some(closing.monotonic_ns);
        self.manifest.drained = closing.drained;
        self.manifest.untracked_threads = closing.untracked_threads;
        self.manifest.counters = closing.counters;
        self.manifest.skipped_lines = closing.skipped_lines;
        self.manifest.write(&self.directory)?;
        let parts = self.spools.drain(..).map(|spool| spool.part).collect::<Vec<_>>();
        for (cpu, last) in (0..).zip(parts) {
            for part in 0..=last {
                self.convert(cpu, part)?;
            }
        }
        self.manifest.state = State::Closed;
        self.manifest.write(&self.directory)?;
        Ok(self.manifest.clone())
    }

    /// Converts one spool. The segment is complete and in the manifest before its spool is removed.
    fn convert(&mut self, cpu: u16, part: u32) -> Result<(), WriteError> {
        let path = self.directory.join(spool::file_name(cpu, part));
        let failed = |reason: String| WriteError::Convert { path: path.clone(), reason };
        let mut segment = Segment { cpu, part, rows: 0, checksum: 0 };
        let target = self.directory.join(segment.file());
        segment.rows = copy(&path, &target).map_err(|error| failed(error.to_string()))?;
        let mut written = File::open(&target).map_err(|error| failed(error.to_string()))?;
        segment.checksum = checksum::of_reader(&mut written).map_err(|error| failed(error.to_string()))?;
        self.manifest.segments.push(segment);
        self.manifest.write(&self.directory)?;
        fs::remove_file(&path).map_err(|source| WriteError::Io { path: path.clone(), source })
    }
}

impl Drop for Writer {
    /// Removes the container of a recorder that could not start. Removes only files that this writer created,
    /// so a directory with other content stays. Errors are ignored.
    fn drop(&mut self) {
        if self.holds == Holds::Recording {
            return;
        }
        for cpu in 0..self.manifest.cpus {
            let _ = fs::remove_file(self.directory.join(spool::file_name(cpu, 0)));
        }
        let _ = fs::remove_file(self.directory.join(MANIFEST));
        let _ = fs::remove_dir(&self.directory);
    }
}

impl Spool {
    fn create(directory: &Path, cpu: u16, part: u32) -> Result<Self, WriteError> {
        let path = directory.join(spool::file_name(cpu, part));
        let open = SpoolWriter::create(&path).map_err(|source| WriteError::Io { path, source })?;
        Ok(Self { part, open })
    }
}

#[derive(Debug, thiserror::Error)]
enum ConvertError {
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

fn copy(spool: &Path, target: &Path) -> Result<u64, ConvertError> {
    let mut segment = SegmentWriter::create(target)?;
    let mut records = Vec::new();
    if let Some(mut spool) = SpoolReader::open(spool)? {
        while spool.next_block(&mut records)? {
            segment.append(&records)?;
        }
    }
    Ok(segment.close()?)
}
