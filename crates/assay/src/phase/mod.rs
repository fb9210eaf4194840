//! The phases of `assay run`, each a function from what it needs to what it found. Subcommands of their own use
//! them too; nothing here prints anything but progress.

pub mod application;
pub mod comparison;
pub mod machine;
pub mod selection;
pub mod tracing;
pub mod turns;

use assay_model::{Prediction, Unpredictable};
use assay_quantity::Machine;

use application::MeasuredOperation;
use tracing::Traced;

/// Everything that a run found.
#[derive(Debug)]
pub struct Found {
    /// The machine.
    pub machine: Machine,
    /// The application, operation by operation.
    pub operations: Vec<FoundOperation>,
}

/// What was found of one operation.
#[derive(Debug)]
pub struct FoundOperation {
    /// What it really costs.
    pub measured: MeasuredOperation,
    /// What it asks for, or why that is not known.
    pub traced: Result<Traced, String>,
    /// What the product says; `None` without a trace.
    pub prediction: Option<Result<Prediction, Unpredictable>>,
}

impl Found {
    /// Why parts of the report are missing, one reason each; empty if it is whole.
    pub fn left_out(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        for operation in &self.operations {
            if let Err(reason) = &operation.traced {
                reasons.push(format!("no demand and no prediction: {reason}"));
            }
            if let Some(Err(reason)) = &operation.prediction {
                reasons.push(reason.to_string());
            }
        }
        reasons.dedup();
        reasons
    }
}
