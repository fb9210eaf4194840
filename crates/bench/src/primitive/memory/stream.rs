//! STREAM's four kernels (McCalpin, *Memory Bandwidth and Machine Balance*, 1995): the bandwidth of vector
//! code, counted as STREAM counts it: only the bytes that the program accesses. A line that is fetched
//! because it is about to be written counts once.
//!
//! The arrays of one kernel together are four times the last cache, so that this amount lies between two uses
//! of a byte. STREAM's own rule requires this size for each array, which takes longer to prepare. Elements
//! are computed one at a time, as everywhere in this family.

use std::io;
use std::marker::PhantomData;

use assay_quantity::PrimitiveId;

use crate::benchmark::{Per, Prepare, Prepared, Refusal, Row, Setting};
use crate::platform::layout::Buffer;
use crate::primitive::kit::walk::{Pass, Visited, Walk};
use crate::primitive::kit::working_set::{Course, WorkingSet};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    row::<Copy>(
        &["stream.copy{level=dram}"],
        "STREAM: `c = a`, counted as 16 bytes per element",
        prepare::<Copy>,
    ),
    row::<Scale>(
        &["stream.scale{level=dram}"],
        "STREAM: `b = 3 c`, counted as 16 bytes per element",
        prepare::<Scale>,
    ),
    row::<Add>(
        &["stream.add{level=dram}"],
        "STREAM: `c = a + b`, counted as 24 bytes per element",
        prepare::<Add>,
    ),
    row::<Triad>(
        &["stream.triad{level=dram}"],
        "STREAM: `a = b + 3 c`, counted as 24 bytes per element",
        prepare::<Triad>,
    ),
];

const fn row<K: Kernel>(quick: &'static [&'static str], about: &'static str, prepare: Prepare) -> Row {
    Row {
        quick,
        full: &[],
        cost: Per::ByteOf(K::BYTES),
        calls: &[],
        about,
        source: "McCalpin 1995, STREAM",
        prepare,
    }
}

/// Elements of each array in one operation: one page.
const ELEMENTS: usize = 512;

const SCALAR: f64 = 3.0;

/// One statement of STREAM.
trait Kernel: 'static {
    /// Number of arrays that it reads.
    const SOURCES: usize;

    /// Bytes of one operation, as STREAM counts them.
    const BYTES: u64 = ((Self::SOURCES + 1) * ELEMENTS * size_of::<f64>()) as u64;

    /// Returns the element to write. `y` is the element of the second array that it reads, if any.
    fn of(x: f64, y: f64) -> f64;
}

struct Copy;
struct Scale;
struct Add;
struct Triad;

impl Kernel for Copy {
    const SOURCES: usize = 1;
    #[inline]
    fn of(x: f64, _: f64) -> f64 {
        x
    }
}

impl Kernel for Scale {
    const SOURCES: usize = 1;
    #[inline]
    fn of(x: f64, _: f64) -> f64 {
        SCALAR * x
    }
}

impl Kernel for Add {
    const SOURCES: usize = 2;
    #[inline]
    fn of(x: f64, y: f64) -> f64 {
        x + y
    }
}

impl Kernel for Triad {
    const SOURCES: usize = 2;
    #[inline]
    fn of(x: f64, y: f64) -> f64 {
        x + SCALAR * y
    }
}

/// One operation applies the kernel to the next elements of its arrays.
fn prepare<K: Kernel>(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let set = WorkingSet::of(id, setting, Course::Sweep)?;
    let pass = Stream::<K>::of(set.chunks(K::SOURCES + 1, ELEMENTS * size_of::<f64>())?, setting)?;
    Ok(Prepared::alone(Walk::settled(pass, set, K::BYTES)?))
}

/// The arrays of a kernel in sequence: those that it reads, then the one that it writes.
struct Stream<K> {
    buffer: Buffer,
    chunks: usize,
    kernel: PhantomData<K>,
}

