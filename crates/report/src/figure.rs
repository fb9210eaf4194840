//! Figures as values: bars with intervals, curves over a logarithmic axis, stacks, courses, and scatter
//! figures. A figure contains numbers and labels only. The layout of bars and ticks is computed here, so that
//! text and SVG show the same picture.

mod columns;
mod course;
mod scatter;
mod stack;

use assay_quantity::{Estimate, Unit};

use crate::table::{Cell, Column, Table};

pub use columns::{Columns, Series};
pub use course::{Course, Height};
pub(crate) use scatter::Age;
pub use scatter::Scatter;
pub use stack::Stack;

/// A picture with every number that it shows.
#[derive(Debug, Clone, PartialEq)]
pub enum Figure {
    /// Lengths side by side.
    Bars(Bars),
    /// A quantity over another.
    Curve(Curve),
    /// How a whole divides into parts, over another quantity.
    Stack(Stack),
    /// How quantities go, over another.
    Course(Course),
    /// A quantity over another at the same moments.
    Scatter(Scatter),
}

/// Horizontal bars, one under another. Invariant: at least one bar, every length finite and in `unit`.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    title: String,
    unit: Unit,
    bars: Vec<Bar>,
}

/// A bar, and the parts that add up to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// What it shows.
    pub label: String,
    /// Its length.
    pub length: Length,
    /// Its parts, each drawn where the one before ends; may be empty.
    pub parts: Vec<Part>,
}

/// One part of a bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// What it shows.
    pub label: String,
    /// Its length; negative for a part that is subtracted.
    pub length: Length,
}

/// The length of a bar, in the unit of its figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Length {
    /// With a whisker over the interval.
    Estimate(Estimate),
    /// Without an interval.
    Number(f64),
}

/// Lines through points with intervals. Invariant: at least one point, every x finite and above zero,
/// every y finite, above zero and in the unit of its axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    title: String,
    x: Axis,
    y: Axis,
    lines: Vec<Line>,
}

/// An axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// Its label, without the unit.
    pub label: String,
    /// The unit of its numbers.
    pub unit: Unit,
}

/// One line of a curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its points; they are drawn in the order of x.
    pub points: Vec<CurvePoint>,
}

/// One point of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurvePoint {
    /// Its place, in the unit of the x axis.
    pub x: f64,
    /// Its value, with its interval.
    pub y: Estimate,
}

/// Why numbers make no figure.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NoFigure {
    /// It is empty.
    #[error("figure '{0}' has nothing to draw; give it at least one value")]
    Empty(String),
    /// A value is not in the figure's unit.
    #[error("figure '{title}' is in {unit} and '{label}' is in {other}; convert it first")]
    Units {
        /// Title of the figure.
        title: String,
        /// Unit of the figure.
        unit: Unit,
        /// The value in question.
        label: String,
        /// Its unit.
        other: Unit,
    },
    /// A value that the axis cannot show.
    #[error("figure '{title}' cannot place {value} of '{label}' on its axis; show it as missing in a table")]
    Value {
        /// Title of the figure.
        title: String,
        /// The value in question.
        label: String,
        /// What it is.
        value: f64,
    },
}

impl Length {
    /// The length itself.
    #[must_use]
    pub fn point(&self) -> f64 {
        match self {
            Length::Estimate(estimate) => estimate.point,
            Length::Number(number) => *number,
        }
    }

    /// The same quantity as a cell.
    #[must_use]
    pub fn cell(&self, unit: Unit) -> Cell {
        match self {
            Length::Estimate(estimate) => Cell::Quantity(*estimate),
            Length::Number(value) => Cell::Number { value: *value, unit },
        }
    }
}

impl Bars {
    /// Bars in one unit.
    ///
    /// # Errors
    /// [`NoFigure`] if the bars violate the invariant.
    pub fn new(title: &str, unit: Unit, bars: Vec<Bar>) -> Result<Self, NoFigure> {
        if bars.is_empty() {
            return Err(NoFigure::Empty(title.to_owned()));
        }
        for bar in &bars {
            let parts = bar.parts.iter().map(|part| (&part.label, &part.length));
            for (label, length) in std::iter::once((&bar.label, &bar.length)).chain(parts) {
                check(title, unit, label, length)?;
            }
        }
        Ok(Self { title: title.to_owned(), unit, bars })
    }

