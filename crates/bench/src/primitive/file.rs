//! Files that are in the page cache: open, stat, reread, overwrite and map (lmbench, 1996, section 5.3;
//! thesis, sections 2.2.3 and 2.2.5).

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use assay_quantity::PrimitiveId;

use super::pieces::Pieces;
use super::size_of_operation;
use crate::benchmark::{Operation, Prepared, Refusal, Setting};
use crate::kernel::{check, expect, failed};
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        ids: &["file.open_close"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["open", "openat", "close"],
        about: "open of an existing file and close",
        source: "hbench-OS lat_syscall; thesis, section 4.2",
        prepare: open_close,
    },
    Row {
        ids: &["file.open_missing"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["open", "openat"],
        about: "open that fails because there is no such file",
        source: "own: library and configuration search paths consist of these",
        prepare: open_missing,
    },
    Row {
        ids: &["file.stat"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["stat", "newfstatat", "statx"],
        about: "stat of a path",
        source: "hbench-OS lat_syscall; thesis, section 4.2",
        prepare: stat,
    },
    Row {
        ids: &["file.fstat"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["fstat", "newfstatat", "statx"],
        about: "fstat of an open file",
        source: "hbench-OS lat_syscall",
        prepare: fstat,
    },
    Row {
        ids: &[
            "file.read{size=64B,buffer=reused}",
            "file.read{size=4KiB,buffer=reused}",
            "file.read{size=32KiB,buffer=reused}",
            "file.read{size=64KiB,buffer=reused}",
            "file.read{size=4KiB,buffer=fresh}",
            "file.read{size=32KiB,buffer=fresh}",
            "file.read{size=64KiB,buffer=fresh}",
        ],
        profile: Profile::Quick,
        cost: Per::ByteOfSize,
        calls: &["pread64"],
        about: "pread of the next part of a cached file of 8 MiB",
        source: "lmbench 1996, section 5.3; thesis, section 2.2.3",
        prepare: read,
    },
    Row {
        ids: &[
            "file.write{size=64B,buffer=reused}",
            "file.write{size=4KiB,buffer=reused}",
            "file.write{size=32KiB,buffer=reused}",
            "file.write{size=64KiB,buffer=reused}",
            "file.write{size=4KiB,buffer=fresh}",
            "file.write{size=32KiB,buffer=fresh}",
            "file.write{size=64KiB,buffer=fresh}",
        ],
        profile: Profile::Quick,
        cost: Per::ByteOfSize,
        calls: &["pwrite64"],
        about: "pwrite over the next part of a cached file of 8 MiB",
        source: "thesis, section 4.2",
        prepare: write,
    },
    Row {
        ids: &["mmap.reread{size=1MiB}"],
        profile: Profile::Quick,
        cost: Per::ByteOfSize,
        calls: &["mmap", "munmap"],
        about: "map the next part of a cached file, add up every word, unmap",
        source: "lmbench 1996, section 5.3; thesis, section 2.2.5",
        prepare: map_reread,
    },
];

/// Bytes of the file that transfers walk through: larger than most second-level caches, small enough to
/// be written anew for every process. A multiple of every transfer size.
const FILE_BYTES: usize = 8 << 20;

/// A file is written page by page, as programs write theirs. One large write would leave large folios in
/// the page cache, and overwriting a few bytes of one costs ext4 of Linux 6.18 a dozen times as much (a
/// 64-byte `pwrite` took 7.4 us instead of 0.6 us), because it visits every block of the folio.
const PAGE: usize = 4096;

/// What every byte of the file is, so that a read can be checked.
const PATTERN: u8 = 0x5a;

/// A file that goes when it is dropped. A killed process leaves it to the run's temporary directory.
struct Scratch {
    path: PathBuf,
    name: CString,
    file: File,
}

impl Scratch {
    fn with_bytes(setting: &Setting, bytes: usize) -> io::Result<Self> {
        let path = setting.directory.join(format!("file-{}", std::process::id()));
        let name = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        let page = [PATTERN; PAGE];
        for at in (0..bytes).step_by(PAGE) {
            file.write_all(&page[..PAGE.min(bytes - at)])?;
        }
        Ok(Self { path, name, file })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The directory is removed with everything in it at the end of the run.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// `open` of a file that exists, and `close`.
fn open_close(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let scratch = Scratch::with_bytes(setting, 1)?;
    Ok(Prepared::repeat(move || {
        // SAFETY: the name is a C string that lives as long as the closure.
        let file = check("open", unsafe { libc::open(scratch.name.as_ptr(), libc::O_RDONLY) })?;
        // SAFETY: closes the descriptor just opened, which nothing else knows.
        check("close", unsafe { libc::close(file) }).map(drop)
    }))
}

/// `open` of a file that does not exist, in a directory that does.
fn open_missing(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let path = setting.directory.join("missing");
    let name = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    Ok(Prepared::repeat(move || {
        // SAFETY: the name is a C string that lives as long as the closure.
        let result = unsafe { libc::open(name.as_ptr(), libc::O_RDONLY) };
        if result >= 0 {
            return Err(io::Error::other("open found the file that must be missing"));
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOENT) => Ok(()),
            _ => Err(failed("open")),
        }
    }))
}

/// `stat` by path.
fn stat(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let scratch = Scratch::with_bytes(setting, 1)?;
    Ok(Prepared::repeat(move || {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the name is a C string; the call fills the structure or fails.
        check("stat", unsafe { libc::stat(scratch.name.as_ptr(), stat.as_mut_ptr()) }).map(drop)
    }))
}

/// `fstat` of an open file.
fn fstat(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let scratch = Scratch::with_bytes(setting, 1)?;
    Ok(Prepared::repeat(move || {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the descriptor is open; the call fills the structure or fails.
        check("fstat", unsafe { libc::fstat(scratch.file.as_raw_fd(), stat.as_mut_ptr()) }).map(drop)
    }))
}

/// `pread` of the next part of a cached file.
fn read(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let (file, pieces) = (CachedFile::new(setting)?, Pieces::of(id, setting)?);
    Ok(Prepared::alone(Read { file, pieces }))
}

/// `pwrite` over the next part of a cached file.
fn write(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let (mut file, mut pieces) = (CachedFile::new(setting)?, Pieces::of(id, setting)?);
    Ok(Prepared::repeat(move || {
        let piece = pieces.next();
        let at = file.advance(piece.len());
        // SAFETY: the pointer and the length are those of a slice.
        let written = unsafe { libc::pwrite(file.descriptor(), piece.as_ptr().cast(), piece.len(), at) };
        expect("pwrite", written, piece.len())
    }))
}

/// A file in the page cache that transfers walk through, again and again.
pub(crate) struct CachedFile {
    scratch: Scratch,
    next: usize,
}

impl CachedFile {
    /// A new file on the file system to be measured.
    pub(crate) fn new(setting: &Setting) -> io::Result<Self> {
        Ok(Self { scratch: Scratch::with_bytes(setting, FILE_BYTES)?, next: 0 })
    }

    #[inline]
    pub(crate) fn descriptor(&self) -> RawFd {
        self.scratch.file.as_raw_fd()
    }

    /// Where the next `size` bytes begin.
    #[inline]
    #[expect(clippy::cast_possible_wrap, reason = "below FILE_BYTES")]
    pub(crate) fn advance(&mut self, size: usize) -> libc::off_t {
        let at = self.next;
        self.next = if at + 2 * size > FILE_BYTES { 0 } else { at + size };
        at as libc::off_t
    }
}

struct Read {
    file: CachedFile,
    pieces: Pieces,
}

impl Read {
    #[inline]
    fn once(&mut self) -> io::Result<()> {
        let piece = self.pieces.next();
        let at = self.file.advance(piece.len());
        // SAFETY: the pointer and the length are those of a slice that is borrowed mutably.
        let result =
            unsafe { libc::pread(self.file.descriptor(), piece.as_mut_ptr().cast(), piece.len(), at) };
        expect("pread", result, piece.len())
    }
}

impl Operation for Read {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            self.once()?;
        }
        Ok(())
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        let piece = self.pieces.next();
        piece.fill(0);
        let (pointer, size) = (piece.as_mut_ptr(), piece.len());
        // SAFETY: as in `once`.
        let result = unsafe { libc::pread(self.file.descriptor(), pointer.cast(), size, 0) };
        expect("pread", result, size)?;
        if piece.iter().all(|byte| *byte == PATTERN) {
            Ok(())
        } else {
            Err(io::Error::other("pread returned bytes that were not written"))
        }
    }
}

/// Map the next part of a cached file, add up every word of it, unmap it.
fn map_reread(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let file = CachedFile::new(setting)?;
    Ok(Prepared::alone(MapReread { file, size: size_of_operation(id), sum: 0 }))
}

struct MapReread {
    file: CachedFile,
    size: usize,
    sum: u64,
}

impl MapReread {
    #[inline]
    fn once(&mut self) -> io::Result<()> {
        let at = self.file.advance(self.size);
        let file = self.file.descriptor();
        // SAFETY: a new shared mapping of a file at an address of the kernel's choice.
        let mapping = unsafe {
            libc::mmap(std::ptr::null_mut(), self.size, libc::PROT_READ, libc::MAP_SHARED, file, at)
        };
        if mapping == libc::MAP_FAILED {
            return Err(failed("mmap"));
        }
        let words = mapping.cast::<u64>();
        for word in 0..self.size / size_of::<u64>() {
            // SAFETY: within the mapping, which is page-aligned and backed by the file to its end; the
            // read is volatile because the file could change, and so that every word is touched.
            self.sum = self.sum.wrapping_add(unsafe { words.add(word).read_volatile() });
        }
        // SAFETY: unmaps exactly what was mapped above; nothing points into it.
        check("munmap", unsafe { libc::munmap(mapping, self.size) }).map(drop)
    }
}

impl Operation for MapReread {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.sum = 0;
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            self.once()?;
        }
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        let words = operations.wrapping_mul((self.size / size_of::<u64>()) as u64);
        if self.sum == u64::from_ne_bytes([PATTERN; 8]).wrapping_mul(words) {
            Ok(())
        } else {
            Err(io::Error::other("the sum of the mapped words is not that of the file"))
        }
    }
}
