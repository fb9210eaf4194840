//! The types of a benchmark: an operation that can be repeated, and the catalogue row that describes it.
//!
//! The harness calls operations; the files under `primitive` define them. This module reads no clock.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use assay_quantity::{PrimitiveId, Unit};
use rand_pcg::Pcg64Mcg;

use crate::describe::CacheSizes;
use crate::evidence::Sharing;
use crate::table::Profile;

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
    /// [`run`](Self::run) did nothing: every row of the table is tested for this.
    ///
    /// # Errors
    /// Fails if a system call fails or if the work was not done, and returns [`Disturbed`] for a disturbed
    /// batch.
    fn disarm(&mut self, operations: u64) -> io::Result<()>;

    /// Returns the length of the longest batch that can be armed.
    fn max_batch(&self) -> u64 {
        u64::MAX
    }

    /// Returns the number of operations that the length of a batch must be a multiple of.
    fn granule(&self) -> u64 {
        1
    }
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

/// A benchmark that cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The benchmark is not available on this machine, for this reason.
    #[error("{0}")]
    Unavailable(String),
    /// A call failed unexpectedly.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// The inputs to the preparation of a benchmark: everything that may differ between two processes.
#[derive(Debug)]
pub struct Setting {
    /// Source of every random choice, seeded for the sample.
    pub rng: Pcg64Mcg,
    /// The processor that this process is bound to.
    pub cpu: usize,
    /// Every processor that this process may use, in order.
    pub cpus: Vec<usize>,
    /// A second processor, for a partner; `None` if there is only one.
    pub other_cpu: Option<usize>,
    /// Cache sizes as the machine reports them.
    pub caches: CacheSizes,
    /// The largest working set that each cache actually holds for this process.
    pub effective: CacheSizes,
    /// Directory for files, on the file system to be measured.
    pub directory: PathBuf,
    /// Directory on the same file system that all processes of a run share, for files that take long to
    /// create.
    pub shared_directory: PathBuf,
    /// Address of the server on another host ([`crate::serve`]), for `peer=remote`.
    pub peer: Option<SocketAddr>,
}

/// Prepares a benchmark. The id contains the parameters.
pub type Prepare = fn(&PrimitiveId, &mut Setting) -> Result<Prepared, Refusal>;

/// A row of the catalogue.
#[derive(Debug, Clone)]
pub struct Benchmark {
    /// Its id, including the parameters.
    pub primitive: PrimitiveId,
    /// Unit of its cost: ns, or ns/B if it moves bytes.
    pub unit: Unit,
    /// Bytes that one operation moves, if the unit is ns/B.
    pub bytes: Option<u64>,
    /// The smallest profile that measures it.
    pub profile: Profile,
    /// Names of the system calls that one operation makes, including those of partners.
    pub calls: &'static [&'static str],
    /// Description of one operation.
    pub about: &'static str,
    /// Origin of the benchmark.
    pub source: &'static str,
    /// Prepares it in the measuring process.
    pub prepare: Prepare,
}
