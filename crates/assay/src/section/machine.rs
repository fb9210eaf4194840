//! A machine as tables: what it is, what could not be controlled, what its primitives cost.

use assay_quantity::disturbance::LOST_MAX;
use assay_quantity::primitive::KEYS;
use assay_quantity::{Cost, Description, Kind, Machine, PrimitiveId, Unit};
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
    let total = |of: fn(&Cost) -> usize| machine.costs.values().map(of).sum::<usize>();
    let disturbed = format!(
        "of {} batches lost more than {:.0} % of their time to other tasks and are left out.",
        total(|cost| cost.batches),
        100.0 * LOST_MAX
    );
    let notes = [
        (total(|cost| cost.rejected), "process(es) gave no cost and are not counted in; the store says why."),
        (total(|cost| cost.disturbed), disturbed.as_str()),
        (
            total(|cost| cost.outliers),
            "process(es) lie far from the others of their primitive (Tukey's fences) and are counted in.",
        ),
    ];
    let notes = notes.into_iter().filter(|(number, _)| *number > 0);
    notes.fold(table, |table, (number, note)| table.with_note(format!("{number} {note}")))
}

/// The figures of those primitives that have several; `None` if each has one.
pub fn modes(machine: &Machine) -> Option<Table> {
    let modes = machine.costs.iter().flat_map(|(id, cost)| cost.modes.iter().map(move |mode| (id, mode)));
    let rows: Vec<[Cell; 3]> = modes
        .map(|(id, mode)| {
            let weight = Cell::Number { value: mode.weight, unit: Unit::Ratio };
            [Cell::text(id.to_string()), weight, mode.estimate.into()]
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    let columns = [Column::words("primitive"), Column::numbers("weight"), Column::numbers("figure")];
    let note = "The weight is the share of the processes that gather around the figure; the cost above is that of \
                none of them.";
    Some(Table::of("Figures of primitives that have several", columns, rows).with_note(note))
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
    let mut methods = machine.costs.values().map(|cost| cost.estimate.method);
    let first = methods.next().filter(|first| methods.all(|method| method == *first));
    let method =
        first.map_or("an estimate".to_owned(), |method| format!("the {}", method.name().replace('_', " ")));
    format!("Each cost is {method} over fresh processes; the minimum is the best of them.")
}

fn row((primitive, cost): (&PrimitiveId, &Cost)) -> [Cell; 5] {
    let processes = u64::try_from(cost.estimate.values).unwrap_or(u64::MAX);
    let minimum = cost.minimum.map_or_else(
        || Cell::Missing("no process without disturbed batches has one above zero".to_owned()),
        |value| Cell::Number { value, unit: cost.estimate.unit },
    );
    let mut verdict = cost.verdict.map_or("unknown".to_owned(), |verdict| verdict.to_string());
    if cost.depends_on_batch() {
        verdict.push_str(", depends on the batch");
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use assay_quantity::estimate::{Method, trimmed_mean};
    use assay_quantity::{Estimate, Interval, Mode, Verdict};
    use assay_report::{Format, Report};

    fn estimate(point: f64) -> Estimate {
        let values = [-2.0, -1.0, 0.0, 1.0, 2.0].map(|percent| point * (1.0 + percent / 100.0));
        trimmed_mean(&values, Unit::Nanoseconds).unwrap()
    }

    fn machine(costs: &[(&str, Cost)]) -> Machine {
        let costs = costs.iter().map(|(id, cost)| (id.parse().unwrap(), cost.clone()));
        Machine { costs: costs.collect(), ..Machine::default() }
    }

    fn csv(table: Table) -> String {
        let report = Report { title: String::new(), blocks: vec![Block::Table(table)] };
        (Format::named("csv").unwrap().render)(&report, &crate::output::style())
    }

    #[test]
    fn several_figures_of_a_primitive_are_shown_with_their_weights_and_only_then() {
        let one = Cost::from(estimate(100.0));
        assert!(modes(&machine(&[("call.null", one.clone())])).is_none());
        let figures = [(0.75, 100.0), (0.25, 150.0)];
        let both = figures.map(|(weight, point)| Mode { weight, estimate: estimate(point) });
        let shown = csv(modes(&machine(&[
            ("call.null", one.clone()),
            ("file.stat", Cost { modes: both.to_vec(), ..one }),
        ]))
        .unwrap());
        let rows: Vec<&str> = shown.lines().filter(|line| line.starts_with("file.stat,")).collect();
        assert_eq!(rows.len(), 2, "{shown}");
        assert!(rows[0].starts_with("file.stat,0.75,") && rows[1].starts_with("file.stat,0.25,"), "{shown}");
        assert!(!shown.contains("call.null"), "{shown}");
    }

    #[test]
    fn what_speaks_against_a_cost_is_shown_with_it() {
        let ratio = Estimate {
            interval: Interval { low: 1.2, high: 1.4, confidence: 0.95 },
            unit: Unit::Ratio,
            ..estimate(1.3)
        };
        let doubtful = Cost {
            verdict: Some(Verdict::Steady),
            linearity: Some(ratio),
            batches: 56,
            disturbed: 2,
            outliers: 3,
            ..Cost::from(estimate(100.0))
        };
        let quiet = costs(&machine(&[("call.null", Cost::from(estimate(100.0)))]));
        assert_eq!(quiet.notes().len(), 1, "{:?}", quiet.notes());
        let table = costs(&machine(&[("call.null", doubtful)]));
        let notes = table.notes().join(" ");
        assert!(notes.contains("2 of 56 batches lost more than 5 % of their time"), "{notes}");
        assert!(notes.contains("3 process(es) lie far"), "{notes}");
        let shown = csv(table);
        assert!(shown.contains("steady, depends on the batch"), "{shown}");
    }

    #[test]
    fn a_method_is_named_where_all_costs_share_it() {
        let (mean, median) =
            (Cost::from(estimate(100.0)), Cost::from(Estimate { method: Method::Median, ..estimate(100.0) }));
        let said = |costs: &[(&str, Cost)]| note(&machine(costs));
        let alike = said(&[("call.null", mean.clone()), ("file.stat", mean.clone())]);
        assert!(alike.starts_with("Each cost is the trimmed mean over"), "{alike}");
        let mixed = said(&[("call.null", mean), ("file.stat", median)]);
        assert!(mixed.starts_with("Each cost is an estimate over"), "{mixed}");
    }
}
