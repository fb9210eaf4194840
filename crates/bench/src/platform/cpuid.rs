//! The identification of an x86-64 processor (Intel SDM, volume 2, CPUID).

use std::arch::x86_64::{__cpuid_count, CpuidResult};

/// Returns a leaf without subleaves, or the first subleaf of a leaf.
pub(crate) fn leaf(leaf: u32) -> CpuidResult {
    #[expect(unused_unsafe, reason = "the function is unsafe only in older supported compiler versions")]
    // SAFETY: every x86-64 processor has the instruction.
    unsafe {
        __cpuid_count(leaf, 0)
    }
}
