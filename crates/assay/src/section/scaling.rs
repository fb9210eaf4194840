//! Scaling of costs with concurrent copies (thesis, section 4.3).

use assay_quantity::{Estimate, Interval, Key, Machine, Method, PrimitiveId, Unit};
use assay_report::{Cell, Column, Table};

/// Returns the scaling of the primitives that were measured with several numbers of copies; `None` if there
/// are none.
pub fn table(machine: &Machine) -> Option<Table> {
    let rows: Vec<[Cell; 4]> = machine
        .costs
        .iter()
        .filter_map(|(id, cost)| {
            let copies = id.number(Key::Copies)?;
            let alone = machine.costs.get(&alone(id))?;
            Some([
                Cell::text(id.without(Key::Copies).to_string()),
                Cell::Count(copies),
                cost.typical.into(),
                speed_up(copies, &alone.typical, &cost.typical).into(),
            ])
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    let columns = [
        Column::words("primitive"),
        Column::numbers("copies"),
        Column::numbers("cost per copy"),
        Column::numbers("total speed-up"),
    ];
    let note = "The speed-up is the number of operations that all copies complete in the time of one operation of a single copy.";
    Some(Table::of("Concurrent copies", columns, rows).with_note(note))
}

/// Returns the id of a single copy, which has no placement.
fn alone(id: &PrimitiveId) -> PrimitiveId {
    id.without(Key::Copies).without(Key::Placement)
}

/// Returns the number of operations of all copies in the time of one operation of a single copy. The relative
/// half-widths of independent costs combine in quadrature.
fn speed_up(copies: u64, alone: &Estimate, beside: &Estimate) -> Estimate {
    #[expect(clippy::cast_precision_loss, reason = "copies are few")]
    let point = copies as f64 * alone.point / beside.point;
    let half = point * alone.relative_half_width().hypot(beside.relative_half_width());
    let confidence = alone.interval.confidence.min(beside.interval.confidence);
    let interval = Interval { low: point - half, high: point + half, confidence };
    let values = alone.values.min(beside.values);
    Estimate { point, interval, unit: Unit::Count, method: Method::Derived, values }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_copies_that_cost_half_as_much_again_do_a_third_more() {
        let machine = Machine::default();
        assert!(table(&machine).is_none());
        let cost = |point: f64| {
            let interval = Interval { low: point * 0.97, high: point * 1.03, confidence: 0.95 };
            Estimate { point, interval, unit: Unit::Nanoseconds, method: Method::TrimmedMean, values: 9 }
        };
        let two = speed_up(2, &cost(100.0), &cost(150.0));
        assert!((two.point - 4.0 / 3.0).abs() < 1e-12);
        assert!((two.relative_half_width() - 0.03 * 2f64.sqrt()).abs() < 1e-3);
    }
}
