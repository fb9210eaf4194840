//! Memory that a process shares with the partners that it forks: counters with which they report their work.

use std::io;
use std::ops::Deref;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// A value that this process and every partner that it forks afterwards share at the same address. `T`
/// consists of atomics, because the value is modified through them and is never dropped.
#[derive(Debug)]
pub(crate) struct Shared<T: Sync> {
    value: NonNull<T>,
}

impl<T: Sync> Shared<T> {
    /// Moves `value` to shared memory.
    pub(crate) fn new(value: T) -> io::Result<Self> {
        const { assert!(!std::mem::needs_drop::<T>(), "the memory is unmapped without dropping the value") };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no memory of ours.
        let mapping =
            unsafe { mmap_anonymous(std::ptr::null_mut(), size_of::<T>(), access, MapFlags::SHARED) }?;
        let place =
            NonNull::new(mapping.cast::<T>()).ok_or_else(|| io::Error::other("mmap returned null"))?;
        // SAFETY: the mapping is writable, has the size of a `T`, and begins at a page, which is aligned for
        // it.
        unsafe { place.write(value) };
        Ok(Self { value: place })
    }
}

impl<T: Sync> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `new` has written a `T` there, which stays until `self` is dropped; processes that use it
        // concurrently do so like threads, which `T: Sync` permits.
        unsafe { self.value.as_ref() }
    }
}

// SAFETY: it only provides `&T`, which threads may share.
unsafe impl<T: Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Shared<T> {}

impl<T: Sync> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to it outlives `self`.
        let unmapped = unsafe { munmap(self.value.as_ptr().cast(), size_of::<T>()) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::partner::Partner;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn the_count_of_a_partner_is_visible_here() {
        let counter = Shared::new(AtomicU64::new(3)).unwrap();
        let cpu = assay_process::cpus::allowed().unwrap()[0];
        let _partner = Partner::fork(cpu, || {
            counter.fetch_add(4, Ordering::Release);
            0
        })
        .unwrap();
        while counter.load(Ordering::Acquire) == 3 {
            std::thread::yield_now();
        }
        assert_eq!(counter.load(Ordering::Acquire), 7);
    }
}
