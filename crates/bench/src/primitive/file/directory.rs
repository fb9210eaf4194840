//! Names in a directory: files created and deleted, by type of file system (lmbench 3, lat_fs: 0, 1, 4 and 10
//! KiB), files renamed, and directories created and removed.
//!
//! A batch creates its files in a new directory and checks afterwards that each exists with its size. Files
//! to be deleted are created untimed. Names are formatted in advance, outside the timed part.

use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;

use assay_quantity::{PrimitiveId, Size};
use rustix::fs::{Timespec, Timestamps};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting, Sharing};
use crate::platform::kernel::{check, expect};
use crate::platform::layout::Buffer;
use crate::primitive::kit::limit;
use crate::primitive::kit::place::{Names, Place, Room};
use crate::primitive::kit::slot::Slot;
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &[
            "file.create",
            "file.create{filesystem=tmpfs|ext4}",
            "file.create{size=10KiB,filesystem=tmpfs|ext4}",
        ],
        full: &["file.create{filesystem=*}", "file.create{size=1KiB|4KiB|10KiB,filesystem=*}"],
        cost: Per::Operation,
        calls: &["openat", "write", "close"],
        about: "`openat` of a new file, `write` of `size` bytes if a size is given, `close`",
        source: "lmbench 1996, section 6.8; lmbench 3, lat_fs",
        prepare: create,
    },
    Row {
        quick: &[
            "file.delete",
            "file.delete{filesystem=tmpfs|ext4}",
            "file.delete{size=10KiB,filesystem=tmpfs|ext4}",
        ],
        full: &["file.delete{filesystem=*}", "file.delete{size=1KiB|4KiB|10KiB,filesystem=*}"],
        cost: Per::Operation,
        calls: &["unlinkat"],
        about: "`unlinkat` of a file of `size` bytes, or of an empty file without a size",
        source: "lmbench 1996, section 6.8; lmbench 3, lat_fs",
        prepare: delete,
    },
    Row {
        quick: &["file.rename"],
        full: &[],
        cost: Per::Operation,
        calls: &["renameat", "renameat2"],
        about: "`renameat` of a file within its directory",
        source: "own: how programs replace a whole file",
        prepare: rename,
    },
    Row {
        quick: &["directory.make_remove"],
        full: &[],
        cost: Per::Operation,
        calls: &["mkdirat", "unlinkat"],
        about: "`mkdirat`, and `unlinkat` of the same directory",
        source: "own: the cost of temporary directories and lock directories",
        prepare: make_remove,
    },
];

/// Files of the longest batch: a few milliseconds on the fastest file system.
const FILES_MAX: u64 = 2048;

/// Total bytes of the files of the longest batch. All batches of a process together have about twenty times
/// as many.
const BYTES_MAX: u64 = 8 << 20;

/// Largest file.
const SIZE_MAX: Size = Size::kib(256);

/// Creates a new file of `size` bytes.
fn create(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Steps::of(Create { files: Files::of(id, setting)? })))
}

/// Deletes one of many files.
fn delete(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Steps::of(Delete { files: Files::of(id, setting)? })))
}

/// Files of one size, with a separate directory for each batch.
struct Files {
    place: Place,
    room: Room,
    names: Names,
    contents: Option<Buffer>,
    slot: Slot,
    next: usize,
}

impl Files {
    fn of(id: &PrimitiveId, setting: &mut Setting) -> Result<Self, Refusal> {
        let contents = match id.size() {
            None => None,
            Some(_) => Some(Buffer::new(limit::size(id, Size(1)..=SIZE_MAX)?, &mut setting.rng)?),
        };
        let names = Names::numbered(FILES_MAX);
        let mut place = Place::of(id, setting)?;
        Ok(Self { room: place.room()?, place, names, contents, slot: Slot::find()?, next: 0 })
    }

    /// Starts with the first file of a new directory.
    fn begin(&mut self) -> io::Result<()> {
        self.next = 0;
        self.room = self.place.room()?;
        self.slot = Slot::find()?;
        Ok(())
    }

    /// Files of the longest batch.
    fn max(&self) -> u64 {
        let bytes = self.contents.as_ref().map_or(1, |contents| contents.len() as u64);
        FILES_MAX.min(BYTES_MAX / bytes)
    }

    /// Returns the name of the next file.
    #[inline]
    fn next(&mut self) -> &CStr {
        self.next += 1;
        self.names.name(self.next - 1)
    }

