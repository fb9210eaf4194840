//! Two runs of simulated machines compared: their modes, events, programs and services side by side.

use std::array;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use assay_quantity::{Pair, Unit, Which};
use assay_report::{Block, Cell, Column, Report, Table};
use assay_sim::{Observed, Profile, Run};

use super::{FOLDED_BELOW, by_mode, ratio};

/// Returns the report on two runs in which the same was observed.
pub fn report(runs: &Pair<Run>) -> Report {
    let profiles = Pair { a: &runs.a.profile, b: &runs.b.profile };
    let tables = match runs.a.setup.observed {
        Observed::Count => vec![setups(runs), modes(profiles).with_note(super::COUNTED)],
        Observed::Services => vec![
            setups(runs),
            with_notes(modes(profiles), profiles, |profile| vec![super::balance(profile)]),
            events(profiles),
            programs(profiles),
            services(profiles),
        ],
    };
    let title = "B compared with A".to_owned();
    Report { title, blocks: tables.into_iter().map(Block::Table).collect() }
}

fn setups(runs: &Pair<Run>) -> Table {
    let row = |name: &str, of: fn(&Run) -> Cell| [Cell::text(name), of(&runs.a), of(&runs.b)];
    let rows = [
        row("command", |run| Cell::text(super::command(run))),
        row("status", |run| Cell::Count(run.status.into())),
        row("kernel", |run| Cell::text(&*run.setup.kernel)),
        row("memory", |run| {
            let bytes = f64::from(run.setup.memory_mib) * f64::from(1 << 20);
            Cell::Number { value: bytes, unit: Unit::Bytes }
        }),
        row("deterministic", |run| Cell::text(if run.setup.deterministic { "yes" } else { "no" })),
    ];
    let table = Table::of("What is compared", ["", "A", "B"].map(Column::words), rows);
    if runs.a.setup.deterministic && runs.b.setup.deterministic {
        table
    } else {
        table.with_note("Small differences can be chance, as not both runs are deterministic.")
    }
}

fn modes(profiles: Pair<&Profile>) -> Table {
    let [a, b] = [profiles.a, profiles.b].map(by_mode);
    let rows: [_; 4] = array::from_fn(|row| {
        let ((mode, a), (_, b)) = (a[row], b[row]);
        let ratio = match a {
            0 => Cell::text(""),
            a => Cell::Number { value: ratio(b, a), unit: Unit::Ratio },
        };
        [Cell::text(mode), Cell::Count(a), Cell::Count(b), difference(a, b), ratio]
    });
    let [a, b, difference, ratio] = ["A", "B", "B - A", "B/A"].map(Column::numbers);
    Table::of(super::MODES, [Column::words("mode"), a, b, difference, ratio], rows)
}

fn events(profiles: Pair<&Profile>) -> Table {
    let [a, b] = [profiles.a, profiles.b].map(super::by_event);
    let rows: [_; 6] = array::from_fn(|row| {
        let ((event, a), (_, b)) = (a[row], b[row]);
        [Cell::text(event), Cell::Count(a), Cell::Count(b), difference(a, b)]
    });
    let [a, b, difference] = ["A", "B", "B - A"].map(Column::numbers);
    let table = Table::of(super::EVENTS, [Column::words("event"), a, b, difference], rows);
    with_notes(table, profiles, |profile| profile.elapsed.map(super::time).into_iter().collect())
}

fn programs(profiles: Pair<&Profile>) -> Table {
    let rows = side_by_side(profiles.map(super::by_program)).into_iter().map(|(name, Pair { a, b })| {
        let change = change(a.user + a.kernel, b.user + b.kernel);
        let counts = [a.processes, b.processes, a.user, b.user, a.kernel, b.kernel].map(Cell::Count);
        let [processes_a, processes_b, user_a, user_b, kernel_a, kernel_b] = counts;
        let cells = [
            Cell::text(name),
            processes_a,
            processes_b,
            user_a,
            user_b,
            kernel_a,
            kernel_b,
            Cell::Difference(change),
        ];
        (change, cells)
    });
    let columns = [
        Column::words("program"),
        Column::numbers("processes A"),
        Column::numbers("processes B"),
        Column::numbers("user A"),
        Column::numbers("user B"),
        Column::numbers("kernel A"),
        Column::numbers("kernel B"),
        Column::numbers("B - A"),
    ];
    by_change(super::PROGRAMS, columns, rows.collect(), "Programs")
}

fn services(profiles: Pair<&Profile>) -> Table {
    let rows = side_by_side(profiles.map(super::by_service)).into_iter().map(|(service, Pair { a, b })| {
        let change = change(a.instructions, b.instructions);
        let [name, kind] = super::names(service).map(Cell::text);
        let ([calls_a, each_a], [calls_b, each_b]) = (a.cells(), b.cells());
        (change, [name, kind, calls_a, calls_b, each_a, each_b, Cell::Difference(change)])
    });
    let columns = [
        Column::words("service"),
        Column::words("kind"),
        Column::numbers("calls A"),
        Column::numbers("calls B"),
        Column::numbers("per call A"),
        Column::numbers("per call B"),
        Column::numbers("B - A"),
    ];
    let table = by_change(super::SERVICES, columns, rows.collect(), "Services").with_note(super::PER_CALL);
    with_notes(table, profiles, |profile| profile.gaps.clone())
}

/// A table whose rows are sorted by descending change, in either direction, with small changes folded.
fn by_change<const N: usize>(
    title: &str,
    columns: [Column; N],
    mut rows: Vec<(i64, [Cell; N])>,
    what: &str,
) -> Table {
    rows.sort_by_key(|(change, _)| Reverse(change.unsigned_abs()));
    let all: u64 = rows.iter().map(|(change, _)| change.unsigned_abs()).sum();
    let small = |(change, _): &&(i64, _)| ratio(change.unsigned_abs(), all) < FOLDED_BELOW;
    let folded = rows.iter().filter(small).count();
    Table::of(title, columns, rows.into_iter().map(|(_, cells)| cells))
        .with_last_folded(folded, &format!("{what} with less than 1 % of all differences"))
}

/// What each key has on both sides; the default where it is missing.
fn side_by_side<K: Ord, V: Default>(maps: Pair<BTreeMap<K, V>>) -> BTreeMap<K, Pair<V>> {
    let mut both: BTreeMap<K, Pair<V>> = BTreeMap::new();
    let none = || Pair { a: V::default(), b: V::default() };
    for (which, map) in [(Which::A, maps.a), (Which::B, maps.b)] {
        for (key, value) in map {
            *both.entry(key).or_insert_with(none).get_mut(which) = value;
        }
    }
    both
}

/// Adds the notes of both sides: one that both have once, and others with their side.
fn with_notes<T>(table: Table, sides: Pair<&T>, notes: impl Fn(&T) -> Vec<String>) -> Table {
    let Pair { a, b } = sides.map(notes);
    let both = a.iter().filter(|note| b.contains(note)).cloned();
    let only_a = a.iter().filter(|note| !b.contains(note)).map(|note| format!("A: {note}"));
    let only_b = b.iter().filter(|note| !a.contains(note)).map(|note| format!("B: {note}"));
    both.chain(only_a).chain(only_b).fold(table, Table::with_note)
}

fn difference(a: u64, b: u64) -> Cell {
    Cell::Difference(change(a, b))
}

/// How much more `b` is. Sums of a profile are below 2^63.
fn change(a: u64, b: u64) -> i64 {
    b.cast_signed() - a.cast_signed()
}
