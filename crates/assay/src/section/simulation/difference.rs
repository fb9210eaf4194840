//! Two runs of simulated machines compared: modes, events, programs, services and routines side by side.

use std::array;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use assay_quantity::{Pair, Unit, Which};
use assay_report::{Block, Cell, Column, Report, Table, scale};
use assay_sim::{Observed, Profile, Run};

use super::{FOLDED_BELOW, by_mode, ratio};

/// Returns the report on two runs in which the same was observed, from files of these names.
pub fn report(runs: &Pair<Run>, names: &Pair<String>) -> Report {
    let profiles = Pair { a: &runs.a.profile, b: &runs.b.profile };
    let modes = modes(profiles);
    let mut tables = vec![setups(runs, names)];
    match runs.a.setup.observed {
        Observed::Count => tables.push(modes.with_note(super::COUNTED)),
        Observed::Services => {
            tables.push(with_notes(modes, profiles.map(|profile| vec![super::balance(profile)])));
            tables.extend([events(profiles), programs(profiles), services(profiles), routines(profiles)]);
        }
    }
    let title = "B compared with A".to_owned();
    Report { title, blocks: tables.into_iter().map(Block::Table).collect() }
}

fn setups(runs: &Pair<Run>, names: &Pair<String>) -> Table {
    let row = |name: &str, of: fn(&Run) -> Cell| [Cell::text(name), of(&runs.a), of(&runs.b)];
    let rows = [
        ["run", &names.a, &names.b].map(Cell::text),
        row("command", |run| Cell::text(super::command(run))),
        row("status", |run| Cell::Count(run.status.into())),
        row("copied", |run| Cell::text(run.setup.copies.join(", "))),
        row("kernel", |run| Cell::text(&*run.setup.kernel)),
        row("root file system", |run| Cell::text(run.setup.root.as_deref().unwrap_or_default())),
        row("memory", |run| super::memory(run.setup.memory_mib)),
        row("deterministic", |run| Cell::text(if run.setup.deterministic { "yes" } else { "no" })),
        row("annotated functions", |run| Cell::text(run.setup.functions.join(", "))),
    ];
    let rows = rows.into_iter().filter(|[_, a, b]| [a, b].iter().any(|cell| **cell != Cell::text("")));
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
        let [a, b, difference] = compared(a, b);
        [Cell::text(mode), a, b, difference, ratio]
    });
    let [a, b, difference, ratio] = ["A", "B", "B - A", "B/A"].map(Column::numbers);
    Table::of(super::MODES, [Column::words("mode"), a, b, difference, ratio], rows)
}

/// The events, and the time if both runs have one.
fn events(profiles: Pair<&Profile>) -> Table {
    let [events_a, events_b] = [profiles.a, profiles.b].map(super::by_event);
    let mut pairs: Vec<_> =
        events_a.into_iter().zip(events_b).map(|((event, a), (_, b))| (event, a, b)).collect();
    if let (Some(a), Some(b)) = (profiles.a.elapsed, profiles.b.elapsed) {
        pairs.extend([
            ("time of the guest in ns", a.total_ns, b.total_ns),
            ("time in which it was halted in ns", a.halted_ns, b.halted_ns),
            ("halts of unknown length, not included", a.unknown_halts, b.unknown_halts),
        ]);
    }
    let rows = pairs.into_iter().map(|(event, a, b)| {
        let [a, b, difference] = compared(a, b);
        [Cell::text(event), a, b, difference]
    });
    let [a, b, difference] = ["A", "B", "B - A"].map(Column::numbers);
    Table::of(super::EVENTS, [Column::words("event"), a, b, difference], rows)
}

fn programs(profiles: Pair<&Profile>) -> Table {
    let rows = side_by_side(profiles.map(super::by_program)).into_iter().map(|(name, Pair { a, b })| {
        let [processes_a, processes_b, _] = compared(a.processes, b.processes);
        let [user_a, user_b, user] = compared(a.user, b.user);
        let [kernel_a, kernel_b, kernel] = compared(a.kernel, b.kernel);
        Row {
            cells: [
                Cell::text(name),
                processes_a,
                processes_b,
                user_a,
                user_b,
                user,
                kernel_a,
                kernel_b,
                kernel,
            ],
            instructions: a.user.abs_diff(b.user) + a.kernel.abs_diff(b.kernel),
            calls: a.processes.abs_diff(b.processes),
        }
    });
    let columns = [
        Column::words("program"),
        Column::numbers("processes A"),
        Column::numbers("processes B"),
        Column::numbers("user A"),
        Column::numbers("user B"),
        Column::numbers("user B - A"),
        Column::numbers("kernel A"),
        Column::numbers("kernel B"),
        Column::numbers("kernel B - A"),
    ];
    by_difference(super::PROGRAMS, columns, rows.collect(), "Programs").with_note(super::PROCESSES)
}

