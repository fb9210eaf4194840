//! `assay compare`: two machines, or one before and after a change, primitive by primitive.

use anyhow::ensure;
use assay_quantity::PrimitiveId;
use assay_quantity::comparison::family::{Relation, SAME_WITHIN};
use assay_report::{Block, Report};

use crate::cli::CompareArgs;
use crate::output::{self, Doubtful};
use crate::phase::comparison::{Compared, compare};
use crate::phase::selection::is_named;
use crate::{journal, section};

/// Runs the subcommand.
pub fn run(args: &CompareArgs) -> anyhow::Result<()> {
    let before = journal::known(&args.before, &args.store)?;
    let after = journal::known(&args.after, &args.store)?;
    let wanted = |id: &PrimitiveId| {
        args.primitives.is_empty() || args.primitives.iter().any(|name| is_named(id, name))
    };
    // What is too slow must not be the same.
    let margin = args.fail_over.map_or(SAME_WITHIN, |share| share.min(SAME_WITHIN));
    let compared = compare(&before, &after, &wanted, margin);
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

/// An error if something is slower by more than this share; another one if something that cannot be judged looks so.
fn fail(compared: &[Compared], share: f64) -> anyhow::Result<()> {
    let is_over =
        |one: &Compared| one.comparison.ratio.is_some_and(|ratio| ratio.estimate.point > 1.0 + share);
    let over = |relation: fn(&Relation) -> bool| {
        let over = compared.iter().filter(|one| relation(&one.comparison.relation) && is_over(one));
        over.map(|one| one.primitive.to_string()).collect::<Vec<String>>()
    };
    let not_comparable = |relation: &Relation| matches!(relation, Relation::NotComparable(_));
    let unjudged = compared.iter().filter(|one| not_comparable(&one.comparison.relation)).count();
    if unjudged > 0 {
        output::say(&format!(
            "{unjudged} of {} primitives cannot be judged; the table says why",
            compared.len()
        ));
    }
    let (slower, doubtful) = (over(|relation| *relation == Relation::Slower), over(not_comparable));
    ensure!(
        slower.is_empty(),
        "{} of {} primitives are slower by more than {:.3} %: {}",
        slower.len(),
        compared.len(),
        share * 100.0,
        slower.join(", ")
    );
    if doubtful.is_empty() {
        return Ok(());
    }
    Err(Doubtful(format!(
        "{} of {} primitives seem slower by more than {:.3} % and cannot be judged; measure them again: {}",
        doubtful.len(),
        compared.len(),
        share * 100.0,
        doubtful.join(", ")
    ))
    .into())
}
