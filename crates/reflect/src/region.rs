//! The regions of figure 1 of the paper: how productivity and overhead move together.
//!
//! The overhead is that of a unit of productivity. Per second it falls in a collapse, because a server that
//! thrashes does less of everything, and a collapse would look like a load that falls.

use std::cmp::Ordering;
use std::time::Duration;

use crate::signal::count;

/// A stretch of time, and what happened in it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Point {
    /// Its length.
    pub length: Duration,
    /// Work done in it.
    pub productivity: u64,
    /// What it cost, in the unit of the overhead.
    pub overhead: u64,
}

/// What the system does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Region {
    /// Neither productivity nor overhead changes.
    Steady,
    /// The first plot: productivity rises, and overhead does not fall.
    LoadRises,
    /// Overhead rises and productivity does not: the server is full (section 4.1).
    Saturated,
    /// The second plot: overhead rises and productivity falls.
    Overload,
    /// The third plot: productivity falls, and overhead does not rise.
    LoadFalls,
    /// Overhead falls and productivity does not.
    Recovers,
}

impl Point {
    /// Both together. A counter that an application shares may hold any number.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self {
            length: self.length + other.length,
            productivity: self.productivity.saturating_add(other.productivity),
            overhead: self.overhead.saturating_add(other.overhead),
        }
    }

    /// Productivity per second.
    #[must_use]
    pub fn productivity_per_s(&self) -> f64 {
        count(self.productivity) / self.length.as_secs_f64()
    }

    /// Overhead of a unit of productivity; `None` if nothing was done.
    #[must_use]
    pub fn overhead_per_unit(&self) -> Option<f64> {
        (self.productivity > 0).then(|| count(self.overhead) / count(self.productivity))
    }
}

impl Region {
    /// Every region.
    pub const ALL: [Region; 6] = [
        Region::Steady,
        Region::LoadRises,
        Region::Saturated,
        Region::Overload,
        Region::LoadFalls,
        Region::Recovers,
    ];

    /// A few words on it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Region::Steady => "steady",
            Region::LoadRises => "load rises",
            Region::Saturated => "saturated",
            Region::Overload => "overload",
            Region::LoadFalls => "load falls",
            Region::Recovers => "recovers",
        }
    }

    /// What moves how.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Region::Steady => "neither productivity nor overhead changes",
            Region::LoadRises => "productivity rises and overhead does not fall",
            Region::Saturated => "overhead rises and productivity does not",
            Region::Overload => "overhead rises and productivity falls",
            Region::LoadFalls => "productivity falls and overhead does not rise",
            Region::Recovers => "overhead falls and productivity does not",
        }
    }

    fn of(productivity: Ordering, overhead: Ordering) -> Self {
        match (productivity, overhead) {
            (Ordering::Equal, Ordering::Equal) => Region::Steady,
            (Ordering::Greater, Ordering::Greater | Ordering::Equal) => Region::LoadRises,
            (Ordering::Equal, Ordering::Greater) => Region::Saturated,
            (Ordering::Less, Ordering::Greater) => Region::Overload,
            (Ordering::Less, Ordering::Less | Ordering::Equal) => Region::LoadFalls,
            (Ordering::Equal | Ordering::Greater, Ordering::Less) => Region::Recovers,
        }
    }
}

/// Points on each side of the comparison.
pub const WINDOW: usize = 10;

/// Standard errors of a difference that is clear.
const CLEAR: f64 = 3.0;

/// Smallest difference that matters, as a share: that below which the law `knee` sees a tie, too. Without it,
/// up to 7 % of the readings of a steady load on a shared machine were changes; with it, none of 843 was.
const NOTICEABLE: f64 = 0.03;

/// Returns the region at the end of these points: how the last [`WINDOW`] differ from those before. `None` if
/// there are fewer than two windows.
#[must_use]
pub fn region(points: &[Point]) -> Option<Region> {
    let (rest, after) = points.split_at_checked(points.len().checked_sub(WINDOW)?)?;
    let before = &rest[rest.len().checked_sub(WINDOW)?..];
    let (before, after) = (Window::of(before), Window::of(after));
    if [&before, &after].iter().all(|window| window.productivity_per_s.value <= 0.0) {
        return Some(Region::Steady);
    }
    let productivity = change(before.productivity_per_s, after.productivity_per_s);
    Some(Region::of(productivity, change(before.overhead_per_unit, after.overhead_per_unit)))
}

/// A mean and its standard error.
#[derive(Debug, Clone, Copy)]
struct Mean {
    value: f64,
    error: f64,
}

struct Window {
    productivity_per_s: Mean,
    overhead_per_unit: Mean,
}

