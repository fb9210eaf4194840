//! Stacks as columns of characters, one above another, with the layers' characters in a legend.

use super::{Style, WIDEST_PICTURE, columns};
use crate::figure::{Stack, real};
use crate::scale::Symbols;

/// Lines of a column: a line is a tenth of the whole.
const HEIGHT: usize = 10;

/// The figure with its title.
pub fn text(stack: &Stack, style: &Style) -> String {
    const FRAME: usize = " 100 % ".len();
    let available = usize::from(style.width).saturating_sub(FRAME).clamp(1, WIDEST_PICTURE);
    let stack = stack.at_most(available);
    let columns = stack.columns();
    let symbols = match style.symbols {
        Symbols::Unicode => ['█', '▒', '░', '▓', ':', '·'],
        Symbols::Ascii => ['#', '=', '.', '+', ':', '-'],
    };
    let symbol = |layer: usize| symbols[layer % symbols.len()];
    let shares: Vec<Vec<f64>> = (0..columns.count()).map(|column| stack.shares(column)).collect();
    let mut text = style.title(columns.title());
    for line in (0..HEIGHT).rev() {
        let label = match line {
            0 => "   0 % ",
            _ if line == HEIGHT - 1 => " 100 % ",
            _ => "       ",
        };
        let drawn: String = shares.iter().map(|shares| layer_at(shares, line).map_or(' ', symbol)).collect();
        text.push_str(format!("{label}{drawn}").trim_end());
        text.push('\n');
    }
    text.push_str(&columns::ends(columns, FRAME, style));
    let names = columns.series().iter().enumerate();
    let legend: Vec<String> =
        names.map(|(layer, named)| format!("{} {}", symbol(layer), named.name)).collect();
    text.push_str(&style.note(&format!("{}, over {}", legend.join(", "), columns.x().label)));
    text
}

/// The layer in the middle of this line of a column, from below; `None` if the column is empty.
fn layer_at(shares: &[f64], line: usize) -> Option<usize> {
    let middle = (real(line) + 0.5) / real(HEIGHT);
    let tops = shares.iter().scan(0.0, |top, share| {
        *top += share;
        Some(*top)
    });
    tops.enumerate().find(|(_, top)| middle < *top).map(|(layer, _)| layer)
}
