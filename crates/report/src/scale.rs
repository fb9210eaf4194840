//! Formats a quantity for people: its scale, its digits and its interval.
//!
//! All other code uses nanoseconds and bytes; here 1250 ns becomes `1.25 us`. Every
//! renderer calls this module and nothing else turns a quantity into digits for people. An estimate has
//! one scale for its point and its interval, the interval has two significant digits (as the Guide to the
//! Expression of Uncertainty in Measurement, 7.2.6, asks of uncertainties) and the point ends at the same
//! decimal. What is not a finite number reads as `unknown`, never as `NaN`.

use std::fmt;

use assay_quantity::{Estimate, Unit};

/// Characters that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symbols {
    /// Any character.
    Unicode,
    /// ASCII only.
    Ascii,
}

/// Significant digits of a number that has no interval.
const NUMBER_DIGITS: usize = 3;

/// Significant digits of an interval's half-width.
const INTERVAL_DIGITS: usize = 2;

/// Most significant digits of a point, however narrow its interval.
const POINT_DIGITS: usize = 6;

/// Difference between the two sides of an interval, as a share of the larger one, up to which it is shown
/// as `±` the larger one: below the rounding of two digits.
const SYMMETRIC: f64 = 0.05;

/// Most decimals before digits are written as `1.23e-9`: a millionth with three digits has eight.
const PLAIN_DECIMALS: i32 = 9;

/// Largest decimal exponent before digits are written as `1.23e15`: what a double holds exactly.
const PLAIN_EXPONENT: i32 = 14;

/// One way to write a unit: values are divided by `size`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    size: f64,
    symbol: &'static str,
}

/// A quantity in pieces, so that columns can be aligned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Digits of the point, or `unknown`.
    pub point: String,
    /// Its interval.
    pub spread: Spread,
    /// Symbol of the scale; empty for plain counts.
    pub unit: &'static str,
}

/// The interval of a quantity, in digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spread {
    /// The quantity has none: it is exact or was given without.
    None,
    /// The same to both sides.
    Symmetric(String),
    /// Not the same to both sides.
    Sides {
        /// Distance to the upper end.
        above: String,
        /// Distance to the lower end.
        below: String,
    },
    /// The point lies outside: both ends.
    Ends {
        /// Lower end.
        low: String,
        /// Upper end.
        high: String,
    },
    /// There is an interval, but it has no finite ends.
    Unknown,
}

const NANOSECONDS: &[Scale] = &[scale(1.0, "ns"), scale(1e3, "us"), scale(1e6, "ms"), scale(1e9, "s")];
const NANOSECONDS_PER_BYTE: &[Scale] =
    &[scale(1.0, "ns/B"), scale(1e3, "us/B"), scale(1e6, "ms/B"), scale(1e9, "s/B")];
const PER_SECOND: &[Scale] = &[scale(1.0, "/s"), scale(1e3, "k/s"), scale(1e6, "M/s"), scale(1e9, "G/s")];
const BYTES_PER_SECOND: &[Scale] =
    &[scale(1.0, "B/s"), scale(1e3, "kB/s"), scale(1e6, "MB/s"), scale(1e9, "GB/s"), scale(1e12, "TB/s")];
const RATIO: &[Scale] = &[scale(0.01, "%")];
const COUNT: &[Scale] = &[scale(1.0, ""), scale(1e3, "k"), scale(1e6, "M"), scale(1e9, "G")];
const BYTES: &[Scale] = &[
    scale(1.0, "B"),
    scale(1024.0, "KiB"),
    scale(1_048_576.0, "MiB"),
    scale(1_073_741_824.0, "GiB"),
    scale(1_099_511_627_776.0, "TiB"),
];

const fn scale(size: f64, symbol: &'static str) -> Scale {
    Scale { size, symbol }
}

/// The scales of a unit, smallest first.
fn scales(unit: Unit) -> &'static [Scale] {
    match unit {
        Unit::Nanoseconds => NANOSECONDS,
        Unit::NanosecondsPerByte => NANOSECONDS_PER_BYTE,
        Unit::PerSecond => PER_SECOND,
        Unit::BytesPerSecond => BYTES_PER_SECOND,
        Unit::Ratio => RATIO,
        Unit::Count => COUNT,
        Unit::Bytes => BYTES,
    }
}

