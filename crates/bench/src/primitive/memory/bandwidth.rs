//! Bandwidth of reading, writing and copying (thesis, section 2.2.5: one access method and the machine's word
//! size for all three), and of writing past the caches.
//!
//! Every counted byte is accessed, and checked afterwards. lmbench's `bw_mem rd` counts eight times the words
//! that it reads.

use std::io;

use assay_quantity::PrimitiveId;
use rand::RngExt;

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::layout::Buffer;
use crate::primitive::kit::walk::{Pass, Visited, Walk};
use crate::primitive::kit::words::{
    CHUNK, NonTemporal, Store, Temporal, WORDS, WORDS_PER_LINE, WORDS_PER_TURN, chunk, flush_all,
    number_words, read_chunk, sum_of_chunk, words,
};
use crate::primitive::kit::working_set::{Course, Residence, WorkingSet};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["memory.read{level=*}"],
        full: &["memory.read{set=16KiB|64KiB|256KiB|1MiB|4MiB|16MiB|64MiB|256MiB}"],
        cost: Per::ByteOf(CHUNK as u64),
        calls: &[],
        about: "load of every word of 8 bytes of the working set, in order",
        source: "thesis, section 2.2.5",
        prepare: read,
    },
    Row {
        quick: &["memory.write{level=*}"],
        full: &["memory.write{set=16KiB|64KiB|256KiB|1MiB|4MiB|16MiB|64MiB|256MiB}"],
        cost: Per::ByteOf(CHUNK as u64),
        calls: &[],
        about: "store to every word of the working set, in order",
        source: "thesis, section 2.2.5",
        prepare: write,
    },
    Row {
        quick: &["memory.copy{level=*}"],
        full: &["memory.copy{set=16KiB|64KiB|256KiB|1MiB|4MiB|16MiB|64MiB|256MiB}"],
        cost: Per::ByteOf(CHUNK as u64),
        calls: &[],
        about: "copy of every word from one half of the working set to the other, in order; a byte copied \
                counts once",
        source: "thesis, section 2.2.5",
        prepare: copy,
    },
    Row {
        quick: &["memory.write_nontemporal{level=dram}"],
        full: &[
            "memory.write_nontemporal{level=*}",
            "memory.write_nontemporal{set=16KiB|64KiB|256KiB|1MiB|4MiB|16MiB|64MiB|256MiB}",
        ],
        cost: Per::ByteOf(CHUNK as u64),
        calls: &[],
        about: "non-temporal store to every word of the working set, in order, bypassing the caches \
                (`movnti`, `stnp`); each batch ends with the fence that waits for the stores",
        source: "own: used by streaming copies and by hypervisors for zeroing; stress-ng reports no time per \
                 byte",
        prepare: write_nontemporal,
    },
];

/// Reads every word of the next chunk of the working set.
fn read(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let set = WorkingSet::of(id, setting, Course::Sweep)?;
    let chunks = set.chunks(1, CHUNK)?;
    let buffer = Buffer::new(chunks * CHUNK, &mut setting.rng)?;
    let pass = Read::of(buffer, chunks, setting.rng.random());
    if set.residence == Residence::Memory {
        // Data that was written during preparation must not be written back while reads are timed.
        flush_all(&pass.buffer);
    }
    Ok(Prepared::alone(Walk::settled(pass, set, CHUNK as u64)?))
}

/// Writes every word of the next chunk of the working set.
fn write(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    written(id, setting, Temporal)
}

/// Like `write`, with stores that leave no line in a cache.
fn write_nontemporal(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    written(id, setting, NonTemporal)
}

fn written<S: Store + 'static>(
    id: &PrimitiveId,
    setting: &mut Setting,
    store: S,
) -> Result<Prepared, Refusal> {
    let set = WorkingSet::of(id, setting, Course::Sweep)?;
    let chunks = set.chunks(1, CHUNK)?;
    let buffer = Buffer::new(chunks * CHUNK, &mut setting.rng)?;
    let pass = Write { buffer, chunks, value: setting.rng.random(), store };
    Ok(Prepared::alone(Walk::settled(pass, set, CHUNK as u64)?))
}

