//! Predictions as tables: the terms of one, or many machines side by side.

use std::collections::BTreeSet;

use assay_model::{Prediction, Term};
use assay_quantity::{Basis, Doubt, Estimate, Mapping, OperationDemand, Unit};
use assay_report::table::RaggedTable;
use assay_report::{Cell, Column, Table};

use super::measured::Measured;

/// Returns one row for each machine, in the given order, with the published prediction if the file of
/// measurements contains one.
pub fn totals(operation: &OperationDemand, predictions: &[Prediction], measured: &Measured) -> Table {
    let title = format!("Predicted time of one {}", operation.unit_of_work);
    let rows = predictions.iter().map(|prediction| {
        let published = measured.published(&prediction.machine).map_or(Cell::text(""), Cell::from);
        [
            Cell::text(&prediction.machine),
            prediction.total.into(),
            published,
            prediction.covered().into(),
            prediction.bounded().into(),
        ]
    });
    let time = |header: &str| Column::numbers_in(header, Unit::Nanoseconds);
    let columns = [
        Column::words("machine"),
        time("predicted"),
        time("published"),
        time("covered"),
        time("not covered, at least"),
    ];
    let table = if measured.has_published() {
        Table::of(&title, columns, rows)
    } else {
        let [machine, predicted, _, covered, bounded] = columns;
        let rows =
            rows.map(|[machine, predicted, _, covered, bounded]| [machine, predicted, covered, bounded]);
        Table::of(&title, [machine, predicted, covered, bounded], rows)
    };
    predictions.iter().flat_map(notes).fold(table, Table::with_note)
}

/// Returns sentences about a prediction: the primitives without a cost, with the reason, and the share that
/// depends on doubtful costs.
pub fn notes(prediction: &Prediction) -> Vec<String> {
    let refused = prediction.terms.iter().filter_map(|term| {
        let (primitive, machine, reason) = (&term.primitive, &prediction.machine, term.refused.as_ref()?);
        Some(format!("{primitive} counts as not covered, because {machine} has no cost of it: {reason}."))
    });
    refused.chain(doubts(prediction)).collect()
}

/// Returns a sentence about the share of a prediction that depends on doubtful costs; `None` if there are
/// none.
fn doubts(prediction: &Prediction) -> Option<String> {
    let doubts: BTreeSet<Doubt> = prediction.terms.iter().filter_map(|term| term.doubt).collect();
    let reasons: Vec<String> = doubts.iter().map(Doubt::to_string).collect();
    (!reasons.is_empty()).then(|| {
        format!(
            "Terms worth {:.0} % of the prediction for {} are doubtful ({}).",
            prediction.doubtful_share() * 100.0,
            prediction.machine,
            reasons.join(", ")
        )
    })
}

/// Row of the terms that are lower bounds.
const NOT_COVERED: &str = "not covered: at least a null call each";

/// Returns the terms of one prediction, most expensive first; calls without their own primitive are one row.
pub fn terms(operation: &OperationDemand, prediction: &Prediction) -> Table {
    let share = |time: &Estimate| Cell::Share(time.point / prediction.total.point);
    let own = prediction.terms.iter().filter(|term| !term.is_bounded());
    let mut rows: Vec<[Cell; 6]> = own.map(|term| row(term, share(&term.time))).collect();
    let empty = || Cell::text("");
    let bounded = prediction.bounded();
    let bounding: Vec<&Term> = prediction.terms.iter().filter(|term| term.is_bounded()).collect();
    if !bounding.is_empty() {
        let calls = bounding.iter().map(|term| term.operations).sum();
        let calls = Cell::Number { value: calls, unit: Unit::Count };
        let doubt = bounding.iter().filter_map(|term| term.doubt).min();
        let cost = cost("lower bound", doubt);
        rows.push([Cell::text(NOT_COVERED), calls, empty(), bounded.into(), share(&bounded), cost]);
    }
    let total = prediction.total;
    rows.push([Cell::text("predicted"), empty(), empty(), total.into(), share(&total), empty()]);
    let title = format!("Terms: demand of one {} x costs of {}", operation.unit_of_work, prediction.machine);
    let columns = [
        Column::words("primitive"),
        Column::numbers("calls"),
        Column::numbers("bytes"),
        Column::numbers_in("time", Unit::Nanoseconds),
        Column::numbers("share"),
        Column::words("cost"),
    ];
    Table::of(&title, columns, rows)
}

fn row(term: &Term, share: Cell) -> [Cell; 6] {
    let bytes =
        term.bytes.map_or(Cell::text(""), |value| Cell::Number { value: value.round(), unit: Unit::Bytes });
    let basis = match term.basis {
        Basis::Measured => "measured",
        Basis::Interpolated => "between measured sizes",
        Basis::Extrapolated => "beyond measured sizes",
    };
    [
        Cell::text(term.primitive.to_string()),
        Cell::Number { value: term.operations, unit: Unit::Count },
        bytes,
        term.time.into(),
        share,
        cost(basis, term.doubt),
    ]
}

/// Formats the basis of the cost of a term, and the doubt about it.
fn cost(basis: &str, doubt: Option<Doubt>) -> Cell {
    Cell::text(doubt.map_or_else(|| basis.to_owned(), |doubt| format!("{basis}, {doubt}")))
}

/// Returns the share of each term in the total, with one column for each machine.
pub fn shares_by_machine(predictions: &[Prediction]) -> Result<Table, RaggedTable> {
    let mut columns = vec![Column::words("primitive")];
    columns.extend(predictions.iter().map(|prediction| Column::numbers(&prediction.machine)));
    let first = predictions.first().map_or(&[][..], |prediction| &prediction.terms);
    let rows = first
        .iter()
        .map(|term| {
            let mut cells = vec![Cell::text(name(term))];
            cells.extend(predictions.iter().map(|prediction| share_of(prediction, term)));
            cells
        })
        .collect();
    Table::new("Share of each term", columns, rows)
}

fn name(term: &Term) -> String {
    match term.mapping {
        Mapping::Own => term.primitive.to_string(),
        Mapping::LowerBound => NOT_COVERED.to_owned(),
    }
}

/// Returns the share of the same term on another machine. Predictions of one demand have the same terms, in a
/// different order.
fn share_of(prediction: &Prediction, term: &Term) -> Cell {
    prediction
        .terms
        .iter()
        .find(|other| other.primitive == term.primitive && other.mapping == term.mapping)
        .map_or_else(
            || Cell::Missing("the demand has no such term".to_owned()),
            |other| match &other.refused {
                Some(reason) => Cell::Missing(format!("counts as not covered: {reason}")),
                None => Cell::Share(other.time.point / prediction.total.point),
            },
        )
}
