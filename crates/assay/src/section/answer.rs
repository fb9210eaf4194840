//! The answer that the report of `assay run` begins with: what limits the application, what one unit of its work costs,
//! and how much of that the product of demand and costs predicts.

use assay_model::Prediction;
use assay_quantity::{Mapping, Unit};
use assay_report::{Block, scale};

use super::explained;
use crate::phase::FoundOperation;
use crate::phase::application::MeasuredOperation;

/// Terms that are named; the table of terms has all of them.
const NAMED: usize = 3;

/// The answer for one operation.
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
            let what = "Left out: what it asks for, and what that costs.";
            blocks.push(Block::Text(format!("{what} The trace could not be made: {reason}")));
        }
    }
    blocks
}

/// What most of the time of the application's processors goes to.
fn limit(measured: &MeasuredOperation) -> String {
    let busy = 1.0 - measured.idle.point;
    let part = |time: f64| busy * time / measured.cpu.point;
    let mut shares = match (measured.user, measured.system) {
        (Some(user), Some(system)) => {
            vec![("the kernel", part(system.point)), ("its own code", part(user.point))]
        }
        // Rounds that are too short for the kernel's clock ticks are not split.
        _ => vec![("its own code and the kernel", busy)],
    };
    shares.push(("waiting for clients or devices", measured.idle.point - measured.displaced.point));
    shares.push(("other programs on its processors", measured.displaced.point));
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let listed: Vec<String> =
        shares.iter().map(|(what, share)| format!("{what} {}", percent(*share))).collect();
    format!("What limits it, in shares of the time of the processors that it may use: {}.", listed.join(", "))
}

/// How much of the measured kernel time the product is, and its largest terms.
fn product(prediction: &Prediction, measured: &MeasuredOperation) -> String {
    let total = prediction.total.point;
    let mut terms: Vec<_> = prediction.terms.iter().filter(|term| term.mapping == Mapping::Own).collect();
    terms.sort_by(|a, b| b.time.point.total_cmp(&a.time.point));
    let largest: Vec<String> = terms
        .iter()
        .take(NAMED)
        .map(|term| format!("{} {}", term.primitive, percent(term.time.point / total)))
        .collect();
    let compared = measured.system.map_or_else(String::new, |kernel| {
        format!(
            "The product of demand and costs is {} of the measured kernel time. ",
            percent(total / kernel.point)
        )
    });
    format!("{compared}The largest terms of the prediction: {}.", largest.join(", "))
}

fn percent(share: f64) -> String {
    scale::number(share, Unit::Ratio).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_quantity::{Estimate, estimate};

    fn measured(user: Option<f64>, system: Option<f64>, idle: f64, displaced: f64) -> MeasuredOperation {
        let of = |value: f64, unit: Unit| estimate::trimmed_mean(&[value; 8], unit).unwrap();
        let time = |value: f64| -> Estimate { of(value, Unit::Nanoseconds) };
        MeasuredOperation {
            name: "page".to_owned(),
            unit_of_work: "request",
            per_second: of(1000.0, Unit::PerSecond),
            cpu: time(20_000.0),
            user: user.map(time),
            system: system.map(time),
            idle: of(idle, Unit::Ratio),
            displaced: of(displaced, Unit::Ratio),
            latency: None,
            rounds: Vec::new(),
        }
    }

    #[test]
    fn what_takes_most_of_the_processors_comes_first() {
        let kernel = limit(&measured(Some(5_000.0), Some(15_000.0), 0.2, 0.05));
        let shares = "the kernel 60.0 %, its own code 20.0 %, waiting for clients or devices 15.0 %, other programs on its \
                      processors 5.00 %.";
        assert!(kernel.ends_with(shares), "{kernel}");
        let unsplit = limit(&measured(None, None, 0.7, 0.6));
        let shares = ": other programs on its processors 60.0 %, its own code and the kernel 30.0 %, waiting";
        assert!(unsplit.contains(shares), "{unsplit}");
    }

    #[test]
    fn an_operation_that_could_not_be_traced_says_what_is_left_out_and_why() {
        let operation = FoundOperation {
            measured: measured(None, None, 0.1, 0.0),
            traced: Err("tracing needs root".to_owned()),
            prediction: None,
        };
        let said = format!("{:?}", blocks(&operation));
        assert!(
            said.contains("Left out") && said.contains("could not be made: tracing needs root"),
            "{said}"
        );
    }
}
