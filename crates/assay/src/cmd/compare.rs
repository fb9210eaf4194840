//! `assay compare`: compares two machines, one machine before and after a change, or two states of this
//! machine, primitive by primitive.

use std::path::Path;

use anyhow::{bail, ensure};
use assay_bench::Profile;
use assay_quantity::{Pair, PrimitiveId, Unmeasured, Which};
use assay_statistics::comparison::family::{Relation, SAME_WITHIN};

use crate::cli::{CompareArgs, Compared as Asked, EffortArgs};
use crate::interrupt::Interrupt;
use crate::journal::Known;
use crate::output::{self, Alarm};
use crate::phase::comparison::{Compared, SideBySide, compare};
use crate::phase::machine::Effort;
use crate::phase::selection::{Selection, is_named, whole_id};
use crate::phase::turns::{self, States};
use crate::{journal, section};

/// Runs the subcommand.
pub fn run(args: &CompareArgs) -> anyhow::Result<()> {
    let (asked, primitives) = args.asked();
    match asked {
        Asked::Machines(names) => machines(args, names, &primitives),
        Asked::States(two) => states(args, &two, &primitives),
    }
}

/// Compares two machines that are already measured.
fn machines(args: &CompareArgs, names: Pair<&Path>, primitives: &[String]) -> anyhow::Result<()> {
    let known = Pair { a: journal::known(names.a, &args.store)?, b: journal::known(names.b, &args.store)? };
    let [a, b] = [names.a.display(), names.b.display()];
    for name in primitives {
        whole_id(name)?;
        let mut ids = known.a.machine.costs.keys().chain(known.b.machine.costs.keys());
        ensure!(
            ids.any(|id| is_named(id, name)),
            "'{name}' was measured neither on {a} nor on {b}; 'assay bench --list' prints all primitives",
        );
    }
    let wanted = |id: &PrimitiveId| primitives.is_empty() || primitives.iter().any(|name| is_named(id, name));
    let compared = compared(args, &known, &wanted);
    ensure!(
        !compared.typical.is_empty(),
        "{a} and {b} have no selected primitive in common; measure more with 'assay bench'",
    );
    let (printed, gate) = show(args, &known, &compared);
    output::end(printed, gate)
}

/// Measures two states of this machine alternately, and compares them.
fn states(args: &CompareArgs, states: &States, primitives: &[String]) -> anyhow::Result<()> {
    let selection = Selection { names: primitives.to_vec(), ..Selection::default() };
    let benchmarks = selection.benchmarks()?;
    for remark in states.try_wrappers()? {
        output::say(&remark);
    }
    let interrupt = Interrupt::listen()?;
    let budget = args.budget.unwrap_or_else(|| turns::usual_budget(benchmarks.len()));
    let effort = EffortArgs { budget: Some(budget), ..EffortArgs::default() };
    let effort = Effort::of(&effort, Profile::Quick);
    let turns = turns::measure(states, effort, args.seed, &benchmarks, &args.store, &interrupt)?;
    let compared = compared(args, &turns.known, &|_| true);
    let end = turns.restored.map_err(Into::into).and(interrupt.check().map_err(Into::into));
    if compared.typical.is_empty() {
        end?;
        let first = [Which::A, Which::B].into_iter().find_map(|which| {
            let Unmeasured { primitive, reason } = turns.known.get(which).machine.unmeasured.first()?;
            Some(format!("; {primitive} in state {which}: {reason}"))
        });
        bail!("no primitive was measured in both states{}", first.unwrap_or_default());
    }
    let (printed, gate) = show(args, &turns.known, &compared);
    output::say(&format!("the raw samples are stored as runs {} (A) and {} (B)", turns.runs.a, turns.runs.b));
    output::end(printed, end.and(gate))
}

fn compared(args: &CompareArgs, known: &Pair<Known>, wanted: &dyn Fn(&PrimitiveId) -> bool) -> SideBySide {
    // A primitive that exceeds the limit must not be reported as the same.
    let margin = args.fail_over.map_or(SAME_WITHIN, |share| share.min(SAME_WITHIN));
    compare(&known.a, &known.b, wanted, margin)
}

/// Prints a comparison, and checks it against `--fail-over`.
fn show(
    args: &CompareArgs,
    known: &Pair<Known>,
    compared: &SideBySide,
) -> (anyhow::Result<()>, anyhow::Result<()>) {
    let machines = Pair { a: &known.a.machine, b: &known.b.machine };
    let report = section::comparison::report(compared, machines);
    for warning in section::comparison::warnings(compared, machines) {
        output::say(&warning);
    }
    let gate = args.fail_over.map_or(Ok(()), |share| gate(compared, share));
    (output::show(&report, args.print.format()), gate.map_err(Into::into))
}

/// Fails if a primitive is slower by more than this share, or cannot be judged and may be slower: if it was
/// disturbed, has several modes, no ratio or only printed figures, or has no cost on B.
fn gate(compared: &SideBySide, share: f64) -> Result<(), Alarm> {
    let SideBySide { typical: shared, only, neither, .. } = compared;
    let limit = format!("{:.3} %", share * 100.0);
    let all = shared.len() + only.a.len() + neither.len();
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
    if !neither.is_empty() {
        let missing: Vec<String> = neither.iter().map(PrimitiveId::to_string).collect();
        doubts.push(format!(
            "{} of {all} primitives have no cost at all: {}",
            missing.len(),
            missing.join(", ")
        ));
    }
    if unjudged.len() == shared.len() {
        doubts.push(format!("none of {all} primitives can be judged"));
    } else if !unjudged.is_empty() {
        output::say(&format!(
            "{} of {all} primitives cannot be judged; see the table for the reasons",
            unjudged.len()
        ));
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

/// Whether the relation takes chance into account.
fn is_judged(one: &Compared) -> bool {
    !matches!(one.comparison.relation, Relation::NotComparable(_) | Relation::AsPrinted(_))
}
