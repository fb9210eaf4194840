//! The memory layout, which is random for every process.
//!
//! Layout alone can change a cost by more than a compiler optimisation (Mytkowicz et al., ASPLOS 2009), so it
//! is random instead of fixed: address-space randomisation stays on, the environment and the stack start at
//! random addresses, and every buffer starts at a random cache line of a page. The interval then includes
//! this variation.

use std::hint::black_box;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::refusal::Refusal;

/// Bytes of a cache line on every supported processor; with a larger line, offsets are only finer.
pub(crate) const LINE: usize = 64;

/// Bytes of a page within which offsets are chosen; multiples of larger pages are multiples of this one.
pub(crate) const PAGE: usize = 4096;

/// Maximum length of the random environment string, bytes (smaller differences have affected
/// microbenchmarks).
const ENVIRONMENT_MAX: usize = 4096;

/// Returns an environment string of random length.
pub(crate) fn environment(rng: &mut Pcg64Mcg) -> String {
    "x".repeat(rng.random_range(0..=ENVIRONMENT_MAX))
}

/// Calls `then` with the stack moved down by a random number of frames, up to about a page.
pub(crate) fn at_random_depth(rng: &mut Pcg64Mcg, then: &mut dyn FnMut()) {
    deeper(depth(rng), then);
}

/// Returns a random number of frames.
pub(crate) fn depth(rng: &mut Pcg64Mcg) -> usize {
    rng.random_range(0..PAGE / LINE)
}

/// Returns the offset of a random cache line in a page.
pub(crate) fn offset(rng: &mut Pcg64Mcg) -> usize {
    rng.random_range(0..PAGE / LINE) * LINE
}

#[inline(never)]
fn deeper(frames: usize, then: &mut dyn FnMut()) {
    let frame = black_box([0_u8; LINE]);
    if frames == 0 {
        then();
    } else {
        deeper(frames - 1, then);
    }
    // Keeps the frame alive, so that the call above is not a tail call.
    black_box(&frame);
}

/// Anonymous memory that starts at a random line of a page.
#[derive(Debug)]
pub(crate) struct Buffer {
    mapping: NonNull<u8>,
    mapped: usize,
    offset: usize,
    length: usize,
}

impl Buffer {
    /// Maps a buffer of `length` bytes, all zero, faulted in, in pages of the smallest size.
    pub(crate) fn new(length: usize, rng: &mut Pcg64Mcg) -> io::Result<Self> {
        Self::at(length, offset(rng))
    }

    /// Maps the same buffer as [`new`](Self::new), aligned to a page.
    pub(crate) fn aligned(length: usize) -> io::Result<Self> {
        Self::at(length, 0)
    }

    /// Maps a buffer of `length` bytes, all zero, faulted in, in huge pages. Fails unless all of it is in
    /// huge pages. A partner forked later does not have it: the first write to a huge page that a fork
    /// shares would split it into small pages.
    pub(crate) fn huge(length: usize, rng: &mut Pcg64Mcg) -> Result<Self, Refusal> {
        let page = huge_page()?;
        let offset = rng.random_range(0..page / LINE) * LINE;
        let mapped = (length + offset).next_multiple_of(page);
        // The kernel aligns the address only to the small page: map one additional huge page, and unmap the
        // parts before and after the aligned part.
        let whole = Self::map(mapped + page, 0, MapFlags::PRIVATE)?;
        let before = whole.mapping.as_ptr().align_offset(page);
        let (mapping, whole_length) = (whole.mapping, whole.mapped);
        std::mem::forget(whole);
        // SAFETY: the unmapped parts are within the mapping, multiples of the page and unused.
        let mapping = unsafe {
            munmap_part(mapping.as_ptr(), before)?;
            munmap_part(mapping.as_ptr().add(before + mapped), whole_length - before - mapped)?;
            mapping.add(before)
        };
        let buffer = Self { mapping, mapped, offset, length };
        // SAFETY: the range is exactly the mapping; the advice preserves its contents.
        if unsafe { madvise(mapping.as_ptr().cast(), mapped, Advice::LinuxHugepage) }.is_err() {
            return Err(Refusal::Unavailable(format!("the kernel refuses huge pages; {HUGE_PAGES_ADVICE}")));
        }
        // SAFETY: the range is exactly the mapping; the advice preserves its contents in this process.
        unsafe { madvise(mapping.as_ptr().cast(), mapped, Advice::LinuxDontFork) }
            .map_err(io::Error::from)?;
        buffer.populate()?;
        let huge = buffer.bytes_in_huge_pages()?;
        if huge < mapped {
            return Err(Refusal::Unavailable(format!(
                "of {} KiB only {} KiB are in huge pages: memory is fragmented or huge pages are turned off; \
                 {HUGE_PAGES_ADVICE}",
                mapped >> 10,
                huge >> 10
            )));
        }
        Ok(buffer)
    }

    /// Maps a buffer of `length` bytes, all zero, that is shared with partners forked later. Its pages are
    /// not present until they are touched.
    pub(crate) fn shared(length: usize, rng: &mut Pcg64Mcg) -> io::Result<Self> {
        Self::map(length, offset(rng), MapFlags::SHARED)
    }

