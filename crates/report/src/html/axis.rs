//! The frame of a picture: its axes, their ticks and labels.

use assay_quantity::Unit;
use maud::{Markup, html};

use super::bars::coordinate;
use crate::figure::Axis;
use crate::layout::interval_note;
use crate::scale::{self, Symbols};
use crate::table::Table;
use crate::visible::visible;

/// The picture's own coordinates.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;

/// Edges of the plot in them: what is left over is for ticks and labels.
pub const LEFT: f64 = 72.0;
pub const RIGHT: f64 = 728.0;
pub const TOP: f64 = 28.0;
pub const BOTTOM: f64 = 326.0;

/// Maximum number of ticks of an axis of this size.
const TICKS: usize = 8;

/// Fewest ticks between which a reader can still interpolate on a logarithmic axis.
const FEWEST_TICKS: usize = 3;

/// Number of colours of the style sheet; further lines reuse them with other dashes.
const COLOURS: usize = 6;

/// The axes of a picture, with their places.
pub struct Frame<'a> {
    pub x: (&'a Axis, Scaled),
    pub y: (&'a Axis, Scaled),
}

impl Frame<'_> {
    /// A figure with its caption: what is drawn in this frame, its legend, notes, and its numbers, whose
    /// title is that of the figure.
    pub fn figure(&self, id: &str, legend: &Markup, drawn: &Markup, numbers: &Table) -> Markup {
        let title = visible(numbers.title());
        html! {
            figure aria-labelledby=(id) {
                figcaption id=(id) { (title) }
                (legend)
                div class="scroll" tabindex="0" role="region" aria-label=(title) {
                    svg class="curve" role="img" viewBox={ "0 0 " (WIDTH) " " (HEIGHT) }
                        aria-labelledby={ (id) "-title " (id) "-desc" } {
                        title id={ (id) "-title" } { (title) }
                        desc id={ (id) "-desc" } {
                            (visible(&self.y.0.label)) " over " (visible(&self.x.0.label))
                            "; the numbers are in the table below."
                        }
                        (grid(self))
                        (drawn)
                    }
                }
                @if let Some(note) = interval_note(numbers.estimates(), Symbols::Unicode) {
                    ul class="notes" { li { (note) } }
                }
                details { summary { "The numbers" } (super::grid(numbers, html! {})) }
            }
        }
    }
}

/// Maps values to places.
pub struct Scaled {
    low: f64,
    high: f64,
    is_logarithmic: bool,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Scaled {
    /// The place of a value, clamped to the ends.
    pub fn place(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = if self.is_logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }
}

/// An axis from zero, its ticks at one, two or five times a power of ten.
pub fn linear(high: f64, from: f64, to: f64) -> Scaled {
    let rough = high / f64::from(u32::try_from(TICKS).unwrap_or(u32::MAX));
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough).unwrap_or(rough);
    let ticks: Vec<f64> = (0..).map(|n| f64::from(n) * step).take_while(|tick| *tick < high + step).collect();
    let high = ticks.last().copied().unwrap_or(high);
    Scaled { low: 0.0, high, is_logarithmic: false, from, to, ticks }
}

/// An axis from `low` to `high` whose ticks are powers of ten, or of two where it counts bytes; where few
/// powers of ten lie on it, also twice and five times them.
pub fn logarithmic(low: f64, high: f64, unit: Unit, from: f64, to: f64) -> Scaled {
    let (low, high) = if high > low { (low, high) } else { (low / 2.0, high * 2.0) };
    let base: f64 = if unit == Unit::Bytes { 2.0 } else { 10.0 };
    let ticks_at = |multiples: &[f64], stride: i32| -> Vec<f64> {
        // A hair of tolerance keeps a tick that is an end from being lost to rounding.
        let (first, last) = (low * (1.0 - 1e-9), high * (1.0 + 1e-9));
        let powers = (exponent(first, base)..=exponent(last, base)).filter(|e| e % stride == 0);
        let ticks = powers.flat_map(|e| multiples.iter().map(move |m| m * base.powi(e)));
        ticks.filter(|tick| first <= *tick && *tick <= last).collect()
    };
    let mut ticks = ticks_at(&[1.0], 1);
    if ticks.len() < FEWEST_TICKS && unit != Unit::Bytes {
        ticks = ticks_at(&[1.0, 2.0, 5.0], 1);
    }
    let mut stride = 1;
    while ticks.len() > TICKS + 1 {
        stride += 1;
        ticks = ticks_at(&[1.0], stride);
    }
    Scaled { low, high, is_logarithmic: true, from, to, ticks }
}

