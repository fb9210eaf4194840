//! The paper's shared variable (section 2): an application counts its units of work in a page that it shares
//! with those who observe it.
//!
//! The page is a file, best below `/dev/shm`. To count costs the application one addition in memory, without
//! a call of the kernel. `include/assay_progress.h` is the same for C and C++.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use memmap2::{MmapMut, MmapOptions};
use thiserror::Error;

/// What a page begins with.
const MAGIC: [u8; 8] = *b"assay.p1";

/// Size of the page: 64 cache lines.
const SIZE: usize = 4096;

/// Distance of two slots: a cache line, so that two threads do not write the same one.
const LINE: usize = 64;

/// Slots for counts. The first line has [`MAGIC`].
const SLOTS: usize = SIZE / LINE - 1;

/// Places of the two counts in a slot.
const FINISHED: usize = 0;
const FAILED: usize = 8;

/// A page of counts.
#[derive(Debug)]
pub struct Progress {
    path: PathBuf,
    file: File,
    page: MmapMut,
}

/// Units of work so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Units {
    /// Those that succeeded.
    pub finished: u64,
    /// Those that failed.
    pub failed: u64,
}

/// Why a file is no progress counter.
#[derive(Debug, Error)]
pub enum NoProgress {
    /// It cannot be opened.
    #[error("cannot open the progress counter {}: {source}", .path.display())]
    Failed {
        /// Its name.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is no progress counter; give the file that the application creates", .0.display())]
    Other(PathBuf),
}

thread_local! {
    /// The slot of this thread.
    static SLOT: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Progress {
    /// Opens the counter of this application, and creates it if it does not exist. Counts continue where an
    /// earlier run ended.
    ///
    /// # Errors
    /// [`NoProgress`].
    pub fn create(path: &Path) -> Result<Self, NoProgress> {
        let failed = |source| NoProgress::Failed { path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let mut begin = [0; MAGIC.len()];
        if size > 0 && (size != SIZE as u64 || file.read_exact(&mut begin).is_err() || !is_ours(begin)) {
            return Err(NoProgress::Other(path.to_owned()));
        }
        file.set_len(SIZE as u64).map_err(failed)?;
        let progress = Self::map(path, file)?;
        progress.at(0).store(u64::from_ne_bytes(MAGIC), Ordering::Relaxed);
        Ok(progress)
    }

    /// Opens the counter of another application.
    ///
    /// # Errors
    /// [`NoProgress`].
    pub fn open(path: &Path) -> Result<Self, NoProgress> {
        let failed = |source| NoProgress::Failed { path: path.to_owned(), source };
        // The page is mapped for reading and writing, as the type of the map demands.
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        if size != SIZE as u64 {
            return Err(NoProgress::Other(path.to_owned()));
        }
        let progress = Self::map(path, file)?;
        if progress.at(0).load(Ordering::Relaxed) == u64::from_ne_bytes(MAGIC) {
            Ok(progress)
        } else {
            Err(NoProgress::Other(path.to_owned()))
        }
    }

    fn map(path: &Path, file: File) -> Result<Self, NoProgress> {
        // SAFETY: others change the page at any time, so that it is only accessed by atomic operations, and
        // [`Progress::read`] looks at its size before.
        let page = unsafe { MmapOptions::new().len(SIZE).map_mut(&file) };
        let page = page.map_err(|source| NoProgress::Failed { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), file, page })
    }

    /// Counts units that succeeded.
    pub fn finished(&self, units: u64) {
        self.at(LINE * (1 + slot()) + FINISHED).fetch_add(units, Ordering::Relaxed);
    }

    /// Counts units that failed.
    pub fn failed(&self, units: u64) {
        self.at(LINE * (1 + slot()) + FAILED).fetch_add(units, Ordering::Relaxed);
    }

    /// Returns all counts so far.
    ///
    /// # Errors
    /// If the file was truncated.
    pub fn read(&self) -> io::Result<Units> {
        if self.file.metadata()?.len() < SIZE as u64 {
            let message = format!("the progress counter {} was truncated", self.path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let sum = |place| {
            let counts = (1..=SLOTS).map(|slot| self.at(LINE * slot + place).load(Ordering::Relaxed));
            counts.fold(0, u64::wrapping_add)
        };
        Ok(Units { finished: sum(FINISHED), failed: sum(FAILED) })
    }

    /// The number at this place of the page.
    fn at(&self, place: usize) -> &AtomicU64 {
        assert!(place <= SIZE - size_of::<AtomicU64>() && place.is_multiple_of(align_of::<AtomicU64>()));
        // SAFETY: the place lies in the page, which lives as long as `self`, and is aligned, because a page
        // is; all accesses are atomic.
        unsafe { &*self.page.as_ptr().add(place).cast::<AtomicU64>() }
    }
}

/// A file that was created but not yet marked is ours, too.
fn is_ours(begin: [u8; MAGIC.len()]) -> bool {
    begin == MAGIC || begin == [0; MAGIC.len()]
}

/// The slot of the calling thread: threads take the slots in turn.
fn slot() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    SLOT.with(|slot| {
        slot.get().unwrap_or_else(|| {
            let next = NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS;
            slot.set(Some(next));
            next
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_all_threads_are_added_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("progress");
        let ours = Progress::create(&path).unwrap();
        let observed = Progress::open(&path).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 * SLOTS {
                scope.spawn(|| {
                    (0..100).for_each(|_| ours.finished(1));
                    ours.failed(2);
                });
            }
        });
        let all = 2 * SLOTS as u64;
        assert_eq!(observed.read().unwrap(), Units { finished: 100 * all, failed: 2 * all });
        // A second run of the application goes on.
        Progress::create(&path).unwrap().finished(1);
        assert_eq!(observed.read().unwrap().finished, 100 * all + 1);
    }

    #[test]
    fn what_is_no_counter_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("other");
        let missing = Progress::open(&path).unwrap_err().to_string();
        assert!(missing.starts_with("cannot open the progress counter "), "{missing}");
        for content in [&b"short"[..], &[b'x'; SIZE], &[0; SIZE + 1]] {
            std::fs::write(&path, content).unwrap();
            for opened in [Progress::open(&path), Progress::create(&path)] {
                assert!(opened.unwrap_err().to_string().contains("is no progress counter"));
            }
            assert_eq!(std::fs::read(&path).unwrap(), content);
        }
    }

    #[test]
    fn a_counter_that_was_truncated_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("progress");
        let progress = Progress::create(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert!(progress.read().unwrap_err().to_string().ends_with("was truncated"));
    }
}
