//! How a whole divides into parts, over another quantity.

use super::{Axis, NoFigure, real};
use crate::table::{Cell, Column, Table};

/// Columns of one height, in which each layer has its share. Invariant: at least one column, and each layer
/// has as many; the width is finite and above zero, every amount finite and not below zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Stack {
    title: String,
    x: Axis,
    width: f64,
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
    /// Layers, from bottom to top, in columns of this width, in the unit of the x axis, which begins at zero.
    ///
    /// # Errors
    /// [`NoFigure`] if the layers violate the invariant.
    pub fn new(title: &str, x: Axis, width: f64, layers: Vec<Layer>) -> Result<Self, NoFigure> {
        let columns = layers.first().map_or(0, |layer| layer.amounts.len());
        if columns == 0 || layers.iter().any(|layer| layer.amounts.len() != columns) {
            return Err(NoFigure::Empty(title.to_owned()));
        }
        let refused =
            |label: &str, value| NoFigure::Value { title: title.to_owned(), label: label.to_owned(), value };
        if !(width.is_finite() && width > 0.0) {
            return Err(refused(&x.label, width));
        }
        for layer in &layers {
            if let Some(amount) = layer.amounts.iter().find(|amount| !(amount.is_finite() && **amount >= 0.0))
            {
                return Err(refused(&layer.name, *amount));
            }
        }
        Ok(Self { title: title.to_owned(), x, width, layers })
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

    /// Width of a column, in the unit of the x axis.
    #[must_use]
    pub fn width(&self) -> f64 {
        self.width
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

    /// The same stack with columns that contain so many of these.
    pub(crate) fn merged(&self, columns: usize) -> Self {
        let merged = |layer: &Layer| Layer {
            name: layer.name.clone(),
            amounts: layer.amounts.chunks(columns).map(|amounts| amounts.iter().sum()).collect(),
        };
        let width = self.width * real(columns);
        Self { layers: self.layers.iter().map(merged).collect(), width, ..self.clone() }
    }

    /// Where a column begins.
    pub(crate) fn place(&self, column: usize) -> f64 {
        self.width * real(column)
    }

    /// The share of each layer in a column; zeros if the column is empty.
    pub(crate) fn shares(&self, column: usize) -> Vec<f64> {
        let amounts = self.layers.iter().map(|layer| layer.amounts[column]);
        let sum: f64 = amounts.clone().sum();
        amounts.map(|amount| if sum > 0.0 { amount / sum } else { 0.0 }).collect()
    }

    /// Every share as a table, one row per column, for readers without the picture.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut columns = vec![Column::numbers(&self.x.label)];
        columns.extend(self.layers.iter().map(|layer| Column::numbers(&layer.name)));
        let row = |column| {
            let place = Cell::Number { value: self.place(column), unit: self.x.unit };
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

    fn stack(width: f64, layers: &[&[f64]]) -> Result<Stack, NoFigure> {
        let layer = |amounts: &&[f64]| Layer { name: "user".to_owned(), amounts: amounts.to_vec() };
        let axis = Axis { label: "time".to_owned(), unit: Unit::Nanoseconds };
        Stack::new("t", axis, width, layers.iter().map(layer).collect())
    }

    #[test]
    fn shares_are_those_of_a_column_and_merged_columns_of_their_sum() {
        let stack = stack(10.0, &[&[1.0, 0.0, 6.0], &[3.0, 0.0, 0.0]]).unwrap();
        let shares = |stack: &Stack| (0..stack.columns()).map(|c| stack.shares(c)).collect::<Vec<_>>();
        assert_eq!(shares(&stack), [[0.25, 0.75], [0.0, 0.0], [1.0, 0.0]]);
        let merged = stack.merged(2);
        assert_eq!(shares(&merged), [[0.25, 0.75], [1.0, 0.0]]);
        assert_eq!(merged.table().rows()[1][0], Cell::Number { value: 20.0, unit: Unit::Nanoseconds });
        let last =
            [Cell::Number { value: 20.0, unit: Unit::Nanoseconds }, Cell::Share(1.0), Cell::Share(0.0)];
        assert_eq!(stack.table().rows()[2], last);
    }

    #[test]
    fn what_has_no_place_is_refused() {
        for layers in [&[][..], &[&[][..]], &[&[1.0][..], &[][..]]] {
            assert!(stack(1.0, layers).unwrap_err().to_string().contains("nothing to draw"), "{layers:?}");
        }
        for (width, amount) in [(0.0, 1.0), (f64::INFINITY, 1.0), (1.0, -1.0), (1.0, f64::NAN)] {
            let error = stack(width, &[&[amount]]).unwrap_err().to_string();
            assert!(error.contains("cannot place"), "{width} {amount}: {error}");
        }
    }
}
