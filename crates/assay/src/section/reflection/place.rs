//! What processes do to each other, and where they were placed.

use assay_quantity::Unit;
use assay_reflect::advice::Class;
use assay_reflect::placement::live::{LONGEST, Place, Survey, Task};
use assay_reflect::placement::{Done, Interference, PAIRS, Placement, Trial, WORTH};
use assay_report::{Block, Cell, Column, Report, Table, scale};

use super::{number, time};

/// Returns the report on processes that were left as they were found, and what they did in a period.
pub fn found(survey: &Survey, done: &[Done]) -> Report {
    let row = |(task, done): (&Task, &Done)| {
        [Cell::text(name(task)), rate(done), busy(done), Cell::text(unit(task))]
    };
    let columns = [
        Column::words("process"),
        Column::numbers("productivity"),
        Column::numbers("processors"),
        Column::words("unit, advice"),
    ];
    let table = Table::of("As found", columns, survey.tasks.iter().zip(done).map(row));
    let text = "Nothing was paused or moved: this was a dry run.".to_owned();
    report(survey, vec![Block::Text(text), Block::Table(table), Block::Table(places(&survey.places))])
}

/// Returns the report on processes that were measured and placed.
pub fn placed(survey: &Survey, placement: &Placement) -> Report {
    let Placement { interference, assignment, trial, slices } = placement;
    let mut verdicts = vec![verdict(trial, "in the best placement", "as found")];
    let rows = survey.tasks.iter().enumerate().map(|(task, one)| {
        let alone = &interference.alone()[task];
        let [before, after] = &trial.done[task];
        let ratio = Cell::from(trial.ratios[task]);
        let cpus = list(&survey.places[assignment[task]].cpus);
        [Cell::text(name(one)), rate(alone), busy(alone), rate(before), rate(after), ratio, Cell::text(cpus)]
    });
    let columns = [
        Column::words("process"),
        Column::numbers("alone"),
        Column::numbers("processors"),
        Column::numbers("as found"),
        Column::numbers("placed"),
        Column::numbers("placed/found"),
        Column::words("on processors"),
    ];
    let shared = survey.places[0].shared;
    let table = Table::of("Productivity", columns, rows).with_note(format!(
        "Alone: on the first {shared}, with the processors that it kept busy. As found and placed: in {PAIRS} \
         periods each, in turns. The gain of all is the geometric mean; one below {WORTH} is not kept."
    ));
    let mut tables = vec![table];
    if let Some(slices) = slices {
        let with = format!("with time slices of {} for batch jobs", time(LONGEST));
        verdicts.push(verdict(slices, &with, "without"));
        tables.push(time_slices(survey, slices));
    } else if survey.tasks.iter().any(|task| task.class == Class::Batch) {
        let text = "Not tried: longer time slices for batch jobs, which take Linux 6.12 or later and the policy \
                    SCHED_OTHER or SCHED_BATCH.";
        verdicts.push(text.to_owned());
    }
    tables.push(pairs(survey, interference));
    let verdicts = verdicts.into_iter().map(Block::Text);
    report(survey, verdicts.chain(tables.into_iter().map(Block::Table)).collect())
}

/// Says what a change gained.
fn verdict(trial: &Trial, with: &str, without: &str) -> String {
    let gain = trial.gain.interval;
    let [point, low, high] =
        [trial.gain.point, gain.low, gain.high].map(|value| scale::number(value, Unit::Ratio));
    let (kept, tense) = if trial.raised() { ("Kept", "do") } else { ("Not kept", "did") };
    format!("{kept}: {with}, the processes {tense} {point} ({low} to {high}) of what they did {without}.")
}

/// What each process did with time slices as found and with longer ones.
fn time_slices(survey: &Survey, slices: &Trial) -> Table {
    let rows =
        survey.tasks.iter().zip(slices.done.iter().zip(&slices.ratios)).map(|(task, (done, ratio))| {
            let slice = if task.may_lengthen() { time(LONGEST) } else { "as found".to_owned() };
            let [before, after] = done.map(|done| rate(&done));
            [Cell::text(name(task)), before, after, Cell::from(*ratio), Cell::text(slice)]
        });
    let columns = [
        Column::words("process"),
        Column::numbers("as found"),
        Column::numbers("long"),
        Column::numbers("long/found"),
        Column::words("time slice"),
    ];
    Table::of("With long time slices", columns, rows).with_note(format!(
        "In {PAIRS} periods each, in turns, in which each process has about five time slices or more. Only batch jobs get \
         long ones."
    ))
}

fn report(survey: &Survey, mut blocks: Vec<Block>) -> Report {
    let others = survey.others.iter().map(|(pid, reason)| [Cell::text(pid.to_string()), Cell::text(reason)]);
    let columns = ["process", "reason"].map(Column::words);
    if !survey.others.is_empty() {
        blocks.push(Block::Table(Table::of("Left alone", columns, others)));
    }
    let title = format!("Placement of {} processes", survey.tasks.len());
    Report { title, blocks }
}

/// What is left of the productivity of each process beside each other one.
fn pairs(survey: &Survey, interference: &Interference) -> Table {
    let shared = survey.places[0].shared;
    let count = survey.tasks.len();
    let of = |a: usize, b: usize| {
        let names = [a, b].map(|task| Cell::text(name(&survey.tasks[task])));
        let kept = interference.pair(a, b).map(|pair| [pair.together, pair.apart].map(Cell::from));
        let missing = || Cell::Missing("it finished no unit in one of the periods alone".to_owned());
        let [together, apart] = kept.unwrap_or_else(|| [missing(), missing()]);
        let [task, other] = names;
        [task, other, together, apart]
    };
    let pairs = (0..count).flat_map(|a| (0..count).filter(move |b| *b != a).map(move |b| (a, b)));
    let columns = [
        Column::words("process"),
        Column::words("beside"),
        Column::numbers(&format!("on one {shared}")),
        Column::numbers("on two"),
    ];
    let table = Table::of("What is left beside another process", columns, pairs.map(|(a, b)| of(a, b)));
    table.with_note(
        "Share of what the process does alone; on one, where the two may have to wait for each other, of its share of \
         the time.",
    )
}

fn places(places: &[Place]) -> Table {
    let rows = places.iter().map(|place| [Cell::text(place.shared), Cell::text(list(&place.cpus))]);
    Table::of("Places", [Column::words("shared"), Column::words("processors")], rows)
}

fn name(task: &Task) -> String {
    format!("{} {}", task.pid, task.name)
}

/// What a task counts, and its advice.
fn unit(task: &Task) -> String {
    let advice = [
        (!task.may_pause, "never paused"),
        (task.class == Class::Batch, "batch"),
        (task.is_bandwidth_bound, "bandwidth-bound"),
    ];
    let given = advice.into_iter().filter(|(is_given, _)| *is_given).map(|(_, text)| text);
    let unit = [task.unit.as_str()].into_iter().filter(|unit| !unit.is_empty());
    unit.chain(given).collect::<Vec<_>>().join(", ")
}

fn rate(done: &Done) -> Cell {
    number(done.rate(), Unit::PerSecond)
}

fn busy(done: &Done) -> Cell {
    number(done.busy_s / done.length_s, Unit::Ratio)
}

/// Processors, as the kernel writes them.
fn list(cpus: &[usize]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
