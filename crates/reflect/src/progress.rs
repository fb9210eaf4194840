//! The paper's shared variable (section 2): an application counts its units of work in a page that it shares
//! with those who observe it.
//!
//! The page is a file, best below `/dev/shm`. To count costs the application one addition in memory, without
//! a call of the kernel. `include/assay_progress.h` is the same for C and C++.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use assay_process::is_gone;
use memmap2::{MmapOptions, MmapRaw};
use thiserror::Error;

use crate::advice::{Advice, Bound, Class, Queue};

/// What a page begins with.
const MAGIC: [u8; 8] = *b"assay.p1";

/// Size of the page: 64 cache lines.
const SIZE: usize = 4096;

/// Distance of two slots: a cache line, so that two threads do not write the same one.
const LINE: usize = 64;

/// Slots for counts. The first line has [`MAGIC`] and the advice.
const SLOTS: usize = SIZE / LINE - 1;

/// Flag of open(2).
const NOFOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

/// Places of the advice in the first line: flags, and the name of a unit, which ends with the line or at a
/// zero byte.
const FLAGS: usize = 8;
const UNIT: usize = 16;

/// Flags of an advice. Without [`ADVISED`] there is none.
const ADVISED: u64 = 1;
const BATCH: u64 = 2;
const BANDWIDTH: u64 = 4;
const NEVER_QUEUED: u64 = 8;

/// Places of the two counts in a slot.
const FINISHED: usize = 0;
const FAILED: usize = 8;

/// The counter of this application.
#[derive(Debug)]
pub struct Progress {
    page: MmapRaw,
}

