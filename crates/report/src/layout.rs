//! The cells of a table as digits that line up: shared by the renderers for people, so that text and HTML
//! show the same digits.

use assay_quantity::{Estimate, Method, Unit};

use crate::scale::{self, Scale, Shown, Spread, Symbols};
use crate::table::{Alignment, Cell, Table};
use crate::visible::visible;

/// One cell, ready to be shown.
pub enum Laid {
    /// Words.
    Text(String),
    /// A number in pieces. In a column of numbers the pieces have the same widths in every cell.
    Number(Pieces),
    /// Missing; the number of the reason under the table.
    Missing(usize),
}

/// Digits, interval and unit of a number; the spaces that line them up are part of the pieces.
#[derive(Default)]
pub struct Pieces {
    pub point: String,
    pub spread: String,
    pub unit: String,
}

impl Pieces {
    /// All of it in one string.
    pub fn joined(&self) -> String {
        format!("{}{}{}", self.point, self.spread, self.unit)
    }
}

/// The header of a column, with the scale that its numbers share.
pub fn header(table: &Table, column: usize) -> String {
    let header = visible(&table.columns()[column].header).into_owned();
    match table.scale(column).map_or("", Scale::symbol) {
        "" => header,
        symbol => format!("{header} [{symbol}]"),
    }
}

/// The cells of a column, from top to bottom.
pub fn column(table: &Table, column: usize, symbols: Symbols) -> Vec<Laid> {
    let (scale, unit) = (table.scale(column), table.columns()[column].unit);
    let resolution = table.columns()[column].resolution;
    let number = |scale: Scale, value| match resolution {
        Some(resolution) => scale.number_down_to(resolution, value),
        None => scale.number(value),
    };
    let reasons = table.reasons();
    let mut cells: Vec<Laid> = table
        .cells(column)
        .map(|cell| match cell {
            Cell::Text(text) => Laid::Text(visible(text).into_owned()),
            Cell::Missing(reason) => {
                Laid::Missing(1 + reasons.iter().position(|known| known == reason).unwrap_or(0))
            }
            Cell::Count(count) => Laid::Number(Pieces { point: scale::count(*count), ..Pieces::default() }),
            Cell::Difference(difference) => {
                Laid::Number(Pieces { point: scale::difference(*difference), ..Pieces::default() })
            }
            Cell::Share(share) => Laid::Number(pieces(&scale::number(*share, Unit::Ratio), symbols)),
            Cell::Quantity(estimate) => Laid::Number(match scale {
                Some(scale) if unit == Some(estimate.unit) => {
                    pieces(&without_unit(scale.estimate(estimate)), symbols)
                }
                _ => pieces(&scale::estimate(estimate), symbols),
            }),
            Cell::Number { value, unit: own } => Laid::Number(match scale {
                Some(scale) if unit == Some(*own) => pieces(&without_unit(number(scale, *value)), symbols),
                _ => pieces(&scale::number(*value, *own), symbols),
            }),
        })
        .collect();
    if table.columns()[column].alignment == Alignment::Right {
        line_up(&mut cells);
    }
    cells
}

/// A sentence that explains the intervals of these estimates; `None` if there is no estimate. An interval
/// with a confidence of 1 is the rounding of printed figures, or derived from such intervals only, and its
/// random error is unknown. The interval of a mean of runs concerns another run, which the table has to
/// explain.
pub fn interval_note<'a>(estimates: impl Iterator<Item = &'a Estimate>, symbols: Symbols) -> Option<String> {
    let of_truth = estimates.filter(|estimate| estimate.method != Method::MeanOfRuns);
    let all = of_truth.map(|estimate| estimate.interval.confidence);
    let (rounded, mut confidences): (Vec<f64>, Vec<f64>) = all.partition(|confidence| *confidence >= 1.0);
    confidences.sort_by(f64::total_cmp);
    // Per cent with at most one decimal: 95.12 % and 95.13 % do not differ in practice.
    let mut named: Vec<String> =
        confidences.iter().map(|c| format!("{} %", (c * 1000.0).round() / 10.0)).collect();
    named.dedup();
    let sign = scale::plus_minus(symbols);
    let confidence = match named.as_slice() {
        [] if rounded.is_empty() => return None,
        [] => {
            return Some(format!(
                "{sign} is the rounding of printed figures; how far chance moves them is unknown."
            ));
        }
        [one] => one.clone(),
        [least, .., most] => format!("between {least} and {most}"),
    };
    let of_printed = if rounded.is_empty() { "" } else { "; of printed figures it is only their rounding" };
    Some(format!(
        "{sign} is the interval that covers the true value with {confidence} confidence{of_printed}."
    ))
}

fn without_unit(shown: Shown) -> Shown {
    Shown { unit: "", ..shown }
}

