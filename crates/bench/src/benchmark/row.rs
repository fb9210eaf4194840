//! The rows of the catalogue, the benchmarks that they describe, and the inputs to their preparation.

use std::net::SocketAddr;
use std::path::PathBuf;

use assay_quantity::{PrimitiveId, Unit};
use rand_pcg::Pcg64Mcg;

use super::operation::Prepared;
use crate::platform::Refusal;
use crate::platform::describe::CacheSizes;

/// Benchmarks that differ in their parameters only.
#[derive(Debug)]
pub(crate) struct Row {
    /// Patterns ([`assay_quantity::Pattern`]) of the ids of the quick profile. `from=cpu,to=cpu` and
    /// `from=cpu,to=node` stand for pairs of processors, and of a processor and a memory node: every pair in
    /// the full profile, a few of those of a large machine in the quick one.
    pub(crate) quick: &'static [&'static str],
    /// Patterns of the ids of the full profile. They may repeat those of the quick one, so that one pattern
    /// contains a whole sweep; an id counts once.
    pub(crate) full: &'static [&'static str],
    /// The unit of work that the cost refers to.
    pub(crate) cost: Per,
    /// Names that the kernel gives to the system calls of one operation, including those of partners; if the
    /// C library may choose, all of them. Empty if it makes none.
    pub(crate) calls: &'static [&'static str],
    /// Description of one operation, a line of Markdown, which `docs/primitives.md` contains too.
    pub(crate) about: &'static str,
    /// Origin of the benchmark.
    pub(crate) source: &'static str,
    /// Prepares it in the measuring process.
    pub(crate) prepare: Prepare,
}

/// The unit of work that a cost refers to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Per {
    /// Cost per operation.
    Operation,
    /// Cost per byte; the id's `size` is the number of bytes per operation.
    ByteOfSize,
    /// Cost per byte, with this number of bytes per operation.
    ByteOf(u64),
}

/// A part of the catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// Every family, at the most important sizes.
    Quick,
    /// The quick profile and the sweeps.
    Full,
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
    /// Names that the kernel gives to the system calls of one operation, including those of partners.
    pub calls: &'static [&'static str],
    /// Description of one operation.
    pub about: &'static str,
    /// Origin of the benchmark.
    pub source: &'static str,
    /// Prepares it in the measuring process.
    pub prepare: Prepare,
}

/// Families whose operations enter the kernel without a system call.
const ENTERED_WITHOUT_CALL: [&str; 4] = ["exception", "interrupt", "page_fault", "uring"];

impl Benchmark {
    /// Whether one operation enters the kernel: otherwise it is a primitive of the hardware alone.
    #[must_use]
    pub fn enters_kernel(&self) -> bool {
        !self.calls.is_empty() || ENTERED_WITHOUT_CALL.contains(&self.primitive.family())
    }
}
