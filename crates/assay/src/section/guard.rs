//! What passed through a guard.

use std::time::Duration;

use assay_proxy::control::Course;
use assay_proxy::{ClassCounts, Counts};
use assay_quantity::Unit;
use assay_reflect::law::Law;
use assay_report::{Block, Cell, Column, Report, Table};

use super::real;

/// What happened.
pub struct Passed {
    /// What set the limit.
    pub law: &'static Law,
    /// What passed.
    pub counts: Counts,
    /// The limits.
    pub limits: Course,
    /// Lines that the log lacks, if there is one.
    pub unlogged: Option<u64>,
}

/// Returns the report on what happened.
pub fn report(Passed { law, counts, limits: course, unlogged }: &Passed) -> Report {
    let columns = || [Column::words("what"), Column::numbers("number")];
    let of_all = |of: fn(&ClassCounts) -> u64| counts.classes.iter().map(of).sum();
    let rows = [
        ("committed", counts.committed),
        ("rolled back by their client", counts.rolled_back),
        ("with an error", counts.failed),
        ("abandoned by their client or the server", counts.abandoned),
        ("refused because they waited too long", of_all(|class| class.late)),
        ("refused because too many waited", of_all(|class| class.not_queued)),
        ("admitted after a wait", of_all(|class| class.waits.number)),
        ("admitted beyond the limit, as all others waited for their clients", counts.beyond),
    ];
    let transactions = Table::of("Transactions", columns(), rows.map(row));
    let rows = [
        ("logged in", counts.sessions),
        ("with TLS", counts.encrypted),
        ("refused at the login, for a wrong password or an unknown role", counts.not_proved),
        ("roles that had to be looked up at the server", counts.looked_up),
        ("lookups that failed", counts.not_looked_up),
        ("ended with an error of the guard", counts.turned_away),
        ("connections of clients that could not be encrypted", counts.not_encrypted),
        ("times that no client could be accepted, for lack of files or memory", counts.not_accepted),
        ("statements prepared again, for sessions that had prepared them before", counts.prepared_again),
        ("connections to the server that the guard opened itself", counts.opened),
        ("times that the server had no room for a connection", counts.no_room),
        ("requests to cancel that were passed on, or ended a wait", counts.cancelled),
    ];
    let sessions = Table::of("Sessions", columns(), rows.map(row));
    let pinned = counts.pinned.iter().map(|(pin, number)| row((pin.about(), *number)));
    let pinned = Table::of("Sessions with a connection of their own, by the first reason", columns(), pinned);
    let tables = [transactions, limits(law, course), waits(&counts.classes), sessions, pinned];
    let mut blocks: Vec<Block> = tables.map(Block::Table).into();
    if course.has_failed {
        blocks.push(Block::Text("The law failed; its last limit stayed.".to_owned()));
    }
    if counts.unmeasured > 0 {
        let text =
            format!("The processor time of the server could not be read in {} periods.", counts.unmeasured);
        blocks.push(Block::Text(text));
    }
    if let Some(lines @ 1..) = unlogged {
        blocks.push(Block::Text(format!("The log lacks {lines} lines.")));
    }
    Report { title: "What passed through the guard".to_owned(), blocks }
}

/// Transactions that could be in flight.
fn limits(law: &Law, course: &Course) -> Table {
    let [last, lowest, highest] =
        [course.last, course.lowest, course.highest].map(|limit| Cell::Count(limit.units().into()));
    let row = [Cell::text(law.name), last, lowest, highest, Cell::Count(course.changes)];
    let [last, lowest, highest, changes] =
        ["at the end", "lowest", "highest", "changes"].map(Column::numbers);
    Table::of("Limit", [Column::words("law"), last, lowest, highest, changes], [row])
}

fn row((what, number): (&str, u64)) -> [Cell; 2] {
    [Cell::text(what), Cell::Count(number)]
}

/// How the transactions of each class waited for admission.
fn waits(classes: &[ClassCounts]) -> Table {
    let row = |ClassCounts { name, waits, late, not_queued }: &ClassCounts| {
        let time = |wait: Duration| match waits.number {
            0 => Cell::Missing("none was admitted after a wait".to_owned()),
            _ => Cell::Number { value: wait.as_secs_f64() * 1e9, unit: Unit::Nanoseconds },
        };
        let mean = waits.sum.div_f64(real(waits.number.max(1)));
        let [late, not_queued] = [late, not_queued].map(|number| Cell::Count(*number));
        [Cell::text(name), Cell::Count(waits.number), time(mean), time(waits.longest), late, not_queued]
    };
    let [admitted, mean, longest, late, not_queued] =
        ["admitted after a wait", "mean", "longest", "refused after a wait", "refused at once"]
            .map(Column::numbers);
    let columns = [Column::words("class"), admitted, mean, longest, late, not_queued];
    Table::of("Waits for admission", columns, classes.iter().map(row))
}
