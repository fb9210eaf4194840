//! The memory hierarchy that follows from the sweeps: caches, lines and translation, compared with the
//! reported caches.

use assay_bench::sweep::EFFECTIVE_CACHES;
use assay_quantity::{Estimate, Key, Machine, PrimitiveId, Size, Unit};
use assay_report::figure::{Axis, CurvePoint, Line, NoFigure};
use assay_report::{Block, Cell, Column, Curve, Figure, Table};
use assay_statistics::knee::{Level, levels, line_size, translation_levels};

/// Returns the hierarchy that follows from the measured sweeps; empty if there are none.
pub fn blocks(machine: &Machine) -> Result<Vec<Block>, NoFigure> {
    let loads = sweep(machine, "memory.load", Key::Set);
    let found = levels(&loads);
    // The steps of a curve over only a part of the sizes are not levels of the machine.
    if found.len() < 2 {
        return Ok(Vec::new());
    }
    let mut rows: Vec<[Cell; 4]> =
        found.iter().zip(1..).map(|(level, number)| row(&format!("cache level {number}"), level)).collect();
    if let Some(last) = rows.last_mut() {
        last[0] = Cell::text("memory");
    }
    let translation = translation_levels(&sweep(machine, "memory.translate", Key::Set));
    if translation.len() > 1 {
        rows.extend(
            translation.iter().zip(1..).map(|(level, n)| row(&format!("translation level {n}"), level)),
        );
    }
    let columns = [
        Column::words("level"),
        Column::numbers("capacity"),
        Column::numbers("one access"),
        Column::words("evidence"),
    ];
    let mut table = Table::of("Memory hierarchy found by the sweeps", columns, rows);
    if let Some(line) = line_size(&sweep(machine, "memory.load_near", Key::Stride)) {
        table = table.with_note(format!(
            "A cache line has {line}: a load at this distance from another load is a miss."
        ));
    }
    if let Some(caches) = machine.description.fact("caches") {
        table = table.with_note(format!("Caches reported by the machine: {caches}."));
    }
    if let Some(effective) = machine.description.fact(EFFECTIVE_CACHES) {
        table = table.with_note(format!("Effective caches at the beginning of the run: {effective}."));
    }
    Ok(vec![Block::Table(table), Block::Figure(Figure::Curve(picture(machine, &loads)?))])
}

fn row(name: &str, level: &Level) -> [Cell; 4] {
    let capacity = level.capacity.map_or_else(
        || Cell::Missing("the end of the level was not found".to_owned()),
        |size| Cell::text(size.to_string()),
    );
    let how = if name.starts_with("translation") {
        "a plateau of the extra cost of one load per page, compared with as many loads in one place"
    } else {
        "a plateau of loads in random order"
    };
    [Cell::text(name), capacity, level.latency.into(), Cell::text(how)]
}

/// Returns the costs of a primitive over one key, of the ids that have no other key.
fn sweep(machine: &Machine, name: &str, over: Key) -> Vec<(Size, Estimate)> {
    let is_swept = |id: &PrimitiveId| {
        let beside = if over == Key::Set { 1 } else { 2 };
        format!("{}.{}", id.family(), id.operation()) == name
            && id.keys().len() == beside
            && id.keys().keys().all(|key| [Key::Set, over].contains(key))
    };
    let swept = machine.costs.iter().filter(|(id, _)| is_swept(id));
    swept.filter_map(|(id, cost)| Some((Size(id.number(over)?), cost.typical))).collect()
}

/// Returns the curve of the latency over the working set, without translation.
fn picture(machine: &Machine, loads: &[(Size, Estimate)]) -> Result<Curve, NoFigure> {
    let line = |name: &str, curve: &[(Size, Estimate)]| Line {
        name: name.to_owned(),
        points: curve
            .iter()
            .filter(|(_, cost)| cost.point > 0.0)
            .map(|(size, cost)| CurvePoint { x: real(*size), y: *cost })
            .collect(),
    };
    let mut lines = vec![line("load in random order", loads)];
    let fetches = sweep(machine, "code.fetch", Key::Set);
    if !fetches.is_empty() {
        lines.push(line("jump to another line of code", &fetches));
    }
    let x = Axis { label: "working set".to_owned(), unit: Unit::Bytes };
    let y = Axis { label: "one access".to_owned(), unit: Unit::Nanoseconds };
    Curve::new("Latency by working set", x, y, lines)
}

#[expect(clippy::cast_precision_loss, reason = "working sets are far below 2^52 bytes")]
fn real(size: Size) -> f64 {
    size.bytes() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_quantity::{Cost, Interval, Method};

    fn machine(costs: &[(&str, f64)]) -> Machine {
        let mut machine = Machine::default();
        for (id, point) in costs {
            let interval = Interval { low: point * 0.98, high: point * 1.02, confidence: 0.95 };
            let estimate = Estimate {
                point: *point,
                interval,
                unit: Unit::Nanoseconds,
                method: Method::TrimmedMean,
                values: 9,
            };
            machine.costs.insert(id.parse().unwrap(), Cost::from(estimate));
        }
        machine
    }

    #[test]
    fn caches_are_derived_only_from_a_complete_sweep() {
        let sizes = ["8KiB", "16KiB", "32KiB", "64KiB", "128KiB", "256KiB", "512KiB", "1MiB"];
        let costs = [1.7, 1.7, 1.71, 6.1, 6.2, 6.2, 40.0, 41.0];
        let ids: Vec<String> = sizes.iter().map(|size| format!("memory.load{{set={size}}}")).collect();
        let mut all: Vec<(&str, f64)> = ids.iter().map(String::as_str).zip(costs).collect();
        all.push(("memory.load{set=64KiB,pages=huge}", 99.0));
        let blocks = blocks(&machine(&all)).unwrap();
        let Block::Table(table) = &blocks[0] else { panic!("{blocks:?}") };
        let capacities: Vec<String> = table.cells(1).map(|cell| format!("{cell:?}")).collect();
        assert!(capacities[0].contains("32KiB") && capacities[1].contains("256KiB"), "{capacities:?}");
        assert!(super::blocks(&machine(&all[..3])).unwrap().is_empty());
    }
}
