//! A machine's profile as `assay bench` shows it: what it is, what its primitives cost, and what follows from that.

use assay_bench::Benchmark;
use assay_quantity::Machine;
use assay_report::Block;

use super::machine;

/// Everything that is known of a machine.
pub fn blocks(measured: &Machine, _benchmarks: &[Benchmark]) -> Vec<Block> {
    let mut blocks = machine::description(&measured.description);
    blocks.push(Block::Table(machine::costs(measured)));
    blocks
}
