//! The memory hierarchy: rate of reading, writing and copying (thesis, section 2.2.5: one method of access
//! and the machine's word for all three), and latency of a load that depends on the one before it
//! (lmbench, 1996, section 6.2, with random order instead of a stride, which prefetchers follow).

use std::hint::black_box;
use std::io;

use assay_quantity::{Key, PrimitiveId, Size};
use rand::RngExt;

use crate::benchmark::{Operation, Prepared, Refusal, Setting, expect_done};
use crate::describe;
use crate::layout::{Buffer, LINE};
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        ids: &[
            "memory.read{level=l1}",
            "memory.read{level=l2}",
            "memory.read{level=l3}",
            "memory.read{level=dram}",
        ],
        profile: Profile::Quick,
        cost: Per::ByteOf(BYTES_PER_OPERATION),
        calls: &[],
        about: "load of every word of the working set, in order",
        source: "thesis, section 2.2.5",
        prepare: read,
    },
    Row {
        ids: &[
            "memory.write{level=l1}",
            "memory.write{level=l2}",
            "memory.write{level=l3}",
            "memory.write{level=dram}",
        ],
        profile: Profile::Quick,
        cost: Per::ByteOf(BYTES_PER_OPERATION),
        calls: &[],
        about: "store to every word of the working set, in order",
        source: "thesis, section 2.2.5",
        prepare: write,
    },
    Row {
        ids: &[
            "memory.copy{level=l1}",
            "memory.copy{level=l2}",
            "memory.copy{level=l3}",
            "memory.copy{level=dram}",
        ],
        profile: Profile::Quick,
        cost: Per::ByteOf(BYTES_PER_OPERATION),
        calls: &[],
        about: "load and store of every word from one half of the working set to the other, in order",
        source: "thesis, section 2.2.5",
        prepare: copy,
    },
    Row {
        ids: &[
            "memory.load{level=l1}",
            "memory.load{level=l2}",
            "memory.load{level=l3}",
            "memory.load{level=dram}",
        ],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &[],
        about: "load whose address is the result of the load before it, lines in random order",
        source: "lmbench 1996, section 6.2, in random order",
        prepare: load,
    },
];

/// Bytes of one operation of `memory.read`, `write` and `copy`: a page's worth of words.
pub(crate) const BYTES_PER_OPERATION: u64 = 4096;

const CHUNK: usize = 4096;
const WORDS: usize = CHUNK / size_of::<u64>();

/// Largest working set for `level=dram`.
const DRAM_MAX: Size = Size::mib(512);

/// Read every word of the next page of the working set.
fn read(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let set = working_set(id, setting)?;
    Ok(Prepared::alone(Walk::over(Buffer::new(set, &mut setting.rng)?, set, read_page)))
}

/// Write every word of the next page of the working set.
fn write(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let set = working_set(id, setting)?;
    Ok(Prepared::alone(Walk::over(Buffer::new(set, &mut setting.rng)?, set, write_page)))
}

/// Copy every word of the next page of one half of the working set to the other half.
fn copy(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let set = working_set(id, setting)?;
    let half = (set / 2).next_multiple_of(CHUNK);
    let buffer = Buffer::new(2 * half, &mut setting.rng)?;
    Ok(Prepared::alone(Walk::over(buffer, half, copy_page)))
}

/// Bytes of the working set for a level: half of a cache, so that the rest of the process fits beside it;
/// for memory, four times the last cache.
fn working_set(id: &PrimitiveId, setting: &Setting) -> Result<usize, Refusal> {
    let level = id.word(Key::Level);
    let unknown = || Refusal::Unavailable(format!("the machine does not tell the size of its {level}"));
    let caches = &setting.caches;
    let set = match level {
        "l1" => Size(caches.l1.ok_or_else(unknown)?.bytes() / 2),
        "l2" => Size(caches.l2.ok_or_else(unknown)?.bytes() / 2),
        "l3" => Size(caches.l3.ok_or_else(unknown)?.bytes() / 2),
        _ => {
            let last = caches.last().ok_or_else(|| {
                Refusal::Unavailable(
                    "the machine does not tell its caches, so nothing is surely outside".to_owned(),
                )
            })?;
            let set = Size(last.bytes().saturating_mul(4)).min(DRAM_MAX);
            if set.bytes() < last.bytes().saturating_mul(2) {
                return Err(Refusal::Unavailable(format!(
                    "its last cache of {last} is too large beside the largest working set of {DRAM_MAX}"
                )));
            }
            set
        }
    };
    let free = describe::meminfo("MemAvailable").unwrap_or(Size(u64::MAX));
    if set.bytes() > free.bytes() / 2 {
        return Err(Refusal::Unavailable(format!(
            "its working set of {set} does not fit into {free} of memory"
        )));
    }
    usize::try_from(set.bytes()).map_err(|error| Refusal::Failed(io::Error::other(error)))
}

/// Pages of a region visited in turn. The position stays from batch to batch, so that a short batch does
/// not begin where the one before it has left the caches warm.
struct Walk<F> {
    buffer: Buffer,
    pages: usize,
    next: usize,
    visit: F,
    done: u64,
}

impl<F: FnMut(*mut u64, usize)> Walk<F> {
    /// Visits the pages of the first `region` bytes; `visit` gets the page and the length of the region.
    fn over(buffer: Buffer, region: usize, visit: F) -> Self {
        Self { buffer, pages: (region / CHUNK).max(1), next: 0, visit, done: 0 }
    }
}

