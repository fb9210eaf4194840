//! A trace as tables: the summary of calls (thesis, Figure 11) and other events, and the processes.

use assay_quantity::Unit;
use assay_report::{Block, Cell, Column, Table};
use assay_trace::Descriptor;
use assay_trace::container::Origin;
use assay_trace::record::on_descriptor;
use assay_trace::view::processes::Processes;
use assay_trace::view::summary::{Summary, SummaryRow};
use assay_trace::view::wakeups::WakeupTable;

use super::real;

/// Why a value of an imported trace is missing.
pub(super) const NOT_RECORDED: &str = "strace does not record it";

/// Returns the summary, divided by `units` units of work: times and counts per request, or of the whole trace
/// if there is one unit.
pub fn summary(summary: &Summary, origin: Origin, units: f64, unit_of_work: &str) -> Vec<Block> {
    let calls = summary.rows.iter().map(|row| self::row(row, units));
    let total = [
        Cell::text(""),
        Cell::text("total"),
        Cell::text(""),
        count(summary.events.calls, units),
        time(real(summary.events.calls_ns) / units),
        Cell::text(""),
        Cell::text(""),
        Cell::text(""),
        Cell::text(""),
        Cell::Share(1.0),
    ];
    let in_ns = |header: &str| Column::numbers_in(header, Unit::Nanoseconds);
    let columns = [
        Column::numbers("num"),
        Column::words("name"),
        Column::words("on"),
        Column::numbers("calls"),
        in_ns("total"),
        in_ns("min"),
        in_ns("max"),
        in_ns("average"),
        in_ns("std dev"),
        Column::numbers("share"),
    ];
    let title = format!("System calls per {unit_of_work}");
    let mut tables = vec![Table::of(&title, columns, calls.chain([total])).with_note(
        "Elapsed times include waiting. Calls and total are per unit of work, the other times per call.",
    )];
    if origin == Origin::Probe {
        tables.push(split(summary, units, unit_of_work));
    }
    tables.push(spread(summary, origin, units, unit_of_work).with_note(lost(summary.events.lost)));
    tables.into_iter().map(Block::Table).collect()
}

fn row(row: &SummaryRow, units: f64) -> [Cell; 10] {
    [
        Cell::Count(u64::from(row.number)),
        Cell::text(row.name.clone()),
        descriptor(row.descriptor),
        count(row.calls, units),
        time(real(row.total_ns) / units),
        time(real(row.min_ns)),
        time(real(row.max_ns)),
        time(row.mean_ns),
        time(row.deviation_ns),
        Cell::Share(row.share),
    ]
}

/// Returns the breakdown of the time of each call.
fn split(summary: &Summary, units: f64, unit_of_work: &str) -> Table {
    let rows = summary.rows.iter().map(|row| {
        let working = row.total_ns.saturating_sub(row.blocked_ns).saturating_sub(row.waiting_ns);
        [
            Cell::text(on_descriptor(&row.name, row.descriptor)),
            time(real(working.saturating_sub(row.irq_ns)) / units),
            time(real(row.softnet_ns) / units),
            time(real(row.blocked_ns) / units),
            time(real(row.waiting_ns) / units),
            time(real(row.irq_ns) / units),
        ]
    });
    let in_ns = |header: &str| Column::numbers_in(header, Unit::Nanoseconds);
    let columns = [
        Column::words("call"),
        in_ns("working"),
        in_ns("softnet (part of working)"),
        in_ns("blocked"),
        in_ns("runnable"),
        in_ns("interrupts"),
    ];
    let title = format!("Breakdown of the time of these calls, per {unit_of_work}");
    Table::of(&title, columns, rows).with_note(
        "Softnet: network softirqs that ran during the call; on loopback, the delivery itself. Runnable: the \
         thread was runnable and another task had the processor.",
    )
}

