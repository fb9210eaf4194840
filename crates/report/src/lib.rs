//! A report as a value, rendered as terminal text, HTML, JSON and CSV.
//!
//! Every subcommand that shows numbers builds a [`Report`] and hands it to one row of [`format::FORMATS`].
//! This crate is pure: it never prints, never reads the terminal or the environment (width, symbols and
//! colour come from the caller), and computes no statistic. It decides how a quantity is formatted
//! ([`scale`]); an estimate is never shown without its interval.
#![forbid(unsafe_code)]

pub mod csv;
pub mod figure;
pub mod format;
pub mod html;
pub mod json;
mod layout;
pub mod scale;
pub mod table;
pub mod text;
mod visible;

pub use figure::{
    Axis, Bar, Bars, Columns, Course, Curve, CurvePoint, Figure, Height, Length, Line, Part, Scatter, Series,
    Stack,
};
pub use format::{FORMATS, Format};
pub use scale::Symbols;
pub use table::{Alignment, Cell, Column, Table};
pub use text::{Colour, Style};
pub use visible::visible;

/// The content of a report, independent of its format.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Its title, one line.
    pub title: String,
    /// Its blocks, in order.
    pub blocks: Vec<Block>,
}

/// One piece of a report.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// Begins a section; everything up to the next heading belongs to it.
    Heading(String),
    /// Running text; an empty line begins a new paragraph.
    Text(String),
    /// Rows and columns.
    Table(Table),
    /// A picture, with every number that it shows.
    Figure(Figure),
}

impl Report {
    /// Its tables, in order, for a format that contains nothing else.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Table(table) => Some(table),
            Block::Heading(_) | Block::Text(_) | Block::Figure(_) => None,
        })
    }
}

#[cfg(test)]
mod sample;
