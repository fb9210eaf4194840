//! The virtual counter of AArch64. Written from the architecture manual and not yet verified on such a
//! machine.

use std::arch::asm;

/// The generic timer is architecturally invariant.
#[expect(clippy::unnecessary_wraps, reason = "the counter of x86-64 can be unusable")]
pub(super) fn usable() -> Result<(), String> {
    Ok(())
}

#[inline]
pub(super) fn begin() -> u64 {
    let ticks;
    // SAFETY: reads a counter that Linux opens to user mode; the barriers keep the timed code after it.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", "isb", out(reg) ticks) };
    ticks
}

#[inline]
pub(super) fn end() -> u64 {
    begin()
}