/// Returns the percentiles, bytes and errors of the calls.
fn spread(summary: &Summary, origin: Origin, units: f64, unit_of_work: &str) -> Table {
    let rows = summary.rows.iter().map(|row| {
        let bytes = |bytes: u64| Cell::Number { value: (real(bytes) / units).round(), unit: Unit::Bytes };
        [
            Cell::text(on_descriptor(&row.name, row.descriptor)),
            time(real(row.p50_ns)),
            time(real(row.p99_ns)),
            row.bytes.map_or(Cell::text(""), bytes),
            count(row.errors, units),
            Cell::Count(row.unfinished),
        ]
    });
    let in_ns = |header: &str| Column::numbers_in(header, Unit::Nanoseconds);
    let columns = [
        Column::words("call"),
        in_ns("p50"),
        in_ns("p99"),
        Column::numbers("bytes"),
        Column::numbers("errors"),
        Column::numbers("never returned"),
    ];
    let title = format!("Percentiles of calls; bytes and errors per {unit_of_work}");
    let events = &summary.events;
    let faults = match origin {
        Origin::Probe => format!(
            "{} page faults in user mode and {} in the kernel, ",
            events.user_faults, events.kernel_faults
        ),
        Origin::Strace => String::new(),
    };
    Table::of(&title, columns, rows).with_note(format!(
        "Other events: {faults}{} processes and {} threads created, {} programs executed. Calls that never \
         returned are in no other column.",
        events.processes, events.threads, events.execs
    ))
}

/// Returns the processes; calls, elapsed times and page faults are divided by `units` units of work.
pub fn processes(processes: &Processes, origin: Origin, units: f64, unit_of_work: &str) -> Vec<Block> {
    let rows = processes.rows.iter().map(|row| {
        [
            // A count would be shown with separators of thousands.
            Cell::text(row.process.to_string()),
            Cell::text(row.program.clone().unwrap_or_default()),
            Cell::Count(row.threads),
            count(row.calls, units),
            count(row.errors, units),
            time(real(row.elapsed_ns) / units),
            count(row.faults, units),
        ]
    });
    let columns = [
        Column::numbers("process"),
        Column::words("program"),
        Column::numbers("threads"),
        Column::numbers("calls"),
        Column::numbers("failed calls"),
        Column::numbers_in("elapsed", Unit::Nanoseconds),
        Column::numbers("page faults"),
    ];
    let counted = match origin {
        Origin::Probe => "calls, elapsed time and page faults",
        Origin::Strace => "calls and elapsed time",
    };
    let title = format!("Processes; {counted} per {unit_of_work}");
    let table = Table::of(&title, columns, rows).with_note(
        "Program: the one that the process executed last, or else that of its parent; the path is cut to 47 \
         bytes. Elapsed: of its calls that returned, including waiting.",
    );
    let table = match origin {
        Origin::Probe => table,
        Origin::Strace => table.with_missing("page faults", NOT_RECORDED),
    };
    vec![Block::Table(table.with_note(lost(processes.lost)))]
}

/// Returns the sleeps and wake-ups of each call, divided by `units` units of work.
pub fn wakeups(wakeups: &WakeupTable, units: f64, unit_of_work: &str) -> Vec<Block> {
    let idle = |ns: Option<u64>| ns.map_or(Cell::text(""), |ns| time(real(ns)));
    let rows = wakeups.rows.iter().map(|row| {
        [
            Cell::text(on_descriptor(&row.name, row.descriptor)),
            count(row.calls, units),
            count(row.sleeps, units),
            count(row.idle_sleeps, units),
            idle(row.idle_ns),
            count(row.woken_same, units),
            count(row.woken_busy, units),
            count(row.woken_idle, units),
            idle(row.woken_idle_ns),
        ]
    });
    let columns = [
        Column::words("call"),
        Column::numbers("calls"),
        Column::numbers("sleeps"),
        Column::numbers("idle sleeps"),
        Column::numbers_in("idle time", Unit::Nanoseconds),
        Column::numbers("woke, same CPU"),
        Column::numbers("busy CPU"),
        Column::numbers("idle CPU"),
        Column::numbers_in("its idle time", Unit::Nanoseconds),
    ];
    let title = format!("Sleeps and wake-ups per {unit_of_work}");
    let mut table = Table::of(&title, columns, rows).with_note(
        "Idle sleeps: those after which the thread continued on an idle processor (CPU), and the median time that \
         this one had been idle. Woke: threads that the call woke on its own processor, on another one that was \
         busy, and on another one that was idle, with the median time that it had been idle.",
    );
    if wakeups.unrecorded > 0 {
        table = table.with_note(format!(
            "The wake-ups of {} calls were not recorded, because another version of assay wrote the trace; record \
             again to see them.",
            wakeups.unrecorded
        ));
    }
    vec![Block::Table(table.with_note(lost(wakeups.lost)))]
}