    /// Maps `length` bytes of memory, a multiple of the page, `times` times consecutively: every line is
    /// accessible through `times` pages.
    pub(crate) fn aliased(length: usize, times: usize) -> io::Result<Self> {
        let file = memfd_create("assay", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, length as u64)?;
        let whole = Self::map(length * times, 0, MapFlags::PRIVATE)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        for time in 0..times {
            // SAFETY: replaces a part of the new mapping, which is not used yet.
            unsafe {
                let at = whole.mapping.as_ptr().add(time * length).cast();
                mmap(at, length, protection, MapFlags::SHARED | MapFlags::FIXED, &file, 0)?;
            }
        }
        whole.refuse_huge_pages();
        whole.populate()?;
        Ok(whole)
    }

    /// Returns a pointer to the first byte, for memory that others write to, to which references must not
    /// exist.
    pub(crate) fn base(&self) -> *mut u8 {
        // SAFETY: the offset is within the mapping.
        unsafe { self.mapping.as_ptr().add(self.offset) }
    }

    fn at(length: usize, offset: usize) -> io::Result<Self> {
        let buffer = Self::map(length, offset, MapFlags::PRIVATE)?;
        buffer.refuse_huge_pages();
        buffer.populate()?;
        Ok(buffer)
    }

    fn map(length: usize, offset: usize, flags: MapFlags) -> io::Result<Self> {
        let mapped = (length + offset).next_multiple_of(PAGE);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses affects no other memory.
        let mapping = unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, protection, flags) }?;
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or_else(|| io::Error::other("mmap gave null"))?;
        Ok(Self { mapping, mapped, offset, length })
    }

    fn refuse_huge_pages(&self) {
        // A kernel without huge pages rejects the advice, which is then unnecessary.
        // SAFETY: the range is exactly the mapping; the advice preserves its contents.
        let _ = unsafe { madvise(self.mapping.as_ptr().cast(), self.mapped, Advice::LinuxNoHugepage) };
    }

    /// Returns how many bytes of the mapping are in huge pages.
    fn bytes_in_huge_pages(&self) -> io::Result<usize> {
        let begin = self.mapping.as_ptr() as usize;
        Ok(huge_bytes(&std::fs::read_to_string("/proc/self/smaps")?, begin..begin + self.mapped))
    }

    /// Faults every page in.
    fn populate(&self) -> io::Result<()> {
        let mapping = self.mapping.as_ptr();
        // SAFETY: the range is exactly the mapping; the advice preserves its contents.
        match unsafe { madvise(mapping.cast(), self.mapped, Advice::LinuxPopulateWrite) } {
            Ok(()) => {}
            // Kernels before 5.14 do not support this advice.
            Err(rustix::io::Errno::INVAL) => {
                for page in (0..self.mapped).step_by(PAGE) {
                    // SAFETY: within the mapping, which is not used yet.
                    unsafe { mapping.add(page).write_volatile(0) };
                }
            }
            Err(error) => return Err(io::Error::other(format!("memory of {} B: {error}", self.mapped))),
        }
        Ok(())
    }
}

/// What to do for huge pages.
const HUGE_PAGES_ADVICE: &str =
    "write madvise to /sys/kernel/mm/transparent_hugepage/enabled and 1 to /proc/sys/vm/compact_memory";

/// Returns the size of a huge page in bytes.
pub(crate) fn huge_page() -> Result<usize, Refusal> {
    const PATH: &str = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
    let size = std::fs::read_to_string(PATH).ok().and_then(|text| text.trim().parse().ok());
    size.filter(|size: &usize| size.is_power_of_two() && *size > PAGE).ok_or_else(|| {
        Refusal::Unavailable(format!(
            "the kernel has no transparent huge pages ({PATH} does not contain a size)"
        ))
    })
}

/// Returns the bytes in anonymous huge pages of the mappings that overlap a range, from `/proc/self/smaps`
/// (proc(5)).
fn huge_bytes(smaps: &str, range: Range<usize>) -> usize {
    let (mut within, mut kib) = (false, 0);
    for line in smaps.lines() {
        if let Some(mapping) = mapping_range(line) {
            within = mapping.start < range.end && range.start < mapping.end;
        } else if let Some(size) = line.strip_prefix("AnonHugePages:").filter(|_| within) {
            kib += size.trim().trim_end_matches(" kB").parse().unwrap_or(0);
        }
    }
    kib << 10
}

