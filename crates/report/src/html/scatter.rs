//! Scatter figures: one SVG with a dot for each point, in the frame of curves.

use maud::{Markup, html};

use super::axis::{BOTTOM, Frame, LEFT, RIGHT, TOP, linear};
use super::bars::coordinate;
use crate::figure::{Age, Scatter};
use crate::scale;

/// The figure with its caption.
pub fn figure(scatter: &Scatter, id: &str) -> Markup {
    let (right, top) = scatter.ends();
    let (x, y) = (linear(right, LEFT, RIGHT), linear(top, BOTTOM, TOP));
    let drawn = html! {
        g class="line-0 round-0" {
            @for (point, age) in scatter.aged() {
                circle class=(class(age)) cx=(coordinate(x.place(point.0))) cy=(coordinate(y.place(point.1)))
                    r=(if age == Age::Last { "6" } else { "3.5" }) {
                    title {
                        (scale::number(point.0, scatter.x().unit)) ", "
                        (scale::number(point.1, scatter.y().unit))
                    }
                }
            }
        }
    };
    let (x, y) = ((scatter.x(), x), (scatter.y(), y));
    Frame { x, y }.figure(id, &html! {}, &drawn, &scatter.table())
}

fn class(age: Age) -> &'static str {
    match age {
        Age::Old => "old",
        Age::Recent | Age::Last => "recent",
    }
}
