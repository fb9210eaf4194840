//! Randomizes the placement of the kernel's own objects for every process.
//!
//! The kernel reuses the objects that were freed last. Without this module, the inode, the socket and the
//! pages of a sample would be those of the previous sample, and would compete for the same cache sets: the
//! samples of one run would agree with each other, but not with those of the next run. Therefore each process
//! starts by allocating some objects of every kind and freeing them in random order, on the processor that it
//! measures on, whose free lists are then in this order.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rand::RngExt;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use rustix::event::{EventfdFlags, eventfd};
use rustix::mm::{Advice, madvise};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::platform::layout::{Buffer, PAGE};

/// Maximum number of objects of each kind: several slabs of the larger ones.
const OBJECTS: usize = 24;

/// Maximum number of pages: several times the size of the free list of a processor.
const PAGES: usize = 512;

/// A kernel object that is freed when this is dropped.
enum Object {
    #[expect(dead_code, reason = "held to be dropped")]
    Descriptors(Vec<OwnedFd>),
    File(PathBuf, #[expect(dead_code, reason = "held to be dropped")] File),
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Object::File(path, _) = self {
            // A file that remains is removed with the directory.
            let _ = fs::remove_file(path);
        }
    }
}

/// Shuffles the free lists of the kernel. Objects that cannot be created are skipped.
pub(crate) fn shuffle_free_lists(directory: &Path, rng: &mut Pcg64Mcg) {
    let mut objects = Vec::new();
    for number in 0..rng.random_range(1..=OBJECTS) {
        let path = directory.join(format!("object-{number}"));
        objects.extend(File::create_new(&path).map(|file| Object::File(path, file)));
        let tcp = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let unix = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let pipe = pipe_with(PipeFlags::CLOEXEC);
        let event = eventfd(0, EventfdFlags::CLOEXEC);
        objects.extend(tcp.map(|tcp| Object::Descriptors(vec![tcp])));
        objects.extend(unix.map(|(one, other)| Object::Descriptors(vec![one, other])));
        objects.extend(pipe.map(|(one, other)| Object::Descriptors(vec![one, other])));
        objects.extend(event.map(|event| Object::Descriptors(vec![event])));
    }
    objects.shuffle(rng);
    drop(objects);
    let count = rng.random_range(1..=PAGES);
    if let Ok(memory) = Buffer::aligned(count * PAGE) {
        give_back(&memory, count, rng);
    }
}

fn give_back(memory: &Buffer, pages: usize, rng: &mut Pcg64Mcg) {
    let mut order: Vec<usize> = (0..pages).collect();
    order.shuffle(rng);
    for page in order {
        // SAFETY: the page belongs to the buffer, whose contents are no longer used.
        let _ = unsafe { madvise(memory.base().add(page * PAGE).cast(), PAGE, Advice::LinuxDontNeed) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn every_object_is_freed() {
        let directory = tempfile::tempdir().unwrap();
        let descriptors = || fs::read_dir("/proc/thread-self/fd").unwrap().count();
        // Other tests of this process open and close their own.
        let before = descriptors();
        for seed in 0..20 {
            shuffle_free_lists(directory.path(), &mut Pcg64Mcg::seed_from_u64(seed));
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(descriptors() < before + 20 * OBJECTS);
    }

    #[test]
    fn without_files_the_other_objects_are_shuffled() {
        shuffle_free_lists(Path::new("/proc/self"), &mut Pcg64Mcg::seed_from_u64(1));
    }
}
