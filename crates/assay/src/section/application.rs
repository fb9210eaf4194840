//! The application as it was measured: is it bound to the operating system at all, and what does it reach?

use assay_quantity::{Estimate, Unit};
use assay_report::{Cell, Column, Table};

use crate::phase::application::MeasuredOperation;

/// User, kernel and idle share of each operation (thesis, Table 1): whether the operating system matters.
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
        Column::numbers("of it displaced"),
        Column::numbers("kernel, of busy time"),
    ];
    Table::of("Does it depend on the operating system?", columns, rows).with_note(
        "Shares of the time of the processors that the application may use, untraced; displaced: it could have \
         run, and something else had its processor. SPEC92 spends 0 to 9 % in \
         the kernel, web servers over 80 % (Brown 1997, Table 1).",
    )
}

fn unsplit() -> Cell {
    Cell::Missing("the rounds were too short for the kernel's clock ticks".to_owned())
}

/// What each operation reaches, untraced.
pub fn load(operations: &[MeasuredOperation]) -> Table {
    let rows = operations.iter().map(|operation| {
        let unclear = || Cell::Missing("no client saw single requests".to_owned());
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
        time("processor time of one"),
        time("user"),
        time("kernel"),
        time("latency p50"),
        time("p99"),
    ];
    Table::of("What it reaches, untraced", columns, rows)
}
