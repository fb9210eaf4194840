//! Synchronisation of a file with storage: a write and the call that waits until it is on the disk.
//!
//! The kernel's counters show that the call did so: the first write to a page after the page was written back
//! counts as a page to be written, a write to a page that is still dirty does not.

use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;

use assay_quantity::{PrimitiveId, Size};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting, Sharing};
use crate::platform::kernel::{check, expect};
use crate::platform::layout::Buffer;
use crate::primitive::kit::limit;
use crate::primitive::kit::scratch::{PAGE, Scratch};
use crate::primitive::kit::step::{Step, Steps};
use crate::primitive::kit::storage::{self, Transferred};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["file.fsync{size=4KiB}"],
        full: &[],
        cost: Per::Operation,
        calls: &["pwrite64", "fsync"],
        about: "`pwrite` of `size` bytes over the beginning of a file, and `fsync`",
        source: "own: the latency of a committed transaction",
        prepare: fsync,
    },
    Row {
        quick: &["file.fdatasync{size=4KiB}"],
        full: &[],
        cost: Per::Operation,
        calls: &["pwrite64", "fdatasync"],
        about: "`pwrite` of `size` bytes over the beginning of a file, and `fdatasync`",
        source: "own: the latency of a database's log",
        prepare: fdatasync,
    },
];

/// Largest write before a call.
const SIZE_MAX: Size = Size::mib(1);

/// `pwrite` and `fsync`.
fn fsync(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    // SAFETY: the caller passes an open descriptor.
    synced(id, setting, "fsync", |file| unsafe { libc::fsync(file) })
}

/// `pwrite` and `fdatasync`.
fn fdatasync(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    // SAFETY: the caller passes an open descriptor.
    synced(id, setting, "fdatasync", |file| unsafe { libc::fdatasync(file) })
}

fn synced(
    id: &PrimitiveId,
    setting: &mut Setting,
    name: &'static str,
    call: impl Fn(RawFd) -> libc::c_int + 'static,
) -> Result<Prepared, Refusal> {
    let size = limit::size(id, Size(1)..=SIZE_MAX)?;
    storage::required(setting, name)?;
    let scratch = Scratch::with_bytes(setting, size)?;
    let piece = Buffer::new(size, &mut setting.rng)?;
    let mut step = Synced { scratch, piece, name, call, before: Transferred::now()? };
    step.arm(1)?;
    step.step()?;
    step.disarm(1).map_err(|_| storage::none(setting, name))?;
    Ok(Prepared { sharing: Sharing::Asleep, ..Prepared::alone(Steps::of(step)) })
}

struct Synced<F> {
    scratch: Scratch,
    piece: Buffer,
    name: &'static str,
    call: F,
    before: Transferred,
}

impl<F: Fn(RawFd) -> libc::c_int> Step for Synced<F> {
    /// Synchronises the file, so that none of its pages are dirty.
    fn arm(&mut self, _: u64) -> io::Result<()> {
        check("fsync", (self.call)(self.scratch.descriptor()))?;
        self.before = Transferred::now()?;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let (file, piece) = (self.scratch.descriptor(), &self.piece);
        // SAFETY: the pointer and the length are those of a slice.
        expect("pwrite", unsafe { libc::pwrite(file, piece.as_ptr().cast(), piece.len(), 0) }, piece.len())?;
        check(self.name, (self.call)(file)).map(drop)
    }

    /// Writes once more. This write also finds the pages written back, so it is counted like those of the
    /// batch.
    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.scratch.file.write_all_at(&self.piece, 0)?;
        let written = Transferred::now()?.since(self.before).written_bytes;
        let due = (operations + 1) * self.piece.len().next_multiple_of(PAGE) as u64;
        if written >= due {
            Ok(())
        } else {
            let name = self.name;
            Err(io::Error::other(format!("{written} bytes were written by {name} instead of {due}")))
        }
    }
}
