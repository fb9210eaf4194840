//! A demand as a table: the operations of one unit of work, and the share of them that is covered by
//! primitives.

use std::cmp::Ordering;

use assay_quantity::{CallCount, Coefficient, Mapping, OperationDemand, Size, Unit, Use};
use assay_report::{Block, Cell, Column, Table};
use assay_trace::container::Origin;

use super::trace::NOT_RECORDED;

/// What the demand of an imported trace lacks.
const NOT_IN_STRACE: &str = "Missing, because strace does not record it: kernel times and so the coverage, page faults, \
                             sleeps, wake-ups, and the memory that new processes copy. A time that is predicted \
                             from this demand is a lower bound.";

/// Number of sizes and calls shown for one coefficient, the most frequent first; the rest are only counted.
const SHOWN: usize = 3;

/// Returns the demand vector and its coverage.
pub fn vector(operation: &OperationDemand, origin: Origin) -> Vec<Block> {
    let mut coefficients: Vec<&Coefficient> = operation.coefficients.iter().collect();
    let weights = |of: &Coefficient| (of.kernel_ns, of.operations());
    coefficients.sort_by(|a, b| weights(b).partial_cmp(&weights(a)).unwrap_or(Ordering::Equal));
    let columns = [
        Column::words("primitive"),
        Column::numbers("calls"),
        Column::numbers("bytes"),
        Column::words("sizes"),
        Column::numbers_in("traced kernel time", Unit::Nanoseconds),
        Column::words("system calls"),
    ];
    let title = format!("Demand of one {}", operation.unit_of_work);
    let table = Table::of(&title, columns, coefficients.into_iter().map(row));
    let (table, text) = match origin {
        Origin::Probe => (table, coverage(operation)),
        Origin::Strace => (table.with_missing("traced kernel time", NOT_RECORDED), NOT_IN_STRACE.to_owned()),
    };
    vec![Block::Table(table), Block::Text(text)]
}

fn coverage(operation: &OperationDemand) -> String {
    let losses = match operation.lost_records {
        0 => String::new(),
        lost => format!(" The trace lost {lost} records: the demand is a lower bound."),
    };
    match operation.coverage() {
        None => format!("No kernel time was traced, so there is no coverage.{losses}"),
        Some(share) => format!(
            "Coverage: {:.1} % of the traced kernel time is in calls that have their own primitive; calls \
             bounded by the null call count as not covered.{losses}",
            share * 100.0
        ),
    }
}

fn row(coefficient: &Coefficient) -> [Cell; 6] {
    let bounded = coefficient.mapping == Mapping::LowerBound;
    let bytes = coefficient
        .bytes()
        .map_or(Cell::text(""), |value| Cell::Number { value: value.round(), unit: Unit::Bytes });
    [
        Cell::text(if bounded {
            format!("not covered: {} at least", coefficient.primitive)
        } else {
            coefficient.primitive.to_string()
        }),
        Cell::Number { value: coefficient.operations(), unit: Unit::Count },
        bytes,
        Cell::text(sizes(&coefficient.uses)),
        Cell::Number { value: coefficient.kernel_ns, unit: Unit::Nanoseconds },
        Cell::text(calls(coefficient)),
    ]
}

fn sizes(uses: &[Use]) -> String {
    let mut sized: Vec<(f64, f64)> =
        uses.iter().filter_map(|entry| Some((entry.size()?, entry.calls))).collect();
    sized.sort_by(|a, b| b.1.total_cmp(&a.1));
    let shown = sized.iter().take(SHOWN).map(|(size, calls)| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a mean of sizes is a size"
        )]
        let size = Size(size.round() as u64);
        if sized.len() == 1 { size.to_string() } else { format!("{size} x {calls:.3}") }
    });
    listed(shown.collect(), sized.len())
}

/// Returns the system calls of a coefficient, the most frequent first.
fn calls(coefficient: &Coefficient) -> String {
    let mut counts: Vec<&CallCount> = coefficient.calls.iter().collect();
    counts.sort_by(|a, b| b.calls.total_cmp(&a.calls));
    let shown = counts.iter().take(SHOWN).map(|count| match count.descriptor.as_str() {
        "" => count.call.clone(),
        descriptor => format!("{} {descriptor}", count.call),
    });
    listed(shown.collect(), counts.len())
}

/// Joins the shown elements of a list and appends the number of the others.
fn listed(shown: Vec<String>, all: usize) -> String {
    let rest = all - shown.len();
    let text = shown.join(", ");
    if rest > 0 { format!("{text} and {rest} more") } else { text }
}
