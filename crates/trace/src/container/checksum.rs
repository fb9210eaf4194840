//! Checksums that detect a damaged block or segment before it is decoded. They protect against torn writes
//! and disk errors, not against an adversary.

use std::io::{self, Read};

/// Bytes per mixing step.
const LANE: usize = 8;
// The prime and offset of 64-bit FNV, applied to words instead of bytes: eight times as fast, because a spool
// must keep up with the kernel.
const PRIME: u64 = 0x0000_0100_0000_01b3;
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// Returns the checksum of a block.
pub(crate) fn of_bytes(bytes: &[u8]) -> u64 {
    let (lanes, rest) = bytes.as_chunks::<LANE>();
    let mut sum = lanes.iter().fold(OFFSET, |sum, lane| mix(sum, u64::from_le_bytes(*lane)));
    let mut last = [0; LANE];
    last[..rest.len()].copy_from_slice(rest);
    sum = mix(sum, u64::from_le_bytes(last));
    mix(sum, bytes.len() as u64)
}

/// Returns the checksum of the rest of `source`, equal to [`of_bytes`] of the same bytes.
pub(crate) fn of_reader(source: &mut impl Read) -> io::Result<u64> {
    // A multiple of the lane size, so that no lane spans two reads.
    let mut buffer = vec![0; 1 << 18];
    let (mut sum, mut length) = (OFFSET, 0_u64);
    loop {
        let filled = fill(source, &mut buffer)?;
        length += filled as u64;
        let (lanes, rest) = buffer[..filled].as_chunks::<LANE>();
        sum = lanes.iter().fold(sum, |sum, lane| mix(sum, u64::from_le_bytes(*lane)));
        if filled < buffer.len() {
            let mut last = [0; LANE];
            last[..rest.len()].copy_from_slice(rest);
            return Ok(mix(mix(sum, u64::from_le_bytes(last)), length));
        }
    }
}

fn mix(sum: u64, word: u64) -> u64 {
    let product = (sum ^ word).wrapping_mul(PRIME);
    product ^ (product >> 29) // a multiplication does not propagate high bits to low ones
}

/// Reads until the buffer is full or the source ends; returns the number of bytes read.
pub(crate) fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn one_changed_byte_changes_the_sum_and_both_functions_agree(
            mut bytes in proptest::collection::vec(any::<u8>(), 1..200), at in any::<prop::sample::Index>(),
            change in 1_u8..
        ) {
            let sum = of_bytes(&bytes);
            prop_assert_eq!(of_reader(&mut bytes.as_slice()).unwrap(), sum);
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            prop_assert_ne!(of_bytes(&bytes), sum);
        }
    }

    #[test]
    fn zeros_of_different_length_differ() {
        assert_ne!(of_bytes(&[0; 7]), of_bytes(&[0; 8]));
        assert_eq!(of_reader(&mut [0_u8; 1 << 18].as_slice()).unwrap(), of_bytes(&[0; 1 << 18]));
    }
}
