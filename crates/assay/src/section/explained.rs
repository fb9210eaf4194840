//! A prediction compared with the measurement: the terms, the part that is not covered, and the part that is
//! not explained.

use assay_model::{Prediction, Term};
use assay_quantity::{Estimate, OperationDemand, Unit};
use assay_report::figure::NoFigure;
use assay_report::{Bar, Bars, Block, Cell, Column, Figure, Length, Part, Table};

use super::prediction;
use crate::phase::application::MeasuredOperation;

/// Returns the terms, and a figure that compares them with the measurement.
pub fn terms(
    demand: &OperationDemand,
    prediction: &Prediction,
    measured: &MeasuredOperation,
) -> Result<Vec<Block>, NoFigure> {
    let picture = Figure::Bars(picture(prediction, measured)?);
    Ok(vec![Block::Table(prediction::terms(demand, prediction)), Block::Figure(picture)])
}

/// Returns the table of predicted and measured times and their difference.
pub fn comparison(prediction: &Prediction, measured: &MeasuredOperation) -> Table {
    let unit = measured.unit_of_work;
    let not_distinguished = || Cell::Missing("user and kernel time could not be distinguished".to_owned());
    let kernel = measured.system.map_or_else(not_distinguished, Cell::from);
    let unexplained =
        measured.system.map_or_else(not_distinguished, |kernel| prediction.unexplained(&kernel).into());
    let user = measured.user.map_or_else(not_distinguished, Cell::from);
    let mut rows = vec![
        [
            Cell::text(format!("kernel time of one {unit}")),
            prediction.total.into(),
            kernel,
            unexplained.clone(),
        ],
        [
            Cell::text("user time: not a demand on the operating system, taken as measured"),
            user.clone(),
            user,
            Cell::text(""),
        ],
    ];
    if let Some(cpu) = predicted_cpu(prediction, measured) {
        rows.push([
            Cell::text(format!("processor time of one {unit}")),
            cpu.into(),
            measured.cpu.into(),
            unexplained,
        ]);
        rows.push([
            Cell::text(format!("{unit}s per second; the prediction is the maximum for one processor")),
            most_per_second(&cpu).into(),
            measured.per_second.into(),
            Cell::text(""),
        ]);
    }
    let columns = [
        Column::words("quantity"),
        Column::numbers("predicted"),
        Column::numbers("measured, untraced"),
        Column::numbers("not explained"),
    ];
    let table = Table::of("Predicted and measured", columns, rows);
    prediction::notes(prediction).into_iter().fold(table, Table::with_note)
}

fn predicted_cpu(prediction: &Prediction, measured: &MeasuredOperation) -> Option<Estimate> {
    Some(Estimate::sum(&[prediction.total, measured.user?]))
}

/// Returns the reciprocal of the time: the rate if the processor does nothing else.
fn most_per_second(cpu: &Estimate) -> Estimate {
    let rate = |time_ns: f64| 1e9 / time_ns.max(f64::MIN_POSITIVE);
    let mut rates = cpu.scaled(1.0, Unit::PerSecond);
    rates.point = rate(cpu.point);
    (rates.interval.low, rates.interval.high) = (rate(cpu.interval.high), rate(cpu.interval.low));
    rates
}

/// Terms below this share of the total are combined into one part of the figure: each would be a hairline.
const HAIRLINE: f64 = 0.01;

fn picture(prediction: &Prediction, measured: &MeasuredOperation) -> Result<Bars, NoFigure> {
    let label = |term: &Term| {
        if term.is_bounded() { "not covered, at least".to_owned() } else { term.primitive.to_string() }
    };
    let (drawn, small): (Vec<&Term>, Vec<&Term>) =
        prediction.terms.iter().partition(|term| term.time.point >= HAIRLINE * prediction.total.point);
    let mut parts: Vec<Part> =
        drawn.iter().map(|term| Part { label: label(term), length: Length::Estimate(term.time) }).collect();
    if !small.is_empty() {
        let times: Vec<Estimate> = small.iter().map(|term| term.time).collect();
        let label = format!("{} smaller terms", small.len());
        parts.push(Part { label, length: Length::Estimate(Estimate::sum(&times)) });
    }
    let length = Length::Estimate(prediction.total);
    let mut bars = vec![Bar { label: "predicted".to_owned(), length, parts }];
    bars.extend(measured.system.map(|kernel| Bar {
        label: "measured".to_owned(),
        length: Length::Estimate(kernel),
        parts: Vec::new(),
    }));
    Bars::new(&format!("Kernel time of one {}", measured.unit_of_work), Unit::Nanoseconds, bars)
}
