//! Changing the protection of a page, and what that does to the translation buffers: of this processor, and of
//! another one that runs a thread of the same process (own; garbage collectors and snapshots do it, and every
//! `munmap` does).
//!
//! Access to a page is taken away and given back in turn. Who takes it away must have the old translation thrown
//! out by every processor that may hold it; who reads the page after it was given back must have it loaded again.
//! The same changes of pages that were never touched concern no translation: they are the baseline of the first
//! figure. The same changes while the other thread sleeps are the baseline of the second.

use std::io;
use std::rc::Rc;

use assay_quantity::PrimitiveId;
use rand_pcg::Pcg64Mcg;
use rustix::mm::{Advice, MprotectFlags, madvise, mprotect};

use super::interrupts::Due;
use super::spinner::{Activity, Spinner};
use crate::benchmark::{Operation, Prepared, Refusal, Setting, expect_done};
use crate::evidence::Sharing;
use crate::kernel::check;
use crate::layout::Buffer;
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        ids: &["mmap.protect_page"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["mprotect"],
        about: "mprotect of one page, half of them to no access and half back to reading, and then a load",
        source: "own: what snapshots and garbage collectors do",
        prepare: change,
    },
    Row {
        ids: &["tlb.invalidate"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["mprotect"],
        about: "a translation thrown out and loaded again: mprotect of a page to no access and back, less the \
                same of a page that was never touched",
        source: "own: the part of every munmap and mprotect that depends on the hardware",
        prepare: invalidate,
    },
    Row {
        ids: &["tlb.shootdown{cpus=different}"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["mprotect"],
        about: "a translation thrown out of another processor as well: mprotect of a page to no access and back \
                with a thread running there, less the same with the thread asleep",
        source: "own: what processes with threads pay for every page that they take back",
        prepare: shootdown,
    },
];

/// One `mprotect` of a page.
fn change(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Changes::new(1, Contents::Touched, &mut setting.rng)?))
}

/// One translation thrown out and loaded again.
fn invalidate(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let operation = Box::new(Changes::new(2, Contents::Touched, &mut setting.rng)?);
    let baseline = Box::new(Changes::new(2, Contents::Absent, &mut setting.rng)?);
    Ok(Prepared { operation, baseline: Some(baseline), sharing: Sharing::Alone })
}

/// One translation thrown out of another processor.
fn shootdown(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let spinner = Rc::new(Spinner::start(setting)?);
    let due = Due::counted("TLB shootdowns", spinner.cpu())?;
    if due.is_none() && cfg!(target_arch = "x86_64") {
        return Err(Refusal::Unavailable(
            "/proc/interrupts does not count TLB shootdowns, so nothing shows that one took place".to_owned(),
        ));
    }
    let mut beside = |activity, due| {
        let changes = Changes::new(2, Contents::Touched, &mut setting.rng)?;
        io::Result::Ok(Box::new(Beside { changes, spinner: spinner.clone(), activity, due }))
    };
    let (operation, baseline) = (beside(Activity::Spinning, due)?, beside(Activity::Sleeping, None)?);
    Ok(Prepared { operation, baseline: Some(baseline), sharing: spinner.sharing() })
}

/// What is in the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    /// Each holds a number, and is read whenever it can be.
    Touched,
    /// Nothing: no page was ever touched, so none has a translation.
    Absent,
}

/// Pages that are changed in turn. A batch is a power of two, which three does not divide: so some of them are
/// changed an odd number of times, and how they are protected in the end tells that the changes took place.
const PAGES: usize = 3;

/// Changes of the protection of pages.
struct Changes {
    /// Holds the pages, each between two that stay writable, so that each remains a mapping of its own, however it
    /// is protected: splitting and joining mappings would cost more than the change.
    _buffer: Buffer,
    pages: [*mut u8; PAGES],
    contents: Contents,
    /// Changes of one operation.
    per_operation: u64,
    /// Sum of what was read.
    sum: u64,
    done: u64,
}

impl Changes {
    fn new(per_operation: u64, contents: Contents, rng: &mut Pcg64Mcg) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let mut buffer = Buffer::new((2 * PAGES + 2) * page, rng)?;
        let skipped = buffer.as_ptr().align_offset(page);
        let first = (&raw mut buffer[skipped]).cast::<u8>();
        // SAFETY: every other page of our own buffer, to which no reference is made from now on.
        let pages = std::array::from_fn(|turn| unsafe { first.add((2 * turn + 1) * page) });
        for (at, number) in pages.into_iter().zip(1..) {
            // SAFETY: one of these pages, which becomes read-only at last.
            unsafe {
                at.cast::<u64>().write_volatile(number);
                if contents == Contents::Absent {
                    madvise(at.cast(), page, Advice::LinuxDontNeed)?;
                }
                mprotect(at.cast(), page, MprotectFlags::READ)?;
            }
        }
        Ok(Self { _buffer: buffer, pages, contents, per_operation, sum: 0, done: 0 })
    }

    /// Whether a page can be read after so many changes, which begin by taking access away.
    fn readable_after(turn: usize, changes: u64) -> bool {
        let of_page = (changes + (PAGES - 1 - turn) as u64) / PAGES as u64;
        of_page.is_multiple_of(2)
    }

    /// Sum of what was read after so many changes: each page's number as often as access was given back to it.
    fn sum_after(changes: u64) -> u64 {
        let (laps, rest) = (changes / (2 * PAGES as u64), changes % (2 * PAGES as u64));
        let of_lap: u64 = (1..=PAGES as u64).sum();
        laps * of_lap + (1..=rest.saturating_sub(PAGES as u64)).sum::<u64>()
    }
}