/// The counter of another application. An application that truncates its counter may kill those that observe
/// it, by SIGBUS.
#[derive(Debug)]
pub struct Observed {
    path: PathBuf,
    file: File,
    page: MmapRaw,
    /// Device and number of the file.
    id: (u64, u64),
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

/// A page has no room for the name of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the name of a unit of progress may have {} bytes, and none of them zero", LINE - UNIT)]
pub struct NoName;

thread_local! {
    /// The slot of this thread.
    static SLOT: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Progress {
    /// Opens the counter of this application, and creates it if it does not exist. Counts continue where an
    /// earlier run ended; its advice is removed. A symbolic link is not followed: others may have made it.
    ///
    /// # Errors
    /// [`NoProgress`].
    pub fn create(path: &Path) -> Result<Self, NoProgress> {
        let failed = |source| NoProgress::Failed { path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).custom_flags(NOFOLLOW);
        let mut file = options.open(path).map_err(failed)?;
        let status = file.metadata().map_err(failed)?;
        let mut begin = [0; MAGIC.len()];
        let is_ours = status.len() == 0
            || status.len() == SIZE as u64 && file.read_exact(&mut begin).is_ok() && is_mark(begin);
        if !(status.is_file() && is_ours) {
            return Err(NoProgress::Other(path.to_owned()));
        }
        file.set_len(SIZE as u64).map_err(failed)?;
        let page = MmapOptions::new().len(SIZE).map_raw(&file).map_err(failed)?;
        let progress = Self { page };
        at(&progress.page, 0).store(u64::from_ne_bytes(MAGIC), Ordering::Relaxed);
        progress.clear_advice();
        Ok(progress)
    }

    /// Publishes advice on the units of this application; a later call replaces it.
    ///
    /// # Errors
    /// [`NoName`]: the name of a unit is longer than 48 bytes, or has a zero byte.
    pub fn advise(&self, advice: &Advice) -> Result<(), NoName> {
        let unit = advice.unit.as_bytes();
        let mut name = [0; LINE - UNIT];
        name.get_mut(..unit.len()).filter(|_| !unit.contains(&0)).ok_or(NoName)?.copy_from_slice(unit);
        self.clear_advice();
        for (word, bytes) in name.as_chunks().0.iter().enumerate() {
            let place = UNIT + size_of::<u64>() * word;
            at(&self.page, place).store(u64::from_ne_bytes(*bytes), Ordering::Release);
        }
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = ADVISED
            | flag(advice.class == Class::Batch, BATCH)
            | flag(advice.bound == Bound::Bandwidth, BANDWIDTH)
            | flag(advice.queue == Queue::Never, NEVER_QUEUED);
        at(&self.page, FLAGS).store(flags, Ordering::Release);
        Ok(())
    }

    fn clear_advice(&self) {
        at(&self.page, FLAGS).store(0, Ordering::Release);
    }

    /// Counts units that succeeded.
    pub fn finished(&self, units: u64) {
        at(&self.page, LINE * (1 + slot()) + FINISHED).fetch_add(units, Ordering::Relaxed);
    }

    /// Counts units that failed.
    pub fn failed(&self, units: u64) {
        at(&self.page, LINE * (1 + slot()) + FAILED).fetch_add(units, Ordering::Relaxed);
    }
}

impl Observed {
    /// Opens the counter of another application.
    ///
    /// # Errors
    /// [`NoProgress`].
    pub fn open(path: &Path) -> Result<Self, NoProgress> {
        let failed = |source| NoProgress::Failed { path: path.to_owned(), source };
        let other = || NoProgress::Other(path.to_owned());
        // To open something else than a file can have effects.
        let is_file = fs::metadata(path).map_err(failed)?.is_file();
        let file = if is_file { File::open(path).map_err(failed)? } else { return Err(other()) };
        let status = file.metadata().map_err(failed)?;
        if status.len() != SIZE as u64 {
            return Err(other());
        }
        let id = (status.dev(), status.ino());
        let page = MmapOptions::new().len(SIZE).map_raw_read_only(&file).map_err(failed)?;
        if at(&page, 0).load(Ordering::Relaxed) == u64::from_ne_bytes(MAGIC) {
            Ok(Self { path: path.to_owned(), file, page, id })
        } else {
            Err(other())
        }
    }

    /// Opens the counters that a process has in its memory to write to, whatever their names. One that was
    /// removed is not found.
    ///
    /// # Errors
    /// If the memory of the process cannot be listed, or a file of it may not be opened.
    pub fn mapped_by(pid: i32) -> io::Result<Vec<Self>> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let mut counters = Vec::new();
        for (name, number) in maps.lines().filter_map(shared_page) {
            // The name is one in the mounts of the process.
            match Self::open(Path::new(&format!("/proc/{pid}/root{name}"))) {
                Ok(counter) if counter.id.1 == number => counters.push(counter),
                Err(NoProgress::Failed { source, .. }) if !is_gone(&source) => return Err(source),
                // Most shared pages are something else.
                _ => {}
            }
        }
        counters.sort_unstable_by_key(Self::file);
        counters.dedup_by_key(|counter| counter.file());
        Ok(counters)
    }

    /// The device and the number of its file, by which it is the same for all that use it.
    #[must_use]
    pub fn file(&self) -> (u64, u64) {
        self.id
    }

    /// Returns the advice of the application; `None` if there is none, or if it is being replaced.
    #[must_use]
    pub fn advice(&self) -> Option<Advice> {
        let flags = || at(&self.page, FLAGS).load(Ordering::Acquire);
        let before = flags();
        let words = (UNIT..LINE).step_by(size_of::<u64>());
        let name = words.flat_map(|place| at(&self.page, place).load(Ordering::Acquire).to_ne_bytes());
        let name: Vec<u8> = name.take_while(|byte| *byte != 0).collect();
        (before & ADVISED != 0 && flags() == before).then(|| Advice {
            unit: String::from_utf8_lossy(&name).into_owned(),
            class: if before & BATCH == 0 { Class::Interactive } else { Class::Batch },
            bound: if before & BANDWIDTH == 0 { Bound::Unknown } else { Bound::Bandwidth },
            queue: if before & NEVER_QUEUED == 0 { Queue::Allowed } else { Queue::Never },
        })
    }

    /// Returns all counts so far.
    ///
    /// # Errors
    /// If the file was truncated or removed.
    pub fn read(&self) -> io::Result<Units> {
        let status = self.file.metadata()?;
        if status.len() < SIZE as u64 || status.nlink() == 0 {
            let message = format!("the progress counter {} was truncated or removed", self.path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let sum = |place| {
            let counts = (1..=SLOTS).map(|slot| at(&self.page, LINE * slot + place).load(Ordering::Relaxed));
            counts.fold(0, u64::wrapping_add)
        };
        Ok(Units { finished: sum(FINISHED), failed: sum(FAILED) })
    }
}

/// The number at this place of a page. In a page that is mapped for reading it may only be loaded.
fn at(page: &MmapRaw, place: usize) -> &AtomicU64 {
    assert!(place + size_of::<AtomicU64>() <= page.len() && place.is_multiple_of(align_of::<AtomicU64>()));
    // SAFETY: the place lies in the page, which outlives the result, and is aligned, because a page is.
    // Others change it at any time, and all accesses are atomic.
    unsafe { &*page.as_ptr().add(place).cast::<AtomicU64>() }
}

/// The name and the number of the file of a line of `/proc/PID/maps` that may be a counter: a shared page
/// that begins a file.
fn shared_page(line: &str) -> Option<(&str, u64)> {
    let mut rest = line;
    let mut field = || {
        let (field, after) = rest.trim_start().split_once(' ')?;
        rest = after;
        Some(field)
    };
    let (range, mode, offset, _device, number) = (field()?, field()?, field()?, field()?, field()?);
    let (begin, end) = range.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let is_page = address(end)?.checked_sub(address(begin)?)? == SIZE as u64;
    let is_written = mode.starts_with("rw") && mode.ends_with('s');
    let name = rest.trim_start();
    (is_page && is_written && address(offset)? == 0 && name.starts_with('/'))
        .then_some((name, number.parse().ok()?))
}

/// Whether a file begins with the mark, or has been created and not yet marked.
fn is_mark(begin: [u8; MAGIC.len()]) -> bool {
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
        let observed = Observed::open(&path).unwrap();
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
    fn advice_is_seen_by_those_who_observe_the_counter() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("progress");
        let ours = Progress::create(&path).unwrap();
        let observed = Observed::open(&path).unwrap();
        assert_eq!(observed.advice(), None);
        for class in [Class::Interactive, Class::Batch] {
            for bound in [Bound::Unknown, Bound::Bandwidth] {
                for queue in [Queue::Allowed, Queue::Never] {
                    for unit in [String::new(), "request".to_owned(), "ü".repeat(24)] {
                        let advice = Advice { unit, class, bound, queue };
                        ours.advise(&advice).unwrap();
                        assert_eq!(observed.advice(), Some(advice));
                    }
                }
            }
        }
        for unit in ["x".repeat(49), "a\0b".to_owned()] {
            assert_eq!(ours.advise(&Advice { unit, ..Advice::default() }), Err(NoName));
            assert_eq!(observed.advice().unwrap().unit, "ü".repeat(24));
        }
        // The counts have places of their own, and a later run begins without advice.
        ours.finished(1);
        Progress::create(&path).unwrap();
        assert_eq!(observed.read().unwrap(), Units { finished: 1, failed: 0 });
        assert_eq!(observed.advice(), None);
    }

    #[test]
    fn what_is_no_counter_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("other");
        let missing = Observed::open(&path).unwrap_err().to_string();
        assert!(missing.starts_with("cannot open the progress counter "), "{missing}");
        for content in [&b"short"[..], &[b'x'; SIZE], &[0; SIZE + 1]] {
            std::fs::write(&path, content).unwrap();
            for error in
                [Observed::open(&path).map(drop), Progress::create(&path).map(drop)].map(Result::unwrap_err)
            {
                assert!(error.to_string().contains("is no progress counter"), "{error}");
            }
            assert_eq!(std::fs::read(&path).unwrap(), content);
        }
    }

    #[test]
    fn a_link_that_others_may_have_made_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let [target, link] = ["target", "link"].map(|name| directory.path().join(name));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(Progress::create(&link).is_err());
        assert!(!target.exists());
    }