    #[inline]
    fn create(&mut self) -> io::Result<()> {
        let directory = self.room.descriptor();
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        // SAFETY: the name is a C string that outlives the call.
        let file = unsafe { libc::openat(directory, self.next().as_ptr(), flags, 0o600) };
        let file = self.slot.check("openat", file)?;
        if let Some(contents) = &self.contents {
            // SAFETY: the pointer and the length are those of a slice.
            let written = unsafe { libc::write(file.number(), contents.as_ptr().cast(), contents.len()) };
            expect("write", written, contents.len())?;
        }
        file.close()
    }

    #[inline]
    fn delete(&mut self) -> io::Result<()> {
        let directory = self.room.descriptor();
        unlink(directory, self.next(), 0)
    }

    /// Checks that the directory contains this number of files, and that no descriptor is still open.
    fn check(&self, due: u64) -> io::Result<()> {
        self.slot.check_closed()?;
        let bytes = self.contents.as_ref().map_or(0, |contents| contents.len() as u64);
        match self.room.files_of(bytes)? {
            files if files == due => Ok(()),
            files => Err(io::Error::other(format!("the directory contains {files} files instead of {due}"))),
        }
    }
}

#[inline]
fn unlink(directory: RawFd, name: &CStr, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: the name is a C string that outlives the call.
    check("unlinkat", unsafe { libc::unlinkat(directory, name.as_ptr(), flags) }).map(drop)
}

struct Create {
    files: Files,
}

impl Step for Create {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.files.begin()
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.files.create()
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.files.check(operations)
    }

    fn max_batch(&self) -> u64 {
        self.files.max()
    }
}

struct Delete {
    files: Files,
}

impl Step for Delete {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.files.begin()?;
        (0..operations).try_for_each(|_| self.files.create())?;
        self.files.next = 0;
        Ok(())
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.files.delete()
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        self.files.check(0)
    }

    fn max_batch(&self) -> u64 {
        self.files.max()
    }
}

/// `renameat` of a file, alternately to one of two names.
fn rename(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let mut place = Place::of(id, setting)?;
    let room = place.room()?;
    std::fs::write(room.path().join("start"), "")?;
    Ok(Prepared::alone(Steps::of(Rename { _place: place, room, from: c"start", to: c"here" })))
}

struct Rename {
    _place: Place,
    room: Room,
    from: &'static CStr,
    to: &'static CStr,
}

impl Rename {
    #[inline]
    fn rename(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        let directory = self.room.descriptor();
        // SAFETY: the names are C strings that outlive the call.
        check("renameat", unsafe { libc::renameat(directory, from.as_ptr(), directory, to.as_ptr()) })
            .map(drop)
    }

    fn exists(&self, name: &str) -> bool {
        self.room.path().join(name).exists()
    }
}

impl Step for Rename {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.rename(self.from, self.to)?;
        self.from = self.to;
        self.to = if self.to == c"here" { c"there" } else { c"here" };
        Ok(())
    }

    /// Checks that the file no longer has the name that it had before the batch, and restores this name.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        if self.exists("start") || !(self.exists("here") || self.exists("there")) {
            return Err(io::Error::other("renameat did not move the file"));
        }
        self.rename(self.from, c"start")?;
        (self.from, self.to) = (c"start", c"here");
        Ok(())
    }
}

/// `mkdirat`, and `unlinkat` of that directory.
fn make_remove(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let mut place = Place::of(id, setting)?;
    let step = MakeRemove { room: place.room()?, _place: place };
    // Removing a directory makes ext4 wait for the disk.
    Ok(Prepared { sharing: Sharing::Asleep, ..Prepared::alone(Steps::of(step)) })
}

struct MakeRemove {
    _place: Place,
    room: Room,
}

const LONG_AGO: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

impl Step for MakeRemove {
    /// Sets an old modification time of the parent directory.
    fn arm(&mut self, _: u64) -> io::Result<()> {
        let times = Timestamps { last_access: LONG_AGO, last_modification: LONG_AGO };
        Ok(rustix::fs::utimensat(rustix::fs::CWD, self.room.path(), &times, rustix::fs::AtFlags::empty())?)
    }

    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let directory = self.room.descriptor();
        // SAFETY: the name is a C string that outlives the call.
        check("mkdirat", unsafe { libc::mkdirat(directory, c"made".as_ptr(), 0o700) })?;
        unlink(directory, c"made", libc::AT_REMOVEDIR)
    }

    /// Checks that the parent directory was modified and is empty again.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        let changed = rustix::fs::stat(self.room.path())?.st_mtime != LONG_AGO.tv_sec;
        if changed && self.room.files_of(0)? == 0 {
            Ok(())
        } else {
            Err(io::Error::other("mkdirat and unlinkat left the parent directory unmodified or not empty"))
        }
    }
}
