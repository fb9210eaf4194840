//! A primitive's cost as a function of the bytes that one operation moves.
//!
//! `bench` measures a transfer at a few sizes; applications use others. The curve is piecewise linear in the
//! time of *one operation* (a fixed part plus a part per byte, the shape of every copying call) and passes
//! through every measured point. Each value is marked as measured, interpolated or extrapolated.

use crate::cost::{Cost, Doubt};
use crate::estimate::{Estimate, Interval, Method};
use crate::size::Size;
use crate::unit::Unit;

/// The basis of an evaluated cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Basis {
    /// This size was measured.
    Measured,
    /// Between two measured sizes.
    Interpolated,
    /// Beyond the measured sizes.
    Extrapolated,
}

/// Cost of one operation at one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evaluation {
    /// Time of one operation, [`Unit::Nanoseconds`].
    pub cost: Estimate,
    /// Its basis.
    pub basis: Basis,
    /// Why a measured cost behind it is doubtful, if one is.
    pub doubt: Option<Doubt>,
}

/// Time of one operation over its size. Invariant: at least one point; sizes are positive and strictly
/// increasing.
#[derive(Debug, Clone, PartialEq)]
pub struct CostCurve {
    points: Vec<Point>,
    scaling: Scaling,
}

/// How a single point extends to other sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scaling {
    /// Measured per byte: the time is proportional to the size.
    PerByte,
    /// Measured per operation: the time is the same at every size.
    PerOperation,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    size: f64,
    cost: Estimate,
    doubt: Option<Doubt>,
}

/// Why points make no curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoCurve {
    /// No point at all.
    #[error("it has no measured size")]
    Empty,
    /// A size of zero, or a repeated one.
    #[error("its size {0} is zero or occurs twice")]
    BadSize(u64),
    /// A unit that is not one of a cost, or different units.
    #[error("its costs are not all in ns or all in ns/B")]
    Units,
}

impl CostCurve {
    /// Makes a curve through measured costs, all in ns or all in ns/B.
    ///
    /// # Errors
    /// [`NoCurve`] if the points violate the invariant.
    pub fn through(costs: &[(Size, &Cost)]) -> Result<Self, NoCurve> {
        let unit = costs.first().ok_or(NoCurve::Empty)?.1.typical.unit;
        let scaling = match unit {
            Unit::NanosecondsPerByte => Scaling::PerByte,
            Unit::Nanoseconds => Scaling::PerOperation,
            _ => return Err(NoCurve::Units),
        };
        if costs.iter().any(|(_, cost)| cost.typical.unit != unit) {
            return Err(NoCurve::Units);
        }
        let mut costs = costs.to_vec();
        costs.sort_by_key(|(size, _)| *size);
        let mut before = 0;
        for (size, _) in &costs {
            if size.bytes() <= before {
                return Err(NoCurve::BadSize(size.bytes()));
            }
            before = size.bytes();
        }
        let points = costs
            .iter()
            .map(|(size, cost)| {
                let size = real(size.bytes());
                let factor = if scaling == Scaling::PerByte { size } else { 1.0 };
                Point { size, cost: cost.typical.scaled(factor, Unit::Nanoseconds), doubt: cost.doubt() }
            })
            .collect();
        Ok(Self { points, scaling })
    }

    /// Evaluates the cost of one operation that moves `size` bytes (not necessarily a whole number: the bin
    /// of a histogram has a mean size).
    ///
    /// Below the smallest measured size the first segment is extended, limited from below by the proportional
    /// share and from above by the smallest measured cost. Above the largest size the last segment is
    /// extended.
    #[must_use]
    pub fn at(&self, size: f64) -> Evaluation {
        if let Some(point) = self.points.iter().find(|point| (point.size - size).abs() < 0.5) {
            return Evaluation { cost: point.cost, basis: Basis::Measured, doubt: point.doubt };
        }
        let upper = self.points.partition_point(|point| point.size < size);
        let (first, last) = (self.points[0], self.points[self.points.len() - 1]);
        if self.points.len() == 1 {
            let factor = if self.scaling == Scaling::PerByte { size / first.size } else { 1.0 };
            let cost = first.cost.scaled(factor, Unit::Nanoseconds);
            return Evaluation { cost, basis: Basis::Extrapolated, doubt: first.doubt };
        }
        let (a, b) = match upper {
            0 => (first, self.points[1]),
            _ if upper == self.points.len() => (self.points[upper - 2], last),
            _ => (self.points[upper - 1], self.points[upper]),
        };
        let (line, doubt) = (blend(a, b, size), a.doubt.into_iter().chain(b.doubt).min());
        let (cost, basis) = if upper == 0 {
            let floor = first.cost.point * size / first.size;
            (bounded(line, floor, first.cost.point), Basis::Extrapolated)
        } else if upper == self.points.len() {
            (bounded(line, last.cost.point, f64::INFINITY), Basis::Extrapolated)
        } else {
            (line, Basis::Interpolated)
        };
        Evaluation { cost, basis, doubt }
    }
}