    /// What it shows.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The unit of its lengths.
    #[must_use]
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Its bars, from top to bottom.
    #[must_use]
    pub fn bars(&self) -> &[Bar] {
        &self.bars
    }

    /// Bars and parts as rows of the picture, from top to bottom.
    pub(crate) fn rows(&self) -> Vec<BarRow<'_>> {
        let mut rows = Vec::new();
        for bar in &self.bars {
            rows.push(BarRow { label: &bar.label, depth: Depth::Bar, start: 0.0, length: bar.length });
            let mut start = 0.0;
            for part in &bar.parts {
                rows.push(BarRow { label: &part.label, depth: Depth::Part, start, length: part.length });
                start += part.length.point();
            }
        }
        rows
    }

    /// From the lowest to the highest place that a bar or a finite end of an interval reaches; zero is in it.
    pub(crate) fn domain(&self) -> (f64, f64) {
        let reached = self.rows().into_iter().flat_map(|row| {
            let (low, high) = row.interval().unwrap_or((0.0, 0.0));
            [row.start, row.start + row.length.point(), low, high]
        });
        let (low, high) = reached
            .filter(|place| place.is_finite())
            .fold((0.0f64, 0.0f64), |(low, high), place| (low.min(place), high.max(place)));
        if high > low { (low, high) } else { (low, low + 1.0) }
    }
}

/// A row of a bar figure.
pub(crate) struct BarRow<'a> {
    pub label: &'a str,
    pub depth: Depth,
    /// Where it begins, in the figure's unit.
    pub start: f64,
    pub length: Length,
}

/// Whether a row is a bar or a part of the bar above it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    Bar,
    Part,
}

impl BarRow<'_> {
    /// Places of the two ends of its interval, in the figure's unit.
    pub fn interval(&self) -> Option<(f64, f64)> {
        match self.length {
            Length::Estimate(e) => Some((self.start + e.interval.low, self.start + e.interval.high)),
            Length::Number(_) => None,
        }
    }
}

