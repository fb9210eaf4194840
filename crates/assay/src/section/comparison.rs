//! Two machines compared, as tables.

use std::collections::BTreeMap;

use assay_quantity::{Machine, Unit};
use assay_report::{Cell, Column, Table};

use crate::phase::comparison::{Compared, SideBySide};

/// Every primitive that both have, with the ratio of its costs and what it means.
pub fn table(compared: &[Compared]) -> Table {
    let rows = compared.iter().map(|one| {
        let missing = || Cell::Missing("there is no ratio".to_owned());
        let ratio = one.comparison.ratio;
        let effect = ratio.and_then(|ratio| ratio.effect);
        [
            Cell::text(one.primitive.to_string()),
            one.costs.a.estimate.into(),
            one.costs.b.estimate.into(),
            ratio.map_or_else(missing, |ratio| ratio.estimate.into()),
            effect.map_or_else(
                || Cell::Missing("the processes behind it are not at hand".to_owned()),
                |value| Cell::Number { value, unit: Unit::Count },
            ),
            Cell::text(one.comparison.relation.to_string()),
        ]
    });
    let columns = [
        Column::words("primitive"),
        Column::numbers("A"),
        Column::numbers("B"),
        Column::numbers("B/A"),
        Column::numbers("effect"),
        Column::words("B is"),
    ];
    Table::of("Primitive by primitive", columns, rows)
        .with_note("Faster and slower are corrected for the number of primitives (Holm): of two equal machines, no primitive at all is called different in 95 % of comparisons.")
        .with_note("The effect is Cliff's delta: 1 if every process of B took longer than every one of A, 0 if neither tends to.")
}

/// How many primitives stand in which relation, and how many have no counterpart.
pub fn verdicts(compared: &SideBySide, before: &Machine, after: &Machine) -> Table {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for one in &compared.shared {
        *counts.entry(one.comparison.relation.to_string()).or_default() += 1;
    }
    for (side, machine, only) in [("A", before, &compared.only.a), ("B", after, &compared.only.b)] {
        counts.insert(format!("measured on {side} only ({})", machine.name), only.len() as u64);
    }
    let rows = counts.into_iter().map(|(relation, count)| [Cell::text(relation), Cell::Count(count)]);
    Table::of("All together", [Column::words("B is"), Column::numbers("primitives")], rows)
}
