//! Knees: where a measured curve rises from one plateau to the next, and what the plateaus are.
//!
//! Latency over the size of the working set is a staircase whose steps are the levels of the memory hierarchy
//! (lmbench, 1996, section 6.2, reads it from a plot by eye). A level is a straight line on logarithmic axes, level
//! or rising slowly, because translation costs more the larger a set is; what lies between two levels belongs to
//! neither. Which points make a level is decided for all of them at once: the cheapest explanation of the whole
//! curve, where a level has its price, a point between levels has its price, and so has each deviation from a
//! line. Nothing here knows how many levels there are or how large.

use assay_quantity::{Estimate, Size};

use crate::estimator;

/// One level of a hierarchy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// What an access costs there: the estimate in the middle of those on the plateau.
    pub latency: Estimate,
    /// The largest measured size that it holds; `None` for the last one, whose end was not seen.
    pub capacity: Option<Size>,
}

/// The levels that a curve of latency over working set shows, fastest first. The capacities are sizes of the curve,
/// so that they are known as finely as it was measured.
///
/// Costs that are not positive are left out.
#[must_use]
pub fn levels(curve: &[(Size, Estimate)]) -> Vec<Level> {
    staircase(curve, 0.0)
}

/// The levels that a curve of translation cost over working set shows: what each TLB reaches, and beyond them page
/// tables in the caches. Cost within the first TLB's reach is close to nothing, so that differences below
/// a nanosecond do not count here.
#[must_use]
pub fn translation_levels(curve: &[(Size, Estimate)]) -> Vec<Level> {
    staircase(curve, NEGLIGIBLE_NS)
}

/// The length of a line, from a curve of the cost of a load that follows one of a place so many bytes before: the
/// least distance at which it is a miss. `None` if the curve shows no such step.
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

/// A cost of translation that makes no difference.
const NEGLIGIBLE_NS: f64 = 1.0;

/// A miss costs at least so many times a hit. First levels take 3 to 5 cycles, second ones 10 or more.
const MISS: f64 = 2.0;

/// The next level costs at least so many times this one. Fourfold steps are usual; the least that is seen between
/// neighbours, a last cache and memory beside it, is twofold.
const RISE: f64 = 1.5;

/// A level costs at most so many times more in a set twice as large: what more misses in translation make of it.
const SLOPE_MAX: f64 = 1.3;

/// Relative deviation that is taken for noise.
const NOISE: f64 = 0.06;

/// Price of a level, in squares of [`NOISE`]: a line has two parameters and an end, each worth about the logarithm
/// of the number of points (Schwarz, 1978).
const LEVEL: f64 = 12.0;

/// Price of a point between levels: two of them cost more than the smallest level, which may be all that is seen of
/// a cache that others use as well.
const BETWEEN: f64 = 7.0;

/// No deviation costs more: a disturbed point does not bend a line.
const OUTLIER: f64 = 9.0;

/// A level has so many points at least: one alone may lie between two others.
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
    let mut costs: Vec<f64> = points.iter().map(|point| point.y).collect();
    costs.sort_by(f64::total_cmp);
    estimator::middle(&costs)
}

/// How far the costs' logarithms are from their median, added up.
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

/// Points that lie on a line, which nothing says to be of one level only.
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
    /// Least squares, with a slope that a level can have.
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
    // Price of the first n points, and the plateau that ends with the last of them, if one does.
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

/// Plateaus that are too close to each other to be two levels are one.
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

/// From the end of one plateau to the beginning of the next, on the axis of costs.
fn rise(lower: &Plateau, upper: &Plateau, points: &[Point]) -> f64 {
    upper.line.at(points[upper.first].x) - lower.line.at(points[lower.last].x)
}

/// The last point of the lower of two levels: the one that leaves the fewest points on the wrong side, of the middle
/// between the two lines.
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

/// The estimate whose point is the middle one.
fn middle_of(points: &[Point]) -> Estimate {
    let mut costs: Vec<Estimate> = points.iter().map(|point| point.cost).collect();
    costs.sort_by(|a, b| a.point.total_cmp(&b.point));
    costs[costs.len() / 2]
}

#[cfg(test)]
mod tests;
