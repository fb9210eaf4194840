//! Fills a container: raw blocks while recording, Parquet segments at the end.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use super::{
    checksum,
    layout::{Mark, RECORD_BYTES, Stored},
    manifest::{CpuCounters, MANIFEST, Manifest, ManifestError, Segment, State, VERSION},
    segment::{SegmentError, SegmentWriter},
    spool::{self, SpoolError, SpoolReader, SpoolWriter},
};

/// Records after which a CPU starts another spool: 144 MiB, so that no segment is large.
const PART_RECORDS: u64 = 1 << 20;

/// What is known when a recording begins. Times are given: this crate reads no clock.
#[derive(Debug, Clone)]
pub struct Opening {
    /// Name of the machine.
    pub host: String,
    /// Kernel release and build.
    pub kernel: String,
    /// Instruction set, whose call numbers the records carry.
    pub architecture: String,
    /// Command to be recorded, empty when the recorder attaches to running processes.
    pub command: Vec<String>,
    /// Processes from which the tree starts; [`Writer::roots`] may set them later.
    pub roots: Vec<u32>,
    /// CPUs that may make records: a spool each.
    pub cpus: u16,
    /// Now, on the clock of the records.
    pub monotonic_ns: u64,
    /// Now, in Unix time.
    pub realtime_ns: u64,
}

/// What is known when a recording ends.
#[derive(Debug, Clone)]
pub struct Closing {
    /// Now, on the clock of the records.
    pub monotonic_ns: u64,
    /// Everything that the kernel had kept was appended.
    pub drained: bool,
    /// Threads of the tree that could not be followed.
    pub untracked_threads: u64,
    /// Final counters.
    pub counters: Vec<CpuCounters>,
}

/// A container that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// There is something in the way.
    #[error("{}: exists already; give another name, or remove it", .0.display())]
    Exists(PathBuf),
    /// The disk refused.
    #[error("{}: {source}; is the disk full?", path.display())]
    Io {
        /// File that was written.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A spool could not be turned into a segment. It is still there.
    #[error("{}: cannot be converted: {reason}; the records are kept in it", path.display())]
    Convert {
        /// The spool.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The manifest could not be written.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A CPU that the opening did not announce.
    #[error("CPU {cpu} made a record, but the container was opened for {cpus} CPUs; record again")]
    Cpu {
        /// The CPU.
        cpu: u16,
        /// How many there are.
        cpus: u16,
    },
}

/// A container being filled.
///
/// Invariant: the spools of each CPU are numbered without gaps from 0, and only the last one is open.
///
/// Dropped before anything was appended to it, a writer takes its container away again.
#[derive(Debug)]
pub struct Writer {
    directory: PathBuf,
    holds: Holds,
    manifest: Manifest,
    spools: Vec<Spool>,
}

/// Whether a container is worth keeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// Nothing was appended, and nobody closed it.
    Nothing,
    /// Records, or a recording that came to its end without any.
    Recording,
}

#[derive(Debug)]
struct Spool {
    part: u32,
    open: SpoolWriter,
}

impl Writer {
    /// Makes the directory `path` with an empty spool for every CPU.
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

    /// Says from which processes the tree starts, when that was not known at the opening.
    pub fn roots(&mut self, roots: Vec<u32>) -> Result<(), WriteError> {
        self.manifest.roots = roots;
        Ok(self.manifest.write(&self.directory)?)
    }

    /// Appends one record of `cpu` as the kernel wrote it. Records of one CPU come in the order of their end.
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

    /// Notes that `cpu` has lost `lost_so_far` records by `time_ns`: places a gap in time that still lasts.
    pub fn mark(&mut self, cpu: u16, time_ns: u64, lost_so_far: u64) -> Result<(), WriteError> {
        self.append(cpu, &Stored::mark(Mark { time_ns, cpu, lost_so_far }).to_bytes())
    }

    /// Hands everything to the kernel: what was appended so far survives the death of this process.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        for (cpu, spool) in (0..).zip(&mut self.spools) {
            spool.open.flush().map_err(|source| WriteError::Io {
                path: self.directory.join(spool::file_name(cpu, spool.part)),
                source,
            })?;
        }
        Ok(())
    }

    /// Converts the spools and writes the final manifest. After an error the spools that are left still read.
    pub fn close(mut self, closing: Closing) -> Result<Manifest, WriteError> {
        self.holds = Holds::Recording;
        self.flush()?;
        self.manifest.stop_monotonic_ns = Some(closing.monotonic_ns);
        self.manifest.drained = closing.drained;
        self.manifest.untracked_threads = closing.untracked_threads;
        self.manifest.counters = closing.counters;
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

    /// The segment is whole and in the manifest before its spool goes.
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
    /// A recorder that could not start leaves nothing behind. Only files that this writer made are removed, so a
    /// directory that holds something else stays; whether it worked is nobody's concern.
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
