//! Random bytes from the kernel.

use std::io;

use assay_quantity::{PrimitiveId, Size};

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::expect;
use crate::platform::layout::Buffer;
use crate::primitive::kit::limit;
use crate::primitive::kit::step::{Step, Steps};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    quick: &["random.getrandom{size=16B|256B}"],
    full: &["random.getrandom{size=16B|256B|4KiB|64KiB}"],
    cost: Per::ByteOfSize,
    calls: &["getrandom"],
    about: "`getrandom` of `size` bytes by the system call; the C library may generate them without it",
    source: "own: keys, nonces and hash seeds",
    prepare: getrandom,
}];

/// Maximum bytes of one call; the kernel returns up to 32 MiB.
const SIZE_MAX: Size = Size::mib(16);

fn getrandom(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let size = limit::size(id, Size(1)..=SIZE_MAX)?;
    let buffer = Buffer::new(size, &mut setting.rng)?;
    Ok(Prepared::alone(Steps::of(Random { buffer, last: [0; WORD] })))
}

const WORD: usize = 8;

struct Random {
    buffer: Buffer,
    /// The first bytes of the previous call.
    last: [u8; WORD],
}

impl Step for Random {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        let (to, length) = (self.buffer.as_mut_ptr(), self.buffer.len());
        // SAFETY: the pointer and the length are those of a buffer that is borrowed mutably.
        let got = unsafe { libc::syscall(libc::SYS_getrandom, to, length, 0) };
        expect("getrandom", isize::try_from(got).map_err(io::Error::other)?, length)?;
        // Two calls in a row return the same eight bytes once in 2^64 calls; fewer bytes prove nothing.
        if let Some(first) = self.buffer.first_chunk() {
            if *first == self.last {
                return Err(io::Error::other("getrandom left the bytes of the previous call"));
            }
            self.last = *first;
        }
        Ok(())
    }

    /// `step` has already checked that every call returned new bytes.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_returns_new_bytes_for_any_size() {
        for size in [1, 7, 8, 300] {
            let mut random = Random { buffer: Buffer::aligned(size).unwrap(), last: [0; WORD] };
            for _ in 0..50 {
                random.step().unwrap();
            }
        }
    }
}
