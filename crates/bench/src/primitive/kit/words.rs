//! Words of a working set, in chunks: numbering, reading and writing them one by one.
//!
//! All timed accesses are volatile or written in machine instructions, so that they are not omitted, merged
//! into vectors or replaced by calls of the C library. Every pass accesses memory in words, in the same way
//! on every machine.

use crate::platform::flush::flush;
use crate::platform::layout::{Buffer, LINE};

/// Bytes of one operation: a page's worth of words.
pub(crate) const CHUNK: usize = 4096;

/// Words of one operation.
pub(crate) const WORDS: usize = CHUNK / size_of::<u64>();

/// Words of a line.
pub(crate) const WORDS_PER_LINE: usize = LINE / size_of::<u64>();

/// Words per iteration of a loop: enough that counting iterations costs little compared to the accesses, and
/// that the placement of the backward jump makes little difference (a jump across a 32-byte boundary of code
/// slows some processors down).
pub(crate) const WORDS_PER_TURN: usize = 4 * WORDS_PER_LINE;

/// Writes `first`, `first + 1` and so on into the words of `chunks` chunks.
///
/// # Safety
/// `words` must point to this many chunks, which must not be used elsewhere during the call.
pub(crate) unsafe fn number_words(words: *mut u64, chunks: usize, first: u64) {
    for place in 0..chunks * WORDS {
        // SAFETY: the caller guarantees the words.
        unsafe { words.add(place).write(first.wrapping_add(place as u64)) };
    }
}

/// Returns the sum of the words of a chunk that [`number_words`] has written.
pub(crate) fn sum_of_chunk(first: u64, chunk: usize) -> u64 {
    let first = first.wrapping_add((chunk * WORDS) as u64);
    (WORDS as u64).wrapping_mul(first).wrapping_add((WORDS * (WORDS - 1) / 2) as u64)
}

/// Reads every word of a chunk and returns the sum.
///
/// # Safety
/// The chunk must be memory that is not written during the call.
#[inline]
pub(crate) unsafe fn read_chunk(words: *const u64, chunk: usize) -> u64 {
    // One sum per word of a line, so that no addition waits for another.
    let mut sums = [0_u64; WORDS_PER_LINE];
    for turn in 0..WORDS / WORDS_PER_TURN {
        for word in 0..WORDS_PER_TURN {
            let place = chunk * WORDS + turn * WORDS_PER_TURN + word;
            let sum = &mut sums[word % WORDS_PER_LINE];
            // SAFETY: the caller guarantees the chunk.
            *sum = sum.wrapping_add(unsafe { words.add(place).read_volatile() });
        }
    }
    sums.into_iter().fold(0, u64::wrapping_add)
}

/// Evicts the lines of a buffer from the caches.
pub(crate) fn flush_all(buffer: &[u8]) {
    // SAFETY: these are the lines of a live buffer.
    unsafe { flush(buffer.chunks(LINE).map(<[u8]>::as_ptr)) };
}

/// Returns the words of a buffer, which begins at a line.
pub(crate) fn words(buffer: &mut Buffer) -> &mut [u64] {
    // SAFETY: any bytes are valid words.
    let (before, words, after) = unsafe { buffer.align_to_mut() };
    debug_assert!(before.is_empty() && after.is_empty());
    words
}

/// Returns the words of one chunk.
pub(crate) fn chunk(words: &mut [u64], number: usize) -> &mut [u64] {
    &mut words[number * WORDS..][..WORDS]
}

/// The kind of store that writes words.
pub(crate) trait Store {
    /// Writes a value to every word of a line.
    ///
    /// # Safety
    /// The line must be writable memory.
    unsafe fn store_line(&self, line: *mut u64, value: u64);

    /// Waits until the stores are visible, if they do not become visible in order.
    fn drain(&self) {}

    /// Whether the check of the written data must not leave it in a cache.
    const PAST_CACHES: bool;
}

/// Ordinary stores.
pub(crate) struct Temporal;

impl Store for Temporal {
    #[inline]
    unsafe fn store_line(&self, line: *mut u64, value: u64) {
        for word in 0..WORDS_PER_LINE {
            // SAFETY: within the line that the caller guarantees.
            unsafe { line.add(word).write_volatile(value) };
        }
    }

    const PAST_CACHES: bool = false;
}

/// Non-temporal stores, which write to memory without fetching the line: MOVNTI, STNP.
pub(crate) struct NonTemporal;

impl Store for NonTemporal {
    #[inline]
    unsafe fn store_line(&self, line: *mut u64, value: u64) {
        #[cfg(target_arch = "x86_64")]
        for word in 0..WORDS_PER_LINE {
            // SAFETY: within the line that the caller guarantees.
            unsafe { std::arch::x86_64::_mm_stream_si64(line.add(word).cast(), value.cast_signed()) };
        }
        #[cfg(target_arch = "aarch64")]
        for pair in (0..WORDS_PER_LINE).step_by(2) {
            // SAFETY: as above.
            unsafe {
                std::arch::asm!("stnp {value}, {value}, [{at}]", value = in(reg) value,
                    at = in(reg) line.add(pair), options(nostack, preserves_flags));
            }
        }
    }

    #[inline]
    fn drain(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SFENCE has no operands.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the barrier has no operands.
        unsafe {
            std::arch::asm!("dsb ishst", options(nostack, preserves_flags));
        }
    }

    const PAST_CACHES: bool = true;
}
