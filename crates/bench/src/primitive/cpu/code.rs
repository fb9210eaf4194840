//! Instruction fetch: the cost of an instruction in another line, by the size of the code.
//!
//! The code is generated for each sample: every line of the set counts and jumps to another one, in random
//! order. Each operation therefore fetches a line, decodes its two instructions and follows a jump that only
//! its own address predicts. Calls into the code and returns from it occur once in hundreds of lines.

use std::arch::asm;
use std::io;
use std::ops::Range;

use assay_quantity::{PrimitiveId, Size};
use rustix::mm::{MprotectFlags, mprotect};

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, expect_done};
use crate::platform::layout::{Buffer, LINE, PAGE};
use crate::primitive::kit::once::{self, Others};
use crate::primitive::kit::order::Order;
use crate::primitive::kit::steady;
use crate::primitive::kit::working_set::{Course, Residence, WorkingSet};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[Row {
    quick: &["code.fetch{level=l1|l2|dram}"],
    full: &[
        "code.fetch{level=*}",
        "code.fetch{set=4KiB|8KiB|16KiB|32KiB|64KiB|128KiB|256KiB|512KiB|1MiB|2MiB|4MiB|8MiB|16MiB|32MiB|\
         64MiB}",
    ],
    cost: Per::Operation,
    calls: &[],
    about: "jump to another line of the code, lines in random order; each line increments a counter, which \
            is checked",
    source: "own: instruction misses dominate servers, and no suite times them",
    prepare: fetch,
}];

/// Lines between one call into the code and the next. The call and the return, even if mispredicted, then
/// take less than a tenth of a cycle per line.
const LINES_PER_CALL: u64 = 512;

/// One jump to another line of the code.
fn fetch(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(written(id, setting)?))
}

/// Generates the code.
fn written(id: &PrimitiveId, setting: &mut Setting) -> Result<Fetch, Refusal> {
    let set = WorkingSet::of(id, setting, Course::Chase)?;
    let lines = (set.bytes / PAGE * (PAGE / LINE)) as u64;
    if lines == 0 || Size(set.bytes as u64) > machine::REACH {
        return Err(Refusal::Unavailable(format!(
            "code of {} B is not between a page and the {} that a jump reaches; specify a set in this range",
            set.bytes,
            machine::REACH
        )));
    }
    let order = Order::random(lines, &mut setting.rng);
    let lap = match set.residence {
        Residence::Found => lines,
        Residence::Memory => once::LAP.min(lines / 2 / LINES_PER_CALL * LINES_PER_CALL),
    };
    // A power of two that divides the lap, so that batches consist of whole calls.
    let lines_per_call = LINES_PER_CALL.min(1 << lap.trailing_zeros());
    let mut buffer = Buffer::new(set.bytes, &mut setting.rng)?;
    for position in 0..lap {
        let (from, to) = (order.at(position), order.at((position + 1) % lap));
        let distance = (to.cast_signed() - from.cast_signed()) * LINE as i64;
        let returns = (position + 1).is_multiple_of(lines_per_call);
        machine::write_line(&mut buffer[place(from)..][..LINE], (!returns).then_some(distance));
    }
    let entries = (0..lap / lines_per_call).map(|call| place(order.at(call * lines_per_call))).collect();
    let code = Code::of(buffer)?;
    let others = match set.residence {
        Residence::Found => None,
        Residence::Memory => Some(Others::behind(lap, &order, set.last_cache.bytes() / LINE as u64)),
    };
    let fetch = Fetch { code, order, entries, lines_per_call, next: 0, others, counted: 0, done: 0 };
    match &fetch.others {
        Some(others) => fetch.leave_caches_to(others),
        None => return Ok(steady::settled(fetch, lap)?),
    }
    Ok(fetch)
}

/// Returns the offset of a line of the code.
#[expect(clippy::cast_possible_truncation, reason = "lines of a buffer, whose length is a usize")]
fn place(line: u64) -> usize {
    line as usize * LINE
}

/// Memory that contains code and is no longer written.
struct Code {
    buffer: Buffer,
}

