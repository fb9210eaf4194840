//! Tables: columns, cells, notes. A table whose rows do not fit its columns cannot be built.

use assay_quantity::{Estimate, Unit};

use crate::scale::Scale;

/// Alignment of the cells of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alignment {
    /// Words.
    Left,
    /// Numbers; they line up at the decimal point.
    Right,
}

impl Alignment {
    /// Its name in formats.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Alignment::Left => "left",
            Alignment::Right => "right",
        }
    }
}

/// One column.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its header.
    pub header: String,
    /// Alignment of its cells.
    pub alignment: Alignment,
    /// With a unit, every cell of that unit is shown on one scale, which stands in the header: right for
    /// columns whose values are of one magnitude. Without, each cell has its own scale.
    pub unit: Option<Unit>,
    /// The smallest difference in that unit that matters: numbers are shown down to its first digit.
    /// Without, three significant digits.
    pub resolution: Option<f64>,
}

impl Column {
    /// A column of words.
    #[must_use]
    pub fn words(header: &str) -> Self {
        Self { header: header.to_owned(), alignment: Alignment::Left, unit: None, resolution: None }
    }

    /// A column of numbers, each on its own scale.
    #[must_use]
    pub fn numbers(header: &str) -> Self {
        Self { header: header.to_owned(), alignment: Alignment::Right, unit: None, resolution: None }
    }

    /// A column of numbers on one scale.
    #[must_use]
    pub fn numbers_in(header: &str, unit: Unit) -> Self {
        Self { unit: Some(unit), ..Self::numbers(header) }
    }

    /// A column of numbers on one scale, down to a resolution in this unit.
    #[must_use]
    pub fn numbers_down_to(header: &str, unit: Unit, resolution: f64) -> Self {
        Self { resolution: Some(resolution), ..Self::numbers_in(header, unit) }
    }
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A quantity, shown with its interval.
    Quantity(Estimate),
    /// A number that has no interval, because it is exact or was given so.
    Number {
        /// The number, in `unit`.
        value: f64,
        /// What it counts.
        unit: Unit,
    },
    /// A count, shown exactly.
    Count(u64),
    /// A count less another one, shown exactly and with its sign.
    Difference(i64),
    /// A share of a whole, 1 being all of it.
    Share(f64),
    /// A missing value; the reason is shown under the table.
    Missing(String),
}

impl Cell {
    /// Words.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Cell::Text(text.into())
    }
}

impl From<Estimate> for Cell {
    fn from(estimate: Estimate) -> Self {
        Cell::Quantity(estimate)
    }
}

/// Rows under columns. Invariant: every row has exactly one cell per column.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    title: String,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    notes: Vec<String>,
    folded: Option<Folded>,
}

/// The last rows of a table, which are folded.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Folded {
    title: String,
    rows: usize,
}

/// A row that does not fit its columns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "row {row} of table '{title}' has {cells} cell(s) under {columns} column(s); give one cell per column"
)]
pub struct RaggedTable {
    /// Title of the table.
    pub title: String,
    /// The row, counted from 1.
    pub row: usize,
    /// Its cells.
    pub cells: usize,
    /// The columns.
    pub columns: usize,
}

impl Table {
    /// Makes a table whose number of columns is known at compile time: a row of another length does not
    /// compile.
    pub fn of<const N: usize>(
        title: &str,
        columns: [Column; N],
        rows: impl IntoIterator<Item = [Cell; N]>,
    ) -> Self {
        Self {
            title: title.to_owned(),
            columns: columns.into(),
            rows: rows.into_iter().map(Vec::from).collect(),
            notes: Vec::new(),
            folded: None,
        }
    }

    /// Makes a table whose number of columns is known at run time only (for example one per machine).
    ///
    /// # Errors
    /// [`RaggedTable`] if a row has not one cell per column.
    pub fn new(title: &str, columns: Vec<Column>, rows: Vec<Vec<Cell>>) -> Result<Self, RaggedTable> {
        for (position, row) in rows.iter().enumerate() {
            if row.len() != columns.len() {
                return Err(RaggedTable {
                    title: title.to_owned(),
                    row: position + 1,
                    cells: row.len(),
                    columns: columns.len(),
                });
            }
        }
        Ok(Self { title: title.to_owned(), columns, rows, notes: Vec::new(), folded: None })
    }

    /// Adds a sentence under the table.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Makes every cell of the column with this header a missing value, for this reason.
    ///
    /// # Panics
    /// If there is no such column.
    #[must_use]
    pub fn with_missing(mut self, header: &str, reason: &str) -> Self {
        let named = self.columns.iter().position(|column| column.header == header);
        let position = named.expect("a column of the table is named");
        self.rows.iter_mut().for_each(|row| row[position] = Cell::Missing(reason.to_owned()));
        self
    }

    /// Folds the last rows: HTML hides them behind this title, text lists only the words of their first
    /// column, or the first of many. JSON and CSV contain them like the others.
    #[must_use]
    pub fn with_last_folded(mut self, rows: usize, title: &str) -> Self {
        self.folded = (rows > 0).then(|| Folded { title: title.to_owned(), rows });
        self
    }

    /// The table without its folded rows, and these as a table of their own, without notes.
    #[must_use]
    pub(crate) fn parts(&self) -> (Self, Option<Self>) {
        let mut shown = self.clone();
        let folded = shown.folded.take().map(|Folded { title, rows }| {
            let rows = shown.rows.split_off(shown.rows.len().saturating_sub(rows));
            Self { title, columns: self.columns.clone(), rows, notes: Vec::new(), folded: None }
        });
        (shown, folded)
    }

