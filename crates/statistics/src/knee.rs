//! Knees: where a measured curve rises from one plateau to the next, and the cost of each plateau.
//!
//! Latency over the size of the working set is a staircase whose steps are the levels of the memory hierarchy
//! (lmbench, 1996, section 6.2, reads it from a plot by eye). A level is a straight line on logarithmic axes,
//! flat or rising slowly, because translation costs more for larger sets; points between two levels belong to
//! neither. All points are assigned together, by the cheapest explanation of the whole curve: each level,
//! each point between levels and each deviation from a line has a price. The number of levels and their sizes
//! are not given.

use assay_quantity::{Estimate, Size};

use crate::estimator;

/// One level of a hierarchy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// Latency of an access: the median estimate of the plateau.
    pub latency: Estimate,
    /// Largest measured size that fits; `None` for the last level, whose end is beyond the curve.
    pub capacity: Option<Size>,
}

/// Finds the levels of a curve of latency over working set, fastest first. Capacities are sizes of the curve,
/// so their resolution is that of the measurement. Costs that are not positive are ignored.
#[must_use]
pub fn levels(curve: &[(Size, Estimate)]) -> Vec<Level> {
    staircase(curve, 0.0)
}

/// Finds the levels of a curve of translation cost over working set: the reach of each TLB, and beyond it
/// page tables in the caches. The cost within the reach of the first TLB is close to zero, so differences
/// below a nanosecond are ignored.
#[must_use]
pub fn translation_levels(curve: &[(Size, Estimate)]) -> Vec<Level> {
    staircase(curve, NEGLIGIBLE_NS)
}

/// Finds the length of a cache line, from a curve of the cost of a load over its distance from the load
/// before: the smallest distance at which it is a miss. `None` if the curve has no such step.
#[must_use]
pub fn line_size(curve: &[(Size, Estimate)]) -> Option<Size> {
    let points = sorted(curve, 0.0);
    let split = (1..points.len()).min_by(|a, b| {
        let apart = |split: usize| scatter(&points[..split]) + scatter(&points[split..]);
        apart(*a).total_cmp(&apart(*b))
    })?;
    let step = median(&points[split..]) - median(&points[..split]);
    (step >= MISS.ln()).then(|| points[split].size)
}

/// A negligible cost of translation, ns.
const NEGLIGIBLE_NS: f64 = 1.0;

/// Least ratio of the cost of a miss to that of a hit. First levels take 3 to 5 cycles, second ones 10 or
/// more.
const MISS: f64 = 2.0;

/// Least ratio of the cost of a level to that of the level before. A factor of four is usual; the smallest
/// one observed, between a last cache and memory next to it, is two.
const RISE: f64 = 1.5;

/// Largest ratio of the costs of one level for a set twice as large, which misses more often in translation.
const SLOPE_MAX: f64 = 1.3;

/// Relative deviation that counts as noise.
const NOISE: f64 = 0.06;

/// Price of a level, in squares of [`NOISE`]: a line has two parameters and an end, and each costs about the
/// logarithm of the number of points (Schwarz, 1978).
const LEVEL: f64 = 12.0;

/// Price of a point between levels: two of them cost more than the smallest level, because a cache that
/// others use may show only two points.
const BETWEEN: f64 = 7.0;

/// Largest price of a deviation, so that a disturbed point does not bend a line.
const OUTLIER: f64 = 9.0;

/// Minimum number of points of a level: a single one may lie between two others.
const POINTS_MIN: usize = 2;

/// A point on logarithmic axes.
#[derive(Debug, Clone, Copy)]
struct Point {
    size: Size,
    /// Logarithm to base 2 of the size.
    x: f64,
    /// Natural logarithm of the cost.
    y: f64,
    cost: Estimate,
}

fn sorted(curve: &[(Size, Estimate)], negligible: f64) -> Vec<Point> {
    let mut points: Vec<Point> = curve
        .iter()
        .filter(|(size, cost)| size.bytes() > 0 && cost.point.is_finite() && cost.point > 0.0)
        .map(|(size, cost)| Point {
            size: *size,
            x: logarithm(*size),
            y: (cost.point + negligible).ln(),
            cost: *cost,
        })
        .collect();
    points.sort_by_key(|point| point.size);
    points.dedup_by_key(|point| point.size);
    points
}

#[expect(clippy::cast_precision_loss, reason = "a size on a logarithmic axis needs few digits")]
fn logarithm(size: Size) -> f64 {
    (size.bytes() as f64).log2()
}

/// Median of the costs' logarithms.
fn median(points: &[Point]) -> f64 {
    estimator::middle_of(points.iter().map(|point| point.y).collect())
}

/// Sum of the absolute deviations of the costs' logarithms from their median.
fn scatter(points: &[Point]) -> f64 {
    let middle = median(points);
    points.iter().map(|point| (point.y - middle).abs()).sum()
}