impl Operation for Changes {
    fn arm(&mut self, _: u64) -> io::Result<()> {
        self.sum = 0;
        for at in self.pages {
            // SAFETY: a page of ours, which can be read from then on.
            unsafe {
                mprotect(at.cast(), rustix::param::page_size(), MprotectFlags::READ)?;
                if self.contents == Contents::Touched {
                    at.cast::<u64>().read_volatile();
                }
            }
        }
        Ok(())
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        let length = rustix::param::page_size();
        let touched = self.contents == Contents::Touched;
        let (mut turn, mut access) = (0, libc::PROT_NONE);
        for _ in 0..operations * self.per_operation {
            let at = self.pages[turn];
            // SAFETY: changes the protection of a page of ours, which is accessed below alone.
            check("mprotect", unsafe { libc::mprotect(at.cast(), length, access) })?;
            if touched && access == libc::PROT_READ {
                // SAFETY: the page has just become readable.
                self.sum += unsafe { at.cast::<u64>().read_volatile() };
            }
            turn += 1;
            if turn == PAGES {
                turn = 0;
                access ^= libc::PROT_READ;
            }
        }
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)?;
        let changes = operations * self.per_operation;
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        for (turn, at) in self.pages.into_iter().enumerate() {
            let due = Self::readable_after(turn, changes);
            if can_be_read(&maps, at as usize) != Some(due) {
                return Err(io::Error::other(format!(
                    "mprotect returned 0 {changes} times and did not change a page"
                )));
            }
        }
        let due = if self.contents == Contents::Touched { Self::sum_after(changes) } else { 0 };
        if self.sum == due {
            return Ok(());
        }
        Err(io::Error::other(format!("the pages gave {} where {due} was due", self.sum)))
    }
}

/// Whether the mapping at an address can be read, from `/proc/self/maps` (proc(5)); `None` where there is none.
fn can_be_read(maps: &str, address: usize) -> Option<bool> {
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let [from, to] = [from, to].map(|bound| usize::from_str_radix(bound, 16));
        (from.ok()?..to.ok()?).contains(&address).then(|| rest.starts_with('r'))
    })
}

/// Changes beside a thread on another processor.
struct Beside {
    changes: Changes,
    spinner: Rc<Spinner>,
    activity: Activity,
    /// The shootdowns that the other processor must take, where they are counted.
    due: Option<Due>,
}

impl Operation for Beside {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.changes.arm(operations)?;
        if let Some(due) = &mut self.due {
            due.begin()?;
        }
        // At last, because it may be kept from running again at any time.
        self.spinner.set(self.activity)
    }

    fn run(&mut self, operations: u64) -> io::Result<()> {
        self.changes.run(operations)
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        self.changes.disarm(operations)?;
        self.due.as_mut().map_or(Ok(()), |due| due.settle(operations))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn changes(per_operation: u64, contents: Contents) -> Changes {
        Changes::new(per_operation, contents, &mut Pcg64Mcg::seed_from_u64(1)).unwrap()
    }

    #[test]
    fn the_protection_and_the_sum_after_any_number_of_changes_are_foreseen() {
        for contents in [Contents::Touched, Contents::Absent] {
            let mut changes = changes(1, contents);
            for operations in 1..=20 {
                changes.arm(operations).unwrap();
                changes.run(operations).unwrap();
                changes.disarm(operations).unwrap();
            }
        }
    }

    #[test]
    fn no_batch_leaves_every_page_as_it_was() {
        for per_operation in [1, 2] {
            for doublings in 0..40 {
                let changes = per_operation << doublings;
                assert!((0..PAGES).any(|turn| !Changes::readable_after(turn, changes)), "{changes}");
            }
        }
    }

    #[test]
    fn a_change_that_did_not_take_place_is_refused() {
        let mut changes = changes(2, Contents::Touched);
        changes.arm(4).unwrap();
        changes.run(4).unwrap();
        let page = rustix::param::page_size();
        for at in changes.pages {
            // SAFETY: a page of the benchmark's own.
            unsafe { mprotect(at.cast(), page, MprotectFlags::READ) }.unwrap();
        }
        let error = changes.disarm(4).unwrap_err().to_string();
        assert!(error.contains("mprotect returned 0 8 times"), "{error}");
    }

    #[test]
    fn absent_pages_stay_absent() {
        let mut changes = changes(2, Contents::Absent);
        changes.arm(64).unwrap();
        changes.run(64).unwrap();
        let mut present = [0_u8; 1];
        for at in changes.pages {
            // SAFETY: asks about one page of ours, and writes one byte.
            let asked = unsafe { libc::mincore(at.cast(), 1, present.as_mut_ptr()) };
            assert_eq!((asked, present[0] & 1), (0, 0));
        }
    }

    #[test]
    fn protections_are_read_from_the_line_of_the_address() {
        let maps = "1000-2000 r--p 00000000 00:00 0\n2000-3000 ---p 00000000 00:00 0\n";
        assert_eq!(can_be_read(maps, 0x1fff), Some(true));
        assert_eq!(can_be_read(maps, 0x2000), Some(false));
        assert_eq!(can_be_read(maps, 0x3000), None);
    }
}