impl Window {
    fn of(points: &[Point]) -> Self {
        let pairs = |of: fn(&Point) -> (f64, f64)| points.iter().map(of).collect::<Vec<_>>();
        Self {
            productivity_per_s: ratio(&pairs(|p| (count(p.productivity), p.length.as_secs_f64()))),
            overhead_per_unit: ratio(&pairs(|p| (count(p.overhead), count(p.productivity)))),
        }
    }
}

/// The ratio of two sums, with the error of the ratio estimator (Cochran, *Sampling Techniques*, 2.11). If
/// nothing was done, it is infinite: all that was spent was for nothing.
fn ratio(pairs: &[(f64, f64)]) -> Mean {
    let (above, below) = pairs.iter().fold((0.0, 0.0), |(a, b), pair| (a + pair.0, b + pair.1));
    if below <= 0.0 {
        return Mean { value: if above > 0.0 { f64::INFINITY } else { 0.0 }, error: 0.0 };
    }
    let (value, number) = (above / below, count(pairs.len() as u64));
    let residuals = pairs.iter().map(|(a, b)| (a - value * b).powi(2)).sum::<f64>();
    let error = (residuals / (number - 1.0) / number).sqrt() / (below / number);
    Mean { value, error }
}

/// How the second differs from the first.
fn change(before: Mean, after: Mean) -> Ordering {
    let difference = after.value - before.value;
    let least = (CLEAR * before.error.hypot(after.error)).max(NOTICEABLE * before.value);
    // The difference of two infinite values is not a number, and none is clear.
    if difference.abs() > least || difference.is_infinite() {
        difference.total_cmp(&0.0)
    } else {
        Ordering::Equal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two windows, each with the productivity and the overhead of its points, which alternate by a tenth.
    fn moved(windows: [(u64, u64); 2]) -> Region {
        let points: Vec<Point> = windows
            .iter()
            .flat_map(|(productivity, overhead)| {
                (0..WINDOW as u64).map(move |n| (n, *productivity, *overhead))
            })
            .map(|(n, productivity, overhead)| Point {
                length: Duration::from_millis(100),
                productivity: productivity + n % 2 * productivity / 10,
                overhead: overhead + n % 2 * overhead / 10,
            })
            .collect();
        assert_eq!(region(&points[1..]), None);
        region(&points).unwrap()
    }

    #[test]
    fn the_plots_of_the_paper_differ_by_the_overhead_of_a_unit() {
        assert_eq!(moved([(1000, 1000), (1000, 1000)]), Region::Steady);
        assert_eq!(moved([(1000, 1000), (2000, 3000)]), Region::LoadRises);
        assert_eq!(moved([(1000, 1000), (2000, 2000)]), Region::LoadRises);
        assert_eq!(moved([(1000, 1000), (1000, 2000)]), Region::Saturated);
        assert_eq!(moved([(1000, 1000), (500, 1000)]), Region::Overload);
        assert_eq!(moved([(1000, 1000), (500, 300)]), Region::LoadFalls);
        assert_eq!(moved([(1000, 1000), (500, 500)]), Region::LoadFalls);
        assert_eq!(moved([(1000, 1000), (2000, 1000)]), Region::Recovers);
    }

    #[test]
    fn a_collapse_is_seen_although_the_overhead_per_second_falls() {
        // The hot row of PostgreSQL from 4 to 64 connections: a third of the commits, at 3.6 times the cost.
        assert_eq!(moved([(22_971, 1_607_970), (6_793, 1_711_836)]), Region::Overload);
        // Deadlocks: the processors idle, and yet a commit costs more.
        assert_eq!(moved([(1000, 224_000), (65, 60_000)]), Region::Overload);
    }

    #[test]
    fn a_standstill_is_overload_and_stays_a_standstill() {
        assert_eq!(moved([(1000, 1000), (0, 1000)]), Region::Overload);
        assert_eq!(moved([(0, 1000), (0, 1000)]), Region::Steady);
        assert_eq!(moved([(0, 0), (0, 1000)]), Region::Steady);
        assert_eq!(moved([(1000, 1000), (0, 0)]), Region::LoadFalls);
        assert_eq!(moved([(0, 1000), (1000, 1000)]), Region::Recovers);
        assert_eq!(moved([(0, 0), (0, 0)]), Region::Steady);
    }

    #[test]
    fn a_difference_within_the_noise_is_none() {
        let points = |shift: u64| -> Vec<Point> {
            let noisy = [90, 130, 70, 110, 100, 120, 80, 105, 95, 100];
            let window = |shift| {
                noisy.map(|n| Point {
                    length: Duration::from_secs(1),
                    productivity: n + shift,
                    overhead: 100,
                })
            };
            [window(0), window(shift)].concat()
        };
        assert_eq!(region(&points(5)), Some(Region::Steady));
        assert_eq!(region(&points(60)), Some(Region::Recovers));
    }
}
