//! Columns over an axis, and the series that have a value in each: what stacks and courses are drawn from.

use super::{Axis, NoFigure, refused};
use crate::table::{Cell, Column, Table};

/// Columns next to each other, and series with a value in each. Invariant: at least one column and one
/// series, each series has as many values as there are columns, and there is one edge more; edges are finite
/// and rise, values are finite and not below zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Columns {
    title: String,
    x: Axis,
    edges: Vec<f64>,
    series: Vec<Series>,
}

/// A value in each column, under a name.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its values, from the first column to the last; `None` for a gap.
    pub values: Vec<Option<f64>>,
}

impl Columns {
    pub(super) fn new(title: &str, x: Axis, edges: Vec<f64>, series: Vec<Series>) -> Result<Self, NoFigure> {
        let count = edges.len().saturating_sub(1);
        if count == 0 || series.is_empty() || series.iter().any(|series| series.values.len() != count) {
            return Err(NoFigure::Empty(title.to_owned()));
        }
        if let Some(edge) = edges.windows(2).find(|edge| !(edge[0] < edge[1] && edge[1].is_finite())) {
            return Err(refused(title, &x.label, edge[1]));
        }
        for series in &series {
            let mut values = series.values.iter().flatten();
            if let Some(value) = values.find(|value| !(value.is_finite() && **value >= 0.0)) {
                return Err(refused(title, &series.name, *value));
            }
        }
        Ok(Self { title: title.to_owned(), x, edges, series })
    }

    /// What the figure shows.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The horizontal axis.
    #[must_use]
    pub fn x(&self) -> &Axis {
        &self.x
    }

    /// Where the columns begin, and where the last one ends, in the unit of the x axis.
    #[must_use]
    pub fn edges(&self) -> &[f64] {
        &self.edges
    }

    /// The series, in order.
    #[must_use]
    pub fn series(&self) -> &[Series] {
        &self.series
    }

    /// Number of columns.
    #[must_use]
    pub fn count(&self) -> usize {
        self.edges.len() - 1
    }

    /// The values of a column.
    pub(crate) fn values(&self, column: usize) -> impl Iterator<Item = Option<f64>> {
        self.series.iter().map(move |series| series.values[column])
    }

    /// The same figure with as many columns as fit, each of several of these, whose values and widths `merge`
    /// combines to a value. Gaps are left out, unless there is nothing else.
    pub(crate) fn at_most(&self, most: usize, merge: fn(&[(f64, f64)]) -> f64) -> Self {
        let factor = self.count().div_ceil(most);
        let widths: Vec<f64> = self.edges.windows(2).map(|edge| edge[1] - edge[0]).collect();
        let merged = |(values, widths): (&[Option<f64>], &[f64])| {
            let known = values.iter().zip(widths).filter_map(|(value, width)| Some(((*value)?, *width)));
            let known: Vec<(f64, f64)> = known.collect();
            if known.is_empty() { None } else { Some(merge(&known)) }
        };
        let coarser = |series: &Series| Series {
            name: series.name.clone(),
            values: series.values.chunks(factor).zip(widths.chunks(factor)).map(merged).collect(),
        };
        let starts = self.edges[..self.count()].iter().step_by(factor);
        let edges = starts.chain(self.edges.last()).copied().collect();
        Self { edges, series: self.series.iter().map(coarser).collect(), ..self.clone() }
    }

    /// A row for each column, with the cells that show its values, for readers without the picture.
    pub(super) fn table<C: Iterator<Item = Cell>>(&self, cells: impl Fn(usize) -> C) -> Table {
        let mut heads = vec![Column::numbers(&self.x.label)];
        heads.extend(self.series.iter().map(|series| Column::numbers(&series.name)));
        let row = |column| {
            let place = Cell::Number { value: self.edges[column], unit: self.x.unit };
            std::iter::once(place).chain(cells(column)).collect()
        };
        Table::new(&self.title, heads, (0..self.count()).map(row).collect())
            .expect("a row has a cell for x and one per series")
    }
}

#[cfg(test)]
mod tests {
    use assay_quantity::Unit;

    use super::*;

    fn columns(edges: &[f64], values: &[&[f64]]) -> Result<Columns, NoFigure> {
        let series = |values: &&[f64]| Series {
            name: "user".to_owned(),
            values: values.iter().copied().map(Some).collect(),
        };
        let axis = Axis { label: "time".to_owned(), unit: Unit::Nanoseconds };
        Columns::new("t", axis, edges.to_vec(), values.iter().map(series).collect())
    }

    #[test]
    fn fewer_columns_keep_the_edges_of_those_that_they_combine() {
        let columns = columns(&[0.0, 10.0, 20.0, 25.0], &[&[1.0, 0.0, 6.0]]).unwrap();
        let coarser = columns.at_most(2, |values| values.iter().map(|(value, _)| value).sum());
        assert_eq!(format!("{:?}", coarser.edges()), "[0.0, 20.0, 25.0]");
        assert_eq!(format!("{:?}", coarser.series()[0].values), "[Some(1.0), Some(6.0)]");
        let widths = columns.at_most(1, |values| values.iter().map(|(_, width)| width).sum());
        assert_eq!(format!("{:?}", widths.series()[0].values), "[Some(25.0)]");
        assert_eq!(columns.at_most(3, |_| 0.0), columns.at_most(5, |_| 0.0));
    }

    #[test]
    fn what_has_no_place_is_refused() {
        let empty = |edges: &[f64], values: &[&[f64]]| {
            let error = columns(edges, values).unwrap_err().to_string();
            assert!(error.contains("nothing to draw"), "{edges:?} {values:?}: {error}");
        };
        empty(&[0.0, 1.0], &[]);
        empty(&[0.0, 1.0], &[&[]]);
        empty(&[0.0, 1.0], &[&[1.0], &[]]);
        empty(&[0.0], &[&[]]);
        empty(&[], &[&[]]);
        for (edges, value) in [
            ([0.0, 0.0], 1.0),
            ([0.0, f64::INFINITY], 1.0),
            ([f64::NAN, 1.0], 1.0),
            ([0.0, 1.0], -1.0),
            ([0.0, 1.0], f64::NAN),
        ] {
            let error = columns(&edges, &[&[1.0], &[value]]).unwrap_err().to_string();
            assert!(error.contains("cannot place"), "{edges:?} {value:?}: {error}");
        }
    }
}
