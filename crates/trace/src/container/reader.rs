//! Reads a container: merges the records of all CPUs by end time, in bounded memory.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, VecDeque, binary_heap::PeekMut},
    fmt,
    fs::File,
    io::{self, Seek},
    path::{Path, PathBuf},
};

use super::{
    assembly::Assembly,
    checksum,
    layout::{Meaning, Stored},
    loss::LossTrack,
    manifest::{Manifest, ManifestError, State},
    segment::{SegmentError, SegmentReader},
    spool::{self, SpoolError, SpoolReader},
};
use crate::record::{Entry, Lost};

/// A container could not be read completely.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The manifest is missing or invalid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A file is missing or not accessible.
    #[error("{}: {source}; the trace is incomplete: restore the file from a copy, or record again", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file does not have the content that the recorder wrote.
    #[error("{}: damaged: {reason}; restore the file from a copy, or record again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
    },
}

/// A trace in time order: [`Self::next_entry`], or an iterator over [`Entry`], which copies every entry.
///
/// Calls are sorted by their *end*: otherwise, a call that lasts an hour would keep an hour of records in
/// memory. Both end after an error.
#[derive(Debug)]
pub struct Reader {
    manifest: Manifest,
    streams: Vec<Stream>,
    /// The time of the current entry of each stream that has one, earliest on top.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    /// True if the earliest entry was returned.
    is_returned: bool,
}

impl Reader {
    /// Opens the container in the directory `path`.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let manifest = Manifest::read(path)?;
        let mut reader = Self { streams: Vec::new(), heads: BinaryHeap::new(), manifest, is_returned: false };
        // A CPU that came online during the recording has no spool; its counters contain its losses.
        let counted = reader.manifest.counters.iter().map(|counters| counters.cpu);
        let stored = reader.manifest.segments.iter().map(|segment| segment.cpu);
        let cpus: BTreeSet<u16> = (0..reader.manifest.cpus).chain(counted).chain(stored).collect();
        for cpu in cpus {
            let mut stream = Stream::new(path, cpu, &reader.manifest);
            if let Some(time_ns) = stream.advance()? {
                reader.heads.push(Reverse((time_ns, reader.streams.len())));
            }
            reader.streams.push(stream);
        }
        Ok(reader)
    }

    /// Returns the manifest of the container.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the next entry in time order, or `None` at the end and after an error.
    pub fn next_entry(&mut self) -> Result<Option<&Entry>, ReadError> {
        if std::mem::replace(&mut self.is_returned, true) {
            self.advance().inspect_err(|_| self.heads.clear())?;
        }
        Ok(self.heads.peek().and_then(|Reverse((_, index))| self.streams[*index].entry.as_ref()))
    }

    /// Returns whether the recording ended normally. If not, an unknown number of records after the last
    /// complete block is missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.manifest.state == State::Closed && self.manifest.drained
    }

    /// Replaces the earliest entry with the next one of its stream.
    fn advance(&mut self) -> Result<(), ReadError> {
        let Some(mut earliest) = self.heads.peek_mut() else { return Ok(()) };
        let Reverse((_, index)) = *earliest;
        match self.streams[index].advance()? {
            Some(time_ns) => *earliest = Reverse((time_ns, index)),
            None => drop(PeekMut::pop(earliest)),
        }
        Ok(())
    }
}

impl Iterator for Reader {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().map(Option::<&Entry>::cloned).transpose()
    }
}

/// The records of one CPU: its segments, then its spools.
struct Stream {
    directory: PathBuf,
    cpu: u16,
    /// Segments not yet opened, with their checksums.
    segments: VecDeque<(PathBuf, u64)>,
    next_spool: u32,
    source: Option<(PathBuf, Source)>,
    batch: Vec<Stored>,
    position: usize,
    entry: Option<Entry>,
    /// The record that follows a gap, while the gap is the entry.
    after_gap: Option<Entry>,
    track: LossTrack,
    assembly: Assembly,
    /// Total losses from the manifest; reported at the end.
    final_lost: Option<u64>,
    time_ns: u64,
    is_version_1: bool,
}

enum Source {
    Segment(Box<SegmentReader>),
    Spool(SpoolReader),
}

impl Stream {
    fn new(directory: &Path, cpu: u16, manifest: &Manifest) -> Self {
        let of_cpu = manifest.segments.iter().filter(|segment| segment.cpu == cpu);
        let next_spool = of_cpu.clone().map(|segment| segment.part.saturating_add(1)).max().unwrap_or(0);
        let counters = manifest.counters.iter().find(|counters| counters.cpu == cpu);
        Self {
            directory: directory.to_owned(),
            cpu,
            segments: of_cpu.map(|segment| (directory.join(segment.file()), segment.checksum)).collect(),
            next_spool,
            source: None,
            batch: Vec::new(),
            position: 0,
            entry: None,
            after_gap: None,
            track: LossTrack::default(),
            assembly: Assembly::default(),
            final_lost: counters.map(|counters| counters.lost),
            time_ns: manifest.start_monotonic_ns,
            is_version_1: manifest.is_version_1(),
        }
    }

