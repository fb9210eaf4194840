//! A report as JSON, format `assay.report/1`: for programs that read what people see.
//!
//! The shape is stable for one number after the slash; readers must ignore unknown members. Numbers are in
//! the unit next to them and are never rounded; a number that is not finite is `null`.
//!
//! ```text
//! report   {"format": "assay.report/1", "title": text, "blocks": [block...]}
//! block    {"heading": text} | {"text": text} | {"table": table} | {"figure": figure}
//! table    {"title": text, "columns": [column...], "rows": [[cell...]...], "notes": [text...]}
//! column   {"header": text, "alignment": "left" | "right", "unit": unit | null}
//! cell     {"text": text} | {"quantity": quantity} | {"number": {"value": number, "unit": unit}}
//!          | {"count": number} | {"difference": number} | {"share": number} | {"missing": reason}
//! quantity {"point": number, "low": number, "high": number, "confidence": number, "unit": unit,
//!           "method": "trimmed_mean" | "median" | "minimum" | "printed" | "derived", "values": number}
//! figure   {"bars": {"title": text, "unit": unit, "bars": [bar...]}}
//!          | {"curve": {"title": text, "x": axis, "y": axis, "lines": [line...]}}
//!          | {"stack": {"title": text, "x": axis, "edges": [number...], "layers": [layer...]}}
//!          | {"course": {"title": text, "x": axis, "edges": [number...], "y": axis,
//!                        "height": "linear" | "logarithmic", "lines": [values...]}}
//!          | {"scatter": {"title": text, "x": axis, "y": axis, "points": [[number, number]...]}}
//! bar      {"label": text, "length": length, "parts": [{"label": text, "length": length}...]}
//! length   {"quantity": quantity} | {"number": {"value": number, "unit": unit}}
//! axis     {"label": text, "unit": unit}
//! line     {"name": text, "points": [{"x": number, "y": quantity}...]}
//! layer    {"name": text, "amounts": [number | null...]}
//! values   {"name": text, "values": [number | null...]}
//! unit     "ns" | "ns/B" | "1/s" | "ratio" | "count" | "B"
//! ```

use assay_quantity::{Estimate, Unit};
use serde_json::{Value, json};

use crate::figure::{Axis, Bars, Course, Curve, Figure, Height, Length, Line, Scatter, Stack};
use crate::table::{Cell, Table};
use crate::{Block, Report};

/// The name and number of the format.
pub const FORMAT: &str = "assay.report/1";

/// The whole report, indented, ended by a newline.
#[must_use]
pub fn report(report: &Report) -> String {
    let blocks: Vec<Value> = report.blocks.iter().map(block).collect();
    format!("{:#}\n", json!({ "format": FORMAT, "title": report.title, "blocks": blocks }))
}

fn block(block: &Block) -> Value {
    match block {
        Block::Heading(heading) => json!({ "heading": heading }),
        Block::Text(text) => json!({ "text": text }),
        Block::Table(table) => json!({ "table": self::table(table) }),
        Block::Figure(Figure::Bars(bars)) => json!({ "figure": { "bars": self::bars(bars) } }),
        Block::Figure(Figure::Curve(curve)) => json!({ "figure": { "curve": self::curve(curve) } }),
        Block::Figure(Figure::Stack(stack)) => json!({ "figure": { "stack": self::stack(stack) } }),
        Block::Figure(Figure::Course(course)) => json!({ "figure": { "course": self::course(course) } }),
        Block::Figure(Figure::Scatter(scatter)) => json!({ "figure": { "scatter": self::scatter(scatter) } }),
    }
}

fn table(table: &Table) -> Value {
    let columns: Vec<Value> = table
        .columns()
        .iter()
        .map(|column| {
            json!({
                "header": column.header,
                "alignment": column.alignment.name(),
                "unit": column.unit.map(Unit::symbol),
            })
        })
        .collect();
    let rows: Vec<Vec<Value>> = table.rows().iter().map(|row| row.iter().map(cell).collect()).collect();
    json!({ "title": table.title(), "columns": columns, "rows": rows, "notes": table.notes() })
}