impl<F: FnMut(*mut u64, usize)> Operation for Walk<F> {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        let words = self.buffer.as_mut_ptr().cast::<u64>();
        for _ in 0..operations {
            // SAFETY: `next` is below `pages`, so the page is within the buffer, which begins at a line.
            (self.visit)(unsafe { words.add(self.next * WORDS) }, self.pages * WORDS);
            self.next += 1;
            if self.next == self.pages {
                self.next = 0;
            }
        }
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)
    }
}

/// Words per turn of a loop: one line, so that counting costs little beside touching.
const UNROLLED: usize = 8;

/// Volatile accesses are neither left out, nor merged into vectors, nor turned into calls of the C
/// library: all three loops touch memory in words, the same on every machine.
#[inline]
fn read_page(page: *mut u64, _: usize) {
    let mut sum = [0_u64; UNROLLED];
    for line in 0..WORDS / UNROLLED {
        for (word, sum) in sum.iter_mut().enumerate() {
            // SAFETY: within the page that `Walk` passes.
            *sum = sum.wrapping_add(unsafe { page.add(line * UNROLLED + word).read_volatile() });
        }
    }
    black_box(sum);
}

#[inline]
fn write_page(page: *mut u64, _: usize) {
    for line in 0..WORDS / UNROLLED {
        for word in 0..UNROLLED {
            // SAFETY: within the page that `Walk` passes.
            unsafe { page.add(line * UNROLLED + word).write_volatile(7) };
        }
    }
}

#[inline]
fn copy_page(page: *mut u64, distance: usize) {
    for line in 0..WORDS / UNROLLED {
        for word in 0..UNROLLED {
            let at = line * UNROLLED + word;
            // SAFETY: `copy` has made the buffer twice as long as the region that is walked over.
            unsafe { page.add(distance + at).write_volatile(page.add(at).read_volatile()) };
        }
    }
}

/// One load whose address is the value of the load before it, in random order over the lines of the set.
fn load(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let set = working_set(id, setting)?;
    let mut buffer = Buffer::new(set, &mut setting.rng)?;
    let order = cycle(set / LINE, |bound| setting.rng.random_range(0..bound));
    link(&mut buffer, &order?);
    let at = buffer.as_ptr().cast::<usize>();
    Ok(Prepared::alone(Chase { _buffer: buffer, at, done: 0 }))
}

/// Sattolo's algorithm (1986): `next[i]` is the successor of `i` in one cycle through all of them.
fn cycle(lines: usize, mut below: impl FnMut(u32) -> u32) -> io::Result<Vec<u32>> {
    let lines = u32::try_from(lines).map_err(io::Error::other)?;
    let mut next: Vec<u32> = (0..lines).collect();
    for i in (1..lines).rev() {
        next.swap(i as usize, below(i) as usize);
    }
    Ok(next)
}

/// Writes into the first word of every line the address of its successor, in the order of the lap that
/// [`Chase`] makes, beginning where it begins.
///
/// What the caches still hold afterwards are then the lines that the lap comes to last. Written in order of
/// address they would be the last part of the buffer, which is a share of every stretch of a random lap: a
/// sample makes far less than a lap of a large set, so that share of its loads would hit the last cache.
fn link(buffer: &mut Buffer, next: &[u32]) {
    let base = buffer.as_mut_ptr();
    let mut line = 0;
    for _ in next {
        let successor = next[line] as usize;
        // SAFETY: both lines are below the number of lines in the buffer, which begins at a line, so the
        // write is within it and aligned.
        unsafe {
            let to = base.add(successor * LINE);
            base.add(line * LINE).cast::<usize>().write(to.expose_provenance());
        }
        line = successor;
    }
}

struct Chase {
    _buffer: Buffer,
    at: *const usize,
    done: u64,
}

impl Operation for Chase {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        let mut at = self.at;
        for _ in 0..operations {
            // SAFETY: every line holds the address of a line of the same buffer, which lives in `self`.
            at = std::ptr::with_exposed_provenance(unsafe { at.read_volatile() });
        }
        // The next batch goes on here, which also makes the whole chain a result that is used.
        self.at = black_box(at);
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    proptest! {
        #[test]
        fn the_order_of_loads_is_one_cycle_through_every_line(lines in 1usize..300, seed: u32) {
            let mut state = seed;
            let next = cycle(lines, |bound| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state % bound
            }).unwrap();
            let mut at = 0;
            for step in 1..=lines {
                at = next[at] as usize;
                prop_assert_eq!(at == 0, step == lines, "back at the start after {} of {}", step, lines);
            }
        }
    }

    #[test]
    fn the_linked_lines_are_visited_once_each_before_the_first_comes_again() {
        let (lines, mut rng) = (100, Pcg64Mcg::seed_from_u64(5));
        let mut buffer = Buffer::aligned(lines * LINE).unwrap();
        let next = cycle(lines, |bound| rng.random_range(0..bound)).unwrap();
        link(&mut buffer, &next);
        let first = buffer.as_ptr().cast::<usize>();
        let mut chase = Chase { _buffer: buffer, at: first, done: 0 };
        for step in 1..=lines {
            chase.run(1).unwrap();
            assert_eq!(chase.at == first, step == lines, "back at the start after {step} of {lines}");
        }
    }

    #[test]
    fn every_word_of_the_region_is_written_and_copied() {
        let mut buffer = Buffer::aligned(2 * CHUNK).unwrap();
        write_page(buffer.as_mut_ptr().cast(), 0);
        assert!(buffer[..CHUNK].chunks(8).all(|word| word == 7_u64.to_ne_bytes()));
        assert!(buffer[CHUNK..].iter().all(|byte| *byte == 0));
        copy_page(buffer.as_mut_ptr().cast(), WORDS);
        assert_eq!(buffer[..CHUNK], buffer[CHUNK..]);
    }
}
