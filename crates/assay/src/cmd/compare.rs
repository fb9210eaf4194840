//! `assay compare`: two machines, or one before and after a change, primitive by primitive.

use anyhow::ensure;
use assay_quantity::PrimitiveId;
use assay_quantity::comparison::Pair;
use assay_quantity::comparison::family::{Relation, SAME_WITHIN};
use assay_report::{Block, Report};

use crate::cli::CompareArgs;
use crate::output::{self, Alarm};
use crate::phase::comparison::{Compared, SideBySide, compare};
use crate::phase::selection::{is_named, whole_id};
use crate::{journal, section};

/// Runs the subcommand.
pub fn run(args: &CompareArgs) -> anyhow::Result<()> {
    let before = journal::known(&args.before, &args.store)?;
    let after = journal::known(&args.after, &args.store)?;
    for name in &args.primitives {
        whole_id(name)?;
        let mut known = before.machine.costs.keys().chain(after.machine.costs.keys());
        ensure!(
            known.any(|id| is_named(id, name)),
            "'{name}' was measured neither on {} nor on {}; 'assay bench --list' prints what can be",
            args.before.display(),
            args.after.display()
        );
    }
    let wanted = |id: &PrimitiveId| {
        args.primitives.is_empty() || args.primitives.iter().any(|name| is_named(id, name))
    };
    // What is too slow must not be the same.
    let margin = args.fail_over.map_or(SAME_WITHIN, |share| share.min(SAME_WITHIN));
    let compared = compare(&before, &after, &wanted, margin);
    ensure!(
        !compared.typical.is_empty(),
        "{} and {} have no such primitive in common; 'assay bench' measures more",
        args.before.display(),
        args.after.display()
    );
    let title = format!("{} beside {}", after.machine.name, before.machine.name);
    let machines = Pair { a: &before.machine, b: &after.machine };
    let mut tables = vec![section::comparison::typical(&compared.typical)];
    tables.extend(section::comparison::calm(&compared));
    tables.extend(section::comparison::modes(&compared.typical));
    tables.push(section::comparison::verdicts(&compared, machines));
    tables.extend(section::comparison::conditions(machines));
    tables.extend(section::summary::tables(&[machines.a, machines.b]));
    let blocks = tables.into_iter().map(Block::Table).collect();
    for warning in section::comparison::warnings(machines) {
        output::say(&warning);
    }
    let gate = args.fail_over.map_or(Ok(()), |share| gate(&compared, share));
    let printed = output::show(&Report { title, blocks }, args.print.format());
    output::end(printed, gate.map_err(Into::into))
}

/// Lets through what is not slower by more than this share. Whatever it cannot judge and may be slower, it stops as well:
/// primitives that were disturbed, have several modes, no ratio or only printed figures, and those that B lacks.
fn gate(compared: &SideBySide, share: f64) -> Result<(), Alarm> {
    let SideBySide { typical: shared, only, .. } = compared;
    let limit = format!("{:.3} %", share * 100.0);
    let all = shared.len() + only.a.len();
    let is_over =
        |one: &Compared| one.comparison.ratio.is_none_or(|ratio| ratio.estimate.point > 1.0 + share);
    let list = |chosen: &dyn Fn(&Compared) -> bool| {
        let chosen = shared.iter().filter(|one| chosen(one));
        chosen.map(|one| one.primitive.to_string()).collect::<Vec<String>>()
    };
    let slower = list(&|one| one.comparison.relation == Relation::Slower && is_over(one));
    let unjudged = list(&|one| !is_judged(one));
    let doubtful = list(&|one| !is_judged(one) && is_over(one));
    let missing: Vec<String> = only.a.iter().map(PrimitiveId::to_string).collect();
    let mut doubts = Vec::new();
    if !doubtful.is_empty() {
        doubts.push(format!(
            "{} of {all} primitives may be slower by more than {limit} and cannot be judged: {}",
            doubtful.len(),
            doubtful.join(", ")
        ));
    }
    if !missing.is_empty() {
        doubts.push(format!(
            "{} of {all} primitives have no cost on B: {}",
            missing.len(),
            missing.join(", ")
        ));
    }
    if unjudged.len() == shared.len() {
        doubts.push(format!("none of {all} primitives can be judged"));
    } else if !unjudged.is_empty() {
        output::say(&format!("{} of {all} primitives cannot be judged; the table says why", unjudged.len()));
    }
    let doubts = doubts.join("; ");
    if !slower.is_empty() {
        if !doubts.is_empty() {
            output::say(&doubts);
        }
        return Err(Alarm::Slower(format!(
            "{} of {all} primitives are slower by more than {limit}: {}",
            slower.len(),
            slower.join(", ")
        )));
    }
    if doubts.is_empty() { Ok(()) } else { Err(Alarm::Doubtful(format!("{doubts}; measure again"))) }
}

/// Whether chance was taken into account.
fn is_judged(one: &Compared) -> bool {
    !matches!(one.comparison.relation, Relation::NotComparable(_) | Relation::AsPrinted(_))
}