    /// The table for people: without the columns in which every cell is missing, and with the reason for each
    /// of them in a sentence under the table.
    #[must_use]
    pub(crate) fn without_empty_columns(&self) -> Self {
        let mut shown = self.clone();
        let is_empty = |column: &usize| self.cells(*column).all(|cell| matches!(cell, Cell::Missing(_)));
        let has_cells = !self.rows.is_empty();
        let empty: Vec<usize> =
            (0..self.columns.len()).filter(|column| has_cells && is_empty(column)).collect();
        if empty.len() == self.columns.len() {
            return shown;
        }
        for column in empty.iter().rev() {
            shown.columns.remove(*column);
            shown.rows.iter_mut().for_each(|row| drop(row.remove(*column)));
        }
        let why = |column: &usize| {
            format!("{}: {}.", self.columns[*column].header, reasons(self.cells(*column)).join("; "))
        };
        shown.notes.splice(0..0, empty.iter().map(why));
        shown
    }

    /// Its title.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Its columns, from left to right.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Its rows, each with one cell per column.
    #[must_use]
    pub fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    /// Its notes: sentences under it.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The cells of one column, from top to bottom.
    pub fn cells(&self, column: usize) -> impl Iterator<Item = &Cell> {
        self.rows.iter().filter_map(move |row| row.get(column))
    }

    /// The reasons of its missing cells, each once, in the order in which they appear.
    #[must_use]
    pub fn reasons(&self) -> Vec<&str> {
        reasons(self.rows.iter().flatten())
    }

    /// Every estimate in it.
    pub fn estimates(&self) -> impl Iterator<Item = &Estimate> {
        self.rows.iter().flatten().filter_map(|cell| match cell {
            Cell::Quantity(estimate) => Some(estimate),
            _ => None,
        })
    }

    /// The scale of a column that has a unit.
    pub(crate) fn scale(&self, column: usize) -> Option<Scale> {
        let Column { unit, resolution, .. } = self.columns.get(column)?;
        let unit = (*unit)?;
        if resolution.is_some_and(|resolution| resolution < 1.0) {
            // 1234.56, whose fraction matters, does not become 1.23456 thousands.
            return Some(Scale::of(unit, 1.0));
        }
        let values: Vec<f64> = self
            .cells(column)
            .filter_map(|cell| match cell {
                Cell::Quantity(estimate) if estimate.unit == unit => Some(estimate.point),
                Cell::Number { value, unit: own } if *own == unit => Some(*value),
                _ => None,
            })
            .collect();
        Some(Scale::shared(unit, &values))
    }
}

/// The reasons of missing cells, each once, in the order in which they appear.
fn reasons<'a>(cells: impl Iterator<Item = &'a Cell>) -> Vec<&'a str> {
    let mut reasons: Vec<&str> = Vec::new();
    for cell in cells {
        if let Cell::Missing(reason) = cell
            && !reasons.contains(&reason.as_str())
        {
            reasons.push(reason);
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_without_any_value_is_left_out_and_says_why() {
        let missing = |reason: &str| Cell::Missing(reason.to_owned());
        let table = Table::of(
            "costs",
            ["id", "calm", "again", "more"].map(Column::words),
            [
                [Cell::text("a"), missing("too few"), missing("none"), Cell::Count(1)],
                [Cell::text("b"), Cell::Count(2), missing("none"), missing("none")],
            ],
        );
        let shown = table.without_empty_columns();
        let headers: Vec<&str> = shown.columns().iter().map(|column| column.header.as_str()).collect();
        assert_eq!(headers, ["id", "calm", "more"]);
        assert_eq!(shown.rows()[1], [Cell::text("b"), Cell::Count(2), missing("none")]);
        assert_eq!(shown.notes(), ["again: none."]);
        let empty = Table::of("costs", [Column::words("id")], []);
        assert_eq!(empty.without_empty_columns(), empty);
        let column = shown.clone().with_missing("calm", "not recorded").without_empty_columns();
        assert_eq!(column.rows(), [[Cell::text("a"), Cell::Count(1)], [Cell::text("b"), missing("none")]]);
        assert_eq!(column.notes(), ["calm: not recorded.", "again: none."]);
        let nothing = Table::of("costs", [Column::words("id")], [[missing("none")]]);
        assert_eq!(nothing.without_empty_columns(), nothing);
    }

    #[test]
    fn a_row_of_another_length_than_the_columns_is_no_table() {
        let columns = vec![Column::words("a"), Column::numbers("b")];
        let rows = vec![vec![Cell::text("x"), Cell::Count(1)], vec![Cell::text("y")]];
        let refused = Table::new("costs", columns, rows).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "row 2 of table 'costs' has 1 cell(s) under 2 column(s); give one cell per column"
        );
    }

    #[test]
    fn a_reason_that_stands_twice_is_noted_once() {
        let missing = |reason: &str| [Cell::Missing(reason.to_owned())];
        let table = Table::of(
            "t",
            [Column::numbers("n")],
            [missing("no root"), missing("no IPv6"), missing("no root")],
        );
        assert_eq!(table.reasons(), ["no root", "no IPv6"]);
    }
}
