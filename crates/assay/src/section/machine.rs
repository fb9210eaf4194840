//! The costs of a machine's primitives, as tables.

use assay_quantity::primitive::KEYS;
use assay_quantity::{Cost, Kind, Machine, Mode, PrimitiveId, Verdict};
use assay_report::{Cell, Column, Table, scale};
use assay_statistics::again::RUNS_MIN;
use assay_statistics::calm::PROCESSES_MIN;
use assay_statistics::disturbance::LOST_MAX;
use assay_statistics::slope::depends_on_batch;

use crate::again::APART;

/// Returns the costs of all primitives with their verdicts.
pub fn costs(machine: &Machine) -> Table {
    let measured = machine.costs.iter().map(row);
    let columns = [
        Column::words("primitive"),
        Column::numbers("typical"),
        Column::numbers("if measured again"),
        Column::numbers("calm"),
        Column::numbers("processes"),
        Column::words("verdict"),
    ];
    let table = Table::of("What its primitives cost", columns, measured).with_note(TYPICAL).with_note(CALM);
    let is_known_again = machine.costs.values().any(|cost| cost.again.is_some());
    let table = if is_known_again { table.with_note(AGAIN) } else { table };
    let total = |of: fn(&Cost) -> usize| machine.costs.values().map(of).sum::<usize>();
    let disturbed = format!(
        "of {} batches lost more than {:.0} % of their time to other tasks, or could not be completed because of them, \
         and are excluded.",
        total(|cost| cost.batches),
        100.0 * LOST_MAX
    );
    let notes = [
        (
            total(|cost| cost.rejected),
            "process(es) gave no cost and are excluded; the store contains the reasons.",
        ),
        (total(|cost| cost.disturbed), disturbed.as_str()),
        (
            total(|cost| cost.outliers),
            "process(es) are outliers of their primitive (Tukey's fences) and are included.",
        ),
    ];
    let notes = notes.into_iter().filter(|(number, _)| *number > 0);
    notes.fold(table, |table, (number, note)| table.with_note(format!("{number} {note}")))
}

/// Returns the unmeasured primitives, grouped by reason; `None` if all were measured.
pub fn unmeasured(machine: &Machine) -> Option<Table> {
    let mut by_reason: Vec<(&str, Vec<String>)> = Vec::new();
    for missing in &machine.unmeasured {
        let id = missing.primitive.to_string();
        match by_reason.iter_mut().find(|(reason, _)| *reason == missing.reason) {
            Some((_, ids)) => ids.push(id),
            None => by_reason.push((&missing.reason, vec![id])),
        }
    }
    if by_reason.is_empty() {
        return None;
    }
    let rows = by_reason.iter().map(|(reason, ids)| [Cell::text(ids.join(" ")), Cell::text(*reason)]);
    Some(Table::of("What was not measured", ["primitives", "reason"].map(Column::words), rows))
}

const TYPICAL: &str = "The typical cost is the trimmed mean over fresh processes, under the machine's actual conditions; its interval is valid within this run.";

/// Explanation of the cost if measured again.
const AGAIN: &str = "If measured again: the geometric mean of this run and earlier runs of this machine; its interval contains one more run with \
                     95 % confidence, if the machine's conditions vary as in these runs.";

/// Explanation of the calm cost.
pub const CALM: &str = "The calm cost is the median of the processes during which no other hardware thread of the core was busy.";

fn row((primitive, cost): (&PrimitiveId, &Cost)) -> [Cell; 6] {
    let processes = u64::try_from(cost.typical.values).unwrap_or(u64::MAX);
    let not_calm = || {
        Cell::Missing(format!(
            "fewer than {PROCESSES_MIN} processes are known to have run alone on their core"
        ))
    };
    let not_again = || {
        Cell::Missing(format!(
            "needs {RUNS_MIN} completed earlier runs of this machine in the same state (kernel, settings, version of \
             assay), at least {} minutes apart, in which its cost is certainly above 0",
            APART.as_mins()
        ))
    };
    [
        Cell::text(primitive.to_string()),
        cost.typical.into(),
        cost.again.map_or_else(not_again, Cell::from),
        cost.calm.map_or_else(not_calm, Cell::from),
        Cell::Count(processes),
        Cell::text(verdict(cost)),
    ]
}

/// Formats the verdict with each mode, its share of the processes, and the condition on which the cost
/// depends.
fn verdict(cost: &Cost) -> String {
    let mut text = cost.verdict.map_or("unknown".to_owned(), |verdict| verdict.to_string());
    if matches!(cost.verdict, Some(Verdict::Modes(_))) && !cost.modes.is_empty() {
        text = format!("{text}: {}", modes(cost));
    }
    if cost.linearity.as_ref().is_some_and(depends_on_batch) {
        text.push_str(", depends on the batch");
    }
    text
}

