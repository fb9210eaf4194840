//! Tables: aligned columns where they fit, one record per row where they do not.

use comfy_table::{Cell, CellAlignment, ColumnConstraint};

use super::grid::{PADDING, widest};
use super::{Style, grid};
use crate::layout::{self, Laid};
use crate::scale::Symbols;
use crate::table::{Alignment, Table};

/// Columns below which a column of words is not squeezed.
const NARROWEST_WORDS: usize = 14;

/// The grid of a table, without title and notes.
pub fn text(table: &Table, style: &Style) -> String {
    let positions = 0..table.columns().len();
    let headers: Vec<String> = positions.clone().map(|c| layout::header(table, c)).collect();
    let laid: Vec<Vec<Laid>> = positions.map(|c| layout::column(table, c, style.symbols)).collect();
    let columns: Vec<Vec<String>> =
        laid.iter().map(|column| column.iter().map(|laid| cell(laid, style.symbols)).collect()).collect();
    if least_width(table, &headers, &columns) <= usize::from(style.width) {
        grid_of_columns(table, &headers, columns, style)
    } else {
        records(&headers, &columns, style)
    }
}

fn cell(laid: &Laid, symbols: Symbols) -> String {
    match laid {
        Laid::Text(text) => text.clone(),
        Laid::Number(pieces) => pieces.joined(),
        Laid::Missing(reason) => match symbols {
            Symbols::Ascii => format!("- ({reason})"),
            Symbols::Unicode => format!("– ({reason})"),
        },
    }
}

/// Columns that the table needs if numbers are not broken and words are squeezed.
fn least_width(table: &Table, headers: &[String], columns: &[Vec<String>]) -> usize {
    let widths = table.columns().iter().zip(headers.iter().zip(columns)).map(|(column, (header, cells))| {
        let full = widest(cells).max(grid::width(header));
        match column.alignment {
            Alignment::Left => full.min(NARROWEST_WORDS),
            Alignment::Right => full,
        }
    });
    widths.map(|width| width + PADDING).sum()
}

fn grid_of_columns(
    table: &Table,
    headers: &[String],
    mut columns: Vec<Vec<String>>,
    style: &Style,
) -> String {
    break_words(table, headers, &mut columns, style);
    let mut grid = grid::empty(style);
    let aligned = |text: &String, column: usize| {
        Cell::new(text).set_alignment(match table.columns()[column].alignment {
            Alignment::Left => CellAlignment::Left,
            Alignment::Right => CellAlignment::Right,
        })
    };
    grid.set_header(headers.iter().enumerate().map(|(c, header)| aligned(header, c)).collect::<Vec<_>>());
    for row in 0..table.rows().len() {
        let cells = columns.iter().enumerate().map(|(c, column)| aligned(&column[row], c));
        grid.add_row(cells.collect::<Vec<_>>());
    }
    for (column, grid) in table.columns().iter().zip(grid.column_iter_mut()) {
        if column.alignment == Alignment::Right {
            grid.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    bold_header(&grid::lines(&grid), style)
}

/// Breaks words at good places: the columns of words share equally what numbers leave.
fn break_words(table: &Table, headers: &[String], columns: &mut [Vec<String>], style: &Style) {
    let is_words = |c: usize| table.columns()[c].alignment == Alignment::Left;
    let numbers: usize = (0..columns.len())
        .filter(|c| !is_words(*c))
        .map(|c| widest(&columns[c]).max(grid::width(&headers[c])))
        .sum();
    let words = (0..columns.len()).filter(|c| is_words(*c)).count().max(1);
    let left = usize::from(style.width).saturating_sub(numbers + PADDING * columns.len());
    for (position, cells) in columns.iter_mut().enumerate() {
        if is_words(position) {
            for cell in cells {
                *cell = grid::broken(cell, left / words);
            }
        }
    }
}

/// The lines above the rule are the header.
fn bold_header(text: &str, style: &Style) -> String {
    let rule = grid::rule(style.symbols);
    let is_rule = |line: &str| !line.is_empty() && line.chars().all(|c| c == rule);
    let header: String =
        text.lines().take_while(|line| !is_rule(line)).map(|line| format!("{line}\n")).collect();
    format!("{}{}", style.bold(&header), &text[header.len()..])
}

/// One block of `header  value` lines per row, each ended by an empty line.
fn records(headers: &[String], columns: &[Vec<String>], style: &Style) -> String {
    let left = usize::from(style.width).saturating_sub(widest(headers) + 2 * PADDING);
    let mut grid = grid::empty(style);
    for row in 0..columns.first().map_or(0, Vec::len) {
        for (header, column) in headers.iter().zip(columns) {
            // There is no column of numbers to line up with: single spaces will do.
            let value = column[row].split_whitespace().collect::<Vec<_>>().join(" ");
            grid.add_row([header.as_str(), &grid::broken(&value, left)]);
        }
        grid.add_row(["", ""]);
    }
    grid::lines(&grid)
}
