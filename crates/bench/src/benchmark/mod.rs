//! What a benchmark is: the row that describes it, the operation that it times, the tasks that take part, and
//! the judgement whether a batch did its work.

mod operation;
mod participants;
mod row;

pub(crate) use self::operation::{Disturbed, expect_done};
pub use self::operation::{Operation, Prepared, Timing};
pub use self::participants::{Participants, Sharing};
pub use self::row::{Benchmark, Prepare, Profile, Setting};
pub(crate) use self::row::{Per, Row};
pub use crate::platform::Refusal;
