//! Operations that can be repeated and timed in batches, and the judgement whether a batch did its work.
//!
//! The harness calls operations; the files under `primitive` define them. This module reads no clock.

use std::io;

use super::participants::Sharing;

/// An operation that can be repeated and timed in batches.
pub trait Operation {
    /// Prepares a batch, untimed: the connections to accept, the bytes to receive.
    ///
    /// # Errors
    /// Fails if a system call fails.
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        let _ = operations;
        Ok(())
    }

    /// Repeats the operation `operations` times: the timed part. The loop must contain no allocation and no
    /// dynamic call. The one dynamic call of each batch cancels out in the difference between batch lengths.
    ///
    /// # Errors
    /// Returns the error of the first call that fails. The error ends the sample, so that a failing call
    /// never produces a low cost.
    fn run(&mut self, operations: u64) -> io::Result<()>;

    /// Checks that the timed work was done, and cleans up, untimed. It must reject a batch whose
    /// [`run`](Self::run) did nothing: every row of the catalogue is tested for this.
    ///
    /// # Errors
    /// Fails if a system call fails or if the work was not done, and returns [`Disturbed`] for a disturbed
    /// batch.
    fn disarm(&mut self, operations: u64) -> io::Result<()>;

    /// Returns which time of the timed part is measured.
    fn timing(&self) -> Timing {
        Timing::Elapsed
    }

    /// Returns the length of the longest batch that can be armed.
    fn max_batch(&self) -> u64 {
        u64::MAX
    }

    /// Returns the number of operations that the length of a batch must be a multiple of.
    fn granule(&self) -> u64 {
        1
    }
}

/// The measured time of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// The time that elapses.
    Elapsed,
    /// The processor time of this thread, for an operation that sleeps for a time that is not part of it.
    Processor,
}

/// Other tasks kept the participants of a batch from running, so the batch does not measure the operation: a
/// timer expired before the work began, or a thread was not running when it should have been interrupted. The
/// harness omits and counts such a batch and continues. The sample fails if half of its batches were
/// disturbed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Disturbed(String);

impl Disturbed {
    /// Returns the error for [`Operation::disarm`].
    pub(crate) fn error(reason: String) -> io::Error {
        io::Error::other(Self(reason))
    }

    pub(crate) fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// An operation without preparation that checks itself: a closure, which fails unless the kernel did the
/// requested work, in a loop that is compiled for this closure.
pub(crate) struct Repeat<F> {
    closure: F,
    done: u64,
}

impl<F: FnMut() -> io::Result<()>> Repeat<F> {
    pub(crate) fn new(closure: F) -> Self {
        Self { closure, done: 0 }
    }
}

impl<F: FnMut() -> io::Result<()>> Operation for Repeat<F> {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        for _ in 0..operations {
            (self.closure)()?;
        }
        self.done = operations;
        Ok(())
    }

    fn disarm(&mut self, operations: u64) -> io::Result<()> {
        expect_done(std::mem::take(&mut self.done), operations)
    }
}

/// Fails unless a batch did all of its operations.
pub(crate) fn expect_done(done: u64, asked: u64) -> io::Result<()> {
    if done == asked {
        Ok(())
    } else {
        Err(io::Error::other(format!("{done} of {asked} operations were done")))
    }
}

/// An operation that is ready to be timed.
pub struct Prepared {
    /// The timed operation.
    pub operation: Box<dyn Operation>,
    /// Work that the operation includes but that is not part of the primitive; its cost is subtracted.
    pub baseline: Option<Box<dyn Operation>>,
    /// The tasks that take part in the timed part.
    pub sharing: Sharing,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("sharing", &self.sharing).finish_non_exhaustive()
    }
}

impl Prepared {
    /// Returns an operation that only this process takes part in.
    pub(crate) fn alone(operation: impl Operation + 'static) -> Self {
        Self { operation: Box::new(operation), baseline: None, sharing: Sharing::Alone }
    }

    /// Returns an operation that repeats a closure in this process only.
    pub(crate) fn repeat(closure: impl FnMut() -> io::Result<()> + 'static) -> Self {
        Self::alone(Repeat::new(closure))
    }
}
