//! How quantities read: golden tables, and what holds of any number.

use super::*;
use assay_quantity::{Interval, Method};
use expect_test::expect;
use proptest::prelude::*;

const UNITS: [Unit; 6] =
    [Unit::Nanoseconds, Unit::NanosecondsPerByte, Unit::PerSecond, Unit::Ratio, Unit::Count, Unit::Bytes];

fn interval(point: f64, low: f64, high: f64, unit: Unit) -> Estimate {
    let interval = Interval { low, high, confidence: 0.95 };
    Estimate { point, interval, unit, method: Method::TrimmedMean, values: 12 }
}

fn plus_minus(point: f64, half: f64) -> Estimate {
    interval(point, point - half, point + half, Unit::Nanoseconds)
}

/// The value that the digits and the symbol stand for.
fn read(digits: &str, symbol: &str, unit: Unit) -> f64 {
    let scale = scales(unit).iter().find(|scale| scale.symbol == symbol).unwrap();
    digits.parse::<f64>().unwrap() * scale.size
}

#[test]
fn numbers_read_as_in_this_table() {
    let shown: Vec<String> = [
        (1250.0, Unit::Nanoseconds),
        (999.4, Unit::Nanoseconds),
        (999.96, Unit::Nanoseconds),
        (0.3125, Unit::Nanoseconds),
        (0.0, Unit::Nanoseconds),
        (-1250.0, Unit::Nanoseconds),
        (61_000_000_000.0, Unit::Nanoseconds),
        (10_812_000_000_000.0, Unit::Nanoseconds),
        (1e-12, Unit::Nanoseconds),
        (1e40, Unit::Nanoseconds),
        (0.0925, Unit::NanosecondsPerByte),
        (23_100.0, Unit::PerSecond),
        (0.314, Unit::Ratio),
        (1.0, Unit::Ratio),
        (0.00042, Unit::Ratio),
        (7.0, Unit::Count),
        (12_345.0, Unit::Count),
        (1023.0, Unit::Bytes),
        (4096.0, Unit::Bytes),
        (5000.0, Unit::Bytes),
        (33_554_432.0, Unit::Bytes),
        (f64::NAN, Unit::Bytes),
        (f64::INFINITY, Unit::PerSecond),
    ]
    .iter()
    .map(|(value, unit)| format!("{value} {unit} -> {}", number(*value, *unit)))
    .collect();
    expect![[r#"
        1250 ns -> 1.25 us
        999.4 ns -> 999 ns
        999.96 ns -> 1.00 us
        0.3125 ns -> 0.312 ns
        0 ns -> 0 ns
        -1250 ns -> -1.25 us
        61000000000 ns -> 61.0 s
        10812000000000 ns -> 10812 s
        0.000000000001 ns -> 1.00e-12 ns
        10000000000000000000000000000000000000000 ns -> 1.00e31 s
        0.0925 ns/B -> 0.0925 ns/B
        23100 1/s -> 23.1 k/s
        0.314 ratio -> 31.4 %
        1 ratio -> 100 %
        0.00042 ratio -> 0.0420 %
        7 count -> 7
        12345 count -> 12.3 k
        1023 B -> 1023 B
        4096 B -> 4 KiB
        5000 B -> 4.88 KiB
        33554432 B -> 32 MiB
        NaN B -> unknown
        inf 1/s -> unknown"#]]
    .assert_eq(&shown.join("\n"));
}

#[test]
fn estimates_read_as_in_this_table() {
    let shown: Vec<String> = [
        plus_minus(1250.0, 12.5),
        plus_minus(1250.0, 0.000_001),
        plus_minus(1250.0, 0.0),
        plus_minus(1250.0, 99.9),
        plus_minus(900.0, 1100.0),
        plus_minus(1250.0, 5e6),
        plus_minus(0.25, 0.001),
        plus_minus(2.5e9, 1e6),
        plus_minus(0.0, 3.0),
        interval(1250.0, 1240.0, 1270.0, Unit::Nanoseconds),
        interval(1250.0, 1250.0, 1270.0, Unit::Nanoseconds),
        interval(1250.0, 1249.99, 1450.0, Unit::Nanoseconds),
        interval(1250.0, 1300.0, 1400.0, Unit::Nanoseconds),
        interval(1250.0, f64::NEG_INFINITY, f64::INFINITY, Unit::Nanoseconds),
        interval(f64::NAN, f64::NAN, f64::NAN, Unit::Nanoseconds),
        interval(23_100.0, 22_900.0, 23_300.0, Unit::PerSecond),
        interval(0.314, 0.302, 0.326, Unit::Ratio),
        interval(4096.0, 4000.0, 4192.0, Unit::Bytes),
        interval(7.93, 7.91, 7.95, Unit::Count),
    ]
    .iter()
    .map(|e| format!("{} [{}, {}] {} -> {}", e.point, e.interval.low, e.interval.high, e.unit, estimate(e)))
    .collect();
    expect![[r#"
        1250 [1237.5, 1262.5] ns -> 1.250 ± 0.013 us
        1250 [1249.999999, 1250.000001] ns -> 1.25000 ± 0.00001 us
        1250 [1250, 1250] ns -> 1.25 ± 0 us
        1250 [1150.1, 1349.9] ns -> 1.25 ± 0.10 us
        900 [-200, 2000] ns -> 0.9 ± 1.1 us
        1250 [-4998750, 5001250] ns -> 0.0 ± 5.0 ms
        0.25 [0.249, 0.251] ns -> 0.2500 ± 0.0010 ns
        2500000000 [2499000000, 2501000000] ns -> 2.5000 ± 0.0010 s
        0 [-3, 3] ns -> 0.0 ± 3.0 ns
        1250 [1240, 1270] ns -> 1.250 +0.020/-0.010 us
        1250 [1250, 1270] ns -> 1.250 +0.020/-0 us
        1250 [1249.99, 1450] ns -> 1.25 +0.20/-0.01 us
        1250 [1300, 1400] ns -> 1.25 [1.30, 1.40] us
        1250 [-inf, inf] ns -> 1.25 ± unknown us
        NaN [NaN, NaN] ns -> unknown
        23100 [22900, 23300] 1/s -> 23.10 ± 0.20 k/s
        0.314 [0.302, 0.326] ratio -> 31.4 ± 1.2 %
        4096 [4000, 4192] B -> 4.000 ± 0.094 KiB
        7.93 [7.91, 7.95] count -> 7.930 ± 0.020"#]]
    .assert_eq(&shown.join("\n"));
}

#[test]
fn the_ascii_form_has_no_other_characters() {
    assert_eq!(estimate(&plus_minus(1250.0, 12.5)).text(Symbols::Ascii), "1.250 +- 0.013 us");
}

#[test]
fn counts_are_exact_in_groups_of_three() {
    for (value, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (u64::MAX, "18,446,744,073,709,551,615")] {
        assert_eq!(count(value), text);
    }
}

#[test]
fn a_shared_scale_is_that_of_the_median_magnitude() {
    assert_eq!(Scale::shared(Unit::Nanoseconds, &[2.0, 1500.0, 3000.0, 0.0, f64::NAN]).symbol(), "us");
    assert_eq!(Scale::shared(Unit::Nanoseconds, &[]).symbol(), "ns");
}

fn any_unit() -> impl Strategy<Value = Unit> {
    prop::sample::select(UNITS.to_vec())
}

proptest! {
    #[test]
    fn the_digits_of_a_number_are_within_half_a_per_cent_of_it(
        exponent in -8.0..18.0f64, sign in prop::bool::ANY, unit in any_unit(),
    ) {
        let value = if sign { 10f64.powf(exponent) } else { -10f64.powf(exponent) };
        let shown = number(value, unit);
        let read = read(&shown.point, shown.unit, unit);
        prop_assert!((read / value - 1.0).abs() <= 0.005, "{value} {unit} reads {shown}");
    }

    #[test]
    fn a_larger_number_never_reads_smaller(a in 1e-6..1e15f64, factor in 1.0..2.0f64, unit in any_unit()) {
        let (small, large) = (number(a, unit), number(a * factor, unit));
        let difference = read(&large.point, large.unit, unit) - read(&small.point, small.unit, unit);
        prop_assert!(difference >= -1e-9 * a, "{small} then {large}");
    }

    #[test]
    fn an_estimate_always_shows_an_interval_as_wide_as_its_digits_allow(
        exponent in -3.0..13.0f64, below in 0.0..2.0f64, above in 0.0..2.0f64, unit in any_unit(),
    ) {
        let point = 10f64.powf(exponent);
        let e = interval(point, point * (1.0 - below), point * (1.0 + above), unit);
        let shown = estimate(&e);
        let (wide, narrow) = match &shown.spread {
            Spread::Symmetric(half) => (half, half),
            Spread::Sides { above, below } => (above, below),
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        let widest = read(wide, shown.unit, unit).max(read(narrow, shown.unit, unit));
        prop_assert!(widest >= point * below.max(above) * 0.94, "{shown}");
        prop_assert!(widest <= point * below.max(above) * 1.06 + point * 1e-5, "{shown}");
        let read = read(&shown.point, shown.unit, unit);
        prop_assert!((read - point).abs() <= widest.max(point * 1e-5), "{shown}");
    }

    #[test]
    fn for_any_bits_the_text_is_short_and_never_nan(bits: [u64; 3], unit in any_unit()) {
        let [point, low, high] = bits.map(f64::from_bits);
        for shown in [estimate(&interval(point, low, high, unit)), number(point, unit)] {
            let text = shown.to_string();
            prop_assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            prop_assert!(text.len() < 80, "{text}");
        }
    }
}
