//! The time-stamp counter of x86-64, fenced so that the timed code neither starts before the first reading
//! nor ends after the second (Intel SDM, volume 2, RDTSC and RDTSCP).

use std::arch::x86_64::{__rdtscp, _mm_lfence, _rdtsc};

use crate::platform::cpuid;

/// Fails unless the counter runs at the same rate in every power state and can be read in order.
pub(super) fn usable() -> Result<(), String> {
    let highest = cpuid::leaf(0x8000_0000).eax;
    if highest < 0x8000_0007 {
        return Err("the processor does not report whether its time-stamp counter is invariant".to_owned());
    }
    if cpuid::leaf(0x8000_0007).edx & (1 << 8) == 0 {
        return Err("the time-stamp counter is not invariant: its rate follows the processor's".to_owned());
    }
    if cpuid::leaf(0x8000_0001).edx & (1 << 27) == 0 {
        return Err("the processor has no RDTSCP".to_owned());
    }
    Ok(())
}

#[inline]
pub(super) fn begin() -> u64 {
    // SAFETY: SSE2 and RDTSC are part of every x86-64 processor; Linux does not forbid RDTSC in user mode
    // unless a process requests it.
    unsafe {
        _mm_lfence();
        let ticks = _rdtsc();
        _mm_lfence();
        ticks
    }
}

#[inline]
pub(super) fn end() -> u64 {
    let mut processor = 0;
    // SAFETY: `usable` checked for RDTSCP before this clock was chosen.
    unsafe {
        let ticks = __rdtscp(&raw mut processor);
        _mm_lfence();
        ticks
    }
}
