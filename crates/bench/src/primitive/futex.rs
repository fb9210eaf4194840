//! The futex: the word in memory that locks sleep on (perf bench, `futex wake` and its kin).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use assay_quantity::PrimitiveId;

use super::handover::{Side, Sides, between_threads};
use super::step::{Step, Steps};
use crate::benchmark::{Prepared, Refusal, Setting};
use crate::kernel::check;
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        ids: &["futex.wake"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["futex"],
        about: "FUTEX_WAKE on a private word that nobody waits for",
        source: "perf bench futex wake",
        prepare: wake_none,
    },
    Row {
        ids: &["futex.round_trip{cpus=same}", "futex.round_trip{cpus=different}"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["futex"],
        about: "FUTEX_WAKE of another thread of this process and FUTEX_WAIT until it has done the same",
        source: "own: what a lock or a condition costs when both sides sleep",
        prepare: round_trip,
    },
];

/// Who may wait for a word.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scope {
    /// Threads of one process.
    Private,
    /// Processes that share the memory.
    Shared,
}

impl Scope {
    fn flag(self) -> libc::c_int {
        match self {
            Scope::Private => libc::FUTEX_PRIVATE_FLAG,
            Scope::Shared => 0,
        }
    }
}

/// Wakes one of those who wait for a word, and tells how many that were.
#[inline]
pub(super) fn wake(word: &AtomicU32, scope: Scope) -> io::Result<libc::c_long> {
    // SAFETY: the pointer is to a word that outlives the call.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | scope.flag(), 1) };
    check("futex", woken)
}

/// Times in a row that a sleeper may be woken though its word has not changed. The kernel may do so now and then;
/// a call that does nothing does so always.
const IDLE_WAKES: u32 = 1000;

/// Sleeps until the word holds `wanted`.
#[inline]
pub(super) fn wait_for(word: &AtomicU32, wanted: u32, scope: Scope) -> io::Result<()> {
    for _ in 0..IDLE_WAKES {
        let value = word.load(Ordering::Acquire);
        if value == wanted {
            return Ok(());
        }
        wait_while(word, value, scope)?;
    }
    Err(io::Error::other(format!("futex returned {IDLE_WAKES} times though nothing had changed")))
}

/// Sleeps while the word holds `value`, as far as the kernel cares.
#[inline]
pub(super) fn wait_while(word: &AtomicU32, value: u32, scope: Scope) -> io::Result<()> {
    let forever: *const libc::timespec = std::ptr::null();
    // SAFETY: the pointer is to a word that outlives the call; there is no time limit.
    let result = unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | scope.flag(), value, forever)
    };
    if result == 0 {
        return Ok(());
    }
    match io::Error::last_os_error().raw_os_error() {
        // It has changed meanwhile, or a signal came.
        Some(libc::EAGAIN | libc::EINTR) => Ok(()),
        _ => check("futex", -1).map(drop),
    }
}

/// `FUTEX_WAKE` with nobody to wake: what an unlock pays that could not know.
fn wake_none(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Steps::of(WakeNone::default())))
}

/// Wakes for a word of its own.
#[derive(Debug, Default)]
pub(super) struct WakeNone {
    word: Arc<AtomicU32>,
}

impl Step for WakeNone {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        match wake(&self.word, Scope::Private)? {
            0 => Ok(()),
            woken => Err(io::Error::other(format!("futex woke {woken} where nobody waits"))),
        }
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        check_that_the_kernel_answers()
    }
}

/// The kernel answers a wake for nobody by zero, as would a call that is not made. That calls are made shows in one
/// that the kernel must refuse: a wake for a word that is not aligned.
pub(super) fn check_that_the_kernel_answers() -> io::Result<()> {
    let words = [0_u32; 2];
    let crooked = words.as_ptr().wrapping_byte_add(1);
    // SAFETY: the kernel refuses the address without looking at what lies there.
    let result =
        unsafe { libc::syscall(libc::SYS_futex, crooked, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
    let error = io::Error::last_os_error();
    if result == -1 && error.raw_os_error() == Some(libc::EINVAL) {
        return Ok(());
    }
    Err(io::Error::other("futex took a word that is not aligned, so the kernel was not asked"))
}

/// Two threads that wake each other in turn.
fn round_trip(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let (forth, back) = (Arc::new(Word::default()), Arc::new(Word::default()));
    let here = Waker { own: back.clone(), other: forth.clone(), turn: 0 };
    let there = Waker { own: forth, other: back, turn: 0 };
    between_threads(id, setting, Sides { here, there })
}

/// A word on a line of its own, so that the two sides meet in the kernel only.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Word(AtomicU32);

struct Waker {
    own: Arc<Word>,
    other: Arc<Word>,
    turn: u32,
}

impl Side for Waker {
    #[inline]
    fn give(&mut self) -> io::Result<()> {
        let next = self.other.0.load(Ordering::Relaxed).wrapping_add(1);
        self.other.0.store(next, Ordering::Release);
        wake(&self.other.0, Scope::Private).map(drop)
    }

    #[inline]
    fn take(&mut self) -> io::Result<()> {
        self.turn = self.turn.wrapping_add(1);
        wait_for(&self.own.0, self.turn, Scope::Private)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_for_nobody_is_told_from_no_call_at_all() {
        let mut nobody = WakeNone::default();
        nobody.step().unwrap();
        nobody.disarm(1).unwrap();
    }

    #[test]
    fn a_wake_wakes_the_one_who_waits_and_tells_so() {
        let word = Arc::new(AtomicU32::new(0));
        let theirs = word.clone();
        let sleeper = std::thread::spawn(move || wait_for(&theirs, 1, Scope::Private).unwrap());
        // It may not sleep yet.
        while wake(&word, Scope::Private).unwrap() == 0 {
            std::thread::yield_now();
        }
        word.store(1, Ordering::Release);
        while !sleeper.is_finished() {
            wake(&word, Scope::Private).unwrap();
            std::thread::yield_now();
        }
        sleeper.join().unwrap();
    }
}