fn pieces(shown: &Shown, symbols: Symbols) -> Pieces {
    let spaced = |text: &str| if text.is_empty() { String::new() } else { format!(" {text}") };
    let spread = match &shown.spread {
        Spread::None => String::new(),
        some => spaced(&some.text(symbols)),
    };
    Pieces { point: shown.point.clone(), spread, unit: spaced(shown.unit) }
}

/// Pads the pieces of numbers: points line up at the decimal point, intervals and units at their left.
fn line_up(cells: &mut [Laid]) {
    let mut widest = [0; 4];
    for cell in cells.iter() {
        if let Laid::Number(pieces) = cell {
            for (width, own) in widest.iter_mut().zip(widths(pieces)) {
                *width = own.max(*width);
            }
        }
    }
    for cell in cells {
        if let Laid::Number(pieces) = cell {
            let [whole, fraction, spread, unit] = widths(pieces);
            let pad = |own: usize, column: usize| " ".repeat(widest[column] - own);
            pieces.point = format!("{}{}{}", pad(whole, 0), pieces.point, pad(fraction, 1));
            pieces.spread.push_str(&pad(spread, 2));
            pieces.unit.push_str(&pad(unit, 3));
        }
    }
}

/// Characters of the whole part, the decimals, the interval and the unit. All of them are one column wide.
fn widths(pieces: &Pieces) -> [usize; 4] {
    let point = pieces.point.chars().count();
    let whole = pieces.point.chars().take_while(|c| *c != '.').count();
    [whole, point - whole, pieces.spread.chars().count(), pieces.unit.chars().count()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Column;
    use assay_quantity::Interval;

    fn estimate(confidence: f64, method: Method) -> Estimate {
        let interval = Interval { low: 0.9, high: 1.1, confidence };
        Estimate { point: 1.0, interval, unit: Unit::Nanoseconds, method, values: 0 }
    }

    fn note(confidences: &[f64]) -> Option<String> {
        let estimates: Vec<Estimate> =
            confidences.iter().map(|confidence| estimate(*confidence, Method::Derived)).collect();
        interval_note(estimates.iter(), Symbols::Ascii)
    }

    /// Returns the header and the cells of a column of numbers.
    fn shown(column: Column, values: &[f64]) -> Vec<String> {
        let unit = column.unit.unwrap_or(Unit::Count);
        let rows = values.iter().map(|value| [Cell::Number { value: *value, unit }]);
        let table = Table::of("t", [column], rows);
        let cells = super::column(&table, 0, Symbols::Ascii).into_iter().map(|cell| match cell {
            Laid::Number(pieces) => pieces.joined(),
            Laid::Text(_) | Laid::Missing(_) => unreachable!(),
        });
        std::iter::once(header(&table, 0)).chain(cells).collect()
    }

    #[test]
    fn numbers_down_to_a_resolution_have_the_same_decimals() {
        let times = |resolution| Column::numbers_down_to("begin", Unit::Nanoseconds, resolution);
        assert_eq!(
            shown(times(2e7), &[0.0, 9.8e8, 1.0e9, 1.02e9]),
            ["begin [s]", "0   ", "0.98", "1.00", "1.02"]
        );
        assert_eq!(shown(times(5e7), &[5e7, 9.5e8]), ["begin [ms]", " 50", "950"]);
        assert_eq!(shown(times(5e9), &[5e9, 1.0005e13]), ["begin [s]", "    5", "10005"]);
        let threads = Column::numbers_down_to("blocked", Unit::Count, 0.01);
        assert_eq!(
            shown(threads.clone(), &[0.0, 0.0012, 0.625, 17.0]),
            ["blocked", " 0   ", " 0.00", " 0.62", "17.00"]
        );
        assert_eq!(shown(threads, &[1234.56, 1e6]), ["blocked", "   1234.56", "1000000.00"]);
    }

    #[test]
    fn an_interval_for_another_run_is_not_said_to_cover_the_true_value() {
        let runs = estimate(0.9, Method::MeanOfRuns);
        assert_eq!(interval_note([&runs].into_iter(), Symbols::Ascii), None);
        let both = [runs, estimate(0.95, Method::Derived)];
        let said = interval_note(both.iter(), Symbols::Ascii).unwrap();
        assert_eq!(said, "+- is the interval that covers the true value with 95 % confidence.");
    }

    #[test]
    fn the_rounding_of_printed_figures_is_not_called_confidence() {
        assert_eq!(note(&[]), None);
        let said = [&[1.0, 1.0][..], &[0.95], &[0.95, 1.0], &[0.9, 0.95, 1.0]].map(|all| note(all).unwrap());
        assert_eq!(
            said,
            [
                "+- is the rounding of printed figures; how far chance moves them is unknown.",
                "+- is the interval that covers the true value with 95 % confidence.",
                "+- is the interval that covers the true value with 95 % confidence; \
                 of printed figures it is only their rounding.",
                "+- is the interval that covers the true value with between 90 % and 95 % confidence; \
                 of printed figures it is only their rounding.",
            ]
        );
    }
}
