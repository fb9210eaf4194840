//! What passed through a guard.

use std::time::Duration;

use assay_proxy::control::Course;
use assay_proxy::{ClassCounts, Counts, Level, State};
use assay_quantity::Unit;
use assay_reflect::curve::{Curve, Point};
use assay_reflect::law::Law;
use assay_report::{Block, Cell, Column, Report, Table};

use super::real;

/// What happened.
pub struct Passed<'a> {
    /// What the limit counts.
    pub level: Level,
    /// What set it.
    pub law: &'static Law,
    /// What passed.
    pub counts: &'a Counts,
    /// The limits.
    pub limits: &'a Course,
    /// The productivity by load, of a guard without a limit.
    pub curve: Option<&'a Curve>,
    /// Lines that the log lacks, if there is one.
    pub unlogged: Option<u64>,
}

/// Something that is counted.
pub struct Count {
    /// What it is, in a table of its kind.
    pub what: &'static str,
    /// Its name as a metric, without what all have.
    pub metric: &'static str,
    /// How often it happened.
    pub of: fn(&Counts) -> u64,
}

impl Count {
    const fn new(what: &'static str, metric: &'static str, of: fn(&Counts) -> u64) -> Self {
        Self { what, metric, of }
    }
}

/// What is counted of transactions, but by class.
pub const TRANSACTIONS: [Count; 6] = [
    Count::new("committed", "committed", |counts| counts.committed),
    Count::new("rolled back by their client", "rolled_back", |counts| counts.rolled_back),
    Count::new("with an error", "failed", |counts| counts.failed),
    Count::new("abandoned by their client or the server", "abandoned", |counts| counts.abandoned),
    Count::new("set aside, as they waited for their clients", "aside_for_client", |counts| {
        counts.aside_for_client
    }),
    Count::new("set aside, as they waited for a lock", "aside_for_lock", |counts| counts.aside_for_lock),
];

/// What is counted of sessions.
pub const SESSIONS: [Count; 5] = [
    Count::new("logged in", "sessions", |counts| counts.sessions),
    Count::new("with TLS", "sessions_encrypted", |counts| counts.encrypted),
    Count::new("refused at the login, for a wrong password or an unknown role", "logins_refused", |counts| {
        counts.not_proved
    }),
    Count::new("ended with an error of the guard", "sessions_turned_away", |counts| counts.turned_away),
    Count::new("ended by a command, or with the guard", "sessions_dismissed", |counts| counts.dismissed),
];

/// What is counted around them.
pub const OTHERS: [Count; 8] = [
    Count::new("roles that had to be looked up at the server", "lookups", |counts| counts.looked_up),
    Count::new("lookups that failed", "lookups_failed", |counts| counts.not_looked_up),
    Count::new("connections of clients that could not be encrypted", "not_encrypted", |counts| {
        counts.not_encrypted
    }),
    Count::new(
        "times that no client could be accepted, for lack of files or memory",
        "not_accepted",
        |counts| counts.not_accepted,
    ),
    Count::new(
        "statements prepared again, for sessions that had prepared them before",
        "prepared_again",
        |counts| counts.prepared_again,
    ),
    Count::new(
        "connections to the server that the guard opened itself",
        "server_connections_opened",
        |counts| counts.opened,
    ),
    Count::new("times that the server had no room for a connection", "server_without_room", |counts| {
        counts.no_room
    }),
    Count::new("requests to cancel that were passed on, or ended a wait", "cancelled", |counts| {
        counts.cancelled
    }),
];

/// Returns the report on what happened, at the end.
pub fn report(passed: &Passed<'_>) -> Report {
    let ended = [
        ("in flight when the guard ended", passed.counts.cut_off),
        ("waiting when the guard ended", passed.counts.not_begun),
    ];
    Report { title: "What passed through the guard".to_owned(), blocks: blocks(passed, &ended) }
}

/// Returns the report on what there is now, and on what happened so far.
pub fn status(law: &'static Law, state: &State, curve: Option<&Curve>) -> Report {
    let State { level, counts, limits, in_flight, aside, waiting, parked, .. } = state;
    let State { clients, backends, sessions, is_draining, .. } = state;
    let now = [
        (format!("{} in flight", level.name()), *in_flight),
        (format!("{} that wait for admission", level.name()), waiting.iter().sum()),
        ("transactions that are set aside".to_owned(), *aside),
        ("transactions that lack a connection to the server".to_owned(), parked.iter().sum()),
        ("connections of clients".to_owned(), *clients),
        ("connections to the server".to_owned(), *backends),
    ];
    let of = |(what, number): (String, usize)| [Cell::text(what), Cell::Count(number as u64)];
    let now = now.map(of);
    let now = Table::of("Now", [Column::words("what"), Column::numbers("number")], now);
    let sessions = sessions.iter().map(|(role, number)| of((String::from_utf8_lossy(role).into(), *number)));
    let sessions =
        Table::of("Sessions by role, now", [Column::words("role"), Column::numbers("number")], sessions);
    let drains = is_draining.then(|| Block::Text("The guard ends with its sessions.".to_owned()));
    let passed = blocks(&Passed { level: *level, law, counts, limits, curve, unlogged: None }, &[]);
    let blocks = drains.into_iter().chain([now, sessions].map(Block::Table)).chain(passed).collect();
    Report { title: "The guard now, and what has passed through it".to_owned(), blocks }
}

