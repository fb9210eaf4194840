//! A quantity over another one, both at the same moments.

use assay_quantity::Unit;

use super::{Axis, NoFigure, refused};
use crate::table::{Cell, Column, Table};

/// Points in the order of time, over linear axes from zero. Invariant: at least one point, every number
/// finite and not below zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Scatter {
    title: String,
    x: Axis,
    y: Axis,
    points: Vec<(f64, f64)>,
}

/// How old a point is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// Of the first half.
    Old,
    /// Of the second half.
    Recent,
    /// The last one.
    Last,
}

impl Scatter {
    /// Points, each with its x and its y, from the first moment to the last.
    ///
    /// # Errors
    /// [`NoFigure`] if they violate the invariant.
    pub fn new(title: &str, x: Axis, y: Axis, points: Vec<(f64, f64)>) -> Result<Self, NoFigure> {
        if points.is_empty() {
            return Err(NoFigure::Empty(title.to_owned()));
        }
        for (axis, value) in points.iter().flat_map(|point| [(&x, point.0), (&y, point.1)]) {
            if !(value.is_finite() && value >= 0.0) {
                return Err(refused(title, &axis.label, value));
            }
        }
        Ok(Self { title: title.to_owned(), x, y, points })
    }

    /// What it shows.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The horizontal axis.
    #[must_use]
    pub fn x(&self) -> &Axis {
        &self.x
    }

    /// The vertical axis.
    #[must_use]
    pub fn y(&self) -> &Axis {
        &self.y
    }

    /// Its points, in the order of time.
    #[must_use]
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// Its points with their age, the last one last.
    pub(crate) fn aged(&self) -> impl Iterator<Item = ((f64, f64), Age)> {
        let last = self.points.len() - 1;
        self.points.iter().enumerate().map(move |(position, point)| {
            let age = match position {
                _ if position == last => Age::Last,
                _ if 2 * position > last => Age::Recent,
                _ => Age::Old,
            };
            (*point, age)
        })
    }

    /// The ends of the two axes, above zero.
    pub(crate) fn ends(&self) -> (f64, f64) {
        let end = |of: fn(&(f64, f64)) -> f64| match self.points.iter().map(of).fold(0.0, f64::max) {
            0.0 => 1.0,
            end => end,
        };
        (end(|point| point.0), end(|point| point.1))
    }

    /// Every point as a row, for readers without the picture.
    #[must_use]
    pub fn table(&self) -> Table {
        let cell = |value, unit: Unit| Cell::Number { value, unit };
        let rows = self.points.iter().map(|point| [cell(point.0, self.x.unit), cell(point.1, self.y.unit)]);
        Table::of(&self.title, [Column::numbers(&self.x.label), Column::numbers(&self.y.label)], rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scatter(points: &[(f64, f64)]) -> Result<Scatter, NoFigure> {
        let axis = |label: &str| Axis { label: label.to_owned(), unit: Unit::Count };
        Scatter::new("t", axis("cost"), axis("rate"), points.to_vec())
    }

    #[test]
    fn the_last_point_and_those_of_the_second_half_are_marked() {
        let ages = |number: usize| {
            let points = vec![(1.0, 1.0); number];
            scatter(&points).unwrap().aged().map(|(_, age)| age).collect::<Vec<_>>()
        };
        assert_eq!(ages(1), [Age::Last]);
        assert_eq!(ages(4), [Age::Old, Age::Old, Age::Recent, Age::Last]);
    }

    #[test]
    fn axes_end_at_the_highest_point_and_never_at_zero() {
        let bits = |points: &[(f64, f64)]| scatter(points).unwrap().ends();
        assert_eq!(bits(&[(1.0, 0.0), (0.5, 0.0)]), (1.0, 1.0));
        assert_eq!(bits(&[(3.0, 2.0), (0.0, 7.0)]), (3.0, 7.0));
    }

    #[test]
    fn what_has_no_place_is_refused() {
        assert!(scatter(&[]).unwrap_err().to_string().contains("nothing to draw"));
        for point in [(f64::INFINITY, 1.0), (1.0, f64::NAN), (-1.0, 1.0)] {
            assert!(scatter(&[(1.0, 1.0), point]).unwrap_err().to_string().contains("cannot place"));
        }
    }
}
