//! Events that the processor and the kernel counted around the batches (thesis, section 2.3).

use assay_bench::Measured;
use assay_quantity::{Sample, Unit};
use assay_report::{Cell, Column, Table};
use assay_statistics::slope::events_per_operation;
use assay_statistics::trimmed_mean;

/// Returns the events per operation of each primitive; `None` if nothing was counted.
pub fn table(measured: &[Measured]) -> Option<Table> {
    let events: Vec<&str> = first(measured)?.counted.iter().map(|counted| counted.event.as_str()).collect();
    let columns =
        [Column::words("primitive")].into_iter().chain(events.iter().map(|event| Column::numbers(event)));
    let row = |measured: &Measured| {
        let figures = (0..events.len()).map(|event| figure(&measured.samples, event));
        [Cell::text(measured.primitive.to_string())].into_iter().chain(figures).collect()
    };
    // Each row is built from the columns, so it has the same number of cells.
    Table::new("Events per operation", columns.collect(), measured.iter().map(row).collect()).ok()
}

/// Returns a sample with counts.
fn first(measured: &[Measured]) -> Option<&Sample> {
    measured.iter().flat_map(|measured| &measured.samples).find(|sample| !sample.counted.is_empty())
}

/// Returns the event with this number over all processes, or the reason why it was not counted.
fn figure(samples: &[Sample], event: usize) -> Cell {
    let counted = samples.iter().filter_map(|sample| sample.counted.get(event));
    let figures: Vec<Result<f64, String>> = counted.map(events_per_operation).collect();
    let values: Vec<f64> = figures.iter().filter_map(|figure| figure.as_ref().ok()).copied().collect();
    match (trimmed_mean(&values, Unit::Count), figures.into_iter().find_map(Result::err)) {
        (Ok(estimate), _) => estimate.into(),
        (Err(_), Some(reason)) => Cell::Missing(reason),
        (Err(reason), None) => Cell::Missing(reason.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_quantity::Counted;

    #[test]
    fn events_are_per_operation_and_a_missing_counter_has_a_reason() {
        let counted = |event: &str, batches| Counted { event: event.to_owned(), batches };
        let sample = Sample {
            counted: vec![
                counted("page faults", Ok(vec![(10, 13.0), (20, 23.0)])),
                counted("cycles", Err("no PMU".to_owned())),
            ],
            ..Sample::default()
        };
        let samples = [sample.clone(), sample];
        assert!(
            matches!(figure(&samples, 0), Cell::Quantity(estimate) if (estimate.point - 1.0).abs() < 1e-9)
        );
        assert_eq!(figure(&samples, 1), Cell::Missing("no PMU".to_owned()));
    }
}