    /// Replaces the current entry with the next one and returns its end time; `None` at the end of the CPU's
    /// records.
    fn advance(&mut self) -> Result<Option<u64>, ReadError> {
        self.entry = self.after_gap.take();
        while self.entry.is_none() {
            if let Some(stored) = self.batch.get(self.position) {
                self.position += 1;
                // A mark has an earlier timestamp than the records fetched with it; `max` keeps time
                // monotonic.
                self.time_ns = self.time_ns.max(stored.end_ns());
                let meaning = stored.meaning().ok_or_else(|| {
                    let (kind, descriptor) = (stored.kind, stored.descriptor);
                    let reason =
                        format!("a record of kind {kind}.{descriptor} has a value that is not known");
                    let path = self.source.as_ref().map(|(path, _)| path.clone()).unwrap_or_default();
                    ReadError::Damaged { path, reason }
                })?;
                self.take(meaning);
            } else if !self.next_batch()? {
                let Some(lost) = self.final_lost.take() else { return Ok(None) };
                let news = self.track.counter(lost);
                self.report(news);
            }
        }
        Ok(Some(self.time_ns))
    }

    fn take(&mut self, meaning: Meaning) {
        match meaning {
            Meaning::Mark(mark) => {
                let news = self.track.counter(mark.lost_so_far);
                self.report(news);
            }
            Meaning::Record(record) => {
                let news = self.track.field(record.lost_before);
                self.report(news);
                let entry = Entry::Record(record, self.assembly.take(&record));
                if self.entry.is_some() {
                    self.after_gap = Some(entry);
                } else {
                    self.entry = Some(entry);
                }
            }
            Meaning::Piece(piece) => {
                let news = self.track.field(piece.lost);
                self.report(news);
                self.assembly.add(&piece);
            }
        }
    }

    fn report(&mut self, records: u64) {
        if records > 0 {
            self.entry = Some(Entry::Lost(Lost { time_ns: self.time_ns, cpu: self.cpu, records }));
        }
    }

    fn next_batch(&mut self) -> Result<bool, ReadError> {
        loop {
            self.position = 0;
            let Some((path, source)) = &mut self.source else {
                if self.open_next()? {
                    continue;
                }
                return Ok(false);
            };
            let damaged = |reason: String| ReadError::Damaged { path: path.clone(), reason };
            let more = match source {
                Source::Segment(segment) => {
                    segment.next_batch(&mut self.batch).map_err(|error| damaged(error.to_string()))?
                }
                Source::Spool(spool) => {
                    spool.next_block(&mut self.batch).map_err(|error| damaged(error.to_string()))?
                }
            };
            if more {
                if self.is_version_1 {
                    self.batch.iter_mut().for_each(|stored| *stored = stored.of_version_1());
                }
                return Ok(true);
            }
            self.source = None;
        }
    }

    fn open_next(&mut self) -> Result<bool, ReadError> {
        if let Some((path, sum)) = self.segments.pop_front() {
            let segment = open_segment(&path, sum)?;
            self.source = Some((path, Source::Segment(Box::new(segment))));
            return Ok(true);
        }
        let path = self.directory.join(spool::file_name(self.cpu, self.next_spool));
        match SpoolReader::open(&path) {
            Ok(Some(spool)) => {
                self.next_spool += 1;
                self.source = Some((path, Source::Spool(spool)));
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(SpoolError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(SpoolError::Io(source)) => Err(ReadError::Io { path, source }),
            Err(error) => Err(ReadError::Damaged { path, reason: error.to_string() }),
        }
    }
}

/// Opens a segment. Verifies the checksum before any decoding, because decoders of such formats are not
/// hardened.
fn open_segment(path: &Path, sum: u64) -> Result<SegmentReader, ReadError> {
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    let damaged = |reason: String| ReadError::Damaged { path: path.to_owned(), reason };
    let mut file = File::open(path).map_err(failed)?;
    if checksum::of_reader(&mut file).map_err(failed)? != sum {
        return Err(damaged("its checksum differs from the one in the manifest".to_owned()));
    }
    file.rewind().map_err(failed)?;
    SegmentReader::open(file).map_err(|error: SegmentError| damaged(error.to_string()))
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("cpu", &self.cpu)
            .field("time_ns", &self.time_ns)
            .finish_non_exhaustive()
    }
}
