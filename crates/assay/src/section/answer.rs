//! The first part of the report of `assay run`: what limits the application, the costs of one unit of work,
//! and the share of them that the product of demand and costs predicts.

use assay_model::Prediction;
use assay_report::Block;

use super::explained;
use crate::phase::FoundOperation;
use crate::phase::application::MeasuredOperation;

/// Number of terms that are named; the table of terms contains all of them.
const NAMED: usize = 3;

/// Returns the answer for one operation.
pub fn blocks(operation: &FoundOperation) -> Vec<Block> {
    let measured = &operation.measured;
    let mut blocks = vec![Block::Text(limit(measured))];
    match (&operation.traced, &operation.prediction) {
        (Ok(_), Some(Ok(prediction))) => {
            blocks.push(Block::Text(product(prediction, measured)));
            blocks.push(Block::Table(explained::comparison(prediction, measured)));
        }
        (Ok(_), Some(Err(reason))) => blocks.push(Block::Text(format!("No prediction: {reason}"))),
        (Ok(_), None) => {}
        (Err(reason), _) => {
            let what = "Missing: demand and prediction.";
            blocks.push(Block::Text(format!("{what} The trace failed: {reason}")));
        }
    }
    blocks
}

/// Returns the shares of its time, largest first: of the time of the processors that it may use or, if it
/// keeps more of them busy than are counted (a command with several processes counts one), of the busy
/// processors.
fn limit(measured: &MeasuredOperation) -> String {
    let idle = measured.idle.point.max(0.0);
    let mut shares = match (measured.user, measured.system) {
        (Some(user), Some(system)) => {
            let part = |time: f64| (1.0 - idle) * time / (user.point + system.point);
            vec![("the kernel", part(system.point)), ("its own code", part(user.point))]
        }
        // User and kernel time are not split if the rounds used too little processor time.
        _ => vec![("its own code and the kernel", 1.0 - idle)],
    };
    shares.push(("waiting or without a processor", idle));
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let listed: Vec<String> =
        shares.iter().map(|(what, share)| format!("{what} {}", percent(*share))).collect();
    format!("What limits it, in shares of its time: {}.", listed.join(", "))
}

/// Returns the share of the measured kernel time that the product predicts, and its largest terms.
fn product(prediction: &Prediction, measured: &MeasuredOperation) -> String {
    let total = prediction.total.point;
    let own = prediction.terms.iter().filter(|term| !term.is_bounded());
    let mut terms: Vec<(String, f64)> =
        own.map(|term| (term.primitive.to_string(), term.time.point)).collect();
    terms.push(("calls that are not covered (lower bound)".to_owned(), prediction.bounded().point));
    terms.retain(|(_, time)| *time > 0.0);
    terms.sort_by(|a, b| b.1.total_cmp(&a.1));
    let largest: Vec<String> =
        terms.iter().take(NAMED).map(|(what, time)| format!("{what} {}", percent(time / total))).collect();
    let mut sentences = Vec::new();
    if let Some(kernel) = measured.system {
        let share = percent(total / kernel.point);
        sentences.push(format!("The product of demand and costs is {share} of the measured kernel time."));
    }
    if !largest.is_empty() {
        sentences.push(format!("The largest terms of the prediction: {}.", largest.join(", ")));
    }
    sentences.join(" ")
}

/// Formats a share in whole per cent; the tables contain the intervals.
fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use assay_quantity::{Estimate, Unit};
    use assay_statistics::trimmed_mean;

    pub(in crate::section) fn measured(
        user: Option<f64>,
        system: Option<f64>,
        idle: f64,
    ) -> MeasuredOperation {
        let of = |value: f64, unit: Unit| trimmed_mean(&[value; 8], unit).unwrap();
        let time = |value: f64| -> Estimate { of(value, Unit::Nanoseconds) };
        MeasuredOperation {
            name: "page".to_owned(),
            unit_of_work: "request",
            per_second: of(1000.0, Unit::PerSecond),
            cpu: time(20_000.0),
            user: user.map(time),
            system: system.map(time),
            idle: of(idle, Unit::Ratio),
            displaced: of(0.0, Unit::Ratio),
            latency: None,
            rounds: Vec::new(),
            not_counted: None,
        }
    }

    #[test]
    fn the_largest_share_of_the_time_comes_first() {
        let waits = limit(&measured(Some(5_000.0), Some(15_000.0), 0.6));
        let idle = "waiting or without a processor";
        assert!(waits.ends_with(&format!(": {idle} 60 %, the kernel 30 %, its own code 10 %.")), "{waits}");
        let unsplit = limit(&measured(None, None, 0.3));
        assert!(unsplit.ends_with(&format!(": its own code and the kernel 70 %, {idle} 30 %.")), "{unsplit}");
    }

    #[test]
    fn a_command_that_keeps_several_processors_busy_has_no_idle_time() {
        let parallel = limit(&measured(Some(15_000.0), Some(5_000.0), -0.9));
        assert!(
            parallel.contains(": its own code 75 %, the kernel 25 %, waiting or without a processor"),
            "{parallel}"
        );
        assert!(parallel.ends_with(" 0 %."), "{parallel}");
    }

    #[test]
    fn an_operation_that_could_not_be_traced_shows_what_is_missing_and_why() {
        let operation = FoundOperation {
            measured: measured(None, None, 0.1),
            traced: Err("tracing needs root".to_owned()),
            prediction: None,
        };
        let said = format!("{:?}", blocks(&operation));
        assert!(
            said.contains("Missing: demand") && said.contains("The trace failed: tracing needs root"),
            "{said}"
        );
    }
}
