//! Stacks: one SVG with a rectangle for each share, in the frame and the colours of curves.

use assay_quantity::Unit;
use maud::{Markup, html};

use super::axis::{BOTTOM, Frame, LEFT, RIGHT, Scaled, TOP, class, legend, linear};
use super::bars::coordinate;
use crate::figure::{Axis, Stack};
use crate::scale;
use crate::visible::visible;

/// The figure with its caption.
pub fn figure(stack: &Stack, id: &str) -> Markup {
    let columns = stack.columns();
    let x = linear(columns.edges()[columns.count()], LEFT, RIGHT);
    let y = linear(1.0, BOTTOM, TOP);
    let drawn = html! {
        g class="stack" {
            @for column in 0..columns.count() { (self::column(stack, column, &x, &y)) }
        }
    };
    let key = html! { g class="stack" { rect x="9" y="0" width="10" height="10" {} } };
    let legend = legend(columns.series().iter().map(|layer| layer.name.as_str()), &key);
    let share = Axis { label: "share".to_owned(), unit: Unit::Ratio };
    Frame { x: (columns.x(), x), y: (&share, y) }.figure(id, &legend, &drawn, &stack.table())
}

fn column(stack: &Stack, column: usize, x: &Scaled, y: &Scaled) -> Markup {
    let [from, to] = [column, column + 1].map(|edge| stack.columns().edges()[edge]);
    let shares = stack.shares(column);
    let tops = shares.iter().scan(0.0, |top, share| {
        let bottom = *top;
        *top += share;
        Some((bottom, *top))
    });
    html! {
        g {
            title {
                (scale::number(from, stack.columns().x().unit))
                @for (layer, share) in stack.columns().series().iter().zip(&shares) {
                    ", " (visible(&layer.name)) " " (scale::number(*share, Unit::Ratio))
                }
            }
            @for (position, (bottom, top)) in tops.enumerate().filter(|(_, (bottom, top))| top > bottom) {
                rect class=(class(position)) x=(coordinate(x.place(from))) y=(coordinate(y.place(top)))
                    width=(coordinate(x.place(to) - x.place(from)))
                    height=(coordinate(y.place(bottom) - y.place(top))) {}
            }
        }
    }
}
