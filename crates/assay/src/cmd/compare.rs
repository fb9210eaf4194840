//! `assay compare`: two machines, or one before and after a change, primitive by primitive.

use anyhow::{bail, ensure};
use assay_quantity::PrimitiveId;
use assay_quantity::comparison::family::Relation;
use assay_report::{Block, Report};

use crate::cli::CompareArgs;
use crate::phase::comparison::{Compared, compare};
use crate::phase::selection::is_named;
use crate::{journal, output, section};

/// Runs the subcommand.
pub fn run(args: &CompareArgs) -> anyhow::Result<()> {
    let before = journal::known(&args.before, &args.store)?;
    let after = journal::known(&args.after, &args.store)?;
    let wanted = |id: &PrimitiveId| {
        args.primitives.is_empty() || args.primitives.iter().any(|name| is_named(id, name))
    };
    let compared = compare(&before, &after, &wanted);
    ensure!(
        !compared.is_empty(),
        "{} and {} have no such primitive in common; 'assay bench' measures more",
        args.before.display(),
        args.after.display()
    );
    let title = format!("{} beside {}", after.machine.name, before.machine.name);
    let mut blocks: Vec<Block> = vec![Block::Table(section::comparison::table(&compared))];
    blocks.push(Block::Table(section::comparison::verdicts(&compared, &before.machine, &after.machine)));
    let summary = section::summary::tables(&[&before.machine, &after.machine]);
    blocks.extend(summary.into_iter().map(Block::Table));
    output::show(&Report { title, blocks }, args.print.format())?;
    args.fail_over.map_or(Ok(()), |share| fail(&compared, share))
}

/// An error if something is slower by more than this share.
fn fail(compared: &[Compared], share: f64) -> anyhow::Result<()> {
    let too_slow = |compared: &&Compared| {
        let ratio = compared.comparison.ratio.map_or(1.0, |ratio| ratio.estimate.point);
        compared.comparison.relation == Relation::Slower && ratio > 1.0 + share
    };
    let slower: Vec<String> =
        compared.iter().filter(too_slow).map(|compared| compared.primitive.to_string()).collect();
    if slower.is_empty() {
        return Ok(());
    }
    bail!(
        "{} of {} primitives are slower by more than {:.3} %: {}",
        slower.len(),
        compared.len(),
        share * 100.0,
        slower.join(", ")
    )
}
