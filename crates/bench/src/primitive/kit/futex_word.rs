//! Calls of `futex`: waiting until a word in memory changes, and waking its waiters.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::step::Step;
use crate::platform::kernel::check;

/// The possible waiters of a word.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scope {
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
pub(crate) fn wake(word: &AtomicU32, scope: Scope) -> io::Result<libc::c_long> {
    // SAFETY: the pointer is to a word that outlives the call.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | scope.flag(), 1) };
    check("futex", woken)
}

/// Maximum number of consecutive wake-ups without a change of the word. The kernel may cause some; a call
/// that does nothing always causes them.
const IDLE_WAKES: u32 = 1000;

/// Sleeps until the word is `wanted`.
#[inline]
pub(crate) fn wait_for(word: &AtomicU32, wanted: u32, scope: Scope) -> io::Result<()> {
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
pub(crate) fn wait_while(word: &AtomicU32, value: u32, scope: Scope) -> io::Result<()> {
    if wait(word, value, scope) == 0 {
        return Ok(());
    }
    match io::Error::last_os_error().raw_os_error() {
        // The word has changed, or a signal was received.
        Some(libc::EAGAIN | libc::EINTR) => Ok(()),
        _ => check("futex", -1).map(drop),
    }
}

/// Calls `FUTEX_WAIT` without a time limit and returns its result.
#[inline]
pub(crate) fn wait(word: &AtomicU32, value: u32, scope: Scope) -> libc::c_long {
    let forever: *const libc::timespec = std::ptr::null();
    // SAFETY: the pointer is to a word that outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT | scope.flag(), value, forever) }
}

/// Wake-ups of a word without waiters.
#[derive(Debug, Default)]
pub(crate) struct WakeNone {
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
pub(crate) fn check_that_the_kernel_answers() -> io::Result<()> {
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
