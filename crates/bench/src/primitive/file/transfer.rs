//! Transfers to, from and between files that are in the page cache: reread, overwrite, copy (lmbench, 1996,
//! section 5.3; thesis, sections 2.2.3 and 2.2.5).

use std::io;
use std::os::unix::fs::FileExt;

use assay_quantity::{PrimitiveId, Size};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::expect;
use crate::primitive::kit::pieces::Pieces;
use crate::primitive::kit::scratch::CachedFile;
use crate::primitive::kit::step::{Step, Steps};
use crate::primitive::kit::{limit, steady};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["file.read{size=64B|4KiB|64KiB,buffer=reused}", "file.read{size=4KiB|64KiB,buffer=fresh}"],
        full: &["file.read{size=64B|512B|1KiB|4KiB|16KiB|32KiB|64KiB|256KiB|1MiB|4MiB,buffer=*}"],
        cost: Per::ByteOfSize,
        calls: &["pread64"],
        about: "`pread` of the next part of a cached file of 8 MiB",
        source: "lmbench 1996, section 5.3 (bw_file_rd by sizes); thesis, section 2.2.3",
        prepare: read,
    },
    Row {
        quick: &["file.write{size=64B|4KiB|64KiB,buffer=reused}", "file.write{size=4KiB|64KiB,buffer=fresh}"],
        full: &["file.write{size=64B|4KiB|32KiB|64KiB,buffer=*}"],
        cost: Per::ByteOfSize,
        calls: &["pwrite64"],
        about: "`pwrite` over the next part of a cached file of 8 MiB",
        source: "thesis, section 4.2",
        prepare: write,
    },
    Row {
        quick: &["file.copy_range{size=4KiB|64KiB}"],
        full: &["file.copy_range{size=4KiB|64KiB|1MiB}"],
        cost: Per::ByteOfSize,
        calls: &["copy_file_range"],
        about: "`copy_file_range` of the next part of a cached file of 8 MiB over the same part of another; \
                a file system that shares blocks does not copy data",
        source: "own: how files are copied and cloned",
        prepare: copy_range,
    },
];

/// Largest transfer: the file that holds it is written again by every process.
pub(crate) const SIZE_MAX: Size = Size::mib(256);

/// Returns the transfers after the caches have settled. Reading a file alone does not leave the caches in the
/// same state as writes and buffers do.
fn settled(transfer: impl Step + 'static, lap: Option<u64>) -> Result<Prepared, Refusal> {
    let transfers = Steps::of(transfer);
    Ok(Prepared::alone(match lap {
        Some(lap) => steady::settled(transfers, lap)?,
        None => transfers,
    }))
}

/// `pread` of the next part of a cached file.
fn read(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, Size(1)..=SIZE_MAX)?;
    let (file, pieces) = (CachedFile::holding(size, setting)?, Pieces::of(id, setting)?);
    let lap = file.lap(size);
    settled(Read { file, pieces, last: None }, lap)
}

struct Read {
    file: CachedFile,
    pieces: Pieces,
    /// The last piece that was read, and its offset in the file.
    last: Option<(*mut u8, libc::off_t)>,
}

impl Step for Read {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let piece = self.pieces.next();
        let at = self.file.advance(piece.len());
        let pointer = piece.as_mut_ptr();
        self.last = Some((pointer, at));
        // SAFETY: the pointer and the length are those of a slice that is borrowed mutably.
        let got = unsafe { libc::pread(self.file.descriptor(), pointer.cast(), piece.len(), at) };
        expect("pread", got, piece.len())
    }

    /// Checks that the last piece contains its part of the file, and clears it, so that the next batch cannot
    /// find it there.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        let Some((piece, at)) = self.last.take() else { return Ok(()) };
        // SAFETY: it is a piece of the buffer that `self.pieces` owns and that is not borrowed now.
        let piece = unsafe { std::slice::from_raw_parts_mut(piece, self.pieces.size()) };
        let right = self.file.contents().are(piece, at.cast_unsigned());
        piece.fill(0);
        if right {
            Ok(())
        } else {
            Err(io::Error::other("pread returned bytes that differ from those of the file"))
        }
    }
}

/// `pwrite` over the next part of a cached file.
fn write(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, Size(1)..=SIZE_MAX)?;
    let (file, pieces) = (CachedFile::holding(size, setting)?, Pieces::of(id, setting)?);
    let lap = file.lap(size);
    settled(Write { file, pieces, last: 0 }, lap)
}

struct Write {
    file: CachedFile,
    pieces: Pieces,
    /// Offset of the last piece of this batch.
    last: u64,
}

impl Step for Write {
    /// Overwrites the range of the last piece with bytes that no piece contains: pieces are zeroes.
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.last = self.file.last(self.pieces.size(), operations);
        self.file.overwrite(self.last, &vec![0xa5; self.pieces.size()])
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let piece = self.pieces.next();
        let at = self.file.advance(piece.len());
        // SAFETY: the pointer and the length are those of a slice.
        let written = unsafe { libc::pwrite(self.file.descriptor(), piece.as_ptr().cast(), piece.len(), at) };
        expect("pwrite", written, piece.len())
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        let there = self.file.read_back(self.last, self.pieces.size())?;
        if there.iter().all(|byte| *byte == 0) {
            Ok(())
        } else {
            Err(io::Error::other("pwrite did not change the file"))
        }
    }
}

/// `copy_file_range` of the next part of a cached file over the same part of another.
fn copy_range(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, Size(1)..=SIZE_MAX)?;
    let (from, to) = (CachedFile::holding(size, setting)?, CachedFile::holding(size, setting)?);
    let lap = from.lap(size);
    settled(CopyRange { from, to, size, last: 0 }, lap)
}

struct CopyRange {
    from: CachedFile,
    to: CachedFile,
    size: usize,
    /// Offset of the last part of this batch.
    last: u64,
}

impl Step for CopyRange {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.last = self.to.last(self.size, operations);
        self.to.overwrite(self.last, &vec![0; self.size])
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let (mut from, mut to) = (self.from.advance(self.size), self.to.advance(self.size));
        let (source, sink) = (self.from.descriptor(), self.to.descriptor());
        // SAFETY: the pointers are to locals that outlive the call.
        let copied = unsafe { libc::copy_file_range(source, &raw mut from, sink, &raw mut to, self.size, 0) };
        expect("copy_file_range", copied, self.size)
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        let there = self.to.read_back(self.last, self.size)?;
        if self.from.contents().are(&there, self.last) {
            Ok(())
        } else {
            Err(io::Error::other("copy_file_range left bytes that differ from those of the source file"))
        }
    }
}

impl CachedFile {
    fn overwrite(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file().write_all_at(bytes, at)
    }

    fn read_back(&self, at: u64, size: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0xff; size];
        self.file().read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }
}
