//! Where the kernel's own objects lie, chosen anew for every process.
//!
//! What the kernel frees it hands out again first: without this, the inode, the socket and the pages of one sample
//! are those of the sample before, and so are the cache sets that they compete for. The samples of one run would agree
//! with each other and not with the next run. So each process begins by taking some objects of every kind and giving
//! them back in random order, on the processor that it measures on, whose free lists are then in that order.

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

use crate::layout::{Buffer, PAGE};

/// Objects of each kind at the most: some slabs of the larger ones.
const OBJECTS: usize = 24;

/// Pages of memory at the most: several times what a processor keeps at hand.
const PAGES: usize = 512;

/// Something of the kernel's that is given back when it is dropped.
enum Object {
    #[expect(dead_code, reason = "held to be dropped")]
    Descriptors(Vec<OwnedFd>),
    File(PathBuf, #[expect(dead_code, reason = "held to be dropped")] File),
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Object::File(path, _) = self {
            // Whatever stays behind goes with the directory.
            let _ = fs::remove_file(path);
        }
    }
}

/// Brings the free lists of the kernel into random order. What the kernel refuses is left out: nothing depends on it.
pub(crate) fn stir(directory: &Path, rng: &mut Pcg64Mcg) {
    let mut objects = Vec::new();
    for number in 0..rng.random_range(1..=OBJECTS) {
        let path = directory.join(format!("stir-{number}"));
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
        // SAFETY: the page is one of the buffer's, whose contents nobody wants any more.
        let _ = unsafe { madvise(memory.base().add(page * PAGE).cast(), PAGE, Advice::LinuxDontNeed) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn nothing_of_what_was_taken_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let descriptors = || fs::read_dir("/proc/thread-self/fd").unwrap().count();
        // Other tests of this process open and close their own.
        let before = descriptors();
        for seed in 0..20 {
            stir(directory.path(), &mut Pcg64Mcg::seed_from_u64(seed));
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(descriptors() < before + 20 * OBJECTS);
    }

    #[test]
    fn where_no_file_can_be_made_the_rest_is_done() {
        stir(Path::new("/proc/self"), &mut Pcg64Mcg::seed_from_u64(1));
    }
}
