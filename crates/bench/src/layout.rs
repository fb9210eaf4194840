//! Where things lie in memory, chosen anew for every process.
//!
//! Layout alone can move a cost by more than a compiler's optimisation does (Mytkowicz et al., ASPLOS
//! 2009), so it is made random instead of frozen: address-space randomisation stays on, the environment
//! and the stack begin at random places, and every buffer begins at a random cache line of a page. The
//! spread then shows in the interval, where it belongs.

use std::hint::black_box;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes of a cache line on every processor that this runs on; a larger one only makes offsets finer.
pub(crate) const LINE: usize = 64;

/// Bytes of a page that offsets are chosen in; multiples of larger pages are multiples of this one.
pub(crate) const PAGE: usize = 4096;

/// Longest random environment string, bytes (microbenchmarks have been moved by less).
const ENVIRONMENT_MAX: usize = 4096;

/// An environment string of random length.
pub(crate) fn environment(rng: &mut Pcg64Mcg) -> String {
    "x".repeat(rng.random_range(0..=ENVIRONMENT_MAX))
}

/// Calls `then` with the stack moved down by a random number of frames, up to about a page.
pub(crate) fn at_random_depth(rng: &mut Pcg64Mcg, then: &mut dyn FnMut()) {
    deeper(depth(rng), then);
}

/// A random number of frames.
pub(crate) fn depth(rng: &mut Pcg64Mcg) -> usize {
    rng.random_range(0..PAGE / LINE)
}

/// A random place in a page where a line begins.
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
    // Keeps the frame alive, so that the call above is no tail call.
    black_box(&frame);
}

/// Anonymous memory, faulted in, in pages of the smallest size, beginning at a random line of a page.
#[derive(Debug)]
pub(crate) struct Buffer {
    mapping: NonNull<u8>,
    mapped: usize,
    offset: usize,
    length: usize,
}

impl Buffer {
    /// A buffer of `length` bytes, all zero.
    pub(crate) fn new(length: usize, rng: &mut Pcg64Mcg) -> io::Result<Self> {
        Self::at(length, offset(rng))
    }

    /// A buffer that begins at a page.
    #[cfg(test)]
    pub(crate) fn aligned(length: usize) -> io::Result<Self> {
        Self::at(length, 0)
    }

    fn at(length: usize, offset: usize) -> io::Result<Self> {
        let mapped = (length + offset).next_multiple_of(PAGE);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address of the kernel's choice touches nothing of ours.
        let mapping = unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, protection, MapFlags::PRIVATE) }?;
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or_else(|| io::Error::other("mmap gave null"))?;
        let buffer = Self { mapping, mapped, offset, length };
        // SAFETY: the range is exactly the mapping just made; both pieces of advice keep its contents.
        unsafe {
            // A kernel without huge pages refuses the advice, and then needs none.
            let _ = madvise(mapping.as_ptr().cast(), mapped, Advice::LinuxNoHugepage);
            if madvise(mapping.as_ptr().cast(), mapped, Advice::LinuxPopulateWrite).is_err() {
                // Kernels before 5.14.
                for page in (0..mapped).step_by(PAGE) {
                    mapping.as_ptr().add(page).write_volatile(0);
                }
            }
        }
        Ok(buffer)
    }
}

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
    fn a_buffer_is_writable_from_its_first_to_its_last_byte_at_whatever_offset() {
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
    fn layouts_of_different_seeds_differ_and_of_one_seed_agree() {
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