    #[test]
    fn the_counters_of_a_process_are_found_in_its_memory() {
        let directory = tempfile::tempdir().unwrap();
        let [first, second] = ["a name", "second"].map(|name| directory.path().join(name));
        let [ours, others] = [&first, &second].map(|path| Progress::create(path).unwrap());
        ours.finished(5);
        others.finished(7);
        // What only observes a counter, or has the same one twice, adds none.
        let _again = (Observed::open(&first).unwrap(), Progress::create(&first).unwrap());
        let found = || {
            let ours = [&first, &second].map(|path| Observed::open(path).map(|counter| counter.file()).ok());
            let mapped = Observed::mapped_by(std::process::id().cast_signed()).unwrap();
            // Other tests of this process have counters, too.
            let mapped = mapped.into_iter().filter(|counter| ours.contains(&Some(counter.file())));
            let mut units: Vec<u64> = mapped.map(|counter| counter.read().unwrap().finished).collect();
            units.sort_unstable();
            units
        };
        assert_eq!(found(), [5, 7]);
        drop(others);
        assert_eq!(found(), [5]);
        assert_eq!(
            shared_page("7f0000000000-7f0000001000 rw-s 00000000 00:1a 12 /dev/shm/a b"),
            Some(("/dev/shm/a b", 12))
        );
        for line in [
            "",
            "7f0000000000-7f0000001000 rw-s 00000000 00:01 12",
            "7f0000000000-7f0000001000 r--s 00000000 00:1a 12 /dev/shm/a",
            "7f0000000000-7f0000001000 rw-p 00000000 00:1a 12 /dev/shm/a",
            "7f0000000000-7f0000002000 rw-s 00000000 00:1a 12 /dev/shm/a",
            "7f0000000000-7f0000001000 rw-s 00001000 00:1a 12 /dev/shm/a",
        ] {
            assert_eq!(shared_page(line), None, "{line}");
        }
    }

    #[test]
    fn a_counter_that_was_truncated_or_removed_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("progress");
        for spoil in [|path: &Path| std::fs::write(path, ""), |path: &Path| std::fs::remove_file(path)] {
            Progress::create(&path).unwrap();
            let observed = Observed::open(&path).unwrap();
            assert_eq!(observed.read().unwrap(), Units::default());
            spoil(&path).unwrap();
            assert!(observed.read().unwrap_err().to_string().ends_with("was truncated or removed"));
        }
    }
}
