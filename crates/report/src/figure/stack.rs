//! How a whole divides into parts, over another quantity.

use super::{Axis, Columns, NoFigure, Series, refused};
use crate::table::{Cell, Table};

/// Columns of one height, in which each series, a layer, has the share of its amount. Invariant: the sum of
/// each column is finite. A gap is nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Stack {
    columns: Columns,
}

impl Stack {
    /// Layers, from bottom to top, in columns between these edges, in the unit of the x axis.
    ///
    /// # Errors
    /// [`NoFigure`] if they violate the invariant, or that of [`Columns`].
    pub fn new(title: &str, x: Axis, edges: Vec<f64>, layers: Vec<Series>) -> Result<Self, NoFigure> {
        let stack = Self { columns: Columns::new(title, x, edges, layers)? };
        match (0..stack.columns.count()).map(|column| stack.sum(column)).find(|sum| !sum.is_finite()) {
            Some(sum) => Err(refused(title, &stack.columns.x().label, sum)),
            None => Ok(stack),
        }
    }

    /// Its columns, with the amounts of its layers.
    #[must_use]
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// The same stack in as many columns as fit.
    pub(crate) fn at_most(&self, most: usize) -> Self {
        Self { columns: self.columns.at_most(most, |amounts| amounts.iter().map(|(amount, _)| amount).sum()) }
    }

    fn sum(&self, column: usize) -> f64 {
        self.columns.values(column).flatten().sum()
    }

    /// The share of each layer in a column; zeros if the column is empty.
    pub(crate) fn shares(&self, column: usize) -> Vec<f64> {
        let sum = self.sum(column);
        let share = |amount: Option<f64>| if sum > 0.0 { amount.unwrap_or(0.0) / sum } else { 0.0 };
        self.columns.values(column).map(share).collect()
    }

    /// Every share as a table, one row per column, for readers without the picture.
    #[must_use]
    pub fn table(&self) -> Table {
        self.columns.table(|column| self.shares(column).into_iter().map(Cell::Share))
    }
}

#[cfg(test)]
mod tests {
    use assay_quantity::Unit;

    use super::*;

    fn stack(edges: &[f64], layers: &[&[f64]]) -> Result<Stack, NoFigure> {
        let layer = |amounts: &&[f64]| Series {
            name: "user".to_owned(),
            values: amounts.iter().copied().map(Some).collect(),
        };
        let axis = Axis { label: "time".to_owned(), unit: Unit::Nanoseconds };
        Stack::new("t", axis, edges.to_vec(), layers.iter().map(layer).collect())
    }

    #[test]
    fn shares_are_those_of_a_column_and_coarser_ones_of_their_sum() {
        let stack = stack(&[0.0, 10.0, 20.0, 25.0], &[&[1.0, 0.0, 6.0], &[3.0, 0.0, 0.0]]).unwrap();
        let shares = |stack: &Stack| (0..stack.columns.count()).map(|c| stack.shares(c)).collect::<Vec<_>>();
        assert_eq!(shares(&stack), [[0.25, 0.75], [0.0, 0.0], [1.0, 0.0]]);
        let last =
            [Cell::Number { value: 20.0, unit: Unit::Nanoseconds }, Cell::Share(1.0), Cell::Share(0.0)];
        assert_eq!(stack.table().rows()[2], last);
        assert_eq!(shares(&stack.at_most(2)), [[0.25, 0.75], [1.0, 0.0]]);
    }

    #[test]
    fn amounts_without_a_finite_sum_are_refused() {
        let error = stack(&[0.0, 1.0], &[&[f64::MAX], &[f64::MAX]]).unwrap_err().to_string();
        assert!(error.contains("cannot place"), "{error}");
    }
}
