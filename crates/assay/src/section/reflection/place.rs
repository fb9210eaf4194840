//! What processes do to each other, and where they were placed.

use assay_quantity::Unit;
use assay_reflect::placement::live::{Place, Survey, Task};
use assay_reflect::placement::{Done, Interference, PAIRS, Placement, WORTH};
use assay_report::{Block, Cell, Column, Report, Table, scale};

use super::number;

/// Returns the report on processes that were left as they were found, and what they did in a period.
pub fn found(survey: &Survey, done: &[Done]) -> Report {
    let row = |(task, done): (&Task, &Done)| {
        [Cell::text(name(task)), rate(done), busy(done), Cell::text(unit(task))]
    };
    let columns = [
        Column::words("process"),
        Column::numbers("productivity"),
        Column::numbers("processors"),
        Column::words("unit"),
    ];
    let table = Table::of("As found", columns, survey.tasks.iter().zip(done).map(row));
    let text = "Nothing was paused or moved: this was a dry run.".to_owned();
    report(survey, vec![Block::Text(text), Block::Table(table), Block::Table(places(&survey.places))])
}

/// Returns the report on processes that were measured and placed.
pub fn placed(survey: &Survey, placement: &Placement) -> Report {
    let Placement { interference, assignment, trial } = placement;
    let gain = trial.gain.interval;
    let (low, high) = (scale::number(gain.low, Unit::Ratio), scale::number(gain.high, Unit::Ratio));
    let verdict = if trial.raised() {
        "Kept: in the best placement, the processes do"
    } else {
        "Not kept: in the best placement, the processes did"
    };
    let point = scale::number(trial.gain.point, Unit::Ratio);
    let text = format!("{verdict} {point} ({low} to {high}) of what they did as found.");
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
    report(survey, vec![Block::Text(text), Block::Table(table), Block::Table(pairs(survey, interference))])
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

/// What a task counts.
fn unit(task: &Task) -> String {
    format!("{}{}", task.unit, if task.may_pause { "" } else { ", never paused" })
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
