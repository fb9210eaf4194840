//! Directories for new files, on a file system of a given type.
//!
//! The cost of a new file may depend on earlier deletions: ext4 without a journal does not reuse an inode
//! that was freed in the last minutes, and checks each of these for every new file in its block group. After
//! thousands of deletions by others this takes ten times as long as all the rest (and makes lmbench's lat_fs
//! bimodal). Every process therefore creates its files in its own block group, if available, each batch in a
//! new directory there, and deletes none of them before it ends.
//!
//! The run's own directory is in the directory for temporary files. Other types of file system are searched
//! only in the few directories that are intended for files of all users. A directory created outside of the
//! run's own is removed with the benchmark. If a killed process leaves one behind, the next process
//! recognises it because its lock is no longer held, and removes it.

use std::borrow::Cow;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use assay_quantity::{Key, PrimitiveId};
use rustix::fs::{FlockOperation, IFlags, Mode, OFlags, flock, ioctl_setflags, statfs};

use crate::benchmark::{Refusal, Setting};

/// The `statfs` types of the file systems that ids name (linux/magic.h). One driver serves ext2, ext3 and
/// ext4.
const TYPES: [(i64, &str); 5] = [
    (0x0102_1994, "tmpfs"),
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x794c_7630, "overlay"),
];

/// Directories for files of all users, in addition to the run's own.
const PLACES: [&str; 4] = ["/dev/shm", "/tmp", "/var/tmp", "."];

/// Prefix of the names of directories outside of the run's own.
const PREFIX: &str = "assay-files-";

/// Minimum age difference between an abandoned directory and a new one, in seconds, so that a directory that
/// was created but not yet locked is not considered abandoned.
const ABANDONED_S: i64 = 60;

/// Returns the type of the file system that contains a directory.
pub(crate) fn file_system(directory: &Path) -> io::Result<&'static str> {
    let found = statfs(directory)?.f_type;
    Ok(TYPES.iter().find(|(number, _)| *number == found).map_or("other", |(_, name)| name))
}

/// A directory in which directories are created. It is removed with its contents when it is dropped.
pub(crate) struct Place {
    path: PathBuf,
    /// Locked while the place is in use.
    directory: File,
    /// A subdirectory in a block group of its own.
    inner: PathBuf,
    rooms: u32,
}

impl Place {
    /// Creates a directory on the type of file system that an id names, or on that of the run's own
    /// directory.
    pub(crate) fn of(id: &PrimitiveId, setting: &Setting) -> Result<Self, Refusal> {
        let wanted = id.word(Key::Filesystem);
        let own = setting.directory.as_path();
        if wanted.is_empty() || file_system(own)? == wanted {
            return Ok(Self::inside(own, "files-")?);
        }
        PLACES
            .iter()
            .map(Path::new)
            .filter(|place| file_system(place).is_ok_and(|found| found == wanted))
            .find_map(|place| Self::inside(place, PREFIX).ok())
            .ok_or_else(|| none(wanted, own))
    }

    fn inside(parent: &Path, prefix: &str) -> io::Result<Self> {
        let path = parent.join(format!("{prefix}{}", std::process::id()));
        fs::create_dir(&path)?;
        // The name determines the block group, so every process uses a different one.
        let inner = path.join(std::process::id().to_string());
        let place = Self { directory: open(&path)?, path, inner, rooms: 0 };
        flock(&place.directory, FlockOperation::NonBlockingLockExclusive)?;
        // Spreads the subdirectories over the block groups. File systems that do not support this reject the
        // flag.
        let _ = ioctl_setflags(&place.directory, IFlags::TOPDIR);
        fs::create_dir(&place.inner)?;
        // Directories that cannot be removed do no harm.
        let _ = place.sweep(parent);
        Ok(place)
    }

