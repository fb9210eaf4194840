//! Points on a grid of characters, the newest over the older ones.

use super::Style;
use super::grid::width;
use crate::figure::{Age, Scatter, real};
use crate::scale::{self, Symbols};

/// Lines of the grid.
const HEIGHT: usize = 12;

/// Columns of the grid at most: about as wide as it is high on most terminals, times two.
const WIDTH: usize = 4 * HEIGHT;

/// The figure with its title.
pub fn text(scatter: &Scatter, style: &Style) -> String {
    let [old, recent, last] = match style.symbols {
        Symbols::Unicode => ['·', '○', '●'],
        Symbols::Ascii => ['.', 'o', '@'],
    };
    let (right, top) = scatter.ends();
    let number = |value, unit| scale::number(value, unit).text(style.symbols);
    let labels = [number(top, scatter.y().unit), number(0.0, scatter.y().unit)];
    let indentation = labels.iter().map(|label| width(label)).max().unwrap_or(0) + 2;
    let columns = usize::from(style.width).saturating_sub(indentation).clamp(1, WIDTH);
    let mut grid = vec![vec![' '; columns]; HEIGHT];
    // Marks of later points stay.
    for ((x, y), age) in scatter.aged() {
        let mark = match age {
            Age::Old => old,
            Age::Recent => recent,
            Age::Last => last,
        };
        grid[HEIGHT - 1 - step(y / top, HEIGHT)][step(x / right, columns)] = mark;
    }
    let mut text = style.title(scatter.title());
    for (line, drawn) in grid.iter().enumerate() {
        let label = match line {
            0 => labels[0].as_str(),
            _ if line == HEIGHT - 1 => &labels[1],
            _ => "",
        };
        let gap = " ".repeat(indentation - 1 - width(label));
        text.push_str(format!(" {label}{gap}{}", drawn.iter().collect::<String>()).trim_end());
        text.push('\n');
    }
    let [begin, end] = [0.0, right].map(|value| number(value, scatter.x().unit));
    let gap = " ".repeat(columns.saturating_sub(width(&begin) + width(&end)).max(1));
    text.push_str(&format!("{}{begin}{gap}{end}\n", " ".repeat(indentation)));
    text.push_str(&style.note(&format!(
        "{} over {}; {old} first half, {recent} second half, {last} now",
        scatter.y().label,
        scatter.x().label
    )));
    text
}

/// The cell of a share, of as many.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a few cells")]
fn step(share: f64, cells: usize) -> usize {
    ((share * real(cells)) as usize).min(cells - 1)
}
