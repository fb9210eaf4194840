//! Storage beneath the page cache: the number of bytes that were really read from and written to it, and
//! files that are read and written past the page cache.
//!
//! For every process the kernel counts the bytes that it caused to be read from storage and to be written to
//! it (proc(5), `/proc/PID/io`). A file system that keeps its files in memory counts none.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use assay_quantity::Size;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use rustix::fs::{FlockOperation, flock, statvfs};
use rustix::io::Errno;

use super::place::file_system;
use super::scratch::{Contents, PAGE};
use crate::benchmark::{Refusal, Setting};
use crate::platform::layout::Buffer;

/// Bytes that this process moved to and from storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transferred {
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
}

const ACCOUNT: &str = "/proc/self/io";

impl Transferred {
    /// Returns the bytes since the process began.
    pub(crate) fn now() -> io::Result<Self> {
        parse(&fs::read_to_string(ACCOUNT)?)
            .ok_or_else(|| io::Error::other(format!("{ACCOUNT} does not contain read_bytes and write_bytes")))
    }

    /// Returns the bytes since an earlier moment.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            read_bytes: self.read_bytes - before.read_bytes,
            written_bytes: self.written_bytes - before.written_bytes,
        }
    }
}

fn parse(account: &str) -> Option<Transferred> {
    let value = |name: &str| {
        let line = account.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))?;
        line.parse().ok()
    };
    Some(Transferred { read_bytes: value("read_bytes")?, written_bytes: value("write_bytes")? })
}

/// Fails if `call` cannot be measured, because files are kept in memory or the kernel does not count.
pub(crate) fn required(setting: &Setting, call: &str) -> Result<(), Refusal> {
    if file_system(&setting.directory)? == "tmpfs" {
        return Err(none(setting, call));
    }
    Transferred::now().map(drop).map_err(|error| {
        Refusal::Unavailable(format!(
            "the kernel does not count bytes of storage ({error}); use one with CONFIG_TASK_IO_ACCOUNTING"
        ))
    })
}

/// The refusal if `call` moves no bytes to or from storage.
pub(crate) fn none(setting: &Setting, call: &str) -> Refusal {
    let directory = setting.directory.display();
    Refusal::Unavailable(format!(
        "{call} reaches no storage beneath the file system of {directory}; set TMPDIR to a directory on a disk"
    ))
}

/// Bytes of a file that is read or written past the page cache: much more than a disk's controller reads
/// ahead, and written in a few tens of milliseconds.
pub(crate) const FILE_BYTES: usize = 32 << 20;

/// Free space that such a file requires, in multiples of its size: a benchmark must not fill a disk.
const SPACE_TIMES: u64 = 8;

/// Bytes of one write during the creation of a file.
const PART_BYTES: usize = 1 << 20;

/// Seed of the contents of the files, which are the same in every process, because a file is created once per
/// run.
const CONTENTS_SEED: u64 = 0x6173_7361_7900_0001;

/// A file that is accessed past the page cache and is entirely on storage.
#[derive(Debug)]
pub(crate) struct DirectFile {
    pub(crate) file: File,
    pub(crate) contents: Contents,
    /// Offsets and sizes must be multiples of this number.
    pub(crate) block: usize,
}

impl DirectFile {
    /// Opens the file that all processes of a run read. The first process creates it.
    pub(crate) fn to_read(setting: &Setting) -> Result<Self, Refusal> {
        required(setting, O_DIRECT)?;
        let path = setting.shared_directory.join("disk-read");
        if !path.exists() {
            // Created under another name, so that no process finds an incomplete file.
            let unfinished = setting.shared_directory.join(format!("disk-{}", std::process::id()));
            write(&open(&unfinished)?, &setting.shared_directory)?;
            fs::rename(&unfinished, &path)?;
        }
        Self::of(open(&path)?, setting)
    }

