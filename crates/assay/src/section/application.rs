//! The measured application: its dependence on the operating system, its throughput and its latency.

use assay_quantity::{Estimate, Unit};
use assay_report::{Cell, Column, Table};

use crate::phase::application::MeasuredOperation;

/// Returns the user, kernel and idle share of each operation (thesis, Table 1), which show whether the
/// operating system matters.
pub fn dependence(operations: &[MeasuredOperation]) -> Table {
    let rows = operations.iter().map(|operation| {
        let of_time = |part: &Option<Estimate>| {
            let busy = 1.0 - operation.idle.point;
            part.map_or_else(unsplit, |part| Cell::Share(busy * part.point / operation.cpu.point))
        };
        let kernel =
            operation.system.map_or_else(unsplit, |part| Cell::Share(part.point / operation.cpu.point));
        [
            Cell::text(&operation.name),
            of_time(&operation.user),
            of_time(&operation.system),
            operation.idle.into(),
            operation.displaced.into(),
            kernel,
        ]
    });
    let columns = [
        Column::words("operation"),
        Column::numbers("user"),
        Column::numbers("kernel"),
        Column::numbers("idle"),
        Column::numbers("displaced (part of idle)"),
        Column::numbers("kernel / busy time"),
    ];
    let mut note = "Shares of the time of the processors that the application may use, untraced. Displaced: the \
                    application was runnable and another task had its processor. SPEC92 spends 0 to 9 % in the \
                    kernel, web servers over 80 % (Brown 1997, Table 1)."
        .to_owned();
    if let Some(reason) = operations.iter().find_map(|operation| operation.not_counted.as_ref()) {
        note.push_str(&format!(
            " The processor time is the sum over the processes in /proc: the time of processes that end within a \
             clock tick counts as user time. No control group counted it: {reason}."
        ));
    }
    Table::of("Does it depend on the operating system?", columns, rows).with_note(note)
}

fn unsplit() -> Cell {
    Cell::Missing("the rounds used too little processor time for the kernel's clock ticks".to_owned())
}

/// Returns the throughput, processor time and latency of each operation, untraced.
pub fn load(operations: &[MeasuredOperation]) -> Table {
    let rows = operations.iter().map(|operation| {
        let unclear = || Cell::Missing("no client measured the requests".to_owned());
        let latency = |position: usize| {
            operation.latency.as_ref().map_or_else(unclear, |latency| latency[position].into())
        };
        let part = |part: Option<Estimate>| part.map_or_else(unsplit, Cell::from);
        [
            Cell::text(&operation.name),
            operation.per_second.into(),
            operation.cpu.into(),
            part(operation.user),
            part(operation.system),
            latency(0),
            latency(1),
        ]
    });
    let time = |header: &str| Column::numbers_in(header, Unit::Nanoseconds);
    let columns = [
        Column::words("operation"),
        Column::numbers("units of work"),
        time("processor time per unit"),
        time("user"),
        time("kernel"),
        time("latency p50"),
        time("p99"),
    ];
    Table::of("Throughput and latency, untraced", columns, rows)
}

#[cfg(test)]
mod tests {
    use super::super::answer::tests::measured;
    use super::*;

    #[test]
    fn times_that_no_control_group_counted_are_marked_with_the_reason() {
        let counted = measured(Some(5_000.0), Some(15_000.0), 0.6);
        let marked = |operations: &[MeasuredOperation]| {
            dependence(operations).notes().join(" ").contains("No control group counted it: the reason.")
        };
        assert!(!marked(std::slice::from_ref(&counted)));
        let summed = MeasuredOperation { not_counted: Some("the reason".to_owned()), ..counted.clone() };
        assert!(marked(&[counted, summed]));
    }
}