/// The line through two points, at `size`. The points are independent, so their half-widths combine in
/// quadrature with the weights of the line.
fn blend(a: Point, b: Point, size: f64) -> Estimate {
    let weight = (size - a.size) / (b.size - a.size);
    let point = a.cost.point * (1.0 - weight) + b.cost.point * weight;
    let half = (a.cost.interval.half_width() * (1.0 - weight)).hypot(b.cost.interval.half_width() * weight);
    let confidence = a.cost.interval.confidence.min(b.cost.interval.confidence);
    Estimate {
        point,
        interval: Interval { low: point - half, high: point + half, confidence },
        unit: Unit::Nanoseconds,
        method: Method::Derived,
        values: a.cost.values.min(b.cost.values),
    }
}

fn bounded(line: Estimate, low: f64, high: f64) -> Estimate {
    let point = line.point.clamp(low, high.max(low));
    let shift = point - line.point;
    let interval =
        Interval { low: line.interval.low + shift, high: line.interval.high + shift, ..line.interval };
    Estimate { point, interval, ..line }
}

#[expect(clippy::cast_precision_loss, reason = "transfer sizes are far below 2^52 bytes")]
fn real(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Verdict;
    use proptest::prelude::*;

    fn cost(point: f64, unit: Unit) -> Cost {
        let interval = Interval { low: point * 0.99, high: point * 1.01, confidence: 0.95 };
        Cost::from(Estimate { point, interval, unit, method: Method::TrimmedMean, values: 9 })
    }

    fn through(costs: &[(u64, Cost)]) -> Result<CostCurve, NoCurve> {
        let costs: Vec<(Size, &Cost)> = costs.iter().map(|(size, cost)| (Size(*size), cost)).collect();
        CostCurve::through(&costs)
    }

    fn per_byte(points: &[(u64, f64)]) -> CostCurve {
        let costs: Vec<_> =
            points.iter().map(|(size, c)| (*size, cost(*c, Unit::NanosecondsPerByte))).collect();
        through(&costs).unwrap()
    }

    fn at(curve: &CostCurve, size: f64) -> (f64, Basis) {
        let evaluation = curve.at(size);
        (evaluation.cost.point, evaluation.basis)
    }

    #[test]
    fn one_point_per_byte_is_proportional_and_one_per_operation_is_constant() {
        assert_eq!(at(&per_byte(&[(4096, 2.0)]), 1024.0), (2048.0, Basis::Extrapolated));
        let curve = through(&[(4096, cost(50.0, Unit::Nanoseconds))]).unwrap();
        assert_eq!(at(&curve, 8192.0), (50.0, Basis::Extrapolated));
    }

    #[test]
    fn a_fixed_part_and_a_part_per_byte_are_recovered_between_and_beyond_the_points() {
        // 1000 ns + 0.5 ns/B, measured at 4 and 32 KiB.
        let affine = |size: f64| 1000.0 + 0.5 * size;
        let curve = per_byte(&[(4096, affine(4096.0) / 4096.0), (32768, affine(32768.0) / 32768.0)]);
        for (size, basis) in [
            (4096.0, Basis::Measured),
            (8192.0, Basis::Interpolated),
            (65536.0, Basis::Extrapolated),
            (64.0, Basis::Extrapolated),
        ] {
            let (point, found) = at(&curve, size);
            assert!((point - affine(size)).abs() < 1e-6, "{size}");
            assert_eq!(found, basis, "{size}");
        }
    }

    #[test]
    fn points_that_make_no_curve_are_refused() {
        let c = || cost(1.0, Unit::Nanoseconds);
        assert_eq!(through(&[]), Err(NoCurve::Empty));
        assert_eq!(through(&[(0, c())]), Err(NoCurve::BadSize(0)));
        assert_eq!(through(&[(4, c()), (4, c())]), Err(NoCurve::BadSize(4)));
        let mixed = [(4, c()), (8, cost(1.0, Unit::NanosecondsPerByte))];
        assert_eq!(through(&mixed), Err(NoCurve::Units));
    }

    #[test]
    fn a_doubtful_point_makes_doubtful_what_rests_on_it_and_nothing_else() {
        let clean = || cost(1.0, Unit::Nanoseconds);
        let doubtful = Cost { verdict: Some(Verdict::Disturbed(0.5)), ..clean() };
        let curve = through(&[(10, clean()), (20, clean()), (30, doubtful), (40, clean())]).unwrap();
        let is_doubtful = |size| curve.at(size).doubt == Some(Doubt::Disturbed);
        assert_eq!([5.0, 10.0, 15.0, 20.0].map(is_doubtful), [false; 4]);
        assert_eq!([25.0, 30.0, 35.0, 50.0].map(is_doubtful), [true; 4]);
        assert!(!is_doubtful(40.0));
    }

    proptest! {
        #[test]
        fn no_size_costs_less_than_nothing(
            sizes in prop::collection::btree_set(1u64..1_000_000, 1..6),
            costs in prop::collection::vec(0.001..100.0f64, 6),
            size in 1.0..1e7f64,
        ) {
            let points: Vec<(u64, f64)> = sizes.into_iter().zip(costs).collect();
            prop_assert!(per_byte(&points).at(size).cost.point > 0.0);
        }
    }
}
