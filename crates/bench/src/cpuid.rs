//! What an x86-64 processor says of itself (Intel SDM, volume 2, CPUID).

use std::arch::x86_64::{__cpuid_count, CpuidResult};

/// The answer of a leaf that has no subleaves, or of its first one.
pub(crate) fn leaf(leaf: u32) -> CpuidResult {
    #[expect(
        unused_unsafe,
        reason = "the function is safe in newer versions than the oldest that builds this"
    )]
    // SAFETY: every x86-64 processor has the instruction.
    unsafe {
        __cpuid_count(leaf, 0)
    }
}