/// An estimate with its interval, on a suitable scale.
#[must_use]
pub fn estimate(estimate: &Estimate) -> Shown {
    Scale::of(estimate.unit, magnitude(estimate)).estimate(estimate)
}

/// A number without an interval, on a suitable scale.
#[must_use]
pub fn number(value: f64, unit: Unit) -> Shown {
    Scale::of(unit, value).number(value)
}

/// An exact count, in groups of three digits.
#[must_use]
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// An exact difference of two counts, with its sign unless it is 0.
#[must_use]
pub fn difference(difference: i64) -> String {
    let sign = match difference.signum() {
        1 => "+",
        -1 => "-",
        _ => "",
    };
    format!("{sign}{}", count(difference.unsigned_abs()))
}

impl Scale {
    /// The scale on which a value of this magnitude has one to three digits before the point, as far as
    /// the unit has such a scale.
    #[must_use]
    pub fn of(unit: Unit, magnitude: f64) -> Self {
        let scales = scales(unit);
        let exact = magnitude.abs();
        // Digits are rounded first: 999.96 ns reads 1.00 us, not 1000 ns.
        let rounded = format!("{:.*e}", NUMBER_DIGITS - 1, exact).parse().unwrap_or(exact).max(exact);
        *scales.iter().rev().find(|scale| scale.size <= rounded).unwrap_or(&scales[0])
    }

    /// The scale that suits most of these values: that of the median magnitude.
    #[must_use]
    pub fn shared(unit: Unit, values: &[f64]) -> Self {
        let mut magnitudes: Vec<f64> =
            values.iter().map(|v| v.abs()).filter(|v| v.is_finite() && *v > 0.0).collect();
        magnitudes.sort_by(f64::total_cmp);
        Self::of(unit, magnitudes.get(magnitudes.len() / 2).copied().unwrap_or(0.0))
    }

    /// Its symbol; empty for plain counts.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        self.symbol
    }

    /// An estimate on this scale.
    #[must_use]
    pub fn estimate(self, estimate: &Estimate) -> Shown {
        let point = estimate.point / self.size;
        if !point.is_finite() {
            return Shown::unknown();
        }
        let (low, high) = (estimate.interval.low / self.size, estimate.interval.high / self.size);
        if !low.is_finite() || !high.is_finite() {
            let point = digits(point, decimals(point, NUMBER_DIGITS));
            return Shown { point, spread: Spread::Unknown, unit: self.symbol };
        }
        // Subtracted before they are scaled: the division must not move a distance across a rounding.
        let below = (estimate.point - estimate.interval.low) / self.size;
        let above = (estimate.interval.high - estimate.point) / self.size;
        let half = below.abs().max(above.abs());
        if half == 0.0 {
            let point = without_zeros(digits(point, decimals(point, POINT_DIGITS)));
            return Shown { point, spread: Spread::Symmetric("0".to_owned()), unit: self.symbol };
        }
        let places = interval_decimals(point, half);
        let spread = if below < 0.0 || above < 0.0 {
            Spread::Ends { low: digits(low, places), high: digits(high, places) }
        } else if (above - below).abs() <= SYMMETRIC * half {
            Spread::Symmetric(not_less(half, places))
        } else {
            Spread::Sides { above: not_less(above, places), below: not_less(below, places) }
        };
        Shown { point: digits(point, places), spread, unit: self.symbol }
    }

    /// A number on this scale, down to the first digit of a resolution in the unit.
    #[must_use]
    pub fn number_down_to(self, resolution: f64, value: f64) -> Shown {
        let scaled = value / self.size;
        if !scaled.is_finite() {
            return Shown::unknown();
        }
        let point = match scaled {
            0.0 => "0".to_owned(),
            scaled => digits(scaled, decimals(resolution / self.size, 1)),
        };
        Shown { point, spread: Spread::None, unit: self.symbol }
    }

    /// A number on this scale, three significant digits; whole counts and sizes without decimals.
    #[must_use]
    pub fn number(self, value: f64) -> Shown {
        let scaled = value / self.size;
        if !scaled.is_finite() {
            return Shown::unknown();
        }
        let point = if scaled == 0.0 {
            "0".to_owned()
        } else {
            let point = digits(scaled, decimals(scaled, NUMBER_DIGITS));
            let is_whole =
                scaled.fract() == 0.0 && BYTES.iter().chain(COUNT).any(|s| s.symbol == self.symbol);
            if is_whole { without_zeros(point) } else { point }
        };
        Shown { point, spread: Spread::None, unit: self.symbol }
    }
}

