//! How a whole divides into parts, over another quantity.

use super::{Axis, NoFigure};
use crate::table::{Cell, Column, Table};

/// Columns of one height, in which each layer has its share. Invariant: at least one column, each layer has
/// as many, and there is one edge more; edges are finite and rise, amounts are not below zero, and the sum of
/// each column is finite.
#[derive(Debug, Clone, PartialEq)]
pub struct Stack {
    title: String,
    x: Axis,
    edges: Vec<f64>,
    layers: Vec<Layer>,
}

/// One layer of a stack.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Its name in the legend.
    pub name: String,
    /// Its amount in each column; shares are taken of the column's sum.
    pub amounts: Vec<f64>,
}

impl Stack {
    /// Layers, from bottom to top, in columns between these edges, in the unit of the x axis.
    ///
    /// # Errors
    /// [`NoFigure`] if they violate the invariant.
    pub fn new(title: &str, x: Axis, edges: Vec<f64>, layers: Vec<Layer>) -> Result<Self, NoFigure> {
        let columns = edges.len().saturating_sub(1);
        if columns == 0 || layers.is_empty() || layers.iter().any(|layer| layer.amounts.len() != columns) {
            return Err(NoFigure::Empty(title.to_owned()));
        }
        let refused = |label: &str, value| {
            Err(NoFigure::Value { title: title.to_owned(), label: label.to_owned(), value })
        };
        if let Some(edge) = edges.windows(2).find(|edge| !(edge[0] < edge[1] && edge[1].is_finite())) {
            return refused(&x.label, edge[1]);
        }
        for layer in &layers {
            if let Some(amount) = layer.amounts.iter().find(|amount| !(amount.is_finite() && **amount >= 0.0))
            {
                return refused(&layer.name, *amount);
            }
        }
        let stack = Self { title: title.to_owned(), x, edges, layers };
        match (0..columns).map(|column| stack.sum(column)).find(|sum| !sum.is_finite()) {
            Some(sum) => refused(&stack.x.label, sum),
            None => Ok(stack),
        }
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

    /// Where its columns begin, and where the last one ends.
    #[must_use]
    pub fn edges(&self) -> &[f64] {
        &self.edges
    }

    /// Its layers, from bottom to top.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Number of its columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.layers[0].amounts.len()
    }

    /// The same stack with a column for each `factor` of these.
    pub(crate) fn coarser(&self, factor: usize) -> Self {
        let coarser = |layer: &Layer| Layer {
            name: layer.name.clone(),
            amounts: layer.amounts.chunks(factor).map(|amounts| amounts.iter().sum()).collect(),
        };
        let starts = self.edges[..self.columns()].iter().step_by(factor);
        let edges = starts.chain(self.edges.last()).copied().collect();
        Self { edges, layers: self.layers.iter().map(coarser).collect(), ..self.clone() }
    }

    fn sum(&self, column: usize) -> f64 {
        self.layers.iter().map(|layer| layer.amounts[column]).sum()
    }

    /// The share of each layer in a column; zeros if the column is empty.
    pub(crate) fn shares(&self, column: usize) -> Vec<f64> {
        let sum = self.sum(column);
        let amounts = self.layers.iter().map(|layer| layer.amounts[column]);
        amounts.map(|amount| if sum > 0.0 { amount / sum } else { 0.0 }).collect()
    }

    /// Every share as a table, one row per column, for readers without the picture.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut columns = vec![Column::numbers(&self.x.label)];
        columns.extend(self.layers.iter().map(|layer| Column::numbers(&layer.name)));
        let row = |column| {
            let place = Cell::Number { value: self.edges[column], unit: self.x.unit };
            [place].into_iter().chain(self.shares(column).into_iter().map(Cell::Share)).collect()
        };
        Table::new(&self.title, columns, (0..self.columns()).map(row).collect())
            .expect("a row has a cell for x and one per layer")
    }
}

#[cfg(test)]
mod tests {
    use assay_quantity::Unit;

    use super::*;

    fn stack(edges: &[f64], layers: &[&[f64]]) -> Result<Stack, NoFigure> {
        let layer = |amounts: &&[f64]| Layer { name: "user".to_owned(), amounts: amounts.to_vec() };
        let axis = Axis { label: "time".to_owned(), unit: Unit::Nanoseconds };
        Stack::new("t", axis, edges.to_vec(), layers.iter().map(layer).collect())
    }

    #[test]
    fn shares_are_those_of_a_column_and_coarser_ones_of_their_sum() {
        let stack = stack(&[0.0, 10.0, 20.0, 25.0], &[&[1.0, 0.0, 6.0], &[3.0, 0.0, 0.0]]).unwrap();
        let shares = |stack: &Stack| (0..stack.columns()).map(|c| stack.shares(c)).collect::<Vec<_>>();
        assert_eq!(shares(&stack), [[0.25, 0.75], [0.0, 0.0], [1.0, 0.0]]);
        let last =
            [Cell::Number { value: 20.0, unit: Unit::Nanoseconds }, Cell::Share(1.0), Cell::Share(0.0)];
        assert_eq!(stack.table().rows()[2], last);
        let coarser = stack.coarser(2);
        assert_eq!(shares(&coarser), [[0.25, 0.75], [1.0, 0.0]]);
        assert_eq!(format!("{:?}", coarser.edges()), "[0.0, 20.0, 25.0]");
    }

    #[test]
    fn what_has_no_place_is_refused() {
        let empty = |edges: &[f64], layers: &[&[f64]]| {
            let error = stack(edges, layers).unwrap_err().to_string();
            assert!(error.contains("nothing to draw"), "{edges:?} {layers:?}: {error}");
        };
        empty(&[0.0, 1.0], &[]);
        empty(&[0.0, 1.0], &[&[]]);
        empty(&[0.0, 1.0], &[&[1.0], &[]]);
        empty(&[0.0], &[&[]]);
        empty(&[], &[&[]]);
        for (edges, amounts) in [
            ([0.0, 0.0], [1.0, 1.0]),
            ([0.0, f64::INFINITY], [1.0, 1.0]),
            ([0.0, 1.0], [1.0, -1.0]),
            ([0.0, 1.0], [f64::NAN, 1.0]),
            ([0.0, 1.0], [f64::MAX, f64::MAX]),
        ] {
            let layers = amounts.map(|amount| [amount]);
            let error = stack(&edges, &[&layers[0], &layers[1]]).unwrap_err().to_string();
            assert!(error.contains("cannot place"), "{edges:?} {amounts:?}: {error}");
        }
    }
}
