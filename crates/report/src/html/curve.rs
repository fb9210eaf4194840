//! Curves: one SVG with axes, ticks, lines, and points with their intervals; the legend stands above it
//! as text of the page, and the numbers in a table under it that unfolds.

use maud::{Markup, html};

use super::axis::{BOTTOM, Frame, LEFT, RIGHT, Scaled, TOP, class, legend, linear, logarithmic};
use super::bars::coordinate;
use crate::figure::{Curve, CurvePoint, Line};
use crate::scale;
use crate::visible::visible;

/// Ratio of the largest to the smallest value above which the y axis is logarithmic: below, the smallest
/// value is still visible on an axis from zero.
const LOGARITHMIC: f64 = 50.0;

/// Factor that a logarithmic y axis reaches beyond its values, so that none lies on the frame.
const HEADROOM: f64 = 1.3;

/// The figure with its caption.
pub fn figure(curve: &Curve, id: &str) -> Markup {
    let (x, y) = axes(curve);
    let lines = curve.lines().iter().enumerate();
    let drawn = html! {
        @for (position, line) in lines { (self::line(line, position, curve, &x, &y)) }
    };
    let legend = match curve.lines() {
        [_] => html! {},
        lines => {
            let key = html! {
                line class="path" x1="0" x2="28" y1="5" y2="5" {}
                circle cx="14" cy="5" r="3.5" {}
            };
            legend(lines.iter().map(|line| line.name.as_str()), &key)
        }
    };
    Frame { x: (curve.x(), x), y: (curve.y(), y) }.figure(id, &legend, &drawn, &curve.table())
}

fn axes(curve: &Curve) -> (Scaled, Scaled) {
    let points = || curve.lines().iter().flat_map(|line| &line.points);
    let (low, high) = range(points().map(|point| point.x));
    let x = logarithmic(low, high, curve.x().unit, LEFT, RIGHT);
    let (low, high) = range(points().flat_map(|point| {
        let interval = point.y.interval;
        // An interval that reaches zero or infinity must not decide where the axis ends.
        [point.y.point, interval.low.max(point.y.point / 2.0), interval.high.min(point.y.point * 2.0)]
    }));
    let y = if high / low > LOGARITHMIC {
        logarithmic(low / HEADROOM, high * HEADROOM, curve.y().unit, BOTTOM, TOP)
    } else {
        linear(high, BOTTOM, TOP)
    };
    (x, y)
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(low, high), value| (value.min(low), value.max(high)))
}

fn line(line: &Line, position: usize, curve: &Curve, x: &Scaled, y: &Scaled) -> Markup {
    let path: Vec<String> = line
        .points
        .iter()
        .map(|p| format!("{},{}", coordinate(x.place(p.x)), coordinate(y.place(p.y.point))))
        .collect();
    html! {
        g class=(class(position)) {
            polyline class="path" points=(path.join(" ")) {}
            @for point in &line.points { (self::point(point, line, curve, x, y)) }
        }
    }
}

fn point(point: &CurvePoint, line: &Line, curve: &Curve, x: &Scaled, y: &Scaled) -> Markup {
    let at = x.place(point.x);
    let (low, high) = (y.place(point.y.interval.low), y.place(point.y.interval.high));
    let stroke = |x1: f64, x2: f64, y1: f64, y2: f64| {
        html! {
            line class="whisker" x1=(coordinate(x1)) x2=(coordinate(x2)) y1=(coordinate(y1)) y2=(coordinate(y2)) {}
        }
    };
    html! {
        g {
            title {
                (visible(&line.name)) ", " (scale::number(point.x, curve.x().unit)) ": "
                (scale::estimate(&point.y))
            }
            (stroke(at, at, low, high))
            (stroke(at - 4.0, at + 4.0, low, low))
            (stroke(at - 4.0, at + 4.0, high, high))
            circle cx=(coordinate(at)) cy=(coordinate(y.place(point.y.point))) r="3.5" {}
        }
    }
}
