//! What was counted of a process, a control group or the machine, and the region that it is in.

use assay_quantity::Unit;
use assay_reflect::facility::{Facility, Measure, Side};
use assay_reflect::observation::Observation;
use assay_reflect::region::{Point, WINDOW};
use assay_report::figure::NoFigure;
use assay_report::{Axis, Block, Cell, Column, Course, Figure, Height, Report, Scatter, Series, Table};

use super::number;

/// Points of the scatter figure: a minute of one each second.
const SCATTERED: usize = 60;

/// Returns the report on an observation so far.
pub fn report(name: &str, facility: &Facility, observation: &Observation) -> Result<Report, NoFigure> {
    let (productivity, overhead) = observation.axes();
    let measures = facility.measures();
    let mut blocks = vec![Block::Text(region(observation)), Block::Table(counts(measures, observation))];
    if !observation.points().is_empty() {
        let figures = Plots::new(observation, measures[productivity], measures[overhead]).figures()?;
        blocks.extend(figures.into_iter().map(Block::Figure));
    }
    let unavailable = facility.unavailable().iter();
    let rows = unavailable.map(|one| [Cell::text(one.measure.name), Cell::text(&one.reason)]);
    let columns = ["measure", "reason"].map(Column::words);
    blocks.push(Block::Table(Table::of("Not available", columns, rows)));
    blocks.extend(cost(facility, observation));
    Ok(Report { title: format!("Productivity and overhead of {name}"), blocks })
}

fn region(observation: &Observation) -> String {
    match observation.region() {
        Some(region) => format!("Now: {}: {}.", region.name(), region.about()),
        None => format!("Now: not known before {} readings.", 2 * WINDOW),
    }
}

/// What the observation itself costs.
fn cost(facility: &Facility, observation: &Observation) -> Option<Block> {
    let own = facility.own_time().ok()?.as_secs_f64() / observation.length().as_secs_f64();
    let share = assay_report::scale::number(own, Unit::Ratio);
    own.is_finite().then(|| Block::Text(format!("To watch took {share} of a processor.")))
}

fn counts(measures: &[&Measure], observation: &Observation) -> Table {
    let length_s = observation.length().as_secs_f64();
    let productivity = observation.axes().0;
    let (unit, unit_name) = unit(measures[productivity]);
    let done = real(observation.totals()[productivity]) / unit;
    let row = |(measure, total): (&&Measure, &u64)| {
        let total = real(*total);
        let per_second = match measure.unit {
            // Seconds in each second.
            Unit::Nanoseconds => number(total / 1e9 / length_s, Unit::Ratio),
            Unit::Bytes => number(total / length_s, Unit::BytesPerSecond),
            _ => number(total / length_s, Unit::PerSecond),
        };
        let per_unit = match measure.side {
            Side::Productivity => Cell::text(""),
            Side::Overhead if done > 0.0 => number(total / done, measure.unit),
            Side::Overhead => Cell::Missing("nothing was done".to_owned()),
        };
        [Cell::text(measure.name), number(total, measure.unit), per_second, per_unit]
    };
    let columns = [
        Column::words("measure"),
        Column::numbers("total"),
        Column::numbers("per second"),
        Column::numbers(&format!("per {unit_name}")),
    ];
    let rows = measures.iter().zip(observation.totals()).map(row);
    let length = number_text(length_s * 1e9, Unit::Nanoseconds);
    Table::of(&format!("Counted in {length}, in {} readings", observation.periods()), columns, rows)
}

/// The amount of a measure of productivity to which overheads are related, in its unit, and its name.
fn unit(measure: &Measure) -> (f64, String) {
    match measure.unit {
        Unit::Nanoseconds => (1e9, format!("s of {}", measure.name)),
        Unit::Bytes => (1_048_576.0, format!("MiB of {}", measure.name)),
        _ => (1.0, format!("unit of {}", measure.name)),
    }
}

/// The plots of the two measures of the course.
struct Plots<'a> {
    points: &'a [Point],
    productivity: Axis,
    overhead: Axis,
    /// Highest overhead of a unit.
    highest: f64,
    /// Factors to the units of the axes.
    factors: (f64, f64),
}

impl<'a> Plots<'a> {
    fn new(observation: &'a Observation, productivity: &Measure, overhead: &Measure) -> Self {
        let (unit, unit_name) = unit(productivity);
        let (rate, per_s) = match productivity.unit {
            Unit::Nanoseconds => (Unit::Ratio, 1e-9),
            Unit::Bytes => (Unit::BytesPerSecond, 1.0),
            _ => (Unit::PerSecond, 1.0),
        };
        Self {
            points: observation.points(),
            productivity: Axis { label: productivity.name.to_owned(), unit: rate },
            overhead: Axis { label: format!("{} per {unit_name}", overhead.name), unit: overhead.unit },
            highest: observation.points().iter().filter_map(Point::overhead_per_unit).fold(0.0, f64::max),
            factors: (per_s, unit),
        }
    }

    fn figures(&self) -> Result<[Figure; 3], NoFigure> {
        let productivity = self.course("Productivity", &self.productivity, |point| self.at(point).1)?;
        let overhead = self.course("Overhead", &self.overhead, |point| self.at(point).0)?;
        let last = &self.points[self.points.len().saturating_sub(SCATTERED * WINDOW)..];
        let seconds = last.chunks(WINDOW).map(|points| self.at(&sum(points))).collect();
        let (x, y) = (self.overhead.clone(), self.productivity.clone());
        let scatter = Scatter::new("Productivity over overhead", x, y, seconds)?;
        Ok([productivity, overhead, Figure::Scatter(scatter)])
    }

    fn course(&self, title: &str, y: &Axis, value: impl Fn(&Point) -> f64) -> Result<Figure, NoFigure> {
        let ends = self.points.iter().scan(0.0, |end, point| {
            *end += point.length.as_secs_f64() * 1e9;
            Some(*end)
        });
        let edges = std::iter::once(0.0).chain(ends).collect();
        let x = Axis { label: "time".to_owned(), unit: Unit::Nanoseconds };
        let line = Series { name: String::new(), values: self.points.iter().map(value).collect() };
        Course::new(title, x, edges, y.clone(), Height::Linear, vec![line]).map(Figure::Course)
    }

    /// Overhead and productivity of a point. Where nothing was done, the overhead is the highest of all.
    fn at(&self, point: &Point) -> (f64, f64) {
        let of_unit = point.overhead_per_unit().unwrap_or(self.highest);
        (of_unit * self.factors.1, point.productivity_per_s() * self.factors.0)
    }
}

fn sum(points: &[Point]) -> Point {
    points.iter().fold(Point::default(), |sum, point| Point {
        length: sum.length + point.length,
        productivity: sum.productivity + point.productivity,
        overhead: sum.overhead + point.overhead,
    })
}

fn number_text(value: f64, unit: Unit) -> String {
    assay_report::scale::number(value, unit).to_string()
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn real(count: u64) -> f64 {
    count as f64
}
