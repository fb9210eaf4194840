//! One sample: the process that measures it, the batches that it times, and the evidence that it takes of the
//! machine around them.

mod child;
mod cold;
mod copies;
mod counter;
pub mod evidence;
mod free_lists;
pub mod harness;
pub mod sabotage;
pub(crate) mod seed;
pub(crate) mod snapshot;
mod spawner;
mod wire;

pub use self::child::{SampleError, delayed_sample_main, sample_main, yields_sample_despite_sabotage};
pub use self::snapshot::SNAPSHOT;
pub(crate) use self::spawner::{Circumstances, answer};
pub use self::spawner::{Outcome, Spawner};