/// Copies every word of the next chunk of one half of the working set to the other half.
fn copy(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let set = WorkingSet::of(id, setting, Course::Sweep)?;
    let chunks = set.chunks(2, CHUNK)?;
    let buffer = Buffer::new(2 * chunks * CHUNK, &mut setting.rng)?;
    let pass = Copy::of(buffer, chunks);
    Ok(Prepared::alone(Walk::settled(pass, set, 2 * CHUNK as u64)?))
}

struct Read {
    buffer: Buffer,
    chunks: usize,
    /// The value of the first word. Each word is one more than the previous one.
    first: u64,
    sum: u64,
}

impl Read {
    fn of(buffer: Buffer, chunks: usize, first: u64) -> Self {
        // SAFETY: the buffer has this length and is not shared.
        unsafe { number_words(buffer.base().cast(), chunks, first) };
        Self { buffer, chunks, first, sum: 0 }
    }

    fn sum_of(&self, chunk: usize) -> u64 {
        sum_of_chunk(self.first, chunk)
    }
}

impl Pass for Read {
    fn chunks(&self) -> usize {
        self.chunks
    }

    fn arm(&mut self) {
        self.sum = 0;
    }

    #[inline]
    fn visit(&mut self, chunk: usize) {
        // SAFETY: the chunk is within the buffer.
        let sum = unsafe { read_chunk(self.buffer.as_ptr().cast(), chunk) };
        self.sum = self.sum.wrapping_add(sum);
    }

    fn check(&mut self, visited: Visited) -> io::Result<()> {
        let (laps, rest) = visited.laps();
        let lap = (0..self.chunks).map(|chunk| self.sum_of(chunk)).fold(0, u64::wrapping_add);
        let due = rest.map(|chunk| self.sum_of(chunk)).fold(lap.wrapping_mul(laps), u64::wrapping_add);
        if self.sum == due {
            Ok(())
        } else {
            Err(io::Error::other(format!("the words read add up to {} instead of {due}", self.sum)))
        }
    }
}

struct Write<S> {
    buffer: Buffer,
    chunks: usize,
    /// The value that this batch writes. It differs from batch to batch.
    value: u64,
    store: S,
}

impl<S: Store> Pass for Write<S> {
    fn chunks(&self) -> usize {
        self.chunks
    }

    fn arm(&mut self) {
        self.value = self.value.wrapping_add(1);
    }

    #[inline]
    fn visit(&mut self, chunk: usize) {
        let words = self.buffer.base().cast::<u64>();
        for turn in 0..WORDS / WORDS_PER_TURN {
            for line in (0..WORDS_PER_TURN).step_by(WORDS_PER_LINE) {
                let place = chunk * WORDS + turn * WORDS_PER_TURN + line;
                // SAFETY: the chunk is within the buffer.
                unsafe { self.store.store_line(words.add(place), self.value) };
            }
        }
    }

    #[inline]
    fn finish(&mut self) {
        self.store.drain();
    }

    fn check(&mut self, visited: Visited) -> io::Result<()> {
        for number in visited.each() {
            let written = chunk(words(&mut self.buffer), number);
            let missing = written.iter().filter(|word| **word != self.value).count();
            if missing > 0 {
                return Err(io::Error::other(format!(
                    "{missing} of {WORDS} words of a chunk were not written"
                )));
            }
            if S::PAST_CACHES {
                flush_all(&self.buffer[number * CHUNK..][..CHUNK]);
            }
        }
        Ok(())
    }
}

/// The first half contains numbers. The second half is cleared after each batch.
struct Copy {
    buffer: Buffer,
    chunks: usize,
}

impl Copy {
    fn of(buffer: Buffer, chunks: usize) -> Self {
        // Starts at 1, because a word that was not copied is 0.
        // SAFETY: the buffer is longer than this and is not shared.
        unsafe { number_words(buffer.base().cast(), chunks, 1) };
        Self { buffer, chunks }
    }
}

impl Pass for Copy {
    fn chunks(&self) -> usize {
        self.chunks
    }

