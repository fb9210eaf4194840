//! Instructions, loads and stores of user-mode operations, counted by valgrind.

use assay_bench::{Counts, NotCounted};
use assay_quantity::{PrimitiveId, Unit};
use assay_report::{Cell, Column, Table};

/// Returns the instructions, loads and stores of one operation of each primitive.
pub fn table(counted: &[(PrimitiveId, Result<Counts, NotCounted>)]) -> Table {
    let rows = counted.iter().map(|(id, counts)| {
        let figures = match counts {
            Ok(counts) => [counts.instructions, counts.loads, counts.stores]
                .map(|value| Cell::Number { value, unit: Unit::Count }),
            Err(reason) => [(); 3].map(|()| Cell::Missing(reason.to_string())),
        };
        let [instructions, loads, stores] = figures;
        [Cell::text(id.to_string()), instructions, loads, stores]
    });
    let columns = [
        Column::words("primitive"),
        Column::numbers("instructions"),
        Column::numbers("loads"),
        Column::numbers("stores"),
    ];
    Table::of("Executed by one operation", columns, rows)
        .with_note("Counted by valgrind: the figures do not depend on the machine's load, clock or caches.")
}
