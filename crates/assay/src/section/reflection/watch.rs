//! What was counted of a process, a control group or the machine, and the region that it is in.

use std::time::Duration;

use assay_quantity::Unit;
use assay_reflect::advice::{Advice, Bound, Queue};
use assay_reflect::facility::{Facility, Measure, Side};
use assay_reflect::observation::{Counted, Observation};
use assay_reflect::region::{Point, WINDOW};
use assay_report::figure::NoFigure;
use assay_report::{
    Axis, Block, Cell, Column, Course, Figure, Height, Report, Scatter, Series, Table, scale,
};

use super::{number, time};
use crate::section::real;

/// Columns of the plots: more than most terminals have.
const COLUMNS: u32 = 120;

/// Returns the report on an observation so far.
pub fn report(name: &str, facility: &Facility, observation: &Observation) -> Result<Report, NoFigure> {
    let measures = facility.measures();
    let productivity = &measures[observation.axes().0];
    let unit = unit(productivity);
    let mut blocks = Vec::new();
    if observation.periods() == 0 {
        blocks.push(Block::Text("It ended before the first reading.".to_owned()));
    } else {
        blocks.push(Block::Text(region(observation)));
        blocks.extend(sentences(facility.advice()).into_iter().map(Block::Text));
        blocks.push(Block::Table(counts(measures, &unit, observation)));
        blocks.extend(Plots::new(observation, measures, &unit).figures()?.into_iter().map(Block::Figure));
    }
    let unavailable = facility.unavailable().iter();
    let rows = unavailable.map(|one| [Cell::text(&*one.measure.name), Cell::text(&one.reason)]);
    let columns = ["measure", "reason"].map(Column::words);
    blocks.push(Block::Table(Table::of("Not available", columns, rows)));
    if let Ok(own) = facility.own_time() {
        let share = own.as_secs_f64() / facility.elapsed().as_secs_f64();
        let share = scale::number(share, Unit::Ratio);
        blocks.push(Block::Text(format!("Watching took {share} of a processor.")));
    }
    Ok(Report { title: format!("Productivity and overhead of {name}"), blocks })
}

fn region(observation: &Observation) -> String {
    match observation.region() {
        Some(region) => format!("Now: {}: {}.", region.name(), region.about()),
        None => format!("Now: not known before {} readings of both measures.", 2 * WINDOW),
    }
}

/// What the application says of its units: a sentence for each advice, which several of its processes may
/// give.
fn sentences(advice: &[Option<Advice>]) -> Vec<String> {
    let mut sentences: Vec<String> = advice.iter().flatten().map(sentence).collect();
    sentences.sort_unstable();
    sentences.dedup();
    sentences
}

fn sentence(Advice { unit, class, bound, queue }: &Advice) -> String {
    let bound = match bound {
        Bound::Unknown => "",
        Bound::Bandwidth => ", bound by the bandwidth of the memory",
    };
    let queue = match queue {
        Queue::Allowed => "",
        Queue::Never => ", may not be queued",
    };
    let unit = if unit.is_empty() { "without a name" } else { unit };
    format!("A unit of progress, by the advice of the application: {unit}, {}{bound}{queue}.", class.name())
}

fn counts(measures: &[Measure], (unit, unit_name): &(f64, String), observation: &Observation) -> Table {
    let row = |(measure, counted): (&Measure, &Counted)| {
        let name = Cell::text(&*measure.name);
        let Some(total) = counted.total else {
            let missing = || Cell::Missing("not read yet".to_owned());
            return [name, missing(), missing(), missing()];
        };
        let (total, length_s, done) = (real(total), counted.length.as_secs_f64(), real(counted.done) / unit);
        let per_unit = match measure.side {
            Side::Productivity => Cell::text(""),
            Side::Overhead if done > 0.0 => number(total / done, measure.unit),
            Side::Overhead => Cell::Missing("nothing was done".to_owned()),
        };
        let (rate, factor) = rate(measure);
        [name, number(total, measure.unit), number(total * factor / length_s, rate), per_unit]
    };
    let columns = [
        Column::words("measure"),
        Column::numbers("total"),
        Column::numbers("per second"),
        Column::numbers(&format!("per {unit_name}")),
    ];
    let length = time(observation.length());
    let title = format!("Counted in {length}, in {} readings", observation.periods());
    let table = Table::of(&title, columns, measures.iter().zip(observation.counted()).map(row));
    match observation.fallen() {
        0 => table,
        fallen => table.with_note(format!(
            "{fallen} totals fell, as those of a counter that begins anew; what was counted since the reading \
             before is not known."
        )),
    }
}

