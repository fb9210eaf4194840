//! Copying and zeroing whole pages, as a kernel does for copy-on-write, page migration and fresh memory, with
//! the instructions that Linux uses, which differ from those of a program's loop. On x86-64 these are REP
//! MOVSQ and REP STOSQ, which do not fetch the target lines first if the processor supports this; on aarch64
//! pairs of registers with non-temporal stores, and DC ZVA, which zeroes a block with one instruction.

use std::arch::asm;
use std::io;

use assay_quantity::PrimitiveId;

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::layout::{Buffer, PAGE};
use crate::primitive::kit::walk::{Pass, Visited, Walk};
use crate::primitive::kit::working_set::{Course, WorkingSet};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["memory.copy_page{level=l2}"],
        full: &["memory.copy_page{level=l2|dram}"],
        cost: Per::Operation,
        calls: &[],
        about: "copy of a page of 4096 bytes as Linux copies pages: `rep movsq` (aarch64: `ldp`, `stnp`)",
        source: "own: the memory cost of copy-on-write faults and migration",
        prepare: copy_page,
    },
    Row {
        quick: &["memory.zero_page{level=l2}"],
        full: &["memory.zero_page{level=l2|dram}"],
        cost: Per::Operation,
        calls: &[],
        about: "zeroing of a page of 4096 bytes as Linux zeroes pages: `rep stosq` (aarch64: `dc zva`)",
        source: "own: the memory cost of a page fault",
        prepare: zero_page,
    },
];

/// One page copied from one half of the working set to the other.
fn copy_page(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let set = WorkingSet::of(id, setting, Course::Sweep)?;
    let pass = CopyPage::of(set.chunks(2, PAGE)?)?;
    Ok(Prepared::alone(Walk::settled(pass, set, 2 * PAGE as u64)?))
}

/// One page zeroed.
fn zero_page(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let set = WorkingSet::of(id, setting, Course::Sweep)?;
    let pass = ZeroPage::of(set.chunks(1, PAGE)?, Zero::prepare()?)?;
    Ok(Prepared::alone(Walk::settled(pass, set, PAGE as u64)?))
}

/// Pages to copy, and the same number of pages for the copies, which are cleared after each batch.
struct CopyPage {
    buffer: Buffer,
    pages: usize,
}

impl CopyPage {
    fn of(pages: usize) -> io::Result<Self> {
        let mut buffer = Buffer::aligned(2 * pages * PAGE)?;
        for (number, page) in buffer[..pages * PAGE].chunks_mut(PAGE).enumerate() {
            // Never 0, which is the content of a page that was not copied.
            page.fill(u8::try_from(number % 255 + 1).unwrap_or(1));
        }
        Ok(Self { buffer, pages })
    }
}

impl Pass for CopyPage {
    fn chunks(&self) -> usize {
        self.pages
    }

    #[inline]
    fn visit(&mut self, page: usize) {
        // SAFETY: both pages are within the buffer.
        unsafe {
            let from = self.buffer.base().add(page * PAGE);
            copy(from, from.add(self.pages * PAGE));
        }
    }

    fn check(&mut self, visited: Visited) -> io::Result<()> {
        let (from, to) = self.buffer.split_at_mut(self.pages * PAGE);
        for page in visited.each() {
            let bytes = page * PAGE..(page + 1) * PAGE;
            if from[bytes.clone()] != to[bytes.clone()] {
                return Err(io::Error::other("a page was not copied"));
            }
            to[bytes].fill(0);
        }
        Ok(())
    }
}

/// The content of a page that was not zeroed.
const FILLED: u8 = 0x5a;

struct ZeroPage {
    buffer: Buffer,
    pages: usize,
    zero: Zero,
}

impl ZeroPage {
    fn of(pages: usize, zero: Zero) -> io::Result<Self> {
        let mut buffer = Buffer::aligned(pages * PAGE)?;
        buffer.fill(FILLED);
        Ok(Self { buffer, pages, zero })
    }
}

impl Pass for ZeroPage {
    fn chunks(&self) -> usize {
        self.pages
    }

    #[inline]
    fn visit(&mut self, page: usize) {
        // SAFETY: the page is within the buffer.
        unsafe { self.zero.page(self.buffer.base().add(page * PAGE)) };
    }

    fn check(&mut self, visited: Visited) -> io::Result<()> {
        for page in visited.each() {
            let zeroed = &mut self.buffer[page * PAGE..][..PAGE];
            if zeroed.iter().any(|byte| *byte != 0) {
                return Err(io::Error::other("a page was not zeroed"));
            }
            zeroed.fill(FILLED);
        }
        Ok(())
    }
}