/// What happened, with further rows for transactions.
fn blocks(passed: &Passed<'_>, ended: &[(&str, u64)]) -> Vec<Block> {
    let Passed { level, law, counts, limits: course, curve, unlogged } = passed;
    let columns = || [Column::words("what"), Column::numbers("number")];
    let rows =
        |of: &[Count]| of.iter().map(|count| row((count.what, (count.of)(counts)))).collect::<Vec<_>>();
    let of_all = |of: fn(&ClassCounts) -> u64| counts.classes.iter().map(of).sum();
    let further = [
        ("refused because they waited too long", of_all(|class| class.late)),
        ("refused because too many waited", of_all(|class| class.not_queued)),
        ("admitted after a wait", of_all(|class| class.waits.number)),
    ];
    let (mut transactions, mut sessions) = (rows(&TRANSACTIONS), rows(&SESSIONS));
    match level {
        Level::Transactions => &mut transactions,
        Level::Sessions => &mut sessions,
    }
    .extend(further.map(row));
    transactions.extend(ended.iter().copied().map(row));
    sessions.extend(rows(&OTHERS));
    let transactions = Table::of("Transactions", columns(), transactions);
    let sessions = Table::of("Sessions", columns(), sessions);
    let pinned = counts.pinned.iter().map(|(pin, number)| row((pin.about(), *number)));
    let pinned = Table::of("Sessions with a connection of their own, by the first reason", columns(), pinned);
    let limits = curve.map_or_else(|| limits(law, *level, course), loads);
    let tables = [transactions, limits, waits(&counts.classes), sessions, pinned];
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
    blocks
}

/// How much could be admitted at a time.
fn limits(law: &Law, level: Level, course: &Course) -> Table {
    let [last, lowest, highest] =
        [course.last, course.lowest, course.highest].map(|limit| Cell::Count(limit.units().into()));
    let row = [Cell::text(law.name), last, lowest, highest, Cell::Count(course.changes)];
    let [last, lowest, highest, changes] = ["last", "lowest", "highest", "changes"].map(Column::numbers);
    let title = format!("Limit of {}", level.name());
    Table::of(&title, [Column::words("law"), last, lowest, highest, changes], [row])
}

/// What the server did by the number of transactions in flight.
fn loads(curve: &Curve) -> Table {
    let row = |point: &Point| {
        let per_second = |value| Cell::Number { value, unit: Unit::PerSecond };
        let latency = point.latency().map_or_else(|| Cell::Missing("none ended".to_owned()), time);
        [
            Cell::Count(point.least),
            Cell::Count(point.below),
            time(point.time),
            per_second(point.productivity()),
            per_second(point.failures()),
            latency,
        ]
    };
    let columns = ["from", "below", "for", "finished per second", "failed per second", "mean time"];
    Table::of("Transactions by the number in flight", columns.map(Column::numbers), curve.points().map(row))
}

fn time(time: Duration) -> Cell {
    Cell::Number { value: time.as_secs_f64() * 1e9, unit: Unit::Nanoseconds }
}

fn row((what, number): (&str, u64)) -> [Cell; 2] {
    [Cell::text(what), Cell::Count(number)]
}

/// How the transactions of each class waited for admission.
fn waits(classes: &[ClassCounts]) -> Table {
    let row = |ClassCounts { name, waits, late, not_queued }: &ClassCounts| {
        let wait = |wait: Duration| match waits.number {
            0 => Cell::Missing("none was admitted after a wait".to_owned()),
            _ => time(wait),
        };
        let mean = waits.sum.div_f64(real(waits.number.max(1)));
        let [late, not_queued] = [late, not_queued].map(|number| Cell::Count(*number));
        [Cell::text(name), Cell::Count(waits.number), wait(mean), wait(waits.longest), late, not_queued]
    };
    let [admitted, mean, longest, late, not_queued] =
        ["admitted after a wait", "mean", "longest", "refused after a wait", "refused at once"]
            .map(Column::numbers);
    let columns = [Column::words("class"), admitted, mean, longest, late, not_queued];
    Table::of("Waits for admission", columns, classes.iter().map(row))
}