    #[inline]
    fn visit(&mut self, chunk: usize) {
        let words = self.buffer.base().cast::<u64>();
        let distance = self.chunks * WORDS;
        for turn in 0..WORDS / WORDS_PER_TURN {
            for word in 0..WORDS_PER_TURN {
                let place = chunk * WORDS + turn * WORDS_PER_TURN + word;
                // SAFETY: the buffer is twice as long as the region that is traversed.
                unsafe { words.add(distance + place).write_volatile(words.add(place).read_volatile()) };
            }
        }
    }

    fn check(&mut self, visited: Visited) -> io::Result<()> {
        let (from, to) = words(&mut self.buffer).split_at_mut(self.chunks * WORDS);
        for number in visited.each() {
            let copied = chunk(to, number);
            if copied != chunk(from, number) {
                return Err(io::Error::other("a chunk was not copied"));
            }
            copied.fill(0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitive::kit::walk::tests::{batches, walk};

    const CHUNKS: usize = 5;
    const LENGTHS: [u64; 4] = [1, 4, 17, 3];

    fn buffer(chunks: usize) -> Buffer {
        Buffer::aligned(chunks * CHUNK).unwrap()
    }

    fn write<S: Store>(store: S) -> Write<S> {
        Write { buffer: buffer(CHUNKS), chunks: CHUNKS, value: 0, store }
    }

    #[test]
    fn complete_batches_pass_their_check() {
        batches(&mut walk(Read::of(buffer(CHUNKS), CHUNKS, u64::MAX - 700)), &LENGTHS, |_| false).unwrap();
        batches(&mut walk(write(Temporal)), &LENGTHS, |_| false).unwrap();
        batches(&mut walk(Copy::of(buffer(2 * CHUNKS), CHUNKS)), &LENGTHS, |_| false).unwrap();
    }

    #[test]
    fn nontemporal_stores_write_every_word() {
        batches(&mut walk(write(NonTemporal)), &LENGTHS, |_| false).unwrap();
        let left_out = batches(&mut walk(write(NonTemporal)), &LENGTHS, |chunk| chunk == 2).unwrap_err();
        assert!(left_out.to_string().contains("512 of 512 words"), "{left_out}");
    }

    /// Also in a later batch, after an earlier one has processed the same chunks.
    #[test]
    fn a_skipped_chunk_is_detected() {
        for chunk in 0..CHUNKS {
            for done_before in [0, CHUNKS as u64] {
                let fails = |outcome: io::Result<()>, reason: &str| {
                    let error = outcome.unwrap_err().to_string();
                    assert!(error.contains(reason), "{error}");
                };
                let mut read = walk(Read::of(buffer(CHUNKS), CHUNKS, 1));
                batches(&mut read, &[done_before], |_| false).unwrap();
                fails(batches(&mut read, &[CHUNKS as u64], |at| at == chunk), "add up to");
                let mut written = walk(write(Temporal));
                batches(&mut written, &[done_before], |_| false).unwrap();
                fails(batches(&mut written, &[CHUNKS as u64], |at| at == chunk), "were not written");
                let mut copied = walk(Copy::of(buffer(2 * CHUNKS), CHUNKS));
                batches(&mut copied, &[done_before], |_| false).unwrap();
                fails(batches(&mut copied, &[CHUNKS as u64], |at| at == chunk), "was not copied");
            }
        }
    }

    #[test]
    fn a_word_that_was_not_copied_or_written_is_detected() {
        let mut pass = Copy::of(buffer(2 * CHUNKS), CHUNKS);
        pass.visit(3);
        words(&mut pass.buffer)[(CHUNKS + 3) * WORDS + 77] ^= 1;
        assert!(pass.check(visits(3)).is_err());
        let mut pass = write(Temporal);
        pass.arm();
        pass.visit(3);
        words(&mut pass.buffer)[3 * WORDS + 77] ^= 1;
        assert!(pass.check(visits(3)).unwrap_err().to_string().contains("1 of 512"));
    }

    fn visits(chunk: usize) -> Visited {
        Visited::of(chunk, 1, CHUNKS)
    }
}
