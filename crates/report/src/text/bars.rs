//! Bars as rows of block characters, the digits beside them. The stretch between the ends of an interval
//! is drawn lighter.

use comfy_table::ColumnConstraint;

use super::grid::{PADDING, widest};
use super::{Style, WIDEST_PICTURE, grid};
use crate::figure::{BarRow, Bars, Depth, Length, real};
use crate::layout::interval_note;
use crate::scale::{self, Symbols};
use crate::visible::visible;

/// Columns below which bars are left out: differences of a few per cent cannot be seen any more.
const NARROWEST_BAR: usize = 12;

/// The figure with its title.
pub fn text(bars: &Bars, style: &Style) -> String {
    let rows = bars.rows();
    let width = usize::from(style.width);
    let labels: Vec<String> = rows.iter().map(|row| label(row, width)).collect();
    let digits: Vec<String> = rows.iter().map(|row| digits(row, bars, style.symbols)).collect();
    let left = width.saturating_sub(widest(&labels) + widest(&digits) + 3 * PADDING);
    let bar_width = left.min(WIDEST_PICTURE);
    let mut grid = grid::empty(style);
    for ((row, label), digits) in rows.iter().zip(labels).zip(digits) {
        let bar = if bar_width < NARROWEST_BAR {
            String::new()
        } else {
            drawn(row, bars, bar_width, style.symbols)
        };
        grid.add_row([label.as_str(), &bar, &digits]);
    }
    for column in grid.column_iter_mut().skip(1) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    let mut text = style.title(bars.title());
    text.push_str(&grid::lines(&grid));
    let estimates = rows.iter().filter_map(|row| match &row.length {
        Length::Estimate(estimate) => Some(estimate),
        Length::Number(_) => None,
    });
    if let Some(note) = interval_note(estimates, style.symbols) {
        text.push_str(&style.note(&note));
    }
    text
}

/// A label behind its indentation, broken to two fifths of the terminal.
fn label(row: &BarRow<'_>, width: usize) -> String {
    let indentation = match row.depth {
        Depth::Bar => "",
        Depth::Part => "  ",
    };
    let label = grid::broken(&visible(row.label), width * 2 / 5 - indentation.len());
    let lines: Vec<String> = label.lines().map(|line| format!("{indentation}{line}")).collect();
    lines.join("\n")
}

fn digits(row: &BarRow<'_>, bars: &Bars, symbols: Symbols) -> String {
    match &row.length {
        Length::Estimate(estimate) => scale::estimate(estimate).text(symbols),
        Length::Number(number) => scale::number(*number, bars.unit()).text(symbols),
    }
}

/// A cell of the bar is filled if its middle lies in the bar, and light if its middle lies in the interval.
fn drawn(row: &BarRow<'_>, bars: &Bars, width: usize, symbols: Symbols) -> String {
    let (full, light) = match symbols {
        Symbols::Unicode => ('█', '▒'),
        Symbols::Ascii => ('#', '='),
    };
    let (low, high) = bars.domain();
    let end = row.start + row.length.point();
    let interval = row.interval().unwrap_or((end, end));
    let step = (high - low) / real(width);
    let mut bar: String = (0..width)
        .map(|cell| {
            let middle = low + step * (real(cell) + 0.5);
            if interval.0 <= middle && middle < interval.1 {
                light
            } else if row.start.min(end) <= middle && middle < row.start.max(end) {
                full
            } else {
                ' '
            }
        })
        .collect();
    bar.truncate(bar.trim_end().len());
    bar
}
