//! Bars: labels and digits are text of the page, so that they stay readable on a phone; only the bars
//! themselves are SVG, stretched to the width that is left.

use maud::{Markup, html};

use crate::figure::{BarRow, Bars, Depth, Length};
use crate::layout::interval_note;
use crate::scale::{self, Symbols};
use crate::visible::visible;

/// Width of a bar's coordinate system, which is stretched to the available width.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 20.0;

/// The figure with its caption.
pub fn figure(bars: &Bars, id: &str) -> Markup {
    let rows = bars.rows();
    let estimates = rows.iter().filter_map(|row| match &row.length {
        Length::Estimate(estimate) => Some(estimate),
        Length::Number(_) => None,
    });
    html! {
        figure aria-labelledby=(id) {
            figcaption id=(id) { (visible(bars.title())) }
            div class="bars" { @for row in &rows { (self::row(row, bars)) } }
            @if let Some(note) = interval_note(estimates, Symbols::Unicode) {
                ul class="notes" { li { (note) } }
            }
        }
    }
}

fn row(row: &BarRow<'_>, bars: &Bars) -> Markup {
    let depth = match row.depth {
        Depth::Bar => "bar",
        Depth::Part => "part",
    };
    let shown = match &row.length {
        Length::Estimate(estimate) => scale::estimate(estimate),
        Length::Number(number) => scale::number(*number, bars.unit()),
    };
    html! {
        div class={ "row " (depth) } {
            span class="label" { (super::breakable(&visible(row.label))) }
            (drawn(row, bars, &shown.to_string()))
            span class="value" {
                (shown.point)
                span class="spread" { " " (shown.spread.text(Symbols::Unicode)) }
                span class="unit" { " " (shown.unit) }
            }
        }
    }
}

fn drawn(row: &BarRow<'_>, bars: &Bars, shown: &str) -> Markup {
    let (low, high) = bars.domain();
    let place = |value: f64| (value.clamp(low, high) - low) / (high - low) * WIDTH;
    let (start, end) = (place(row.start), place(row.start + row.length.point()));
    let zero = place(0.0);
    html! {
        svg role="img" viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" {
            title { (visible(row.label)) ": " (shown) }
            desc { "A bar from " (scale::number(row.start, bars.unit())) ", " (shown) " long." }
            rect x=(coordinate(start.min(end))) y="2" width=(coordinate((end - start).abs())) height="16" {}
            (line("zero", zero, zero, 0.0, HEIGHT))
            @if let Some((from, to)) = row.interval() {
                @let (from, to) = (place(from), place(to));
                (line("whisker", from, to, HEIGHT / 2.0, HEIGHT / 2.0))
                (line("whisker", from, from, 5.0, 15.0))
                (line("whisker", to, to, 5.0, 15.0))
            }
        }
    }
}

fn line(class: &str, from: f64, to: f64, top: f64, bottom: f64) -> Markup {
    html! {
        line class=(class) x1=(coordinate(from)) x2=(coordinate(to)) y1=(top) y2=(bottom) {}
    }
}

/// A place in a picture: a hundredth of a unit is less than a pixel.
pub fn coordinate(value: f64) -> String {
    format!("{value:.2}")
}
