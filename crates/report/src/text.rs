//! A report as terminal text.
//!
//! The width, the symbols and the colours come from the caller, whether or not there is a terminal. A table
//! that does not fit is wrapped; a table in which a number would have to be broken is written as one record
//! per row, so that 80 columns always suffice.

mod bars;
mod columns;
mod course;
mod grid;
mod scatter;
mod stack;
mod table;

use std::collections::HashSet;

use crate::figure::Figure;
use crate::layout::interval_note;
use crate::scale::{self, Symbols};
use crate::table::{Cell, Table};
use crate::visible::visible;
use crate::{Block, Report};

/// The style of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal; at least [`NARROWEST`] are used.
    pub width: u16,
    /// Characters that may be used for lines, bars and `±`. Labels keep their own characters.
    pub symbols: Symbols,
    /// Escape sequences.
    pub colour: Colour,
}

/// Whether text contains escape sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// None.
    Plain,
    /// ANSI bold and faint, in the colours of the terminal.
    Ansi,
}

/// Columns of a picture at most: where lines have no end, as in a pipe, a longer one shows nothing more.
const WIDEST_PICTURE: usize = 100;

/// Columns below which no layout is attempted: a number with its interval and unit, and a short label.
pub const NARROWEST: u16 = 40;

/// The whole report.
#[must_use]
pub fn report(report: &Report, style: &Style) -> String {
    let style = Style { width: style.width.max(NARROWEST), ..*style };
    let mut blocks = vec![style.heading(&report.title, '=', '═')];
    for block in &report.blocks {
        blocks.push(match block {
            Block::Heading(heading) => style.heading(heading, '-', '─'),
            Block::Text(text) => paragraphs(text, &style),
            Block::Table(table) => self::table(table, &style),
            Block::Figure(Figure::Bars(bars)) => bars::text(bars, &style),
            Block::Figure(Figure::Curve(curve)) => self::table(&curve.table(), &style),
            Block::Figure(Figure::Stack(stack)) => stack::text(stack, &style),
            Block::Figure(Figure::Course(course)) => course::text(course, &style),
            Block::Figure(Figure::Scatter(scatter)) => scatter::text(scatter, &style),
        });
    }
    blocks.join("\n")
}

/// One table with its title and its notes.
#[must_use]
pub fn table(table: &Table, style: &Style) -> String {
    let (table, folded) = &table.without_empty_columns().parts();
    let mut text = style.title(table.title());
    text.push_str(&table::text(table, style));
    if let Some(folded) = folded {
        text.push_str(&style.note(&names(folded)));
    }
    let reasons = table.reasons().into_iter().enumerate();
    for (position, reason) in reasons {
        text.push_str(&style.note(&format!("({}) {reason}", position + 1)));
    }
    if let Some(note) = interval_note(table.estimates(), style.symbols) {
        text.push_str(&style.note(&note));
    }
    for note in table.notes() {
        text.push_str(&style.note(note));
    }
    text
}

/// Most folded rows that are named, about half a screen; the others are counted.
const NAMED: usize = 50;

/// The words in the first column of folded rows, each once.
fn names(folded: &Table) -> String {
    let mut seen = HashSet::new();
    let words = folded.cells(0).filter_map(|cell| match cell {
        Cell::Text(word) => Some(word.as_str()),
        _ => None,
    });
    let mut names: Vec<&str> = words.filter(|word| seen.insert(*word)).collect();
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        others => format!(" and {} more", scale::count(others as u64)),
    };
    names.truncate(NAMED);
    format!("{} (values: --format html, json or csv): {}{more}", folded.title(), names.join(", "))
}

fn paragraphs(text: &str, style: &Style) -> String {
    let wrapped: Vec<String> = text
        .split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|paragraph| !paragraph.is_empty())
        .map(|paragraph| grid::wrapped(&visible(&paragraph), style.width, 0))
        .collect();
    wrapped.join("\n")
}

impl Style {
    fn heading(&self, text: &str, ascii: char, unicode: char) -> String {
        let line = match self.symbols {
            Symbols::Ascii => ascii,
            Symbols::Unicode => unicode,
        };
        let wrapped = grid::wrapped(&visible(text), self.width, 0);
        let longest = wrapped.lines().map(grid::width).max().unwrap_or(0);
        let under: String = std::iter::repeat_n(line, longest).collect();
        format!("{}{under}\n", self.bold(&wrapped))
    }

    fn title(&self, text: &str) -> String {
        if text.is_empty() { String::new() } else { self.bold(&grid::wrapped(&visible(text), self.width, 0)) }
    }

    fn note(&self, text: &str) -> String {
        self.escape("\u{1b}[2m", &grid::wrapped(&visible(text), self.width, 1))
    }

    fn bold(&self, lines: &str) -> String {
        self.escape("\u{1b}[1m", lines)
    }

    /// Every line between the escape sequence and the one that ends it.
    fn escape(&self, sequence: &str, lines: &str) -> String {
        match self.colour {
            Colour::Plain => lines.to_owned(),
            Colour::Ansi => lines.lines().map(|line| format!("{sequence}{line}\u{1b}[0m\n")).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
