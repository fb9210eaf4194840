//! The futex: the word in memory on which locks sleep (perf bench, `futex wake` and related benchmarks).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use assay_quantity::PrimitiveId;

use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::platform::kernel::expect_error;
use crate::primitive::kit::futex_word::{Scope, WakeNone, wait, wait_for, wake};
use crate::primitive::kit::handover::{Side, Sides, between_threads};
use crate::primitive::kit::step::Steps;

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["futex.wake"],
        full: &[],
        cost: Per::Operation,
        calls: &["futex"],
        about: "`FUTEX_WAKE` of a private word without waiters",
        source: "perf bench futex wake",
        prepare: wake_none,
    },
    Row {
        quick: &["futex.wait_changed"],
        full: &[],
        cost: Per::Operation,
        calls: &["futex"],
        about: "`FUTEX_WAIT` on a private word that has changed, which fails with `EAGAIN`",
        source: "own: a lock that became free just before its waiter would have slept",
        prepare: wait_changed,
    },
    Row {
        quick: &["futex.round_trip{cpus=*}"],
        full: &[],
        cost: Per::Operation,
        calls: &["futex"],
        about: "`FUTEX_WAKE` of another thread of this process, and `FUTEX_WAIT` until it does the same",
        source: "own: the cost of a lock or a condition if both sides sleep",
        prepare: round_trip,
    },
];

/// `FUTEX_WAKE` without waiters: the cost to an unlock that cannot rule out waiters.
fn wake_none(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    Ok(Prepared::alone(Steps::of(WakeNone::default())))
}

/// `FUTEX_WAIT` for another value than that of the word.
fn wait_changed(_: &PrimitiveId, _: &mut Setting) -> Result<Prepared, Refusal> {
    let word = AtomicU32::new(1);
    Ok(Prepared::repeat(move || expect_error("futex", wait(&word, 0, Scope::Private), libc::EAGAIN)))
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
