//! What one operation of each primitive executes in a simulated machine.

pub mod difference;

use assay_quantity::{
    Cost, Estimate, Executed, Interval, Machine, Matrix, Method, PrimitiveId, Unit, Unmeasured,
};
use assay_report::{Block, Cell, Column, Report, Table};

/// Returns the report on a matrix, beside the costs of a machine if one is given.
pub fn report(matrix: &Matrix, machine: Option<&Machine>) -> Report {
    let mut columns = vec![
        Column::words("primitive"),
        Column::numbers("user"),
        Column::numbers("kernel"),
        Column::numbers("page faults"),
    ];
    if let Some(machine) = machine {
        columns.extend([Column::numbers(&format!("cost on {}", machine.name)), Column::numbers(PER_NS)]);
    }
    let row = |(primitive, executed): (&PrimitiveId, &Executed)| {
        let counts =
            [instructions(executed.user), instructions(executed.kernel), quantity(executed.page_faults)];
        let costs = machine.into_iter().flat_map(|machine| costs(primitive, executed, machine));
        [Cell::text(primitive.to_string())].into_iter().chain(counts).chain(costs).collect()
    };
    let rows = matrix.rows.iter().map(row).collect();
    // Each row is made from the same parts as the columns.
    let table = Table::new("Instructions and page faults of one operation", columns, rows).ok();
    let table = table.map(|table| notes(matrix, machine).into_iter().fold(table, Table::with_note));
    let blocks = table.into_iter().chain(uncounted(&matrix.uncounted, "Not counted"));
    let title = format!("Primitives on Linux {}", matrix.kernel);
    Report { title, blocks: blocks.map(Block::Table).collect() }
}

const PER_NS: &str = "instructions per ns";

/// What the reader of the table must know.
fn notes(matrix: &Matrix, machine: Option<&Machine>) -> Vec<String> {
    let is_negative = |executed: &Executed| executed.user.point < 0.0 || executed.kernel.point < 0.0;
    let subtracted = matrix.rows.values().any(is_negative).then(|| {
        "Work that is not part of a primitive is subtracted; it can execute more in one mode.".to_owned()
    });
    let kernel =
        |machine: &Machine| machine.description.fact("kernel").unwrap_or("an unknown kernel").to_owned();
    let is_other = |kernel: &String| !kernel.split_ascii_whitespace().any(|word| word == matrix.kernel);
    let other = machine.map(kernel).filter(is_other).map(|kernel| {
        format!("The instructions are those of Linux {}, the costs those of {kernel}.", matrix.kernel)
    });
    subtracted.into_iter().chain(other).collect()
}

/// Instructions, rounded and without their interval if that contains no other whole number.
#[expect(clippy::cast_possible_truncation, reason = "a matrix has no counts above 1e15")]
fn instructions(estimate: Estimate) -> Cell {
    let whole = estimate.point.round();
    let Interval { low, high, .. } = estimate.interval;
    if low <= whole - 1.0 || high >= whole + 1.0 {
        return estimate.into();
    }
    let whole = whole as i64;
    u64::try_from(whole).map_or(Cell::Difference(whole), Cell::Count)
}

/// A quantity, without its interval if that has no width.
fn quantity(estimate: Estimate) -> Cell {
    match estimate.interval.half_width() {
        0.0 => Cell::Number { value: estimate.point, unit: estimate.unit },
        _ => estimate.into(),
    }
}

/// The cost of one operation on a machine, and how many instructions it executes in a nanosecond of it.
fn costs(primitive: &PrimitiveId, executed: &Executed, machine: &Machine) -> [Cell; 2] {
    let unknown = || {
        let known = machine.unmeasured.iter().find(|missing| missing.primitive == *primitive);
        known.map_or_else(|| format!("it was not measured on {}", machine.name), |known| known.reason.clone())
    };
    let cost = machine.costs.get(primitive).ok_or_else(unknown);
    match cost.and_then(|cost| of_operation(primitive, cost)) {
        Ok(cost) => {
            let per_ns = quotient(&executed.instructions(), &cost, Unit::Count);
            let reason = || Cell::Missing("its cost is not certainly above 0".to_owned());
            [cost.into(), per_ns.map_or_else(reason, Cell::from)]
        }
        Err(reason) => [Cell::Missing(reason), Cell::text("")],
    }
}

/// The time of one operation.
fn of_operation(primitive: &PrimitiveId, cost: &Cost) -> Result<Estimate, String> {
    match cost.typical.unit {
        Unit::NanosecondsPerByte => {
            let bytes = assay_bench::find(primitive).and_then(|benchmark| benchmark.bytes);
            let bytes = bytes.ok_or("the size of one operation is unknown")?;
            #[expect(clippy::cast_precision_loss, reason = "an operation moves far fewer than 2^52 bytes")]
            Ok(cost.typical.scaled(bytes as f64, Unit::Nanoseconds))
        }
        _ => Ok(cost.typical),
    }
}

/// A quantity that is not below 0 over another one; `None` unless that is certainly above 0.
fn quotient(above: &Estimate, below: &Estimate, unit: Unit) -> Option<Estimate> {
    let (a, b) = (above.interval, below.interval);
    (b.low > 0.0).then(|| Estimate {
        point: above.point / below.point,
        interval: Interval {
            low: a.low.max(0.0) / b.high,
            high: a.high / b.low,
            confidence: a.confidence.min(b.confidence),
        },
        unit,
        method: Method::Derived,
        values: above.values.min(below.values),
    })
}

fn uncounted(missing: &[Unmeasured], title: &str) -> Option<Table> {
    let rows = missing
        .iter()
        .map(|Unmeasured { primitive, reason }| [Cell::text(primitive.to_string()), Cell::text(reason)]);
    (!missing.is_empty()).then(|| Table::of(title, ["primitive", "reason"].map(Column::words), rows))
}

#[cfg(test)]
mod tests;
