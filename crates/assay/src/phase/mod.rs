//! The phases of `assay run`, each a function from its inputs to its results. Other subcommands use them too.
//! They print only progress.

pub mod application;
pub mod comparison;
pub mod difference;
pub mod machine;
pub mod matrix;
pub mod selection;
pub mod simulation;
pub mod tracing;
pub mod turns;

use assay_model::{Prediction, Unpredictable};
use assay_quantity::Machine;

use application::MeasuredOperation;
use tracing::Traced;

/// Results of a run.
#[derive(Debug)]
pub struct Found {
    /// The machine.
    pub machine: Machine,
    /// The application, operation by operation.
    pub operations: Vec<FoundOperation>,
}

/// Results of one operation.
#[derive(Debug)]
pub struct FoundOperation {
    /// Its measured costs.
    pub measured: MeasuredOperation,
    /// Its trace and demand, or the reason why they are missing.
    pub traced: Result<Traced, String>,
    /// The prediction; `None` without a trace.
    pub prediction: Option<Result<Prediction, Unpredictable>>,
}

impl Found {
    /// Returns a reason for each missing part of the report; empty if it is complete.
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