impl Code {
    fn of(buffer: Buffer) -> Result<Self, Refusal> {
        let begin = buffer.base().addr() / PAGE * PAGE;
        let length = (buffer.base().addr() + buffer.len()).next_multiple_of(PAGE) - begin;
        let at = buffer.base().wrapping_sub(buffer.base().addr() - begin);
        machine::make_visible(&buffer);
        // SAFETY: exactly the pages of the buffer, without a reference now or a mutable one later.
        unsafe { mprotect(at.cast(), length, MprotectFlags::READ | MprotectFlags::EXEC) }.map_err(
            |error| {
                Refusal::Unavailable(format!(
                    "the kernel does not allow the execution of written memory ({error}); allow it (SELinux: \
                     execmem) to measure instruction fetch"
                ))
            },
        )?;
        Ok(Self { buffer })
    }
}

struct Fetch {
    code: Code,
    order: Order,
    /// Offset of the first line of each call, in the order of the lap.
    entries: Vec<usize>,
    lines_per_call: u64,
    /// Index of the next entry. After the last one the lap starts again.
    next: usize,
    /// Lines that are not executed and that fill the caches shared by code and data, if the code must come
    /// from memory.
    others: Option<Others>,
    /// Number of lines that were counted.
    counted: u64,
    done: u64,
}

impl Fetch {
    fn leave_caches_to(&self, others: &Others) {
        let code = &self.code.buffer;
        let touch = |positions: Range<u64>| {
            for position in positions {
                // SAFETY: this is the first byte of a line of the buffer.
                let _ = unsafe { code.as_ptr().add(place(self.order.at(position))).read_volatile() };
            }
        };
        // SAFETY: these are the lines of a live buffer.
        unsafe { others.take_caches(code.chunks(LINE).map(<[u8]>::as_ptr), touch) };
    }
}

impl Operation for Fetch {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        let end = self.next as u64 * self.lines_per_call + operations;
        if let Some(others) = self.others.as_ref().filter(|others| others.are_due_before(end)) {
            self.leave_caches_to(others);
            self.next = 0;
        }
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        let mut counted = 0;
        for _ in 0..operations / self.lines_per_call {
            if self.next == self.entries.len() {
                self.next = 0;
            }
            // SAFETY: the entry is the first of a sequence of lines in executable memory, which count and
            // return.
            unsafe { machine::call(self.code.buffer.as_ptr().add(self.entries[self.next]), &mut counted) };
            self.next += 1;
        }
        self.counted = counted;
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        let counted = std::mem::take(&mut self.counted);
        if counted == operations {
            Ok(())
        } else {
            Err(io::Error::other(format!("{counted} lines of code were counted instead of {operations}")))
        }
    }

    fn max_batch(&self) -> u64 {
        self.others.as_ref().map_or(u64::MAX, Others::longest_batch)
    }

    fn granule(&self) -> u64 {
        self.lines_per_call
    }
}

/// The instructions of x86-64 (Intel SDM, volume 2).
#[cfg(target_arch = "x86_64")]
mod machine {
    use super::{Size, asm};

    /// Reach of a jump.
    pub(super) const REACH: Size = Size::mib(1 << 10);

    const INC_RAX: [u8; 3] = [0x48, 0xff, 0xc0];
    const JMP: u8 = 0xe9;
    const RET: u8 = 0xc3;
    const INT3: u8 = 0xcc;

    /// Writes a line that counts and jumps to the line at this distance in bytes, or returns.
    pub(super) fn write_line(line: &mut [u8], distance: Option<i64>) {
        line.fill(INT3);
        line[..3].copy_from_slice(&INC_RAX);
        match distance.map(|distance| i32::try_from(distance - 8)) {
            Some(Ok(relative)) => {
                line[3] = JMP;
                line[4..8].copy_from_slice(&relative.to_le_bytes());
            }
            // A line beyond the reach, which `REACH` excludes, would be detected because the count is too
            // low.
            None | Some(Err(_)) => line[3] = RET,
        }
    }

    /// Does nothing: the processor sees written code without further action.
    pub(super) fn make_visible(_: &[u8]) {}

    /// Executes lines until one returns.
    ///
    /// # Safety
    /// `entry` must be a line written by [`write_line`] that leads to one that returns.
    #[inline]
    pub(super) unsafe fn call(entry: *const u8, counted: &mut u64) {
        // SAFETY: the lines change rax and the flags only, and return.
        unsafe { asm!("call {entry}", entry = in(reg) entry, inout("rax") *counted) };
    }
}

/// The instructions of aarch64 (Arm ARM, chapter C6).
#[cfg(target_arch = "aarch64")]
mod machine {
    use super::{LINE, Size, asm};

    /// Reach of a branch.
    pub(super) const REACH: Size = Size::mib(128);

    const ADD_X0_1: u32 = 0x9100_0400;
    const B: u32 = 0x1400_0000;
    const RET: u32 = 0xd65f_03c0;

