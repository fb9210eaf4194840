//! A turn that passes to another process or thread and back, by any mechanism with which one can wait for the
//! other.
//!
//! Unlike a message, a turn has no contents that could be compared. The partner therefore counts its turns in
//! shared memory; a turn that comes back before it was counted never reached the partner.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use assay_quantity::PrimitiveId;

use super::placement::{partner_cpu, sharing};
use super::shared::Shared;
use super::step::{Step, Steps};
use crate::benchmark::{Prepared, Refusal, Setting, Sharing};
use crate::platform::partner::{Partner, PartnerThread, wait_until};

/// One of the two participants that take turns.
pub(crate) trait Side {
    /// Prepares for the first turn, which belongs to this process; the partner follows.
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Passes the turn to the other side.
    fn give(&mut self) -> io::Result<()>;

    /// Waits for the other side to pass the turn.
    fn take(&mut self) -> io::Result<()>;
}

/// Prepares turns that pass to a forked process and back.
pub(crate) fn between_processes<S: Side + 'static>(
    id: &PrimitiveId,
    setting: &Setting,
    sides: Sides<S>,
) -> Result<Prepared, Refusal> {
    let Sides { mut here, mut there } = sides;
    let board = Shared::new(Board::default())?;
    let cpu = partner_cpu(id, setting)?;
    here.begin()?;
    let partner = Partner::fork(cpu, || take_turns(&mut there, &board))?;
    let sharing = sharing(setting, cpu, &partner);
    let handover = Handover { here, board, due: 0, _other: (partner, there) };
    handover.board.wait_until_ready()?;
    Ok(Prepared { operation: Box::new(Steps::of(handover)), baseline: None, sharing })
}

/// Prepares turns that pass to another thread of this process and back.
pub(crate) fn between_threads<S: Side + Send + 'static>(
    id: &PrimitiveId,
    setting: &Setting,
    sides: Sides<S>,
) -> Result<Prepared, Refusal> {
    let Sides { mut here, mut there } = sides;
    let board = std::sync::Arc::new(Board::default());
    let cpu = partner_cpu(id, setting)?;
    here.begin()?;
    let theirs = board.clone();
    let thread = PartnerThread::spawn(cpu, move || {
        take_turns(&mut there, &theirs);
    })?;
    let sharing = if cpu == setting.cpu {
        // The processor time of this process includes all of its threads.
        Sharing::OneCpu { partners: Vec::new() }
    } else {
        Sharing::TwoCpus { partner: thread.tid(), cpu }
    };
    board.wait_until_ready()?;
    let handover = Handover { here, board, due: 0, _other: thread };
    Ok(Prepared { operation: Box::new(Steps::of(handover)), baseline: None, sharing })
}

/// The two participants that take turns.
pub(crate) struct Sides<S> {
    /// The side of this process.
    pub(crate) here: S,
    /// The side of its partner.
    pub(crate) there: S,
}

/// What the partner reports.
#[derive(Debug, Default)]
struct Board {
    ready: AtomicU64,
    turns: AtomicU64,
}

impl Board {
    fn wait_until_ready(&self) -> io::Result<()> {
        wait_until(|| Ok(self.ready.load(Ordering::Acquire) == 1), "the partner did not begin")
    }
}

/// Runs the partner until it fails.
fn take_turns(there: &mut impl Side, board: &Board) -> libc::c_int {
    if there.begin().is_err() {
        return libc::EXIT_FAILURE;
    }
    board.ready.store(1, Ordering::Release);
    while there.take().is_ok() {
        board.turns.fetch_add(1, Ordering::Release);
        if there.give().is_err() {
            break;
        }
    }
    libc::EXIT_FAILURE
}

/// A turn to the partner and back.
struct Handover<S, B, O> {
    here: S,
    board: B,
    /// Turns that the partner must have counted.
    due: u64,
    _other: O,
}

impl<S: Side, B: std::ops::Deref<Target = Board>, O> Step for Handover<S, B, O> {
    #[inline]
    fn step(&mut self) -> io::Result<()> {
        self.here.give()?;
        self.here.take()?;
        self.due += 1;
        let turns = self.board.turns.load(Ordering::Acquire);
        if turns == self.due { Ok(()) } else { Err(wrong_turn(self.due, turns)) }
    }

    /// `step` has already checked that every turn was counted.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cold]
fn wrong_turn(due: u64, turns: u64) -> io::Error {
    io::Error::other(format!("turn {due} came back, but the partner has counted {turns}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither waits for the turn nor passes it.
    struct Careless;

    impl Side for Careless {
        fn give(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn take(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_turn_that_never_reached_the_partner_is_an_error() {
        let board = std::sync::Arc::new(Board::default());
        let mut handover = Handover { here: Careless, board: board.clone(), due: 0, _other: () };
        let error = handover.step().unwrap_err().to_string();
        assert!(error.contains("turn 1 came back, but the partner has counted 0"), "{error}");
        board.turns.store(2, Ordering::Release);
        handover.step().unwrap();
        board.turns.store(9, Ordering::Release);
        assert!(handover.step().is_err());
    }
}