    /// Removes directories that killed processes have left in `parent`.
    fn sweep(&self, parent: &Path) -> io::Result<()> {
        let own = self.directory.metadata()?;
        for entry in fs::read_dir(parent)? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
                continue;
            }
            let Ok(directory) = open(&entry.path()) else { continue };
            let found = directory.metadata()?;
            let old = found.mtime() < own.mtime() - ABANDONED_S && found.uid() == own.uid();
            if old && flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    /// Creates a new, empty directory.
    pub(crate) fn room(&mut self) -> io::Result<Room> {
        self.rooms += 1;
        let path = self.inner.join(self.rooms.to_string());
        fs::create_dir(&path)?;
        Ok(Room { directory: open(&path)?, path })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Directories that cannot be removed now are removed by a later benchmark, or with the run's
        // directory.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A directory of a [`Place`].
pub(crate) struct Room {
    path: PathBuf,
    directory: File,
}

impl Room {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.directory.as_raw_fd()
    }

    /// Returns the number of files. Fails if one of them does not have this size.
    pub(crate) fn files_of(&self, bytes: u64) -> io::Result<u64> {
        let mut files = 0;
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let found = entry.metadata()?.len();
            if found != bytes {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                return Err(io::Error::other(format!("{name} has {found} bytes instead of {bytes}")));
            }
            files += 1;
        }
        Ok(files)
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

fn none(wanted: &str, own: &Path) -> Refusal {
    // Every sample has its own directory there; including its name would make every message different.
    let temporary = own.parent().unwrap_or(own);
    let mut places = vec![temporary.to_string_lossy()];
    places.extend(PLACES.into_iter().filter(|place| Path::new(place) != temporary).map(Cow::from));
    let places = places.join(", ");
    let kind = if wanted == "other" { "a type without a name here" } else { wanted };
    Refusal::Unavailable(format!(
        "none of {places} is a writable directory on {kind}; set TMPDIR to one that is"
    ))
}

/// Names of files, formatted in advance.
pub(crate) struct Names(Vec<[u8; Self::BYTES]>);

impl Names {
    const BYTES: usize = 8;

    /// Returns `count` different names.
    pub(crate) fn numbered(count: u64) -> Self {
        let name = |number: u64| {
            let mut name = *b"f000000\0";
            name[1..7].copy_from_slice(format!("{number:06}").as_bytes());
            name
        };
        Self((0..count).map(name).collect())
    }

    /// Returns the name with this number.
    #[inline]
    pub(crate) fn name(&self, number: usize) -> &CStr {
        CStr::from_bytes_until_nul(&self.0[number]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_differ() {
        let names = Names::numbered(1001);
        assert_eq!(names.name(0), c"f000000");
        assert_eq!(names.name(1000), c"f001000");
    }

    #[test]
    fn file_systems_are_recognised_by_their_type() {
        assert_eq!(file_system(Path::new("/dev/shm")).unwrap(), "tmpfs");
        assert_eq!(file_system(Path::new("/proc")).unwrap(), "other");
        assert!(file_system(Path::new("/no/such")).is_err());
    }

    #[test]
    fn abandoned_directories_are_removed_and_new_or_locked_ones_are_kept() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str, age_s: i64| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("f000000"), "x").unwrap();
            let directory = open(&path).unwrap();
            let seconds = directory.metadata().unwrap().mtime() - age_s;
            let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: 0 };
            let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
            rustix::fs::futimens(&directory, &times).unwrap();
            directory
        };
        drop(make("assay-files-1", 3600));
        drop(make("assay-files-2", 1));
        let held = make("assay-files-3", 3600);
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        drop(make("somebody-else", 3600));
        drop(Place::inside(parent.path(), PREFIX).unwrap());
        let mut left: Vec<_> =
            fs::read_dir(parent.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["assay-files-2", "assay-files-3", "somebody-else"]);
    }

    #[test]
    fn files_of_another_size_are_an_error() {
        let parent = tempfile::tempdir().unwrap();
        let mut place = Place::inside(parent.path(), PREFIX).unwrap();
        let room = place.room().unwrap();
        fs::write(room.path().join("a"), "xyz").unwrap();
        assert_eq!(room.files_of(3).unwrap(), 1);
        fs::write(room.path().join("b"), "xy").unwrap();
        assert_eq!(room.files_of(3).unwrap_err().to_string(), "b has 2 bytes instead of 3");
        assert_eq!(place.room().unwrap().files_of(3).unwrap(), 0);
    }
}
