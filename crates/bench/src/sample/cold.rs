//! Empties the caches before a single operation, so that its worst case is measured and reproducible (Bershad
//! et al., *Using Microbenchmarks to Evaluate System Performance*, 1992, section 3.1).
//!
//! This takes two steps, both outside the timed part: read a region larger than the last cache, which also
//! evicts the kernel's data, and flush every line of this process that is present. Pages that are not present
//! are not touched, because this would cause the page faults that some operations measure.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use assay_quantity::Size;
use rand_pcg::Pcg64Mcg;

use crate::platform::flush::flush;
use crate::platform::layout::{Buffer, LINE};

/// The size of the region as a multiple of the last cache, because replacement is not exactly by age.
const TIMES_CACHE: u64 = 2;

/// The assumed size of the last cache if the machine reports none.
const CACHE_UNKNOWN: Size = Size::mib(64);

/// Maximum size of the region: reading a larger one exceeds the time limit of a sample.
const REGION_MAX: Size = Size::mib(512);

/// Maximum size of a mapping that is flushed line by line: reading the region evicts larger ones.
const FLUSHED_MAX: usize = 16 << 20;

/// Empties the caches.
pub(crate) struct Eviction {
    region: Buffer,
    page: usize,
    pagemap: File,
}

impl Eviction {
    /// Prepares for a last cache of this size.
    pub(crate) fn prepare(last_cache: Option<Size>, rng: &mut Pcg64Mcg) -> io::Result<Self> {
        let bytes = last_cache.unwrap_or(CACHE_UNKNOWN).bytes().saturating_mul(TIMES_CACHE);
        let length = usize::try_from(bytes.min(REGION_MAX.bytes())).map_err(io::Error::other)?;
        let pagemap = File::open("/proc/self/pagemap")?;
        Ok(Self { region: Buffer::new(length, rng)?, page: rustix::param::page_size(), pagemap })
    }

    /// Empties the caches.
    pub(crate) fn evict(&mut self) -> io::Result<()> {
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        let own = self.region.as_ptr() as usize;
        let mappings: Vec<(usize, usize)> = maps
            .lines()
            .filter_map(readable)
            .filter(|(from, to)| !(*from..*to).contains(&own) && to - from <= FLUSHED_MAX)
            .collect();
        let mut present = Vec::new();
        for (from, to) in mappings {
            self.present_pages(from, to, &mut present)?;
        }
        for line in (0..self.region.len()).step_by(LINE) {
            // SAFETY: within the region.
            let _ = unsafe { self.region.as_ptr().add(line).read_volatile() };
        }
        let lines = present.iter().flat_map(|page| (*page..page + self.page).step_by(LINE));
        // SAFETY: the lines were mapped, readable and present when the maps were read. This process has one
        // thread, which has not changed a mapping since.
        unsafe { flush(lines.map(std::ptr::with_exposed_provenance)) };
        Ok(())
    }

    /// Adds the pages between two addresses that are in memory.
    fn present_pages(&self, from: usize, to: usize, present: &mut Vec<usize>) -> io::Result<()> {
        let mut entries = vec![0_u8; (to - from) / self.page * size_of::<u64>()];
        let at = (from / self.page * size_of::<u64>()) as u64;
        self.pagemap.read_exact_at(&mut entries, at)?;
        for (number, entry) in entries.as_chunks::<8>().0.iter().enumerate() {
            // Bit 63 is set if the page is in memory (the kernel's pagemap documentation).
            if u64::from_ne_bytes(*entry) >> 63 == 1 {
                present.push(from + number * self.page);
            }
        }
        Ok(())
    }
}

/// Parses the bounds of a readable mapping from a line of `/proc/self/maps` (proc(5)).
fn readable(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (range, permissions) = (words.next()?, words.next()?);
    // The kernel's own pages are not memory of this process.
    if !permissions.starts_with('r') || line.ends_with("[vvar]") || line.ends_with("[vsyscall]") {
        return None;
    }
    let (from, to) = range.split_once('-')?;
    Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

    #[test]
    fn readable_mappings_are_found_and_the_kernels_own_are_omitted() {
        let line = "7f00a000-7f00c000 rw-p 00000000 00:00 0                  [heap]";
        assert_eq!(readable(line), Some((0x7f00_a000, 0x7f00_c000)));
        assert_eq!(readable("7f00a000-7f00c000 ---p 00000000 00:00 0"), None);
        assert_eq!(readable("7ffd8000-7ffdc000 r--p 00000000 00:00 0    [vvar]"), None);
        assert_eq!(readable("nonsense"), None);
    }

    /// Runs in a separate process, because the threads of other tests unmap memory that would be flushed.
    #[test]
    fn flushed_pages_keep_their_contents_and_absent_pages_stay_absent() {
        // SAFETY: the child has one thread and ends with `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let passed = std::panic::catch_unwind(assert_contents_survive).is_ok();
            // SAFETY: ends this process without running code of the parent.
            unsafe { libc::_exit(i32::from(!passed)) };
        }
        let mut status = -1;
        // SAFETY: waits for our own child; the pointer is to a local.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child's assertion failed, or it crashed");
    }

    fn assert_contents_survive() {
        let mut eviction = Eviction::prepare(Some(Size::kib(64)), &mut Pcg64Mcg::seed_from_u64(1)).unwrap();
        let touched = vec![7_u8; 3 * 4096];
        let page = eviction.page;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address that the kernel chooses affects no other memory.
        let absent = unsafe { mmap_anonymous(std::ptr::null_mut(), 8 * page, access, MapFlags::PRIVATE) };
        let absent = absent.unwrap() as usize;
        eviction.evict().unwrap();
        assert!(touched.iter().all(|byte| *byte == 7));
        let mut present = Vec::new();
        eviction.present_pages(absent, absent + 8 * page, &mut present).unwrap();
        assert_eq!(present, Vec::<usize>::new());
        let own = (eviction.region.as_ptr() as usize).next_multiple_of(page);
        eviction.present_pages(own, own + 8 * page, &mut present).unwrap();
        assert_eq!(present.len(), 8);
    }
}
