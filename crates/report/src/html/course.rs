//! Courses: one SVG with a line of steps for each series, in the frame and the colours of curves.

use maud::{Markup, html};

use super::axis::{BOTTOM, Frame, LEFT, RIGHT, Scaled, TOP, class, legend, linear, logarithmic};
use super::bars::coordinate;
use crate::figure::{Course, Height, Series};
use crate::visible::visible;

/// The figure with its caption.
pub fn figure(course: &Course, id: &str) -> Markup {
    let columns = course.columns();
    let x = linear(columns.edges()[columns.count()], LEFT, RIGHT);
    let (low, high) = course.range();
    let y = match course.height() {
        Height::Linear => linear(high, BOTTOM, TOP),
        Height::Logarithmic => logarithmic(low, high, course.y().unit, BOTTOM, TOP),
    };
    let lines = columns.series().iter().enumerate();
    let drawn = html! {
        @for (position, line) in lines {
            g class=(class(position)) {
                title { (visible(&line.name)) }
                @for points in steps(line, columns.edges(), &x, &y) {
                    polyline class="path" points=(points) {}
                }
            }
        }
    };
    let legend = match columns.series() {
        [_] => html! {},
        lines => {
            let key = html! { line class="path" x1="0" x2="28" y1="5" y2="5" {} };
            legend(lines.iter().map(|line| line.name.as_str()), &key)
        }
    };
    Frame { x: (columns.x(), x), y: (course.y(), y) }.figure(id, &legend, &drawn, &course.table())
}

/// The corners of each piece of a line between gaps; the line is level in each column.
fn steps(line: &Series, edges: &[f64], x: &Scaled, y: &Scaled) -> Vec<String> {
    let columns: Vec<(Option<f64>, &[f64])> = line.values.iter().copied().zip(edges.windows(2)).collect();
    let pieces = columns.chunk_by(|before, after| before.0.is_some() == after.0.is_some());
    let corner =
        |edge: f64, value: f64| format!("{},{}", coordinate(x.place(edge)), coordinate(y.place(value)));
    let corners = |(value, edge): &(Option<f64>, &[f64])| {
        value.map(|value| [edge[0], edge[1]].map(|edge| corner(edge, value)))
    };
    let drawn = pieces.map(|piece| piece.iter().filter_map(corners).flatten().collect::<Vec<_>>().join(" "));
    drawn.filter(|points| !points.is_empty()).collect()
}
