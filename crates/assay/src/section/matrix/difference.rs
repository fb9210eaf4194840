//! Two matrices compared: the instructions of each primitive side by side.

use std::cmp::Ordering::Equal;

use assay_quantity::{Estimate, Executed, Matrix, Pair, PrimitiveId, Unit, Unmeasured};
use assay_report::{Block, Cell, Column, Report, Table};

use super::{instructions, quantity, quotient, uncounted};
use crate::section::simulation::memory;

/// Returns the report on two matrices, from files of these names.
pub fn report(matrices: &Pair<Matrix>, names: &Pair<String>) -> Report {
    let both = matrices.a.rows.iter().filter_map(|(primitive, a)| {
        let b = matrices.b.rows.get(primitive)?;
        Some(Compared { primitive, of: Pair { a, b } })
    });
    let mut both: Vec<_> = both.collect();
    both.sort_by(|x, y| (x.is_same(), y.change()).partial_cmp(&(y.is_same(), x.change())).unwrap_or(Equal));
    let same = both.iter().filter(|row| row.is_same()).count();
    let columns = ["A", "B", "B/A", "page faults A", "page faults B"].map(Column::numbers);
    let [a, b, ratio, faults_a, faults_b] = columns;
    let columns = [Column::words("primitive"), a, b, ratio, faults_a, faults_b];
    let table = Table::of("Instructions of one operation", columns, both.iter().map(Compared::cells))
        .with_last_folded(
            same,
            "Primitives whose instructions differ by less than 1 %, or have overlapping intervals",
        );
    let only = [(&matrices.a, &matrices.b, "A"), (&matrices.b, &matrices.a, "B")].map(|(of, other, name)| {
        let missing = of.rows.keys().filter(|primitive| !other.rows.contains_key(*primitive));
        let missing: Vec<Unmeasured> = missing.map(|primitive| reason(primitive, other)).collect();
        uncounted(&missing, &format!("Only in {name}"))
    });
    let tables = [setups(matrices, names), table].into_iter().chain(only.into_iter().flatten());
    Report { title: "B compared with A".to_owned(), blocks: tables.map(Block::Table).collect() }
}

fn setups(matrices: &Pair<Matrix>, names: &Pair<String>) -> Table {
    let row = |name: &str, of: fn(&Matrix) -> Cell| [Cell::text(name), of(&matrices.a), of(&matrices.b)];
    let rows = [
        ["matrix", &names.a, &names.b].map(Cell::text),
        row("source", |matrix| Cell::text(&*matrix.source)),
        row("kernel", |matrix| Cell::text(&*matrix.kernel)),
        row("memory", |matrix| memory(matrix.memory_mib)),
    ];
    Table::of("What is compared", ["", "A", "B"].map(Column::words), rows)
}

/// A primitive of two matrices.
struct Compared<'a> {
    primitive: &'a PrimitiveId,
    of: Pair<&'a Executed>,
}

/// Change of the instructions below which two primitives count as the same.
const SAME: f64 = 0.01;

impl Compared<'_> {
    fn instructions(&self) -> [Estimate; 2] {
        [self.of.a, self.of.b].map(Executed::instructions)
    }

    /// By how much the larger number of instructions is above the smaller one, as a logarithm.
    fn change(&self) -> f64 {
        let [a, b] = self.instructions().map(|instructions| instructions.point);
        let change = (b / a).ln().abs();
        // Neither has an instruction.
        if change.is_nan() { 0.0 } else { change }
    }

    /// Whether the instructions differ little, or by chance.
    fn is_same(&self) -> bool {
        let [a, b] = self.instructions().map(|instructions| instructions.interval);
        self.change() < SAME || (a.low <= b.high && b.low <= a.high)
    }

    fn cells(&self) -> [Cell; 6] {
        let [a, b] = self.instructions();
        let ratio = quotient(&b, &a, Unit::Ratio);
        let reason = || Cell::Missing("the interval of A contains 0".to_owned());
        [
            Cell::text(self.primitive.to_string()),
            instructions(a),
            instructions(b),
            ratio.map_or_else(reason, quantity),
            quantity(self.of.a.page_faults),
            quantity(self.of.b.page_faults),
        ]
    }
}

/// Why a matrix has no row for a primitive.
fn reason(primitive: &PrimitiveId, matrix: &Matrix) -> Unmeasured {
    let known = matrix.uncounted.iter().find(|missing| missing.primitive == *primitive);
    let unknown = || Unmeasured { primitive: primitive.clone(), reason: "it was not selected".to_owned() };
    known.cloned().unwrap_or_else(unknown)
}
