//! The location of the bytes of a transfer: `buffer=reused` or `buffer=fresh`.

use std::io;

use assay_quantity::{Key, PrimitiveId, Size};
use rand_pcg::Pcg64Mcg;

use crate::benchmark::Setting;
use crate::platform::layout::{Buffer, LINE, PAGE};

/// The region of a fresh buffer is this many times the last-level cache, so that a line is evicted before it
/// is used again, and so are the lines that the creation of the region brought into the cache.
const TIMES_CACHE: u64 = 2;

/// Maximum size of the region of a fresh buffer, and its size if the caches are unknown.
const REGION_MAX: Size = Size::mib(256);

/// Pieces of one size, returned one after another: always the same one, or always one that is in no cache.
#[derive(Debug)]
pub(crate) struct Pieces {
    buffer: Buffer,
    size: usize,
    next: usize,
    step: usize,
    lap: usize,
    lap_shift: usize,
}

impl Pieces {
    /// The pieces that an id specifies; `reused` unless it specifies otherwise.
    pub(crate) fn of(id: &PrimitiveId, setting: &mut Setting) -> io::Result<Self> {
        Self::in_share(1, id, setting)
    }

    /// Two series that are used alternately, so that half a region each is enough.
    pub(crate) fn pair(id: &PrimitiveId, setting: &mut Setting) -> io::Result<[Self; 2]> {
        Ok([Self::half(id, setting)?, Self::half(id, setting)?])
    }

    /// One of two such series.
    pub(crate) fn half(id: &PrimitiveId, setting: &mut Setting) -> io::Result<Self> {
        Self::in_share(2, id, setting)
    }

    /// Always the same piece.
    pub(crate) fn reused(size: usize, rng: &mut Pcg64Mcg) -> io::Result<Self> {
        Ok(Self::new(Buffer::new(size, rng)?, size, 0))
    }

    fn in_share(shares: u64, id: &PrimitiveId, setting: &mut Setting) -> io::Result<Self> {
        let size = size_of_operation(id);
        if id.word(Key::Buffer) != "fresh" {
            return Self::reused(size, &mut setting.rng);
        }
        let wanted = setting.caches.last().map_or(REGION_MAX, |last| Size(last.bytes() * TIMES_CACHE));
        let region = usize::try_from(wanted.min(REGION_MAX).bytes() / shares).map_err(io::Error::other)?;
        Ok(Self::new(Buffer::new(region.max(2 * size), &mut setting.rng)?, size, size.max(PAGE)))
    }

    fn new(buffer: Buffer, size: usize, step: usize) -> Self {
        // A piece smaller than a page has a page of its own, so that no neighbour is fetched with it; each
        // lap through the region then uses the next lines of every page.
        let lap_shift = if step > size { size.next_multiple_of(LINE) } else { 0 };
        Self { buffer, size, next: 0, step, lap: 0, lap_shift }
    }

    /// The next piece.
    #[inline]
    pub(crate) fn next(&mut self) -> &mut [u8] {
        let start = self.next;
        self.next += self.step;
        if self.next + self.size > self.buffer.len() {
            self.lap = (self.lap + self.lap_shift) % PAGE;
            self.next = self.lap;
        }
        &mut self.buffer[start..start + self.size]
    }

    /// Bytes of a piece.
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

/// Bytes that one operation moves, for an id whose row requires a size.
fn size_of_operation(id: &PrimitiveId) -> usize {
    id.size().and_then(|size| usize::try_from(size.bytes()).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(size: usize, step: usize, pages: usize, count: usize) -> Vec<usize> {
        let mut pieces = Pieces::new(Buffer::aligned(pages * PAGE).unwrap(), size, step);
        let base = pieces.buffer.as_ptr() as usize;
        (0..count).map(|_| pieces.next().as_ptr() as usize - base).collect()
    }

    #[test]
    fn a_reused_piece_stays_and_fresh_ones_walk_through_the_whole_region() {
        assert_eq!(starts(100, 0, 1, 3), [0, 0, 0]);
        assert_eq!(starts(2 * PAGE, 2 * PAGE, 5, 3), [0, 2 * PAGE, 0]);
    }

    #[test]
    fn small_fresh_pieces_take_another_line_on_every_lap() {
        assert_eq!(starts(64, PAGE, 2, 5), [0, PAGE, 64, PAGE + 64, 128]);
        let mut all = starts(64, PAGE, 2, 2 * PAGE / 64);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2 * PAGE / 64, "every line is used once before any is used again");
    }
}
