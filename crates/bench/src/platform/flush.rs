//! Flushes lines from every cache, so that a measurement starts from a known state and not from the state
//! that its preparation left. The memory benchmarks call this module. It never touches an unmapped page, and
//! flushes only the given lines.

use std::arch::asm;

#[cfg(target_arch = "x86_64")]
use super::cpuid;

/// Writes lines back to memory and removes them from every cache. Returns after all of them are removed.
///
/// # Safety
/// Every address must be mapped.
pub(crate) unsafe fn flush(lines: impl Iterator<Item = *const u8>) {
    #[cfg(target_arch = "x86_64")]
    if *HAS_CLFLUSHOPT {
        for line in lines {
            // SAFETY: the processor has the instruction; the caller guarantees that the address is mapped.
            unsafe { asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)) };
        }
    } else {
        for line in lines {
            // SAFETY: CLFLUSH is part of SSE2, which every x86-64 processor has; the caller guarantees that
            // the address is mapped.
            unsafe { asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)) };
        }
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: MFENCE, part of SSE2, waits for the flushes before it.
    unsafe {
        asm!("mfence", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: Linux permits this operation in user mode; the caller guarantees that the addresses are mapped.
    // The barrier waits for all operations.
    unsafe {
        for line in lines {
            asm!("dc civac, {}", in(reg) line, options(nostack, preserves_flags));
        }
        asm!("dsb ish", options(nostack, preserves_flags));
    }
}

/// Whether the processor has the flush instruction that does not wait for previous flushes and takes a
/// hundredth of the time (Intel SDM, CPUID leaf 7, EBX bit 23). Read once, because CPUID is slow on
/// hypervisors.
#[cfg(target_arch = "x86_64")]
static HAS_CLFLUSHOPT: std::sync::LazyLock<bool> =
    std::sync::LazyLock::new(|| cpuid::leaf(0).eax >= 7 && cpuid::leaf(7).ebx >> 23 & 1 == 1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::layout::{Buffer, LINE};

    #[test]
    fn flushed_memory_keeps_its_contents() {
        let mut buffer = Buffer::aligned(64 * LINE).unwrap();
        for (number, byte) in buffer.iter_mut().enumerate() {
            *byte = u8::try_from(number % 251).unwrap();
        }
        // SAFETY: the lines are those of a live buffer.
        unsafe { flush(buffer.chunks(LINE).map(<[u8]>::as_ptr)) };
        assert!(buffer.iter().enumerate().all(|(number, byte)| usize::from(*byte) == number % 251));
    }
}