/// Parses the bounds in the first line of a mapping's entry.
fn mapping_range(line: &str) -> Option<Range<usize>> {
    let (range, _) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

/// # Safety
/// The range must be ours, a multiple of the page and unused.
unsafe fn munmap_part(begin: *mut u8, length: usize) -> io::Result<()> {
    if length > 0 {
        // SAFETY: the caller guarantees the conditions on the range.
        unsafe { munmap(begin.cast(), length) }?;
    }
    Ok(())
}

// SAFETY: it is the only owner of its mapping, as a vector is of its memory.
unsafe impl Send for Buffer {}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is readable, initialised with zeroes by the kernel, at least
        // `offset + length` long, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr().add(self.offset), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the exclusive borrow of `self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.as_ptr().add(self.offset), self.length) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no reference to it outlives `self`.
        let unmapped = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapped) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn a_buffer_is_writable_from_its_first_to_its_last_byte_at_any_offset() {
        for seed in 0..20 {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            let mut buffer = Buffer::new(3 * PAGE + 1, &mut rng).unwrap();
            buffer.fill(7);
            assert_eq!(buffer.len(), 3 * PAGE + 1);
            assert!(buffer.iter().all(|byte| *byte == 7));
            assert!((buffer.as_ptr() as usize).is_multiple_of(LINE));
        }
    }

    #[test]
    fn a_huge_buffer_is_completely_in_huge_pages_or_refused_with_advice() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        match Buffer::huge(3 << 20, &mut rng) {
            Ok(mut buffer) => {
                buffer.fill(7);
                assert_eq!(buffer.len(), 3 << 20);
                assert!(buffer.bytes_in_huge_pages().unwrap() >= 3 << 20);
            }
            Err(Refusal::Unavailable(reason)) => assert!(reason.contains("huge pages"), "{reason}"),
            Err(other) => panic!("{other}"),
        }
        let small = Buffer::new(3 << 20, &mut rng).unwrap();
        assert_eq!(small.bytes_in_huge_pages().unwrap(), 0);
    }

    #[test]
    fn a_fork_leaves_a_huge_buffer_in_huge_pages() {
        let mut buffer = match Buffer::huge(3 << 20, &mut Pcg64Mcg::seed_from_u64(3)) {
            Ok(buffer) => buffer,
            Err(refusal) => return assert!(refusal.to_string().contains("huge pages"), "{refusal}"),
        };
        let cpu = assay_process::cpus::allowed().unwrap()[0];
        let _partner = crate::platform::partner::Partner::fork(cpu, || {
            std::thread::sleep(std::time::Duration::from_secs(60));
            0
        })
        .unwrap();
        buffer.fill(7);
        assert!(buffer.bytes_in_huge_pages().unwrap() >= 3 << 20);
    }

    #[test]
    fn huge_pages_are_counted_only_in_the_mappings_of_the_range() {
        let smaps = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0
Rss:                4096 kB
AnonHugePages:      4096 kB
7f0000400000-7f0000600000 rw-p 00000000 00:00 0
AnonHugePages:      2048 kB
7f0000800000-7f0000a00000 rw-p 00000000 00:00 0
AnonHugePages:         0 kB
";
        let bytes = |range| huge_bytes(smaps, range);
        assert_eq!(bytes(0x7f00_0000_0000..0x7f00_0040_0000), 4 << 20);
        assert_eq!(bytes(0x7f00_0000_0000..0x7f00_0050_0000), 6 << 20);
        assert_eq!(bytes(0x7f00_0070_0000..0x7f00_00b0_0000), 0);
        assert_eq!(huge_bytes("nonsense", 0..usize::MAX), 0);
    }

    #[test]
    fn memory_that_is_mapped_several_times_is_the_same_memory() {
        let page = rustix::param::page_size();
        let buffer = Buffer::aliased(2 * page, 3).unwrap();
        assert_eq!(buffer.len(), 6 * page);
        for time in 0..3 {
            // SAFETY: words within the buffer; they are the same words, so no reference to them is created.
            unsafe {
                let word = |time: usize| buffer.base().add((2 * time + 1) * page + 64).cast::<usize>();
                word(time).write_volatile(time + 7);
                assert!((0..3).all(|other| word(other).read_volatile() == time + 7));
            }
        }
    }

    #[test]
    fn a_write_of_a_partner_to_a_shared_buffer_is_visible() {
        let buffer = Buffer::shared(PAGE, &mut Pcg64Mcg::seed_from_u64(2)).unwrap();
        let place = buffer.base() as usize;
        let cpu = assay_process::cpus::allowed().unwrap()[0];
        let _partner = crate::platform::partner::Partner::fork(cpu, || {
            // SAFETY: the buffer is mapped at the same address in the partner.
            unsafe { std::ptr::with_exposed_provenance_mut::<u8>(place).write_volatile(9) };
            0
        })
        .unwrap();
        // SAFETY: the first byte of a live buffer, to which the partner writes, hence no reference.
        while unsafe { buffer.base().read_volatile() } != 9 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn layouts_of_different_seeds_differ_and_layouts_of_the_same_seed_agree() {
        let offsets = |seed| {
            let mut rng = Pcg64Mcg::seed_from_u64(seed);
            (0..4).map(|_| Buffer::new(1, &mut rng).unwrap().offset).collect::<Vec<_>>()
        };
        assert_eq!(offsets(1), offsets(1));
        assert_ne!(offsets(1), offsets(2));
    }

    #[test]
    fn the_stack_really_moves() {
        let mut places = std::collections::BTreeSet::new();
        for seed in 0..20 {
            at_random_depth(&mut Pcg64Mcg::seed_from_u64(seed), &mut || {
                let local = 0_u8;
                places.insert(std::ptr::from_ref(&local) as usize);
            });
        }
        assert!(places.len() > 5, "{places:?}");
    }
}
