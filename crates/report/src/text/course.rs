//! Courses as strips of blocks whose height shows the value: a strip for each line, one under another, so
//! that lines never cover each other.

use super::grid::{PADDING, broken, widest, width};
use super::{Style, WIDEST_PICTURE, columns};
use crate::figure::{Course, Height, Series, real};
use crate::scale::{self, Symbols};
use crate::visible::visible;

/// Rows that the strips of a figure take together, if there are no more strips.
const ROWS: usize = 8;

/// The figure with its title.
pub fn text(course: &Course, style: &Style) -> String {
    let labels: Vec<String> = course.columns().series().iter().map(|line| label(line, style)).collect();
    let indentation = widest(&labels) + 2 * PADDING - 1;
    let available = usize::from(style.width).saturating_sub(indentation).clamp(1, WIDEST_PICTURE);
    let course = course.at_most(available);
    let columns = course.columns();
    let rows = (ROWS / labels.len()).max(1);
    let mut text = style.title(columns.title());
    for (position, (line, label)) in columns.series().iter().zip(&labels).enumerate() {
        if rows > 1 && position > 0 {
            text.push('\n');
        }
        let strip = strip(line, &course, rows, style.symbols);
        // The name stands at the foot of its strip; a longer one continues under it.
        let names: Vec<&str> = label.lines().collect();
        for row in 0..rows.max(rows - 1 + names.len()) {
            let name = (row + 1).checked_sub(rows).and_then(|name| names.get(name)).unwrap_or(&"");
            let gap = " ".repeat(indentation - 1 - width(name));
            let drawn = strip.get(row).map_or("", String::as_str);
            text.push_str(format!(" {name}{gap}{drawn}").trim_end());
            text.push('\n');
        }
    }
    text.push_str(&columns::ends(columns, indentation, style));
    let (low, high) = course.range();
    let [low, high] = [low, high].map(|value| scale::number(value, course.y().unit).text(style.symbols));
    let logarithmic = match course.height() {
        Height::Linear => "",
        Height::Logarithmic => ", logarithmic",
    };
    let (x, y) = (&columns.x().label, &course.y().label);
    text.push_str(&style.note(&format!("{y} from {low} to {high}{logarithmic}, over {x}")));
    text
}

/// The name of a line, broken to two fifths of the terminal.
fn label(line: &Series, style: &Style) -> String {
    broken(&visible(&line.name), usize::from(style.width) * 2 / 5)
}

/// A line as rows of characters, from the top. Every value above zero can be seen, a gap cannot.
fn strip(line: &Series, course: &Course, rows: usize, symbols: Symbols) -> Vec<String> {
    let marks: &[char] = match symbols {
        Symbols::Unicode => &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
        Symbols::Ascii => &['_', '-', '=', '#'],
    };
    let steps = rows * marks.len();
    let heights: Vec<usize> =
        line.values.iter().map(|value| value.map_or(0, |value| height(value, course, steps))).collect();
    let mark = |height: &usize, below: usize| match height.saturating_sub(below * marks.len()) {
        0 => ' ',
        filled => marks[filled.min(marks.len()) - 1],
    };
    (0..rows).rev().map(|below| heights.iter().map(|height| mark(height, below)).collect()).collect()
}

/// The height of a value, of as many steps.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a few steps")]
fn height(value: f64, course: &Course, steps: usize) -> usize {
    let (low, high) = course.range();
    let share = match course.height() {
        Height::Linear => value / high,
        Height::Logarithmic => (value / low).ln() / (high / low).ln(),
    };
    let least = usize::from(value > 0.0);
    ((share * real(steps)).round() as usize).max(least)
}
