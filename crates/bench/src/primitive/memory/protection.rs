//! Changes of the protection of a page, and their effect on the translation buffers of this processor and of
//! another one that runs a thread of the same process (own; garbage collectors and snapshots make such
//! changes, and so does every `munmap`).
//!
//! Access to a page is alternately revoked and restored. Revoking it invalidates the old translation in every
//! processor that may hold it; reading the page after access was restored loads the translation again. The
//! same changes of pages that were never touched affect no translation: they are the baseline of the first
//! figure. The same changes while the other thread sleeps are the baseline of the second one.

use std::io;
use std::rc::Rc;

use assay_quantity::PrimitiveId;
use rand_pcg::Pcg64Mcg;
use rustix::mm::{Advice, MprotectFlags, madvise, mprotect};

use crate::benchmark::{Operation, Per, Prepared, Refusal, Row, Setting, Sharing, expect_done};
use crate::platform::kernel::check;
use crate::platform::layout::Buffer;
use crate::primitive::kit::interrupts::Due;
use crate::primitive::kit::spinner::{Activity, Spinner};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["mmap.protect_page"],
        full: &[],
        cost: Per::Operation,
        calls: &["mprotect"],
        about: "`mprotect` of one page: half of the calls to no access, half back to read access and then a \
                load",
        source: "own: an operation of snapshots and garbage collectors",
        prepare: change,
    },
    Row {
        quick: &["tlb.invalidate"],
        full: &[],
        cost: Per::Operation,
        calls: &["mprotect"],
        about: "invalidation and reload of a translation: `mprotect` of a page to no access and back, less \
                the same for a page that was never touched",
        source: "own: the part of every munmap and mprotect that depends on the hardware",
        prepare: invalidate,
    },
    Row {
        quick: &["tlb.shootdown{cpus=different}"],
        full: &[],
        cost: Per::Operation,
        calls: &["mprotect"],
        about: "invalidation of a translation on another processor: `mprotect` of a page to no access and \
                back with a thread of this process running there, less the same with the thread asleep",
        source: "own: the cost to processes with threads of every page whose access they revoke",
        prepare: shootdown,
    },
];

/// Prepares one `mprotect` of a page.
fn change(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Changes::new(1, Contents::Touched, &mut setting.rng)?))
}

/// Prepares the invalidation and the reload of one translation.
fn invalidate(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let operation = Box::new(Changes::new(2, Contents::Touched, &mut setting.rng)?);
    let baseline = Box::new(Changes::new(2, Contents::Absent, &mut setting.rng)?);
    Ok(Prepared { operation, baseline: Some(baseline), sharing: Sharing::Alone })
}

/// Prepares the invalidation of one translation on another processor.
fn shootdown(_: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let spinner = Rc::new(Spinner::start(setting)?);
    let due = Due::counted("TLB shootdowns", spinner.cpu())?;
    if due.is_none() && cfg!(target_arch = "x86_64") {
        return Err(Refusal::Unavailable(
            "/proc/interrupts does not count TLB shootdowns, so they cannot be verified".to_owned(),
        ));
    }
    let mut beside = |activity, due| {
        let changes = Changes::new(2, Contents::Touched, &mut setting.rng)?;
        io::Result::Ok(Box::new(Beside { changes, spinner: spinner.clone(), activity, due }))
    };
    let (operation, baseline) = (beside(Activity::Spinning, due)?, beside(Activity::Sleeping, None)?);
    Ok(Prepared { operation, baseline: Some(baseline), sharing: spinner.sharing() })
}

/// The contents of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    /// Each page contains a number, and is read whenever it is readable.
    Touched,
    /// No page was ever touched, so none has a translation.
    Absent,
}

/// Number of pages that are changed one after another. Three does not divide the length of a batch, which is
/// a power of two: some pages are therefore changed an odd number of times, and their final protection shows
/// that the changes took place.
const PAGES: usize = 3;

/// Changes of the protection of pages.
struct Changes {
    /// Contains the pages, each between two that stay writable, so that each remains a separate mapping with
    /// any protection: splitting and merging mappings would cost more than the change.
    _buffer: Buffer,
    pages: [*mut u8; PAGES],
    contents: Contents,
    /// Changes of one operation.
    per_operation: u64,
    /// Sum of the numbers that were read.
    sum: u64,
    done: u64,
}

impl Changes {
    fn new(per_operation: u64, contents: Contents, rng: &mut Pcg64Mcg) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let mut buffer = Buffer::new((2 * PAGES + 2) * page, rng)?;
        let skipped = buffer.as_ptr().align_offset(page);
        let first = (&raw mut buffer[skipped]).cast::<u8>();
        // SAFETY: every other page of our own buffer, to which no reference is created afterwards.
        let pages = std::array::from_fn(|turn| unsafe { first.add((2 * turn + 1) * page) });
        for (at, number) in pages.into_iter().zip(1..) {
            // SAFETY: one of these pages, which finally becomes read-only.
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

    /// Whether a page is readable after this many changes, the first of which revokes access.
    fn readable_after(turn: usize, changes: u64) -> bool {
        let of_page = (changes + (PAGES - 1 - turn) as u64) / PAGES as u64;
        of_page.is_multiple_of(2)
    }

    /// Returns the expected sum after this many changes: each page's number as often as access to it was
    /// restored.
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
            // SAFETY: a page of ours, which is readable afterwards.
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
            // SAFETY: changes the protection of a page of ours, which is accessed only below.
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
                    "mprotect succeeded {changes} times, but a page has the wrong protection"
                )));
            }
        }
        let due = if self.contents == Contents::Touched { Self::sum_after(changes) } else { 0 };
        if self.sum == due {
            return Ok(());
        }
        Err(io::Error::other(format!("the sum of the pages read is {} instead of {due}", self.sum)))
    }
}

/// Whether the mapping at an address is readable, according to `/proc/self/maps` (proc(5)); `None` if there
/// is no mapping.
fn can_be_read(maps: &str, address: usize) -> Option<bool> {
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let [from, to] = [from, to].map(|bound| usize::from_str_radix(bound, 16));
        (from.ok()?..to.ok()?).contains(&address).then(|| rest.starts_with('r'))
    })
}

/// Changes in the presence of a thread on another processor.
struct Beside {
    changes: Changes,
    spinner: Rc<Spinner>,
    activity: Activity,
    /// The shootdowns that the other processor must take, if they are counted.
    due: Option<Due>,
}

impl Operation for Beside {
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        self.changes.arm(operations)?;
        if let Some(due) = &mut self.due {
            due.begin()?;
        }
        // Last, because the thread can be preempted again at any time.
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
    fn the_protection_and_the_sum_after_any_number_of_changes_are_predicted() {
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
    fn a_change_that_did_not_take_place_is_an_error() {
        let mut changes = changes(2, Contents::Touched);
        changes.arm(4).unwrap();
        changes.run(4).unwrap();
        let page = rustix::param::page_size();
        for at in changes.pages {
            // SAFETY: a page of the benchmark.
            unsafe { mprotect(at.cast(), page, MprotectFlags::READ) }.unwrap();
        }
        let error = changes.disarm(4).unwrap_err().to_string();
        assert!(error.contains("mprotect succeeded 8 times"), "{error}");
    }

    #[test]
    fn absent_pages_stay_absent() {
        let mut changes = changes(2, Contents::Absent);
        changes.arm(64).unwrap();
        changes.run(64).unwrap();
        let mut present = [0_u8; 1];
        for at in changes.pages {
            // SAFETY: queries one page of ours, and writes one byte.
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