fn staircase(curve: &[(Size, Estimate)], negligible: f64) -> Vec<Level> {
    let points = sorted(curve, negligible);
    let plateaus = joined(explained(&points), &points);
    let ends: Vec<usize> = plateaus.windows(2).map(|pair| end(&pair[0], &pair[1], &points)).collect();
    let capacities = ends.into_iter().map(|end| Some(points[end].size)).chain([None]);
    let level = |(plateau, capacity): (&Plateau, Option<Size>)| Level {
        latency: middle_of(&points[plateau.first..=plateau.last]),
        capacity,
    };
    plateaus.iter().zip(capacities).map(level).collect()
}

/// Consecutive points on a line: a level or a part of one.
#[derive(Debug, Clone, Copy)]
struct Plateau {
    first: usize,
    last: usize,
    line: Line,
}

#[derive(Debug, Clone, Copy)]
struct Line {
    at_zero: f64,
    slope: f64,
}

impl Line {
    /// Least squares, with the slope limited to that of a level.
    #[expect(clippy::cast_precision_loss, reason = "a curve has few points")]
    fn through(points: &[Point]) -> Self {
        let n = points.len() as f64;
        let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.x / n, y + point.y / n));
        let (along, both) = points.iter().fold((0.0, 0.0), |(along, both), point| {
            (along + (point.x - x).powi(2), both + (point.x - x) * (point.y - y))
        });
        let slope = if along > 0.0 { (both / along).clamp(0.0, SLOPE_MAX.ln()) } else { 0.0 };
        Self { at_zero: y - slope * x, slope }
    }

    fn at(self, x: f64) -> f64 {
        self.at_zero + self.slope * x
    }

    /// Price of the points' deviations from it.
    fn deviation(self, points: &[Point]) -> f64 {
        points.iter().map(|point| ((point.y - self.at(point.x)) / NOISE).powi(2).min(OUTLIER)).sum()
    }
}

/// The cheapest explanation of all points, by dynamic programming over their prefixes.
fn explained(points: &[Point]) -> Vec<Plateau> {
    // Price of the first n points, and the plateau that ends with the last of them, if any.
    let mut cheapest: Vec<(f64, Option<Plateau>)> = vec![(0.0, None)];
    for count in 1..=points.len() {
        let mut best = (cheapest[count - 1].0 + BETWEEN, None);
        for first in 0..(count + 1).saturating_sub(POINTS_MIN) {
            let line = Line::through(&points[first..count]);
            let price = cheapest[first].0 + LEVEL + line.deviation(&points[first..count]);
            if price < best.0 {
                best = (price, Some(Plateau { first, last: count - 1, line }));
            }
        }
        cheapest.push(best);
    }
    let mut plateaus = Vec::new();
    let mut count = points.len();
    while count > 0 {
        count = match cheapest[count].1 {
            Some(plateau) => {
                plateaus.push(plateau);
                plateau.first
            }
            None => count - 1,
        };
    }
    plateaus.reverse();
    plateaus
}

/// Joins plateaus that are too close to each other to be two levels.
fn joined(plateaus: Vec<Plateau>, points: &[Point]) -> Vec<Plateau> {
    let mut levels: Vec<Plateau> = Vec::new();
    for plateau in plateaus {
        match levels.last_mut() {
            Some(level) if rise(level, &plateau, points) < RISE.ln() => {
                let line = Line::through(&points[level.first..=plateau.last]);
                *level = Plateau { last: plateau.last, line, ..*level };
            }
            _ => levels.push(plateau),
        }
    }
    levels
}

/// Rise of the logarithm of the cost from the end of one plateau to the beginning of the next.
fn rise(lower: &Plateau, upper: &Plateau, points: &[Point]) -> f64 {
    upper.line.at(points[upper.first].x) - lower.line.at(points[lower.last].x)
}

/// The last point of the lower of two levels: the one that leaves the fewest points on the wrong side of the
/// middle between the two lines.
fn end(lower: &Plateau, upper: &Plateau, points: &[Point]) -> usize {
    let is_upper = |place: &usize| {
        let point = &points[*place];
        point.y > (lower.line.at(point.x) + upper.line.at(point.x)) / 2.0
    };
    let misplaced = |end: usize| {
        (lower.first..=end).filter(is_upper).count()
            + (end + 1..=upper.last).filter(|at| !is_upper(at)).count()
    };
    (lower.first..upper.last).min_by_key(|end| misplaced(*end)).unwrap_or(lower.last)
}

/// The estimate with the median point.
fn middle_of(points: &[Point]) -> Estimate {
    let mut costs: Vec<Estimate> = points.iter().map(|point| point.cost).collect();
    costs.sort_by(|a, b| a.point.total_cmp(&b.point));
    costs[costs.len() / 2]
}

#[cfg(test)]
mod tests;