/// The largest power of `base` that is not above `value`.
#[expect(clippy::cast_possible_truncation, reason = "exponents of doubles lie between -1074 and 1023")]
fn exponent(value: f64, base: f64) -> i32 {
    (value.ln() / base.ln()).floor() as i32
}

/// Names with a drawing in the colour of each.
pub fn legend<'a>(names: impl Iterator<Item = &'a str>, key: &Markup) -> Markup {
    html! {
        ul class="legend" {
            @for (position, name) in names.enumerate() {
                li {
                    svg class={ "key " (class(position)) } viewBox="0 0 28 10" aria-hidden="true" { (key) }
                    (visible(name))
                }
            }
        }
    }
}

/// Colour and dash of a line or a layer, by its position.
pub fn class(position: usize) -> String {
    format!("line-{} round-{}", position % COLOURS, (position / COLOURS).min(2))
}

/// The lines and the words of the axes.
fn grid(frame: &Frame<'_>) -> Markup {
    let Frame { x: (x_axis, x), y: (y_axis, y) } = frame;
    html! {
        g class="grid" {
            @for tick in &x.ticks {
                @let place = coordinate(x.place(*tick));
                line x1=(place) x2=(place) y1=(TOP) y2=(BOTTOM) {}
                text x=(place) y=(BOTTOM + 20.0) text-anchor="middle" {
                    (short(&scale::number(*tick, x_axis.unit).to_string()))
                }
            }
            @for tick in &y.ticks {
                @let place = y.place(*tick);
                line x1=(LEFT) x2=(RIGHT) y1=(coordinate(place)) y2=(coordinate(place)) {}
                text x=(LEFT - 8.0) y=(coordinate(place + 4.0)) text-anchor="end" {
                    (short(&scale::number(*tick, y_axis.unit).to_string()))
                }
            }
        }
        g class="axis" {
            text x=(f64::midpoint(LEFT, RIGHT)) y=(HEIGHT - 8.0) text-anchor="middle" {
                (visible(&x_axis.label))
            }
            text x="8" y="14" { (visible(&y_axis.label)) }
        }
    }
}

/// A tick is a round number: trailing zeros after its point are removed.
fn short(digits: &str) -> String {
    let (number, symbol) = digits.split_once(' ').unwrap_or((digits, ""));
    let number = if number.contains('.') && !number.contains('e') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    };
    format!("{number} {symbol}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_ends_at_a_round_tick_above_every_value() {
        let axis = linear(97.0, 0.0, 1.0);
        assert_eq!(axis.ticks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert!((axis.place(50.0) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn a_logarithmic_axis_of_bytes_has_powers_of_two() {
        let axis = logarithmic(4096.0, 65_536.0, Unit::Bytes, 0.0, 4.0);
        assert_eq!(axis.ticks, [4096.0, 8192.0, 16_384.0, 32_768.0, 65_536.0]);
        assert!((axis.place(8192.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_short_logarithmic_axis_has_ticks_between_its_powers_of_ten() {
        assert_eq!(logarithmic(0.9, 110.0, Unit::Nanoseconds, 0.0, 1.0).ticks, [1.0, 10.0, 100.0]);
        assert_eq!(logarithmic(3.0, 40.0, Unit::Count, 0.0, 1.0).ticks, [5.0, 10.0, 20.0]);
    }

    #[test]
    fn a_long_logarithmic_axis_leaves_ticks_out() {
        let axis = logarithmic(1.0, 2f64.powi(40), Unit::Bytes, 0.0, 1.0);
        assert!((4..=TICKS + 1).contains(&axis.ticks.len()), "{:?}", axis.ticks);
    }

    #[test]
    fn one_point_stands_in_the_middle_of_its_axis() {
        let axis = logarithmic(1000.0, 1000.0, Unit::Nanoseconds, 0.0, 1.0);
        assert!((axis.place(1000.0) - 0.5).abs() < 1e-9);
        assert_eq!(axis.ticks, [500.0, 1000.0, 2000.0]);
    }
}