/// What decides the scale of an estimate: its point, or its interval where that is wider.
fn magnitude(estimate: &Estimate) -> f64 {
    [estimate.point, estimate.point - estimate.interval.low, estimate.interval.high - estimate.point]
        .into_iter()
        .map(f64::abs)
        .filter(|value| value.is_finite())
        .fold(0.0, f64::max)
}

/// Decimals that give an interval its digits without giving the point more than [`POINT_DIGITS`].
fn interval_decimals(point: f64, half: f64) -> i32 {
    let wanted = decimals(half, INTERVAL_DIGITS);
    if point == 0.0 { wanted } else { wanted.min(decimals(point, POINT_DIGITS)) }
}

/// Decimals with which `value` has `significant` digits; negative where digits before the point would be
/// enough already.
fn decimals(value: f64, significant: usize) -> i32 {
    let significant_minus_one = i32::try_from(significant).unwrap_or(i32::MAX) - 1;
    significant_minus_one - exponent(value, significant)
}

/// Decimal exponent of a value once it is rounded to `significant` digits: that of 9.99 to two is 1.
fn exponent(value: f64, significant: usize) -> i32 {
    let scientific = format!("{:.*e}", significant - 1, value);
    scientific.rsplit('e').next().and_then(|exponent| exponent.parse().ok()).unwrap_or(0)
}

/// A value with that many decimals. Digits before the point are never rounded away.
fn digits(value: f64, decimals: i32) -> String {
    if value != 0.0 && (decimals > PLAIN_DECIMALS || exponent(value, 1) > PLAIN_EXPONENT) {
        return format!("{:.*e}", NUMBER_DIGITS - 1, value);
    }
    let text = format!("{value:.*}", usize::try_from(decimals).unwrap_or(0));
    // A value that rounds to zero has no sign.
    match text.strip_prefix('-') {
        Some(zero) if zero.bytes().all(|b| b == b'0' || b == b'.') => zero.to_owned(),
        _ => text,
    }
}

/// A distance, rounded to zero only if it is zero: a width that rounds to zero is shown as one unit of the
/// last place.
fn not_less(distance: f64, decimals: i32) -> String {
    if distance == 0.0 {
        return "0".to_owned();
    }
    let text = digits(distance, decimals);
    if text.bytes().any(|b| b.is_ascii_digit() && b != b'0') {
        return text;
    }
    digits(10f64.powi(-decimals.max(0)), decimals)
}

fn without_zeros(digits: String) -> String {
    if !digits.contains('.') || digits.contains('e') {
        return digits;
    }
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Spread {
    /// As text: `± 0.013`, `+0.020/-0.010`; empty where there is none.
    #[must_use]
    pub fn text(&self, symbols: Symbols) -> String {
        let sign = plus_minus(symbols);
        match self {
            Spread::None => String::new(),
            Spread::Symmetric(half) => format!("{sign} {half}"),
            Spread::Sides { above, below } => format!("+{above}/-{below}"),
            Spread::Ends { low, high } => format!("[{low}, {high}]"),
            Spread::Unknown => format!("{sign} unknown"),
        }
    }
}

/// The sign before an interval.
#[must_use]
pub fn plus_minus(symbols: Symbols) -> &'static str {
    match symbols {
        Symbols::Unicode => "±",
        Symbols::Ascii => "+-",
    }
}

impl Shown {
    fn unknown() -> Self {
        Shown { point: "unknown".to_owned(), spread: Spread::None, unit: "" }
    }

    /// As text: `1.250 ± 0.013 us`.
    #[must_use]
    pub fn text(&self, symbols: Symbols) -> String {
        let mut text = self.point.clone();
        for piece in [self.spread.text(symbols).as_str(), self.unit] {
            if !piece.is_empty() {
                text.push(' ');
                text.push_str(piece);
            }
        }
        text
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(Symbols::Unicode))
    }
}

#[cfg(test)]
mod tests;