/// Copies a page.
///
/// # Safety
/// Both arguments must be pages of memory that do not overlap, and the second one must be writable.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller guarantees both pages; the direction flag is clear, as the calling convention
    // requires.
    unsafe {
        asm!("rep movsq", inout("rcx") PAGE / 8 => _, inout("rsi") from => _, inout("rdi") to => _,
            options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the caller guarantees both pages.
    unsafe {
        asm!(
            "2:",
            "ldp {a}, {b}, [{from}], #16",
            "ldp {c}, {d}, [{from}], #16",
            "stnp {a}, {b}, [{to}]",
            "stnp {c}, {d}, [{to}, #16]",
            "add {to}, {to}, #32",
            "subs {left}, {left}, #32",
            "b.ne 2b",
            a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
            from = inout(reg) from => _, to = inout(reg) to => _, left = inout(reg) PAGE => _,
            options(nostack),
        );
    }
}

/// The method that zeroes a page on this processor.
#[derive(Debug, Clone, Copy)]
struct Zero {
    /// Bytes zeroed by one instruction.
    #[cfg(target_arch = "aarch64")]
    block: usize,
}

#[cfg(target_arch = "x86_64")]
impl Zero {
    #[expect(clippy::unnecessary_wraps, reason = "other processors may not have the instruction")]
    fn prepare() -> Result<Self, Refusal> {
        Ok(Self {})
    }

    /// # Safety
    /// `at` must be a page of writable memory.
    #[inline]
    unsafe fn page(self, at: *mut u8) {
        // SAFETY: the caller guarantees the page; the direction flag is clear.
        unsafe {
            asm!("rep stosq", inout("rcx") PAGE / 8 => _, inout("rdi") at => _, in("rax") 0,
                options(nostack, preserves_flags));
        }
    }
}

#[cfg(target_arch = "aarch64")]
impl Zero {
    fn prepare() -> Result<Self, Refusal> {
        let dczid: u64;
        // SAFETY: DCZID_EL0 can be read in user mode.
        unsafe { asm!("mrs {}, dczid_el0", out(reg) dczid, options(nomem, nostack, preserves_flags)) };
        // Bit 4 prohibits the instruction; the low bits are the logarithm of the block's length in words of
        // four bytes (Arm ARM, DCZID_EL0).
        let block = 4 << (dczid & 0xf);
        if dczid >> 4 & 1 == 1 || PAGE % block != 0 {
            return Err(Refusal::Unavailable(
                "the zeroing of blocks (DC ZVA), which Linux uses if permitted, is disabled on this processor"
                    .to_owned(),
            ));
        }
        Ok(Self { block })
    }

    /// # Safety
    /// `at` must be a page of writable memory.
    #[inline]
    unsafe fn page(self, at: *mut u8) {
        for block in (0..PAGE).step_by(self.block) {
            // SAFETY: the caller guarantees the page.
            unsafe { asm!("dc zva, {}", in(reg) at.add(block), options(nostack, preserves_flags)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitive::kit::walk::tests::{batches, walk};

    #[test]
    fn copied_and_zeroed_pages_pass_and_skipped_pages_are_detected() {
        let lengths = [1, 2, 9, 4, 4];
        batches(&mut walk(CopyPage::of(4).unwrap()), &lengths, |_| false).unwrap();
        let zeroing = || ZeroPage::of(4, Zero::prepare().unwrap()).unwrap();
        batches(&mut walk(zeroing()), &lengths, |_| false).unwrap();
        let error = batches(&mut walk(CopyPage::of(4).unwrap()), &lengths, |page| page == 3).unwrap_err();
        assert!(error.to_string().contains("was not copied"), "{error}");
        let error = batches(&mut walk(zeroing()), &lengths, |page| page == 3).unwrap_err();
        assert!(error.to_string().contains("was not zeroed"), "{error}");
    }

    #[test]
    fn a_copy_or_a_zeroing_touches_its_page_only() {
        let mut copying = CopyPage::of(3).unwrap();
        copying.visit(1);
        let holds = |buffer: &Buffer, page: usize, byte: u8| {
            buffer[page * PAGE..][..PAGE].iter().all(|held| *held == byte)
        };
        for (page, byte) in [(0, 1), (1, 2), (2, 3), (3, 0), (4, 2), (5, 0)] {
            assert!(holds(&copying.buffer, page, byte), "page {page}");
        }
        let mut zeroing = ZeroPage::of(3, Zero::prepare().unwrap()).unwrap();
        zeroing.visit(1);
        for (page, byte) in [(0, FILLED), (1, 0), (2, FILLED)] {
            assert!(holds(&zeroing.buffer, page, byte), "page {page}");
        }
    }
}