impl Curve {
    /// Lines over a logarithmic x axis.
    ///
    /// # Errors
    /// [`NoFigure`] if the points violate the invariant.
    pub fn new(title: &str, x: Axis, y: Axis, mut lines: Vec<Line>) -> Result<Self, NoFigure> {
        if lines.iter().all(|line| line.points.is_empty()) {
            return Err(NoFigure::Empty(title.to_owned()));
        }
        for line in &mut lines {
            for point in &line.points {
                check(title, y.unit, &line.name, &Length::Estimate(point.y))?;
                for value in [point.x, point.y.point] {
                    if !(value.is_finite() && value > 0.0) {
                        return Err(refused(title, &line.name, value));
                    }
                }
            }
            line.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        Ok(Self { title: title.to_owned(), x, y, lines })
    }

    /// What it shows.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The horizontal axis.
    #[must_use]
    pub fn x(&self) -> &Axis {
        &self.x
    }

    /// The vertical axis.
    #[must_use]
    pub fn y(&self) -> &Axis {
        &self.y
    }

    /// Its lines, each in the order of x.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Every number of the curve as a table, one column per line, for readers without the picture.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut places: Vec<f64> =
            self.lines.iter().flat_map(|line| &line.points).map(|point| point.x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup_by(|a, b| a.total_cmp(b).is_eq());
        let mut columns = vec![Column::numbers(&self.x.label)];
        columns.extend(self.lines.iter().map(|line| Column::numbers(&line.name)));
        let rows = places.iter().map(|x| self.row(*x)).collect();
        Table::new(&self.title, columns, rows).expect("a row has a cell for x and one per line")
    }

    fn row(&self, x: f64) -> Vec<Cell> {
        let mut row = vec![Cell::Number { value: x, unit: self.x.unit }];
        row.extend(self.lines.iter().map(|line| {
            let point = line.points.iter().find(|point| point.x.total_cmp(&x).is_eq());
            point.map_or_else(
                || Cell::Missing("this line has no point here".to_owned()),
                |point| Cell::Quantity(point.y),
            )
        }));
        row
    }
}

fn check(title: &str, unit: Unit, label: &str, length: &Length) -> Result<(), NoFigure> {
    if let Length::Estimate(estimate) = length
        && estimate.unit != unit
    {
        let (title, label) = (title.to_owned(), label.to_owned());
        return Err(NoFigure::Units { title, unit, label, other: estimate.unit });
    }
    if length.point().is_finite() { Ok(()) } else { Err(refused(title, label, length.point())) }
}

/// Why a value has no place in a figure.
fn refused(title: &str, label: &str, value: f64) -> NoFigure {
    NoFigure::Value { title: title.to_owned(), label: label.to_owned(), value }
}

#[expect(clippy::cast_precision_loss, reason = "a picture has far fewer than 2^52 columns")]
pub(crate) fn real(columns: usize) -> f64 {
    columns as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_quantity::{Interval, Method};

    fn ns(point: f64) -> Estimate {
        let interval = Interval { low: point - 1.0, high: point + 2.0, confidence: 0.95 };
        Estimate { point, interval, unit: Unit::Nanoseconds, method: Method::TrimmedMean, values: 9 }
    }

    fn bar(label: &str, length: Length) -> Bar {
        Bar { label: label.to_owned(), length, parts: Vec::new() }
    }

    fn axis(unit: Unit) -> Axis {
        Axis { label: "size".to_owned(), unit }
    }

    fn curve(points: &[(f64, Estimate)]) -> Result<Curve, NoFigure> {
        let points = points.iter().map(|(x, y)| CurvePoint { x: *x, y: *y }).collect();
        let lines = vec![Line { name: "read".to_owned(), points }];
        Curve::new("cost", axis(Unit::Bytes), axis(Unit::Nanoseconds), lines)
    }

    #[test]
    fn a_part_begins_where_the_one_before_ends() {
        let parts = [3.0, 4.0, -2.0]
            .map(|length| Part { label: "p".to_owned(), length: Length::Number(length) })
            .to_vec();
        let whole = Bar { parts, ..bar("sum", Length::Number(5.0)) };
        let bars = Bars::new("t", Unit::Count, vec![whole]).unwrap();
        let starts: Vec<f64> = bars.rows().iter().map(|row| row.start).collect();
        assert_eq!(starts, [0.0, 0.0, 3.0, 7.0]);
        assert_eq!(bars.domain(), (0.0, 7.0));
    }

    #[test]
    fn the_domain_holds_every_interval() {
        let bars = Bars::new("t", Unit::Nanoseconds, vec![bar("a", Length::Estimate(ns(0.5)))]).unwrap();
        assert_eq!(bars.domain(), (-0.5, 2.5));
    }

    #[test]
    fn values_that_have_no_place_on_the_axes_are_refused() {
        let refused = |bars| Bars::new("t", Unit::Nanoseconds, bars).unwrap_err().to_string();
        assert!(refused(Vec::new()).contains("nothing to draw"));
        assert!(refused(vec![bar("a", Length::Number(f64::NAN))]).contains("cannot place NaN of 'a'"));
        let bytes = Estimate { unit: Unit::Bytes, ..ns(1.0) };
        assert!(refused(vec![bar("a", Length::Estimate(bytes))]).contains("is in ns and 'a' is in B"));
        for points in [vec![], vec![(0.0, ns(1.0))], vec![(f64::INFINITY, ns(1.0))], vec![(1.0, ns(0.0))]] {
            assert!(curve(&points).is_err(), "{points:?}");
        }
    }

    #[test]
    fn the_points_of_a_curve_are_rows_in_the_order_of_x() {
        let table = curve(&[(8.0, ns(2.0)), (4.0, ns(1.0))]).unwrap().table();
        assert_eq!(table.rows()[0], [Cell::Number { value: 4.0, unit: Unit::Bytes }, ns(1.0).into()]);
        assert_eq!(table.rows().len(), 2);
    }
}
