//! A turn that goes to another process or thread and comes back, by whatever lets one of them wait for the other.
//!
//! Unlike a message, a turn carries nothing that could be compared. So the partner counts its turns in memory that
//! both see, and a turn that comes back before it was counted was never away.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use assay_quantity::PrimitiveId;

use super::placement::{partner_cpu, sharing};
use super::shared::Shared;
use super::step::{Step, Steps};
use crate::benchmark::{Prepared, Refusal, Setting};
use crate::evidence::Sharing;
use crate::partner::{Partner, PartnerThread};

/// One of the two who take turns.
pub(super) trait Side {
    /// Before the first turn, which is this process's: it goes first, its partner follows.
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Lets the other one go on.
    fn give(&mut self) -> io::Result<()>;

    /// Waits until the other one has given.
    fn take(&mut self) -> io::Result<()>;
}

/// Turns that go to a forked process and come back.
pub(super) fn between_processes<S: Side + 'static>(
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

/// Turns that go to another thread of this process and come back.
pub(super) fn between_threads<S: Side + Send + 'static>(
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
        // The processor time of this process is that of all its threads.
        Sharing::OneCpu { partners: Vec::new() }
    } else {
        Sharing::TwoCpus { partner: thread.tid(), cpu }
    };
    board.wait_until_ready()?;
    let handover = Handover { here, board, due: 0, _other: thread };
    Ok(Prepared { operation: Box::new(Steps::of(handover)), baseline: None, sharing })
}

/// The two who take turns.
pub(super) struct Sides<S> {
    /// This process's.
    pub(super) here: S,
    /// Its partner's.
    pub(super) there: S,
}

/// What the partner tells.
#[derive(Debug, Default)]
struct Board {
    ready: AtomicU64,
    turns: AtomicU64,
}

/// Looks, a tenth of a millisecond apart, for a partner that has begun: two seconds.
const LOOKS: u32 = 20_000;

impl Board {
    fn wait_until_ready(&self) -> io::Result<()> {
        for _ in 0..LOOKS {
            if self.ready.load(Ordering::Acquire) == 1 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Err(io::Error::other("the partner did not begin"))
    }
}

/// The partner's whole life.
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

/// A turn there and back.
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

    /// Every turn was counted, or `step` would have failed.
    fn disarm(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cold]
fn wrong_turn(due: u64, turns: u64) -> io::Error {
    io::Error::other(format!("turn {due} came back when the partner had had {turns}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither waits nor gives.
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
    fn a_turn_that_was_never_away_is_an_error() {
        let board = std::sync::Arc::new(Board::default());
        let mut handover = Handover { here: Careless, board: board.clone(), due: 0, _other: () };
        assert!(
            handover.step().unwrap_err().to_string().contains("turn 1 came back when the partner had had 0")
        );
        board.turns.store(2, Ordering::Release);
        handover.step().unwrap();
        board.turns.store(9, Ordering::Release);
        assert!(handover.step().is_err());
    }
}