/// The note on losses if there were none.
pub(super) const NO_LOSS: &str = "No record was lost.";

/// States the number of lost records.
pub(super) fn lost(records: u64) -> String {
    match records {
        0 => NO_LOSS.to_owned(),
        records => format!("{records} records were LOST: every count is a lower bound."),
    }
}

fn descriptor(descriptor: Descriptor) -> Cell {
    Cell::text(if descriptor == Descriptor::None { "" } else { descriptor.name() })
}

fn count(count: u64, units: f64) -> Cell {
    Cell::Number { value: real(count) / units, unit: Unit::Count }
}

pub(super) fn mean(sum: u64, units: u64, unit: Unit) -> Cell {
    Cell::Number { value: real(sum) / real(units.max(1)), unit }
}

pub(super) fn share(part: u64, whole: u64) -> Cell {
    Cell::Share(real(part) / real(whole.max(1)))
}

pub(super) fn time(value: f64) -> Cell {
    Cell::Number { value, unit: Unit::Nanoseconds }
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_report::Report;
    use assay_trace::view::processes::ProcessRow;
    use assay_trace::view::wakeups::WakeupRow;

    #[test]
    fn a_process_is_a_row_and_lost_records_are_stated() {
        let row = ProcessRow {
            process: 12_345,
            program: None,
            threads: 2,
            calls: 10,
            errors: 4,
            elapsed_ns: 3_000,
            faults: 6,
        };
        let blocks = processes(&Processes { rows: vec![row], lost: 7 }, Origin::Probe, 2.0, "request");
        let report = Report { title: "x.trace".to_owned(), blocks };
        let Some(table) = report.tables().next() else { unreachable!() };
        let due = [
            Cell::text("12345"),
            Cell::text(""),
            Cell::Count(2),
            count(5, 1.0),
            count(2, 1.0),
            time(1_500.0),
            count(3, 1.0),
        ];
        assert_eq!(table.rows(), [due]);
        assert_eq!(table.notes()[1], "7 records were LOST: every count is a lower bound.");
    }

    #[test]
    fn sleeps_and_wake_ups_are_per_unit_of_work_and_unrecorded_ones_are_stated() {
        let row = WakeupRow {
            name: "sendfile".into(),
            descriptor: Descriptor::Tcp4,
            calls: 8,
            sleeps: 6,
            idle_sleeps: 4,
            idle_ns: Some(30_000),
            woken_same: 0,
            woken_busy: 10,
            woken_idle: 2,
            woken_idle_ns: None,
        };
        let blocks = wakeups(&WakeupTable { rows: vec![row], unrecorded: 5, lost: 0 }, 2.0, "request");
        let report = Report { title: "x.trace".to_owned(), blocks };
        let Some(table) = report.tables().next() else { unreachable!() };
        let counts = |whole: &[u64]| whole.iter().map(|whole| count(*whole, 1.0)).collect::<Vec<_>>();
        let due = [
            vec![Cell::text("sendfile tcp4")],
            counts(&[4, 3, 2]),
            vec![time(30_000.0)],
            counts(&[0, 5, 1]),
            vec![Cell::text("")],
        ];
        assert_eq!(table.rows(), [due.concat()]);
        assert!(
            table.notes()[1].starts_with("The wake-ups of 5 calls were not recorded"),
            "{:?}",
            table.notes()
        );
        assert_eq!(table.notes()[2], "No record was lost.");
    }
}
