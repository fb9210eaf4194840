//! Borderless grids of text: the only module that uses the table library.

use comfy_table::{ContentArrangement, LineStyle, Table, TableStyle, presets};

use super::Style;
use crate::scale::Symbols;

/// Columns between two cells: one on each side.
pub const PADDING: usize = 2;

/// Columns that the widest line of any of these texts takes.
pub fn widest<T: AsRef<str>>(texts: &[T]) -> usize {
    texts.iter().map(|text| width(text.as_ref())).max().unwrap_or(0)
}

/// Columns that the widest line of a text takes in a terminal.
pub fn width(text: &str) -> usize {
    let mut table = Table::new();
    table.add_row([text]);
    table.column_max_content_widths().first().map_or(0, |width| usize::from(*width))
}

/// A text wrapped to a width behind an indentation, each line ended.
pub fn wrapped(text: &str, width: u16, indentation: u16) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.add_row([text]);
    if let Some(column) = table.column_mut(0) {
        column.set_padding((indentation, 0));
    }
    lines(&table)
}

/// Breaks a text at good places of a long primitive id or path: after a space, a comma, a brace or a slash.
/// The grid breaks a piece that is wider than `width` itself.
pub fn broken(text: &str, width: usize) -> String {
    let mut lines = String::new();
    let mut used = 0;
    for piece in text.split_inclusive([' ', ',', '{', '/']) {
        if used > 0 && used + self::width(piece.trim_end()) > width {
            lines.truncate(lines.trim_end().len());
            lines.push('\n');
            used = 0;
        }
        lines.push_str(piece);
        used += self::width(piece);
    }
    lines
}

/// An empty grid: no lines but the one under the header, if there is a header.
pub fn empty(style: &Style) -> Table {
    let line = rule(style.symbols);
    let mut table = Table::new();
    table
        .load_style(TableStyle::new().header_separator(LineStyle::none().fill(line)))
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(style.width);
    table
}

/// The character of the line under a header.
pub fn rule(symbols: Symbols) -> char {
    match symbols {
        Symbols::Ascii => '-',
        Symbols::Unicode => '─',
    }
}

/// The grid without spaces at the ends of lines, each line ended.
pub fn lines(table: &Table) -> String {
    let mut text = table.trim_fmt();
    text.push('\n');
    text
}
