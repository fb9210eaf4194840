//! Files for the benchmarks. Their contents identify the offset in the file, so that bytes that were never
//! read or that come from another offset are detected.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rand::{Rng, RngExt};

use super::steady;
use crate::benchmark::Setting;

/// Bytes of one write. A file is written page by page, as programs do. One large write would leave large
/// folios in the page cache, and overwriting a few bytes of one costs twelve times as much with ext4 of Linux
/// 6.18 (a 64-byte `pwrite` took 7.4 us instead of 0.6 us), because it visits every block of the folio.
pub(crate) const PAGE: usize = 4096;

/// Bytes of the file that transfers traverse: larger than most second-level caches, and small enough to be
/// written again by every process. A multiple of every transfer size.
const FILE_BYTES: usize = 8 << 20;

/// Bytes of the pieces in which a file is read before the measurement: few calls, and a buffer that fits into
/// the second-level cache.
const LAP_PIECE: usize = 64 << 10;

/// Returns a random size for a file whose size is checked, so that it cannot be guessed.
pub(crate) fn any_size(setting: &mut Setting) -> usize {
    setting.rng.random_range(1..=PAGE)
}

/// The contents of a file: the same random page repeated, except that the first word differs on every page.
#[derive(Debug, Clone)]
pub(crate) struct Contents {
    template: [u8; PAGE],
    first: u64,
}

impl Contents {
    /// Bytes of the word that distinguishes pages.
    const WORD: usize = size_of::<u64>();

    /// Returns random contents, which occur nowhere else in memory.
    pub(crate) fn random(rng: &mut impl Rng) -> Self {
        let mut template = [0; PAGE];
        rng.fill_bytes(&mut template);
        Self { template, first: rng.random() }
    }

    /// Returns the first word of a page.
    #[inline]
    pub(crate) fn word(&self, page: u64) -> u64 {
        // The factor is odd, so that 2^64 pages differ, and uses all bits, so that the words of neighbours
        // look random.
        self.first.wrapping_add(page.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn page(&self, number: u64) -> [u8; PAGE] {
        let mut page = self.template;
        page[..Self::WORD].copy_from_slice(&self.word(number).to_ne_bytes());
        page
    }

    /// Fills `piece` with the contents of the file from offset `at` on.
    pub(crate) fn fill(&self, piece: &mut [u8], at: u64) {
        for (number, within, part) in parts(piece.len(), at) {
            let page = self.page(number);
            let bytes = &page[within..within + part.len()];
            piece[part].copy_from_slice(bytes);
        }
    }

    /// Returns whether `piece` equals the contents of the file from offset `at` on.
    pub(crate) fn are(&self, piece: &[u8], at: u64) -> bool {
        parts(piece.len(), at).all(|(number, within, part)| {
            let page = self.page(number);
            page[within..within + part.len()] == piece[part]
        })
    }

    /// Returns the sum of the words of `bytes` bytes from the beginning of a page on.
    pub(crate) fn sum(&self, page: u64, bytes: usize) -> u64 {
        parts(bytes, page * PAGE as u64)
            .flat_map(|(number, _, part)| words(&self.page(number)[..part.len()]))
            .fold(0, u64::wrapping_add)
    }
}

/// Returns the words of a page, as read by a program that adds them up. Bytes after the last whole word are
/// ignored.
fn words(page: &[u8]) -> Vec<u64> {
    page.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

/// Divides the `length` bytes from offset `at` on into parts that each lie in one page. Returns the number of
/// the page, the offset in the page, and the range within the `length` bytes.
fn parts(length: usize, at: u64) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let position = at + done as u64;
        let within = usize::try_from(position % PAGE as u64).ok()?;
        let part = done..length.min(done + PAGE - within);
        done = part.end;
        (!part.is_empty()).then_some((position / PAGE as u64, within, part))
    })
}

/// A file that is removed when it is dropped. A killed process leaves it in the run's temporary directory.
pub(crate) struct Scratch {
    path: PathBuf,
    pub(crate) name: CString,
    pub(crate) file: File,
    pub(crate) contents: Contents,
}

impl Scratch {
    /// Creates a file of `bytes` bytes, all of them in the page cache.
    pub(crate) fn with_bytes(setting: &mut Setting, bytes: usize) -> io::Result<Self> {
        let scratch = Self::empty(setting)?;
        for (page, at) in (0..bytes).step_by(PAGE).enumerate() {
            let page = scratch.contents.page(page as u64);
            (&scratch.file).write_all(&page[..PAGE.min(bytes - at)])?;
        }
        Ok(scratch)
    }

