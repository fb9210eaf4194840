//! Two machines compared, as tables.

use std::collections::BTreeMap;

use assay_quantity::{Conditions, Cost, Machine, Pair, Unit, Unmeasured, Which};
use assay_report::{Block, Cell, Column, Report, Table, scale};
use assay_statistics::conditions;

use super::{machine, summary};
use crate::phase::comparison::{Compared, SideBySide};
use crate::phase::turns;

/// Returns the report on two machines.
pub fn report(compared: &SideBySide, machines: Pair<&Machine>) -> Report {
    let Pair { a, b } = machines;
    let title = match turns::states(machines) {
        Some(states) => format!("B, {}, compared with A, {}", states.b, states.a),
        None => format!("{} compared with {}", b.name, a.name),
    };
    let mut tables = Vec::new();
    if let Some(left_out) = compared.in_turns {
        tables.push(in_turns(&compared.typical, left_out));
        tables.extend(unmeasured(machines));
    } else {
        tables.push(typical(&compared.typical));
        tables.extend(calm(compared));
        tables.extend(modes(&compared.typical));
    }
    tables.push(verdicts(compared, machines));
    tables.extend(conditions(machines));
    if compared.in_turns.is_none() {
        tables.extend(summary::tables(&[a, b]));
    }
    Report { title, blocks: tables.into_iter().map(Block::Table).collect() }
}

/// Returns the table of the primitives that were measured alternately in both states.
fn in_turns(compared: &[Compared], left_out: usize) -> Table {
    let rows = compared.iter().map(|one| {
        let [primitive, a, b, ratio, relation] = row(one);
        let pairs = one.comparison.ratio.map_or(0, |ratio| ratio.estimate.values);
        let pairs = Cell::Count(u64::try_from(pairs).unwrap_or(u64::MAX));
        [primitive, a, b, ratio, pairs, relation]
    });
    let [primitive, a, b, ratio, relation] = columns();
    let columns = [primitive, a, b, ratio, Column::numbers("pairs"), relation];
    let table = Table::of("Costs of primitives, measured alternately", columns, rows)
        .with_note("B/A is the trimmed mean over pairs of processes: one in each state, in the same round, with the same seed on the same processor.")
        .with_note(CORRECTED);
    if left_out == 0 {
        return table;
    }
    table.with_note(format!(
        "{left_out} process(es) are excluded: they or their counterparts gave no cost, had only disturbed batches, or were not started."
    ))
}

/// Returns the primitives that could not be measured in a state, with the reasons; `None` if all were
/// measured.
fn unmeasured(machines: Pair<&Machine>) -> Option<Table> {
    let rows = [(Which::A, machines.a), (Which::B, machines.b)].into_iter().flat_map(|(which, machine)| {
        let row = move |missing: &Unmeasured| {
            [missing.primitive.to_string(), which.to_string(), missing.reason.clone()].map(Cell::text)
        };
        machine.unmeasured.iter().map(row)
    });
    let rows: Vec<[Cell; 3]> = rows.collect();
    let columns = ["primitive", "state", "reason"].map(Column::words);
    (!rows.is_empty()).then(|| Table::of("What was not measured", columns, rows))
}

/// Returns the table of the typical costs of all common primitives, with their ratio and its meaning.
fn typical(compared: &[Compared]) -> Table {
    let rows = compared.iter().map(|one| {
        let [primitive, a, b, ratio, relation] = row(one);
        let effect = one.comparison.ratio.and_then(|ratio| ratio.effect).map_or_else(
            || Cell::Missing("the samples of the processes are unknown".to_owned()),
            |value| Cell::Number { value, unit: Unit::Count },
        );
        [primitive, a, b, ratio, effect, relation]
    });
    let [primitive, a, b, ratio, relation] = columns();
    let columns = [primitive, a, b, ratio, Column::numbers("effect"), relation];
    Table::of("Typical costs of primitives", columns, rows)
        .with_note(CORRECTED)
        .with_note("The effect is Cliff's delta: 1 if every process of B took longer than every process of A, 0 if neither tends to take longer.")
}

/// Returns the same table for the calm costs; `None` if there are none.
fn calm(compared: &SideBySide) -> Option<Table> {
    let SideBySide { typical, calm, .. } = compared;
    let missing = typical.len() - calm.len();
    let table = Table::of("Calm costs of primitives", columns(), calm.iter().map(row))
        .with_note(machine::CALM)
        .with_note("Faster and slower are corrected as above.")
        .with_note(format!("{missing} of {} primitives have no calm cost on A or on B.", typical.len()));
    (!calm.is_empty()).then_some(table)
}

const CORRECTED: &str = "Faster and slower are corrected for the number of primitives (Holm): for two equal machines, no primitive is reported as different in 95 % of comparisons.";

fn columns() -> [Column; 5] {
    [
        Column::words("primitive"),
        Column::numbers("A"),
        Column::numbers("B"),
        Column::numbers("B/A"),
        Column::words("B is"),
    ]
}