    /// Opens a file that no other process uses at the same time: each copy of a benchmark has its own.
    pub(crate) fn to_write(setting: &Setting) -> Result<Self, Refusal> {
        required(setting, O_DIRECT)?;
        let mut number = 0;
        let file = loop {
            let file = open(&setting.shared_directory.join(format!("disk-write-{number}")))?;
            if is_locked_now(&file)? {
                break file;
            }
            number += 1;
        };
        if file.metadata()?.len() != FILE_BYTES as u64 {
            write(&file, &setting.shared_directory)?;
        }
        Self::of(file, setting)
    }

    fn of(file: File, setting: &Setting) -> Result<Self, Refusal> {
        let block = block(&file);
        let before = Transferred::now()?;
        file.read_exact_at(&mut Buffer::aligned(block)?, 0)?;
        if Transferred::now()?.since(before).read_bytes < block as u64 {
            return Err(none(setting, O_DIRECT));
        }
        Ok(Self { file, contents: contents(), block })
    }
}

/// Attempts to lock a file. Returns whether this process has the lock; `false` if another one has it.
fn is_locked_now(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(io::Error::other(format!("flock: {error}"))),
    }
}

const O_DIRECT: &str = "a transfer with O_DIRECT";

fn contents() -> Contents {
    Contents::random(&mut Pcg64Mcg::seed_from_u64(CONTENTS_SEED))
}

/// Opens a file past the page cache, and creates it if it does not exist.
fn open(path: &Path) -> Result<File, Refusal> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).custom_flags(libc::O_DIRECT);
    options.open(path).map_err(|error| {
        Refusal::Unavailable(format!(
            "{} cannot be opened with O_DIRECT ({error}); set TMPDIR to a file system that supports it",
            path.display()
        ))
    })
}

/// Returns the number of which direct transfers must be a multiple, according to the file system (since Linux
/// 6.1); otherwise the size of a page, which is sufficient everywhere.
fn block(file: &File) -> usize {
    let status = rustix::fs::statx(file, "", rustix::fs::AtFlags::EMPTY_PATH, DIO_ALIGN);
    status
        .ok()
        .filter(|status| status.stx_mask & DIO_ALIGN.bits() != 0)
        .and_then(|status| usize::try_from(status.stx_dio_offset_align).ok())
        .filter(|align| *align > 0)
        .unwrap_or(PAGE)
}

/// `STATX_DIOALIGN` (linux/stat.h).
const DIO_ALIGN: rustix::fs::StatxFlags = rustix::fs::StatxFlags::from_bits_retain(0x2000);

/// Writes [`FILE_BYTES`] of contents past the page cache, and waits until they are on storage.
fn write(file: &File, directory: &Path) -> Result<(), Refusal> {
    let space = statvfs(directory).map_err(io::Error::from)?;
    let (free, needed) = (space.f_bavail * space.f_frsize, FILE_BYTES as u64 * SPACE_TIMES);
    if free < needed {
        return Err(Refusal::Unavailable(format!(
            "{} has {} of free space and {} are required; free some or set TMPDIR to another file system",
            directory.display(),
            Size(free),
            Size(needed)
        )));
    }
    let contents = contents();
    let mut part = Buffer::aligned(PART_BYTES)?;
    for at in (0..FILE_BYTES).step_by(PART_BYTES) {
        contents.fill(&mut part, at as u64);
        file.write_all_at(&part, at as u64)?;
    }
    Ok(file.sync_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_already_locked_is_skipped_and_one_that_cannot_be_locked_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let first = File::create(&path).unwrap();
        assert!(is_locked_now(&first).unwrap());
        assert!(!is_locked_now(&File::open(&path).unwrap()).unwrap());
        let unlockable = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(&path).unwrap();
        let error = is_locked_now(&unlockable).unwrap_err().to_string();
        assert!(error.starts_with("flock: "), "{error}");
    }

    #[test]
    fn the_counts_are_read_by_name_and_are_none_if_a_name_is_missing() {
        let text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n";
        assert_eq!(parse(text), Some(Transferred { read_bytes: 5, written_bytes: 6 }));
        assert_eq!(parse("rchar: 1\n"), None);
    }
}