    /// Creates an empty file.
    pub(crate) fn empty(setting: &mut Setting) -> io::Result<Self> {
        // A process may have several files, which are distinguished by a number from its seed.
        let number: u32 = setting.rng.random();
        let path = setting.directory.join(format!("file-{}-{number:08x}", std::process::id()));
        let name = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        Ok(Self { path, name, file, contents: Contents::random(&mut setting.rng) })
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its descriptor.
    #[inline]
    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The directory is removed with all of its contents at the end of the run.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A file in the page cache that transfers traverse repeatedly.
pub(crate) struct CachedFile {
    scratch: Scratch,
    bytes: usize,
    next: usize,
    /// Whether the last cache may hold all of it; true if no cache is known.
    fits: bool,
}

impl CachedFile {
    /// Creates a file on the measured file system.
    pub(crate) fn new(setting: &mut Setting) -> io::Result<Self> {
        Self::holding(0, setting)
    }

    /// Creates a file that is large enough for transfers of `size` bytes.
    pub(crate) fn holding(size: usize, setting: &mut Setting) -> io::Result<Self> {
        let bytes = FILE_BYTES.max(size.next_multiple_of(PAGE));
        let fits = setting.caches.last().is_none_or(|last| bytes as u64 <= last.bytes());
        let file = Self { scratch: Scratch::with_bytes(setting, bytes)?, bytes, next: 0, fits };
        if fits {
            file.settle()?;
        }
        Ok(file)
    }

    /// Reads the file until the caches have settled ([`steady`]). Without this, 64 KiB took 9.5, 6.9, 5.0,
    /// 3.5 and 3.2 us in the first five laps that a process timed.
    fn settle(&self) -> io::Result<()> {
        let mut piece = vec![0; LAP_PIECE];
        for _ in 0..steady::LAPS {
            for at in (0..self.bytes).step_by(LAP_PIECE) {
                self.scratch.file.read_at(&mut piece, at as u64)?;
            }
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn descriptor(&self) -> RawFd {
        self.scratch.descriptor()
    }

    pub(crate) fn file(&self) -> &File {
        &self.scratch.file
    }

    /// Returns the number of transfers of `size` bytes in a lap, at most one for each page: smaller ones take
    /// long and change little. `None` if no cache holds the file.
    pub(crate) fn lap(&self, size: usize) -> Option<u64> {
        self.fits.then_some((self.bytes / size.max(PAGE)) as u64)
    }

    /// Returns its contents.
    pub(crate) fn contents(&self) -> &Contents {
        &self.scratch.contents
    }

    /// Returns the offset of the next `size` bytes.
    #[inline]
    #[expect(clippy::cast_possible_wrap, reason = "far below 2^63")]
    pub(crate) fn advance(&mut self, size: usize) -> libc::off_t {
        let at = self.next;
        self.next = if at + 2 * size > self.bytes { 0 } else { at + size };
        at as libc::off_t
    }

    /// Returns the offsets of pieces of `size` bytes.
    pub(crate) fn places(&self, size: usize) -> impl Iterator<Item = u64> + use<> {
        (0..(self.bytes / size) as u64).map(move |place| place * size as u64)
    }

    /// Returns the offset of the last of the next `pieces` pieces of `size` bytes.
    pub(crate) fn last(&self, size: usize, pieces: u64) -> u64 {
        let (places, next) = ((self.bytes / size) as u64, (self.next / size) as u64);
        (next + pieces.saturating_sub(1)) % places * size as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    fn setting(directory: &std::path::Path) -> Setting {
        Setting {
            rng: Pcg64Mcg::seed_from_u64(5),
            cpu: 0,
            cpus: vec![0],
            other_cpu: None,
            caches: crate::platform::describe::CacheSizes::default(),
            effective: crate::platform::describe::CacheSizes::default(),
            directory: directory.to_owned(),
            shared_directory: directory.to_owned(),
            peer: None,
        }
    }

    fn contents(seed: u64) -> Contents {
        Contents::random(&mut Pcg64Mcg::seed_from_u64(seed))
    }

    proptest! {
        #[test]
        fn contents_are_recognised_at_their_offset_and_nowhere_else(
            at in 0u64..20_000, length in 9usize..9000, other in 1u64..5, flipped: usize,
        ) {
            let contents = contents(at);
            let mut piece = vec![0; length];
            contents.fill(&mut piece, at);
            prop_assert!(contents.are(&piece, at));
            // A piece that contains the first word of a page differs on every page.
            if at % PAGE as u64 + length as u64 >= (PAGE + 8) as u64 {
                prop_assert!(!contents.are(&piece, at + other * PAGE as u64));
            }
            piece[flipped % length] ^= 1;
            prop_assert!(!contents.are(&piece, at));
        }

        #[test]
        fn the_sum_is_that_of_the_filled_words(page in 0u64..9, count in 1usize..2000) {
            let contents = contents(page);
            let mut piece = vec![0; count * 8];
            contents.fill(&mut piece, page * PAGE as u64);
            prop_assert_eq!(contents.sum(page, piece.len()), words(&piece).into_iter().fold(0, u64::wrapping_add));
        }
    }

    #[test]
    fn a_file_has_its_contents_and_is_removed_with_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let mut setting = setting(directory.path());
        let scratch = Scratch::with_bytes(&mut setting, 3 * PAGE + 5).unwrap();
        let bytes = std::fs::read(&scratch.path).unwrap();
        assert_eq!(bytes.len(), 3 * PAGE + 5);
        assert!(scratch.contents.are(&bytes, 0));
        let other = Scratch::empty(&mut setting).unwrap();
        assert_ne!(other.path, scratch.path);
        drop((scratch, other));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn transfers_traverse_the_file_and_restart_before_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let mut setting = setting(directory.path());
        let size = 3 << 20;
        let mut file = CachedFile::holding(size, &mut setting).unwrap();
        for pieces in 1..5 {
            let foreseen = file.last(size, pieces);
            let last = (0..pieces).map(|_| file.advance(size)).last();
            assert_eq!(last, i64::try_from(foreseen).ok());
        }
        assert_eq!(CachedFile::holding(9 << 20, &mut setting).unwrap().bytes, 9 << 20);
    }

    #[test]
    fn a_lap_of_a_file_that_caches_may_hold_has_at_most_one_transfer_per_page() {
        let directory = tempfile::tempdir().unwrap();
        let mut setting = setting(directory.path());
        let laps = |setting: &mut Setting| {
            let file = CachedFile::holding(1, setting).unwrap();
            [64, PAGE, 64 << 10].map(|size| file.lap(size))
        };
        assert_eq!(laps(&mut setting), [Some(2048), Some(2048), Some(128)]);
        setting.caches.l3 = Some(assay_quantity::Size::mib(4));
        assert_eq!(laps(&mut setting), [None; 3]);
    }
}