    /// Writes a line that counts and jumps to the line at this distance in bytes, or returns.
    pub(super) fn write_line(line: &mut [u8], distance: Option<i64>) {
        line.fill(0);
        line[..4].copy_from_slice(&ADD_X0_1.to_le_bytes());
        let on = match distance.map(|distance| i32::try_from((distance - 4) / 4)) {
            Some(Ok(words)) => B | words.cast_unsigned() & 0x03ff_ffff,
            None | Some(Err(_)) => RET,
        };
        line[4..8].copy_from_slice(&on.to_le_bytes());
    }

    /// Makes written code visible to instruction fetch.
    pub(super) fn make_visible(code: &[u8]) {
        // SAFETY: cache maintenance of lines of a live slice, which Linux permits in user mode.
        unsafe {
            for line in code.chunks(LINE) {
                asm!("dc cvau, {}", in(reg) line.as_ptr(), options(nostack, preserves_flags));
            }
            asm!("dsb ish", options(nostack, preserves_flags));
            for line in code.chunks(LINE) {
                asm!("ic ivau, {}", in(reg) line.as_ptr(), options(nostack, preserves_flags));
            }
            asm!("dsb ish", "isb", options(nostack, preserves_flags));
        }
    }

    /// Executes lines until one returns.
    ///
    /// # Safety
    /// `entry` must be a line written by [`write_line`] that leads to one that returns.
    #[inline]
    pub(super) unsafe fn call(entry: *const u8, counted: &mut u64) {
        // SAFETY: the lines change x0 only, and return through the link register.
        unsafe { asm!("blr {entry}", entry = in(reg) entry, inout("x0") *counted, out("x30") _) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::describe::CacheSizes;

    fn prepared(set: &str) -> Result<Prepared, Refusal> {
        let mut setting =
            crate::primitive::kit::working_set::tests::setting(crate::platform::describe::caches());
        fetch(&format!("code.fetch{{set={set}}}").parse().unwrap(), &mut setting)
    }

    #[test]
    fn every_line_of_the_code_counts_itself() {
        for (set, granule) in [("4KiB", 64), ("96KiB", 512), ("20KiB", 64), ("24KiB", 128)] {
            let mut operation = prepared(set).unwrap().operation;
            assert_eq!(operation.granule(), granule, "{set}");
            for calls in [1, 2, 5, 100] {
                operation.run(calls * granule).unwrap();
                operation.disarm(calls * granule).unwrap();
            }
        }
    }

    #[test]
    fn code_in_memory_restarts_its_lap_before_a_batch_would_exceed_it() {
        let caches = CacheSizes { l3: Some(Size::kib(64)), ..CacheSizes::default() };
        let mut setting = crate::primitive::kit::working_set::tests::setting(caches);
        let mut fetch = written(&"code.fetch{set=256KiB}".parse().unwrap(), &mut setting).unwrap();
        // Half of its 4096 lines are linked, in four calls.
        assert!(fetch.max_batch() < 2048);
        let begins = [1, 1, 1, 1, 2, 1, 2, 2].map(|calls| {
            let operations = calls * LINES_PER_CALL;
            fetch.arm(operations).unwrap();
            let begin = fetch.next;
            fetch.run(operations).unwrap();
            fetch.disarm(operations).unwrap();
            begin
        });
        assert_eq!(begins, [0, 1, 2, 3, 0, 2, 0, 2]);
    }

    #[test]
    fn lines_that_did_not_run_are_detected() {
        let mut operation = prepared("8KiB").unwrap().operation;
        assert!(operation.disarm(128).is_err());
        operation.run(128).unwrap();
        assert!(operation.disarm(256).is_err());
    }

    #[test]
    fn code_of_less_than_a_page_or_beyond_the_reach_is_rejected() {
        for set in ["4000B", "2GiB"] {
            let refusal = prepared(set).err().unwrap().to_string();
            assert!(refusal.contains("a jump reaches"), "{refusal}");
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_line_is_an_increment_and_a_jump_of_four_bytes_or_a_return() {
        let mut line = [0; LINE];
        machine::write_line(&mut line, Some(-64));
        assert_eq!(line[..9], [0x48, 0xff, 0xc0, 0xe9, 0xb8, 0xff, 0xff, 0xff, 0xcc]);
        machine::write_line(&mut line, None);
        assert_eq!(line[..5], [0x48, 0xff, 0xc0, 0xc3, 0xcc]);
    }
}
