//! What a benchmark is: an operation that can be repeated, and the row that describes it.
//!
//! The harness calls operations; the files under `primitive` define them. Nothing here reads a clock.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use assay_quantity::{PrimitiveId, Unit};
use rand_pcg::Pcg64Mcg;

use crate::describe::CacheSizes;
use crate::evidence::Sharing;
use crate::table::Profile;

/// Something that can be done over and over and timed in batches.
pub trait Operation {
    /// Makes ready for a batch, untimed: the connections to accept, the bytes to receive.
    ///
    /// # Errors
    /// Whatever the kernel refused.
    fn arm(&mut self, operations: u64) -> io::Result<()> {
        let _ = operations;
        Ok(())
    }

    /// Does it `operations` times: the timed part. No allocation and no dynamic call belongs in its loop;
    /// the one dynamic call that the batch itself costs drops out with the difference of batch lengths.
    ///
    /// # Errors
    /// The first call that fails: it ends the sample, so that a failing call never gives a fast number.
    fn run(&mut self, operations: u64) -> io::Result<()>;

    /// Checks that what was timed was done, and clears it away, untimed. It must refuse a batch whose
    /// [`run`](Self::run) did nothing: every row of the table is tested for that.
    ///
    /// # Errors
    /// Whatever the kernel refused, work that was not done, or [`Disturbed`].
    fn disarm(&mut self, operations: u64) -> io::Result<()>;

    /// The longest batch that can be armed.
    fn max_batch(&self) -> u64 {
        u64::MAX
    }

    /// What the length of a batch must be a multiple of.
    fn granule(&self) -> u64 {
        1
    }
}

/// Others kept the participants of a batch from running, so that it is no batch of the operation: a timer expired
/// before the work began, a thread did not run when it was to be interrupted. The harness leaves such a batch out, counts
/// it, and goes on; the sample fails where half of its batches were such.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Disturbed(String);

impl Disturbed {
    /// As the error of [`Operation::disarm`].
    pub(crate) fn error(reason: String) -> io::Error {
        io::Error::other(Self(reason))
    }

    pub(crate) fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// An operation that needs no preparation and checks itself: the closure, which fails unless the kernel did
/// what it was asked for, in a loop compiled for it alone.
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

/// The check that a batch did as many operations as were asked for.
pub(crate) fn expect_done(done: u64, asked: u64) -> io::Result<()> {
    if done == asked {
        Ok(())
    } else {
        Err(io::Error::other(format!("{asked} operations were asked for and {done} done")))
    }
}

/// An operation that is ready to be timed.
pub struct Prepared {
    /// What is timed.
    pub operation: Box<dyn Operation>,
    /// Work that comes with it but is not part of the primitive; its cost is subtracted.
    pub baseline: Option<Box<dyn Operation>>,
    /// Who else is meant to run during the timed part.
    pub sharing: Sharing,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("sharing", &self.sharing).finish_non_exhaustive()
    }
}

impl Prepared {
    /// An operation that this process does alone.
    pub(crate) fn alone(operation: impl Operation + 'static) -> Self {
        Self { operation: Box::new(operation), baseline: None, sharing: Sharing::Alone }
    }

    /// A closure that this process repeats alone.
    pub(crate) fn repeat(closure: impl FnMut() -> io::Result<()> + 'static) -> Self {
        Self::alone(Repeat::new(closure))
    }
}

/// A benchmark that cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// This machine has not got it, and why.
    #[error("{0}")]
    Unavailable(String),
    /// A call failed that should not.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// What a benchmark is prepared from: everything that may differ between two processes.
#[derive(Debug)]
pub struct Setting {
    /// Source of every random choice, seeded for the sample.
    pub rng: Pcg64Mcg,
    /// The processor that this process is bound to.
    pub cpu: usize,
    /// Every processor that this process may use, in order.
    pub cpus: Vec<usize>,
    /// A second processor, for a partner; `None` where there is only one.
    pub other_cpu: Option<usize>,
    /// Caches as the machine claims them.
    pub caches: CacheSizes,
    /// The largest working set that each of them really holds for this process.
    pub effective: CacheSizes,
    /// Directory for files, on the file system to be measured.
    pub directory: PathBuf,
    /// Directory on the same file system that all processes of a run share, for what takes long to make.
    pub shared_directory: PathBuf,
    /// Where another host answers ([`crate::serve`]), for `peer=remote`.
    pub peer: Option<SocketAddr>,
}

/// Makes a benchmark ready. The parameters are in the id.
pub type Prepare = fn(&PrimitiveId, &mut Setting) -> Result<Prepared, Refusal>;

/// A row of the catalogue.
#[derive(Debug, Clone)]
pub struct Benchmark {
    /// Its id, parameters included.
    pub primitive: PrimitiveId,
    /// Unit of its cost: ns, or ns/B where it moves bytes.
    pub unit: Unit,
    /// Bytes that one operation moves, where the unit is ns/B.
    pub bytes: Option<u64>,
    /// The smallest profile that measures it.
    pub profile: Profile,
    /// System calls that one operation makes, by name, those of partners included.
    pub calls: &'static [&'static str],
    /// What one operation is.
    pub about: &'static str,
    /// Where the benchmark comes from.
    pub source: &'static str,
    /// Makes it ready in the process that measures.
    pub prepare: Prepare,
}
