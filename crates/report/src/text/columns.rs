//! What pictures of columns have in common.

use super::Style;
use super::grid::width;
use crate::figure::Columns;
use crate::scale;

/// The line under a picture of columns that begins behind `indentation`: where the first one begins, and
/// where the last one ends.
pub fn ends(columns: &Columns, indentation: usize, style: &Style) -> String {
    let [begin, end] = [0, columns.count()]
        .map(|edge| scale::number(columns.edges()[edge], columns.x().unit).text(style.symbols));
    let gap = columns.count().saturating_sub(width(&begin) + width(&end)).max(1);
    format!("{}{begin}{}{end}\n", " ".repeat(indentation), " ".repeat(gap))
}
