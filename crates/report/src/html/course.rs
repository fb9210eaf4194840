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
                polyline class="path" points=(steps(line, columns.edges(), &x, &y)) {}
            }
        }
    };
    let key = html! { line class="path" x1="0" x2="28" y1="5" y2="5" {} };
    let legend = legend(columns.series().iter().map(|line| line.name.as_str()), &key);
    Frame { x: (columns.x(), x), y: (course.y(), y) }.figure(id, &legend, &drawn, &course.table())
}

/// The corners of a line that is level in each column.
fn steps(line: &Series, edges: &[f64], x: &Scaled, y: &Scaled) -> String {
    let columns = line.values.iter().zip(edges.windows(2));
    let corners = columns.flat_map(|(value, edge)| [edge[0], edge[1]].map(|edge| (edge, *value)));
    let corners =
        corners.map(|(edge, value)| format!("{},{}", coordinate(x.place(edge)), coordinate(y.place(value))));
    corners.collect::<Vec<_>>().join(" ")
}
