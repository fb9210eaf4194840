//! Directories to make files in, on a file system of a given type.
//!
//! What a new file costs may depend on what was deleted before it: ext4 without a journal gives out no inode
//! that was freed in the last minutes, and looks at each of those again for every new file in its group of
//! blocks. After others have deleted thousands that takes ten times as long as all the rest (and makes
//! lmbench's lat_fs bimodal). So every process makes its files in a group of its own, as far as there are
//! any, each batch in a new directory there, and deletes none of them before it ends.
//!
//! The run's own directory lies where temporary files go; other types are looked for in the few directories
//! that are meant for anybody's files, never in places where a benchmark has no business. A directory that is
//! made outside of the run's own goes with the benchmark; one that a killed process has left behind is
//! recognised by the lock that nobody holds on it any more, and removed by the next.

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

/// What `statfs` calls the types that ids name (linux/magic.h). One driver serves ext2, ext3 and ext4.
const TYPES: [(i64, &str); 5] = [
    (0x0102_1994, "tmpfs"),
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x794c_7630, "overlay"),
];

/// Directories for anybody's files, besides the run's own.
const PLACES: [&str; 4] = ["/dev/shm", "/tmp", "/var/tmp", "."];

/// How the names of directories outside of the run's own begin.
const PREFIX: &str = "assay-files-";

/// A directory that was left behind is at least so much older than a new one, in seconds: between the making
/// of a directory and its locking nobody may take it for abandoned.
const ABANDONED_S: i64 = 60;

/// The type of the file system that a directory lies on.
pub(crate) fn file_system(directory: &Path) -> io::Result<&'static str> {
    let found = statfs(directory)?.f_type;
    Ok(TYPES.iter().find(|(number, _)| *number == found).map_or("other", |(_, name)| name))
}

/// Where directories are made. It goes with everything in it when it is dropped.
pub(super) struct Place {
    path: PathBuf,
    /// Locked while the place is in use.
    directory: File,
    /// A directory in it, in a group of blocks of its own.
    inner: PathBuf,
    rooms: u32,
}

impl Place {
    /// A new directory on the type of file system that an id names, or on that of the run's own directory.
    pub(super) fn of(id: &PrimitiveId, setting: &Setting) -> Result<Self, Refusal> {
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
        // The name decides about the group, so every process has another.
        let inner = path.join(std::process::id().to_string());
        let place = Self { directory: open(&path)?, path, inner, rooms: 0 };
        flock(&place.directory, FlockOperation::NonBlockingLockExclusive)?;
        // Directories in it shall be spread over the groups. File systems that know no such thing refuse the
        // flag.
        let _ = ioctl_setflags(&place.directory, IFlags::TOPDIR);
        fs::create_dir(&place.inner)?;
        // Whatever cannot be swept is in nobody's way.
        let _ = place.sweep(parent);
        Ok(place)
    }

    /// Removes what processes that were killed have left in `parent`.
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

    /// A new directory, which is empty.
    pub(super) fn room(&mut self) -> io::Result<Room> {
        self.rooms += 1;
        let path = self.inner.join(self.rooms.to_string());
        fs::create_dir(&path)?;
        Ok(Room { directory: open(&path)?, path })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed now is swept by a later benchmark, or goes with the run's directory.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A directory of a [`Place`].
pub(super) struct Room {
    path: PathBuf,
    directory: File,
}

impl Room {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.directory.as_raw_fd()
    }

    /// How many files there are, when every one has so many bytes.
    pub(super) fn files_of(&self, bytes: u64) -> io::Result<u64> {
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
    // Every sample has a directory of its own there, whose name would make every refusal another one.
    let temporary = own.parent().unwrap_or(own);
    let mut places = vec![temporary.to_string_lossy()];
    places.extend(PLACES.into_iter().filter(|place| Path::new(place) != temporary).map(Cow::from));
    let places = places.join(", ");
    let kind = if wanted == "other" { "a type of its own" } else { wanted };
    Refusal::Unavailable(format!(
        "none of {places} is a directory on {kind} that can be written to; set TMPDIR to one that is"
    ))
}

/// Names of files, made before they are needed.
pub(super) struct Names(Vec<[u8; Self::BYTES]>);

impl Names {
    const BYTES: usize = 8;

    /// So many different ones.
    pub(super) fn numbered(count: u64) -> Self {
        let name = |number: u64| {
            let mut name = *b"f000000\0";
            name[1..7].copy_from_slice(format!("{number:06}").as_bytes());
            name
        };
        Self((0..count).map(name).collect())
    }

    /// The one of this number.
    #[inline]
    pub(super) fn name(&self, number: usize) -> &CStr {
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
    fn the_kernels_file_systems_are_told_by_their_type() {
        assert_eq!(file_system(Path::new("/dev/shm")).unwrap(), "tmpfs");
        assert_eq!(file_system(Path::new("/proc")).unwrap(), "other");
        assert!(file_system(Path::new("/no/such")).is_err());
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_is_new_or_locked_is_kept() {
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
    fn files_of_another_size_are_not_counted_but_refused() {
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