/// Formats each mode with its share of the processes, and the condition of the machine that distinguishes
/// them.
pub fn modes(cost: &Cost) -> String {
    let mode = |mode: &Mode| {
        let figure = scale::number(mode.estimate.point, mode.estimate.unit);
        format!("{figure} ({:.0} %)", 100.0 * mode.weight)
    };
    let modes: Vec<String> = cost.modes.iter().map(mode).collect();
    let depends_on = cost.depends_on.as_ref().map(|aspect| format!(", depends on {aspect}"));
    modes.join(", ") + &depends_on.unwrap_or_default()
}

/// Returns the table of the keys of ids.
pub fn keys() -> Table {
    let rows = KEYS.iter().map(|row| {
        let values = match row.kind {
            Kind::Bytes => "a number of bytes".to_owned(),
            Kind::Count => "a number".to_owned(),
            Kind::Word(words) => words.join(", "),
        };
        [Cell::text(row.name), Cell::text(values), Cell::text(row.about)]
    });
    Table::of("Keys", ["key", "values", "meaning"].map(Column::words), rows)
        .with_note("The numbers in an id are examples; any other number can be given.".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_quantity::{Estimate, Interval, Unit};
    use assay_report::{Block, Format, Report};
    use assay_statistics::trimmed_mean;

    fn estimate(point: f64) -> Estimate {
        let values = [-2.0, -1.0, 0.0, 1.0, 2.0].map(|percent| point * (1.0 + percent / 100.0));
        trimmed_mean(&values, Unit::Nanoseconds).unwrap()
    }

    fn machine(costs: &[(&str, Cost)]) -> Machine {
        let costs = costs.iter().map(|(id, cost)| (id.parse().unwrap(), cost.clone()));
        Machine { costs: costs.collect(), ..Machine::default() }
    }

    fn csv(table: Table) -> String {
        let report = Report { title: String::new(), blocks: vec![Block::Table(table)] };
        (Format::named("csv").unwrap().render)(&report, &crate::output::style())
    }

    #[test]
    fn a_cost_of_several_modes_shows_each_with_its_weight_and_what_it_depends_on() {
        let modes =
            [(0.75, 100.0), (0.25, 150.0)].map(|(weight, point)| Mode { weight, estimate: estimate(point) });
        let two = Cost {
            modes: modes.to_vec(),
            verdict: Some(Verdict::Modes(2)),
            depends_on: Some("core sharing".to_owned()),
            ..Cost::from(estimate(112.5))
        };
        assert_eq!(verdict(&two), "2 modes: 100 ns (75 %), 150 ns (25 %), depends on core sharing");
        let unexplained = Cost { depends_on: None, ..two.clone() };
        assert_eq!(verdict(&unexplained), "2 modes: 100 ns (75 %), 150 ns (25 %)");
        let without_figures = Cost { modes: Vec::new(), ..two.clone() };
        assert_eq!(verdict(&without_figures), "2 modes");
        let disturbed = Cost { verdict: Some(Verdict::Disturbed(0.31)), ..two };
        assert_eq!(verdict(&disturbed), "disturbed: 31 % of batches");
    }

    #[test]
    fn the_cost_if_measured_again_is_shown_or_a_reason_why_it_is_missing() {
        let known = Cost { again: Some(estimate(104.0)), ..Cost::from(estimate(100.0)) };
        let first = costs(&machine(&[("call.null", Cost::from(estimate(100.0)))]));
        let reasons = first.reasons();
        assert!(reasons[0].starts_with("needs 5 completed earlier runs of this machine"), "{reasons:?}");
        assert!(
            first.notes().iter().all(|note| !note.starts_with("If measured again")),
            "{:?}",
            first.notes()
        );
        let both = costs(&machine(&[("call.null", known), ("file.stat", Cost::from(estimate(500.0)))]));
        assert!(both.notes().iter().any(|note| note.starts_with("If measured again")), "{:?}", both.notes());
        let shown = csv(both);
        assert!(shown.contains("call.null,100,") && shown.contains(",104,"), "{shown}");
        assert!(shown.contains("needs 5 completed earlier runs of this machine"), "{shown}");
    }

    #[test]
    fn doubts_about_a_cost_are_shown_with_it() {
        let ratio = Estimate {
            interval: Interval { low: 1.2, high: 1.4, confidence: 0.95 },
            unit: Unit::Ratio,
            ..estimate(1.3)
        };
        let doubtful = Cost {
            verdict: Some(Verdict::Steady),
            linearity: Some(ratio),
            batches: 56,
            disturbed: 2,
            outliers: 3,
            ..Cost::from(estimate(100.0))
        };
        let quiet = costs(&machine(&[("call.null", Cost::from(estimate(100.0)))]));
        assert_eq!(quiet.notes().len(), 2, "{:?}", quiet.notes());
        let table = costs(&machine(&[("call.null", doubtful)]));
        let notes = table.notes().join(" ");
        let left_out = "2 of 56 batches lost more than 5 % of their time to other tasks, or could not be completed \
                        because of them, and are excluded.";
        assert!(notes.contains(left_out), "{notes}");
        assert!(notes.contains("3 process(es) are outliers"), "{notes}");
        let shown = csv(table);
        assert!(shown.contains("steady, depends on the batch"), "{shown}");
    }
}
