//! What modified lines cost: loads that force them out, and stores that miss.
//!
//! A load that brings a line into a full cache puts another one out, and if that was modified it must be written
//! back first. Both operations here keep every line of the caches modified; the plain load from memory beside them
//! finds none that is.

use assay_quantity::PrimitiveId;

use super::chain::{DirtyChase, Touch, Update};
use super::load::Lap;
use super::{Course, WorkingSet};
use crate::benchmark::{Prepared, Refusal, Setting};
use crate::table::{Per, Profile, Row};

/// The rows of this file.
pub(crate) const ROWS: &[Row] = &[
    Row {
        ids: &["memory.load_dirty{level=dram}"],
        profile: Profile::Quick,
        cost: Per::Operation,
        calls: &[],
        about: "load whose address is the result of the load before it, while every line in the caches is \
                modified, so that each line that makes room is written back",
        source: "own: real working sets are modified, and no suite times what their eviction costs a load",
        prepare: load_dirty,
    },
    updates(Profile::Quick, &["memory.update{level=dram}"]),
    updates(
        Profile::Full,
        &["memory.update{level=l1}", "memory.update{level=l2}", "memory.update{level=l3}"],
    ),
];

const fn updates(profile: Profile, ids: &'static [&'static str]) -> Row {
    Row {
        ids,
        profile,
        cost: Per::Operation,
        calls: &[],
        about: "load whose address is the result of the load before it, and a store into the same line",
        source: "own: latency of a store that misses, which a store alone hides in the store buffer",
        prepare: update,
    }
}

/// One load while the caches are full of modified lines.
fn load_dirty(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let set = WorkingSet::of(id, setting, Course::Chase)?;
    let chain = Lap::of_lines(set, setting)?.linked(1, Touch::Modify);
    Ok(Prepared::alone(DirtyChase::along(chain)?))
}

/// One load of the next line's address and one store into this line.
fn update(id: &PrimitiveId, setting: &mut Setting) -> Result<Prepared, Refusal> {
    let set = WorkingSet::of(id, setting, Course::Chase)?;
    let chain = Lap::of_lines(set, setting)?.linked(1, Touch::Modify);
    Ok(Prepared::alone(Update::along(chain)?))
}
