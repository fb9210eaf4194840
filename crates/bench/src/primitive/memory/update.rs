//! The cost of modified lines: loads that evict them, and stores that miss.
//!
//! A load that brings a line into a full cache evicts another line, which must be written back first if it
//! was modified. Both operations here keep every line of the caches modified; the plain load from memory
//! finds no modified lines.

use assay_quantity::PrimitiveId;

use super::load::Lap;
use crate::benchmark::{Per, Prepared, Refusal, Row, Setting};
use crate::primitive::kit::chain::{DirtyChase, Touch, Update};
use crate::primitive::kit::working_set::{Course, WorkingSet};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        quick: &["memory.load_dirty{level=dram}"],
        full: &[],
        cost: Per::Operation,
        calls: &[],
        about: "load whose address is the result of the previous load, while every line in the caches is \
                modified, so that each evicted line is written back",
        source: "own: real working sets are modified, and no suite times the cost of their eviction to a \
                 load",
        prepare: load_dirty,
    },
    Row {
        quick: &["memory.update{level=dram}"],
        full: &["memory.update{level=*}"],
        cost: Per::Operation,
        calls: &[],
        about: "load whose address is the result of the previous load, and a store to the same line",
        source: "own: latency of a store that misses, which the store buffer otherwise hides",
        prepare: update,
    },
];

/// One load while the caches are full of modified lines.
fn load_dirty(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let set = WorkingSet::of(id, setting, Course::Chase)?;
    let chain = Lap::of_lines(set, setting)?.linked(1, Touch::Modify);
    Ok(Prepared::alone(DirtyChase::along(chain)?))
}

/// One load of the next line's address and one store to this line.
fn update(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let set = WorkingSet::of(id, setting, Course::Chase)?;
    let chain = Lap::of_lines(set, setting)?.linked(1, Touch::Modify);
    Ok(Prepared::alone(Update::along(chain)?))
}