fn row(one: &Compared) -> [Cell; 5] {
    let no_ratio = || Cell::Missing("no ratio".to_owned());
    [
        Cell::text(one.primitive.to_string()),
        one.costs.a.typical.into(),
        one.costs.b.typical.into(),
        one.comparison.ratio.map_or_else(no_ratio, |ratio| ratio.estimate.into()),
        Cell::text(one.comparison.relation.to_string()),
    ]
}

/// Returns the modes of the primitives that have several modes on either machine; `None` if there are none.
fn modes(compared: &[Compared]) -> Option<Table> {
    let has_several = |one: &&Compared| [&one.costs.a, &one.costs.b].iter().any(|cost| cost.modes.len() > 1);
    let rows = compared
        .iter()
        .filter(has_several)
        .map(|one| [Cell::text(one.primitive.to_string()), modes_of(&one.costs.a), modes_of(&one.costs.b)]);
    let rows: Vec<[Cell; 3]> = rows.collect();
    let columns = ["primitive", "A", "B"].map(Column::words);
    (!rows.is_empty()).then(|| Table::of("Modes and their shares of the processes", columns, rows))
}

fn modes_of(cost: &Cost) -> Cell {
    if cost.modes.len() > 1 {
        return Cell::text(machine::modes(cost));
    }
    Cell::text(format!("{} (all)", scale::number(cost.typical.point, cost.typical.unit)))
}

/// Returns the conditions of the two machines; `None` if they are unknown for both.
fn conditions(machines: Pair<&Machine>) -> Option<Table> {
    let row = |name: &str, of: &dyn Fn(&Conditions) -> Option<Cell>| {
        let cell = |machine: &Machine| {
            of(&machine.conditions).unwrap_or_else(|| Cell::Missing("not recorded".to_owned()))
        };
        [Cell::text(name), cell(machines.a), cell(machines.b)]
    };
    let cycle = |value| Cell::Number { value, unit: Unit::Nanoseconds };
    let rows = [
        row("samples with another busy hardware thread on the core", &|seen| seen.shared.map(Cell::Share)),
        row("cycle of the core's clock", &|seen| seen.cycle_ns.map(cycle)),
    ];
    let columns = [Column::words("condition"), Column::numbers("A"), Column::numbers("B")];
    let is_known = [machines.a, machines.b].iter().any(|machine| machine.conditions != Conditions::default());
    is_known.then(|| Table::of("Conditions during the measurement", columns, rows))
}

/// Returns a sentence for each condition that differs so much between the machines that it affects costs.
/// There are none if the states were measured alternately: random conditions cancel out, and the effects of
/// the state are part of the comparison.
pub fn warnings(compared: &SideBySide, machines: Pair<&Machine>) -> Vec<String> {
    if compared.in_turns.is_some() {
        return Vec::new();
    }
    let Pair { a, b } = Pair { a: &machines.a.conditions, b: &machines.b.conditions };
    let sharing = conditions::shared_apart(a, b).map(|shared| {
        let [a, b] = shared.map(|share| 100.0 * share);
        format!(
            "another hardware thread of the core was busy during {a:.0} % of the samples of A and {b:.0} % of those of B: \
             this affects typical costs, but not calm costs"
        )
    });
    let clock = conditions::cycle_apart(a, b).map(|cycles| {
        let [a, b] = cycles.map(|cycle| scale::number(cycle, Unit::Nanoseconds));
        format!("the cycle of the core's clock was {a} on A and {b} on B: this affects costs")
    });
    sharing.into_iter().chain(clock).collect()
}

/// Returns the number of primitives with each relation, and of those without a counterpart.
fn verdicts(compared: &SideBySide, machines: Pair<&Machine>) -> Table {
    let mut counts: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (number, all) in [&compared.typical, &compared.calm].into_iter().enumerate() {
        for one in all {
            counts.entry(one.comparison.relation.to_string()).or_default()[number] += 1;
        }
    }
    let only = |side: &str, machine: &Machine, only: &[_]| {
        let title = format!("measured on {side} only ({})", machine.name);
        [Cell::text(title), Cell::Count(only.len() as u64), Cell::text("")]
    };
    let rows = counts
        .into_iter()
        .map(|(relation, [typical, calm])| [Cell::text(relation), Cell::Count(typical), Cell::Count(calm)]);
    let only = [only("A", machines.a, &compared.only.a), only("B", machines.b, &compared.only.b)];
    let rows = rows.chain(only);
    let title = "Number of primitives by relation";
    let [relation, typical, calm] =
        [Column::words("B is"), Column::numbers("typical"), Column::numbers("calm")];
    if compared.in_turns.is_some() {
        let columns = [relation, Column::numbers("primitives")];
        return Table::of(title, columns, rows.map(|[relation, number, _]| [relation, number]));
    }
    Table::of(title, [relation, typical, calm], rows)
}
