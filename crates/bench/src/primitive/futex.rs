//! The futex: the word in memory on which locks sleep (perf bench, `futex wake` and related benchmarks).

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
        about: "FUTEX_WAKE of a private word without waiters",
        source: "perf bench futex wake",
        prepare: wake_none,
    },
    Row {
        ids: &["futex.round_trip{cpus=same}", "futex.round_trip{cpus=different}"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &["futex"],
        about: "FUTEX_WAKE of another thread of this process, and FUTEX_WAIT until it does the same",
        source: "own: the cost of a lock or a condition if both sides sleep",
        prepare: round_trip,
    },
];

/// The possible waiters of a word.
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

/// Wakes one waiter of a word. Returns the number of woken waiters.
#[inline]
pub(super) fn wake(word: &AtomicU32, scope: Scope) -> io::Result<libc::c_long> {
    // SAFETY: the pointer is to a word that outlives the call.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | scope.flag(), 1) };
    check("futex", woken)
}

/// Maximum number of consecutive wake-ups without a change of the word. The kernel may cause some; a call
/// that does nothing always causes them.
const IDLE_WAKES: u32 = 1000;

/// Sleeps until the word is `wanted`.
#[inline]
pub(super) fn wait_for(word: &AtomicU32, wanted: u32, scope: Scope) -> io::Result<()> {
    for _ in 0..IDLE_WAKES {
        let value = word.load(Ordering::Acquire);
        if value == wanted {
            return Ok(());
        }
        wait_while(word, value, scope)?;
    }
    Err(io::Error::other(format!("futex returned {IDLE_WAKES} times although nothing had changed")))
}

/// Sleeps while the word is `value`, but may return earlier.
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
        // The word has changed, or a signal was received.
        Some(libc::EAGAIN | libc::EINTR) => Ok(()),
        _ => check("futex", -1).map(drop),
    }
}

/// `FUTEX_WAKE` without waiters: the cost to an unlock that cannot rule out waiters.
fn wake_none(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Steps::of(WakeNone::default())))
}

/// Wake-ups of a word without waiters.
#[derive(Debug, Default)]
pub(super) struct WakeNone {
    word: Arc<AtomicU32>,
}

impl Step for WakeNone {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        match wake(&self.word, Scope::Private)? {
            0 => Ok(()),
            woken => Err(io::Error::other(format!("futex woke {woken} waiters of a word without waiters"))),
        }
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        check_that_the_kernel_answers()
    }
}

/// Checks that system calls reach the kernel. The kernel returns zero for a wake without waiters, as would a
/// call that is not made. Therefore this function makes a call that the kernel must reject: a wake for a word
/// that is not aligned.
pub(super) fn check_that_the_kernel_answers() -> io::Result<()> {
    let words = [0_u32; 2];
    let crooked = words.as_ptr().wrapping_byte_add(1);
    // SAFETY: the kernel rejects the address without accessing it.
    let result =
        unsafe { libc::syscall(libc::SYS_futex, crooked, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
    let error = io::Error::last_os_error();
    if result == -1 && error.raw_os_error() == Some(libc::EINVAL) {
        return Ok(());
    }
    Err(io::Error::other("futex accepted a word that is not aligned, so the call did not reach the kernel"))
}

/// Two threads that wake each other alternately.
fn round_trip(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let (forth, back) = (Arc::new(Word::default()), Arc::new(Word::default()));
    let here = Waker { own: back.clone(), other: forth.clone(), turn: 0 };
    let there = Waker { own: forth, other: back, turn: 0 };
    between_threads(id, setting, Sides { here, there })
}

/// A word on its own line, so that the two sides share state in the kernel only.
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
    fn a_wake_without_waiters_is_distinguished_from_no_call() {
        let mut wake = WakeNone::default();
        wake.step().unwrap();
        wake.disarm(1).unwrap();
    }

    #[test]
    fn a_wake_wakes_the_waiter_and_returns_the_number() {
        let word = Arc::new(AtomicU32::new(0));
        let theirs = word.clone();
        let sleeper = std::thread::spawn(move || wait_for(&theirs, 1, Scope::Private).unwrap());
        // The thread may not sleep yet.
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
