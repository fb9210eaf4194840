//! A machine as tables: what it is, what could not be controlled, what its primitives cost.

use assay_quantity::primitive::KEYS;
use assay_quantity::{Cost, Description, Kind, Machine, PrimitiveId};
use assay_report::{Block, Cell, Column, Table};

/// What the machine is, and what could not be held still.
pub fn description(description: &Description) -> Vec<Block> {
    let facts = description.facts.iter().map(|fact| [Cell::text(&fact.name), Cell::text(&fact.value)]);
    let mut blocks =
        vec![Block::Table(Table::of("What it is", [Column::words("fact"), Column::words("value")], facts))];
    if !description.uncontrolled.is_empty() {
        let sentences = description.uncontrolled.iter().map(|sentence| [Cell::text(sentence)]);
        blocks.push(Block::Table(Table::of(
            "What could not be controlled",
            [Column::words("source of error")],
            sentences,
        )));
    }
    blocks
}

/// The cost of every primitive, with what speaks for and against it.
pub fn costs(machine: &Machine) -> Table {
    let measured = machine.costs.iter().map(row);
    let columns = [
        Column::words("primitive"),
        Column::numbers("cost"),
        Column::numbers("minimum"),
        Column::numbers("processes"),
        Column::words("verdict"),
    ];
    let table = Table::of("What its primitives cost", columns, measured).with_note(note(machine));
    let rejected: usize = machine.costs.values().map(|cost| cost.rejected).sum();
    if rejected == 0 {
        return table;
    }
    table
        .with_note(format!("{rejected} process(es) gave no cost and are not counted in; the store says why."))
}

/// What could not be measured, reason by reason; `None` if everything was.
pub fn unmeasured(machine: &Machine) -> Option<Table> {
    let mut by_reason: Vec<(&str, Vec<String>)> = Vec::new();
    for missing in &machine.unmeasured {
        let id = missing.primitive.to_string();
        match by_reason.iter_mut().find(|(reason, _)| *reason == missing.reason) {
            Some((_, ids)) => ids.push(id),
            None => by_reason.push((&missing.reason, vec![id])),
        }
    }
    if by_reason.is_empty() {
        return None;
    }
    let rows = by_reason.iter().map(|(reason, ids)| [Cell::text(ids.join(" ")), Cell::text(*reason)]);
    Some(Table::of("What was not measured", ["primitives", "reason"].map(Column::words), rows))
}

fn note(machine: &Machine) -> String {
    let method = machine.costs.values().next().map_or("estimate", |cost| cost.estimate.method.name());
    let method = method.replace('_', " ");
    format!(
        "Each cost is the {method} over fresh processes; the minimum is the best of the undisturbed ones."
    )
}

fn row((primitive, cost): (&PrimitiveId, &Cost)) -> [Cell; 5] {
    let processes = u64::try_from(cost.estimate.values).unwrap_or(u64::MAX);
    let minimum = cost.minimum.map_or_else(
        || Cell::Missing("no process was undisturbed".to_owned()),
        |value| Cell::Number { value, unit: cost.estimate.unit },
    );
    let verdict = cost.verdict.map_or("unknown".to_owned(), |verdict| verdict.to_string());
    [
        Cell::text(primitive.to_string()),
        cost.estimate.into(),
        minimum,
        Cell::Count(processes),
        Cell::text(verdict),
    ]
}

/// The keys of ids, for whoever wants to write one.
pub fn keys() -> Table {
    let rows = KEYS.iter().map(|row| {
        let values = match row.kind {
            Kind::Bytes => "a number of bytes".to_owned(),
            Kind::Count => "a number".to_owned(),
            Kind::Word(words) => words.join(", "),
        };
        [Cell::text(row.name), Cell::text(values), Cell::text(row.about)]
    });
    Table::of("Keys", ["key", "values", "meaning"].map(Column::words), rows)
        .with_note("The numbers in an id are examples: any other can be asked for.".to_owned())
}