/// The amount of a measure of productivity to which overheads are related, in its unit, and its name.
fn unit(measure: &Measure) -> (f64, String) {
    match (measure.unit, &measure.each) {
        (Unit::Nanoseconds, _) => (1e9, format!("s of {}", measure.name)),
        (Unit::Bytes, _) => (1_048_576.0, format!("MiB of {}", measure.name)),
        (_, Some(each)) => (1.0, each.to_string()),
        (_, None) => (1.0, format!("unit of {}", measure.name)),
    }
}

/// The unit of a measure per second, and the factor to it: of time, it is a number of processors.
fn rate(measure: &Measure) -> (Unit, f64) {
    match measure.unit {
        Unit::Nanoseconds => (Unit::Ratio, 1e-9),
        Unit::Bytes => (Unit::BytesPerSecond, 1.0),
        _ => (Unit::PerSecond, 1.0),
    }
}

/// The plots of the two measures of the course.
struct Plots {
    time: Axis,
    productivity: Axis,
    overhead: Axis,
    /// Where the columns begin, and where the last one ends, ns.
    edges: Vec<f64>,
    /// The productivity per second and the overhead of a unit in each column.
    values: Vec<(f64, Option<f64>)>,
}

impl Plots {
    fn new(observation: &Observation, measures: &[Measure], (unit, unit_name): &(f64, String)) -> Self {
        let (productivity, overhead) = observation.axes();
        let (productivity, overhead) = (&measures[productivity], &measures[overhead]);
        let (rate, factor) = rate(productivity);
        let columns = columns(observation.points());
        let ends = columns.iter().scan(0.0, |end_ns, column| {
            *end_ns += column.length.as_secs_f64() * 1e9;
            Some(*end_ns)
        });
        let edges = std::iter::once(0.0).chain(ends).collect();
        let value = |column: &Point| {
            (column.productivity_per_s() * factor, column.overhead_per_unit().map(|overhead| overhead * unit))
        };
        let label = match observation.course_begin() {
            Duration::ZERO => "time".to_owned(),
            // A long observation keeps only its last points.
            begin => format!("time after {}", time(begin)),
        };
        Self {
            time: Axis { label, unit: Unit::Nanoseconds },
            productivity: Axis { label: productivity.name.to_string(), unit: rate },
            overhead: Axis { label: format!("{} per {unit_name}", overhead.name), unit: overhead.unit },
            edges,
            values: columns.iter().map(value).collect(),
        }
    }

    /// The course of both, and one over the other. Where nothing was done there is no overhead of a unit.
    fn figures(self) -> Result<Vec<Figure>, NoFigure> {
        if self.values.is_empty() {
            return Ok(Vec::new());
        }
        let course = |title: &str, y: &Axis, values: Vec<Option<f64>>| {
            let line = Series { name: y.label.clone(), values };
            Course::new(title, self.time.clone(), self.edges.clone(), y.clone(), Height::Linear, vec![line])
        };
        let rates = self.values.iter().map(|(rate, _)| Some(*rate)).collect();
        let costs = self.values.iter().map(|(_, cost)| *cost).collect();
        let mut figures = vec![
            Figure::Course(course("Productivity", &self.productivity, rates)?),
            Figure::Course(course("Overhead", &self.overhead, costs)?),
        ];
        let points: Vec<(f64, f64)> =
            self.values.iter().filter_map(|(rate, cost)| Some(((*cost)?, *rate))).collect();
        if !points.is_empty() {
            let title = "Productivity over overhead";
            figures.push(Figure::Scatter(Scatter::new(title, self.overhead, self.productivity, points)?));
        }
        Ok(figures)
    }
}

/// Combines points to columns of about one width, at most as many as [`COLUMNS`].
fn columns(points: &[Point]) -> Vec<Point> {
    let width = points.iter().map(|point| point.length).sum::<Duration>() / COLUMNS;
    let mut columns = Vec::new();
    let mut column = Point::default();
    for point in points {
        column = column.with(point);
        if column.length >= width {
            columns.push(std::mem::take(&mut column));
        }
    }
    columns.extend((column.length > Duration::ZERO).then_some(column));
    columns
}