fn services(profiles: Pair<&Profile>) -> Table {
    let rows = side_by_side(profiles.map(super::by_service)).into_iter().map(|(service, Pair { a, b })| {
        let [name, _] = super::names(service).map(Cell::text);
        let ([calls_a, each_a], [calls_b, each_b]) = (a.cells(), b.cells());
        let [instructions_a, instructions_b, difference] = compared(a.instructions, b.instructions);
        Row {
            cells: [name, calls_a, calls_b, each_a, each_b, instructions_a, instructions_b, difference],
            instructions: a.instructions.abs_diff(b.instructions),
            calls: a.calls.abs_diff(b.calls),
        }
    });
    let columns = [
        Column::words("service"),
        Column::numbers("calls A"),
        Column::numbers("calls B"),
        Column::numbers("per call A"),
        Column::numbers("per call B"),
        Column::numbers("A"),
        Column::numbers("B"),
        Column::numbers("B - A"),
    ];
    let table =
        by_difference(super::SERVICES, columns, rows.collect(), "Services").with_note(super::PER_CALL);
    with_notes(table, profiles.map(|profile| profile.gaps.clone()))
}

fn routines(profiles: Pair<&Profile>) -> Table {
    let by_name = |profile: &Profile| -> BTreeMap<String, u64> { profile.routines.clone() };
    let mut rows: Vec<_> = side_by_side(profiles.map(by_name)).into_iter().collect();
    let difference = |(_, Pair { a, b }): &(String, Pair<u64>)| a.abs_diff(*b);
    rows.sort_by_key(|row| Reverse(difference(row)));
    let all = rows.iter().map(difference).sum();
    let small: Vec<u64> = rows.iter().map(difference).filter(|own| ratio(*own, all) < FOLDED_BELOW).collect();
    let together = scale::number(ratio(small.iter().sum(), all), Unit::Ratio);
    let why = match all {
        0 => NO_DIFFERENCE.to_owned(),
        _ => format!("with less than 1 % of all differences each, together {together}"),
    };
    let rows = rows.into_iter().map(|(name, Pair { a, b })| {
        let [a, b, difference] = compared(a, b);
        [Cell::text(name), a, b, difference]
    });
    let [a, b, difference] = ["A", "B", "B - A"].map(Column::numbers);
    Table::of(super::ROUTINES, [Column::words("routine"), a, b, difference], rows)
        .with_note(super::OWN)
        .with_last_folded(small.len(), &format!("Routines {why}"))
}

/// A row of a table, and by how much its sides differ.
struct Row<const N: usize> {
    cells: [Cell; N],
    instructions: u64,
    calls: u64,
}

/// A table whose rows are sorted by descending difference. Folds those that have together little of all
/// differences.
fn by_difference<const N: usize>(
    title: &str,
    columns: [Column; N],
    mut rows: Vec<Row<N>>,
    what: &str,
) -> Table {
    let instructions: u64 = rows.iter().map(|row| row.instructions).sum();
    let calls: u64 = rows.iter().map(|row| row.calls).sum();
    let shares = |row: &Row<N>| [ratio(row.instructions, instructions), ratio(row.calls, calls)];
    let larger = |row: &Row<N>| shares(row).into_iter().fold(0.0, f64::max);
    rows.sort_by(|a, b| larger(b).total_cmp(&larger(a)));
    let from_the_last = rows.iter().rev().scan([0.0; 2], |sums, row| {
        *sums = array::from_fn(|of| sums[of] + shares(row)[of]);
        Some(*sums)
    });
    let folded = from_the_last.take_while(|sums| sums.iter().all(|sum| *sum < FOLDED_BELOW)).count();
    let shown = rows.len() - folded;
    rows[..shown].sort_by_key(|row| Reverse((row.instructions, row.calls)));
    let why = match (instructions, calls) {
        (0, 0) => NO_DIFFERENCE,
        _ => "with together less than 1 % of all differences of instructions and of calls",
    };
    Table::of(title, columns, rows.into_iter().map(|row| row.cells))
        .with_last_folded(folded, &format!("{what} {why}"))
}

const NO_DIFFERENCE: &str = "without a difference";

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
fn with_notes(table: Table, notes: Pair<Vec<String>>) -> Table {
    let [in_a, in_b] = [&notes.a, &notes.b].map(|notes| notes.iter().collect::<BTreeSet<_>>());
    let both = in_a.intersection(&in_b).map(|note| (*note).clone());
    let only_a = in_a.difference(&in_b).map(|note| format!("A: {note}"));
    let only_b = in_b.difference(&in_a).map(|note| format!("B: {note}"));
    both.chain(only_a).chain(only_b).fold(table, Table::with_note)
}

/// Two counts, and how much more the second is. Sums of a profile are below 2^63.
fn compared(a: u64, b: u64) -> [Cell; 3] {
    [Cell::Count(a), Cell::Count(b), Cell::Difference(b.cast_signed() - a.cast_signed())]
}
