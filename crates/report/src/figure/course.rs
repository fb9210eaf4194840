//! How quantities go, over time or another quantity, each without an interval.

use super::{Axis, Columns, NoFigure, Series, refused};
use crate::table::{Cell, Table};

/// Lines over the same columns; the value of a line in a column holds from one edge to the next. Invariant:
/// no value is zero on a logarithmic height.
#[derive(Debug, Clone, PartialEq)]
pub struct Course {
    columns: Columns,
    y: Axis,
    height: Height,
}

/// What the height of a line shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Height {
    /// The value, from zero.
    Linear,
    /// Its ratio to the lowest value.
    Logarithmic,
}

impl Course {
    /// Lines in columns between these edges, in the unit of the x axis.
    ///
    /// # Errors
    /// [`NoFigure`] if they violate the invariant, or that of [`Columns`].
    pub fn new(
        title: &str,
        x: Axis,
        edges: Vec<f64>,
        y: Axis,
        height: Height,
        lines: Vec<Series>,
    ) -> Result<Self, NoFigure> {
        let course = Self { columns: Columns::new(title, x, edges, lines)?, y, height };
        if height == Height::Logarithmic && course.range().0 <= 0.0 {
            return Err(refused(title, &course.y.label, 0.0));
        }
        Ok(course)
    }

    /// Its columns, with the values of its lines.
    #[must_use]
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// The vertical axis.
    #[must_use]
    pub fn y(&self) -> &Axis {
        &self.y
    }

    /// What the height shows.
    #[must_use]
    pub fn height(&self) -> Height {
        self.height
    }

    /// The same course in as many columns as fit, each with the mean of those that it combines, by their
    /// widths.
    pub(crate) fn at_most(&self, most: usize) -> Self {
        let mean = |values: &[(f64, f64)]| {
            let width: f64 = values.iter().map(|(_, width)| width).sum();
            values.iter().map(|(value, own)| value * own).sum::<f64>() / width
        };
        Self { columns: self.columns.at_most(most, mean), ..self.clone() }
    }

    /// The values at the bottom and at the top of the picture, which differ.
    pub(crate) fn range(&self) -> (f64, f64) {
        let values = || self.columns.series().iter().flat_map(|line| line.values.iter().copied().flatten());
        let high = values().fold(0.0, f64::max);
        let low = match self.height {
            Height::Linear => 0.0,
            Height::Logarithmic => values().reduce(f64::min).unwrap_or(1.0),
        };
        (low, if high > low { high } else { low + 1.0 })
    }

    /// Every value as a table, one row per column, for readers without the picture.
    #[must_use]
    pub fn table(&self) -> Table {
        let cell = |value: Option<f64>| match value {
            Some(value) => Cell::Number { value, unit: self.y.unit },
            None => Cell::Missing("this line has no value here".to_owned()),
        };
        self.columns.table(|column| self.columns.values(column).map(cell))
    }
}

#[cfg(test)]
mod tests {
    use assay_quantity::Unit;

    use super::*;

    fn course(height: Height, values: &[f64]) -> Result<Course, NoFigure> {
        let axis = |label: &str, unit| Axis { label: label.to_owned(), unit };
        let edges = (0..=values.len()).map(super::super::real).collect();
        let lines =
            vec![Series { name: "limit".to_owned(), values: values.iter().copied().map(Some).collect() }];
        let (x, y) = (axis("time", Unit::Nanoseconds), axis("limit", Unit::Count));
        Course::new("t", x, edges, y, height, lines)
    }

    #[test]
    fn a_linear_height_begins_at_zero_and_a_logarithmic_one_at_the_lowest_value() {
        let values = [4.0, 2.0, 8.0];
        assert_eq!(course(Height::Linear, &values).unwrap().range(), (0.0, 8.0));
        let logarithmic = course(Height::Logarithmic, &values).unwrap();
        assert_eq!(logarithmic.range(), (2.0, 8.0));
        assert_eq!(logarithmic.at_most(2).range(), (3.0, 8.0));
        assert_eq!(course(Height::Linear, &[0.0]).unwrap().range(), (0.0, 1.0));
        let gap = Series { name: "gap".to_owned(), values: vec![None] };
        let axis = || Axis { label: "time".to_owned(), unit: Unit::Nanoseconds };
        for height in [Height::Linear, Height::Logarithmic] {
            let course = Course::new("t", axis(), vec![0.0, 1.0], axis(), height, vec![gap.clone()]).unwrap();
            assert!(course.range().0 < course.range().1 && course.table().rows().len() == 1);
        }
        assert_eq!(course(Height::Logarithmic, &[7.0]).unwrap().range(), (7.0, 8.0));
    }

    #[test]
    fn zero_has_no_place_on_a_logarithmic_height() {
        let error = course(Height::Logarithmic, &[1.0, 0.0]).unwrap_err().to_string();
        assert!(error.contains("cannot place 0 of 'limit'"), "{error}");
    }
}
