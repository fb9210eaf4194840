//! A machine's profile in `assay bench`: its description, the costs of its primitives, and the summary of
//! lmbench.

use assay_quantity::Machine;
use assay_report::Block;
use assay_report::figure::NoFigure;

use super::{facts, hierarchy, machine, scaling, summary};

/// Returns the profile of a machine.
pub fn blocks(measured: &Machine) -> Result<Vec<Block>, NoFigure> {
    let mut blocks = facts::blocks(&measured.description);
    blocks.push(Block::Table(machine::costs(measured)));
    blocks.extend(scaling::table(measured).map(Block::Table));
    blocks.extend(machine::unmeasured(measured).map(Block::Table));
    blocks.extend(hierarchy::blocks(measured)?);
    blocks.extend(summary::tables(&[measured]).into_iter().map(Block::Table));
    Ok(blocks)
}