fn cell(cell: &Cell) -> Value {
    match cell {
        Cell::Text(text) => json!({ "text": text }),
        Cell::Quantity(estimate) => json!({ "quantity": quantity(estimate) }),
        Cell::Number { value, unit } => json!({ "number": { "value": value, "unit": unit.symbol() } }),
        Cell::Count(count) => json!({ "count": count }),
        Cell::Difference(difference) => json!({ "difference": difference }),
        Cell::Share(share) => json!({ "share": share }),
        Cell::Missing(reason) => json!({ "missing": reason }),
    }
}

fn quantity(estimate: &Estimate) -> Value {
    json!({
        "point": estimate.point,
        "low": estimate.interval.low,
        "high": estimate.interval.high,
        "confidence": estimate.interval.confidence,
        "unit": estimate.unit.symbol(),
        "method": estimate.method.name(),
        "values": estimate.values,
    })
}

fn bars(bars: &Bars) -> Value {
    let length = |length: &Length| cell(&length.cell(bars.unit()));
    let rows: Vec<Value> = bars
        .bars()
        .iter()
        .map(|bar| {
            let parts: Vec<Value> = bar
                .parts
                .iter()
                .map(|part| json!({ "label": part.label, "length": length(&part.length) }))
                .collect();
            json!({ "label": bar.label, "length": length(&bar.length), "parts": parts })
        })
        .collect();
    json!({ "title": bars.title(), "unit": bars.unit().symbol(), "bars": rows })
}

fn curve(curve: &Curve) -> Value {
    let lines: Vec<Value> = curve.lines().iter().map(line).collect();
    json!({ "title": curve.title(), "x": axis(curve.x()), "y": axis(curve.y()), "lines": lines })
}

fn stack(stack: &Stack) -> Value {
    let columns = stack.columns();
    let layers: Vec<Value> =
        columns.series().iter().map(|layer| json!({ "name": layer.name, "amounts": layer.values })).collect();
    json!({ "title": columns.title(), "x": axis(columns.x()), "edges": columns.edges(), "layers": layers })
}

fn course(course: &Course) -> Value {
    let columns = course.columns();
    let lines: Vec<Value> =
        columns.series().iter().map(|line| json!({ "name": line.name, "values": line.values })).collect();
    json!({
        "title": columns.title(),
        "x": axis(columns.x()),
        "edges": columns.edges(),
        "y": axis(course.y()),
        "height": match course.height() {
            Height::Linear => "linear",
            Height::Logarithmic => "logarithmic",
        },
        "lines": lines,
    })
}

fn scatter(scatter: &Scatter) -> Value {
    json!({
        "title": scatter.title(),
        "x": axis(scatter.x()),
        "y": axis(scatter.y()),
        "points": scatter.points(),
    })
}

fn axis(axis: &Axis) -> Value {
    json!({ "label": axis.label, "unit": axis.unit.symbol() })
}

fn line(line: &Line) -> Value {
    let points: Vec<Value> =
        line.points.iter().map(|point| json!({ "x": point.x, "y": quantity(&point.y) })).collect();
    json!({ "name": line.name, "points": points })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use expect_test::expect_file;

    #[test]
    fn the_sample_report_as_json() {
        expect_file!["golden/report.json"].assert_eq(&report(&sample::report()));
    }

    #[test]
    fn numbers_are_not_rounded_and_hostile_text_reads_back_unchanged() {
        let read: Value = serde_json::from_str(&report(&sample::report())).unwrap();
        let text = read.to_string();
        assert!(text.contains("1248.7654321"), "{text}");
        let hostile = sample::hostile();
        let read: Value = serde_json::from_str(&report(&hostile)).unwrap();
        assert_eq!(read["title"], hostile.title.as_str());
        assert_eq!(read["blocks"][0]["heading"], hostile.title.as_str());
    }
}