impl<K: Kernel> Stream<K> {
    fn of(chunks: usize, setting: &mut Setting) -> io::Result<Self> {
        let arrays = K::SOURCES + 1;
        let length = arrays * chunks * ELEMENTS * size_of::<f64>();
        let buffer = Buffer::new(length, &mut setting.rng)?;
        let mut stream = Self { buffer, chunks, kernel: PhantomData };
        let (sources, _) = stream.arrays();
        // Small integers, for which the kernels are exact.
        let mut number = 0.0;
        for element in sources {
            number = if number < 1e6 { number + 1.0 } else { 1.0 };
            *element = number;
        }
        Ok(stream)
    }

    /// Returns the arrays that are read, and the one that is written.
    fn arrays(&mut self) -> (&mut [f64], &mut [f64]) {
        // SAFETY: any bytes are valid numbers, and the buffer begins at a line.
        let (_, elements, _) = unsafe { self.buffer.align_to_mut() };
        elements.split_at_mut(K::SOURCES * self.chunks * ELEMENTS)
    }
}

impl<K: Kernel> Pass for Stream<K> {
    fn chunks(&self) -> usize {
        self.chunks
    }

    #[inline]
    fn visit(&mut self, chunk: usize) {
        let array = self.chunks * ELEMENTS;
        let elements = self.buffer.base().cast::<f64>();
        for place in chunk * ELEMENTS..(chunk + 1) * ELEMENTS {
            // SAFETY: within the arrays. Volatile, so that no pass is omitted or replaced by a call of the C
            // library.
            unsafe {
                let x = elements.add(place).read_volatile();
                let y = if K::SOURCES == 2 { elements.add(array + place).read_volatile() } else { 0.0 };
                elements.add(K::SOURCES * array + place).write_volatile(K::of(x, y));
            }
        }
    }

    fn check(&mut self, visited: Visited) -> io::Result<()> {
        let array = self.chunks * ELEMENTS;
        let (sources, target) = self.arrays();
        for chunk in visited.each() {
            let places = chunk * ELEMENTS..(chunk + 1) * ELEMENTS;
            for place in places.clone() {
                let due = K::of(sources[place], if K::SOURCES == 2 { sources[array + place] } else { 0.0 });
                if target[place].to_bits() != due.to_bits() {
                    return Err(io::Error::other(format!(
                        "element {place} is {} instead of {due}",
                        target[place]
                    )));
                }
            }
            // No kernel returns 0 for these numbers.
            target[places].fill(0.0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::describe::CacheSizes;
    use crate::primitive::kit::walk::tests::{batches, walk};

    fn stream<K: Kernel>() -> Stream<K> {
        let mut setting = crate::primitive::kit::working_set::tests::setting(CacheSizes::default());
        Stream::of(4, &mut setting).unwrap()
    }

    fn checks_itself<K: Kernel>() {
        batches(&mut walk(stream::<K>()), &[1, 2, 9, 4], |_| false).unwrap();
        let error = batches(&mut walk(stream::<K>()), &[4, 4], |chunk| chunk == 3).unwrap_err().to_string();
        assert!(error.contains("element 1536 is 0"), "{error}");
        let mut wrong = stream::<K>();
        wrong.visit(0);
        wrong.arrays().1[5] += 0.5;
        assert!(wrong.check(Visited::of(0, 1, 4)).unwrap_err().to_string().contains("element 5 is"));
    }

    #[test]
    fn every_kernel_computes_what_stream_computes_and_detects_skipped_chunks() {
        checks_itself::<Copy>();
        checks_itself::<Scale>();
        checks_itself::<Add>();
        checks_itself::<Triad>();
        assert_eq!((Copy::of(5.0, 9.0), Scale::of(5.0, 9.0)), (5.0, 15.0));
        assert_eq!((Add::of(5.0, 9.0), Triad::of(5.0, 9.0)), (14.0, 32.0));
    }

    #[test]
    fn bytes_are_counted_as_stream_counts_them() {
        assert_eq!([Copy::BYTES, Scale::BYTES, Add::BYTES, Triad::BYTES].map(|b| b / 512), [16, 16, 24, 24]);
    }
}
