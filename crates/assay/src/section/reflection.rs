//! How good control laws were on simulated servers.

pub mod place;
pub mod watch;

use std::time::Duration;

use assay_quantity::Unit;
use assay_reflect::law::Law;
use assay_reflect::plant::Plant;
use assay_reflect::simulation::{Moment, PHASE, RUNS, Run, Scenario, Scores, mean_per_s};
use assay_report::figure::NoFigure;
use assay_report::{Axis, Block, Cell, Column, Course, Figure, Height, Report, Series, Table, scale};

/// A plant, a scenario, and how good each law was.
pub type Scored = (&'static Plant, &'static Scenario, Vec<Scores>);

/// Returns the report on runs: of one law each figure, of several their productivity side by side.
pub fn report(laws: &[&Law], scored: &[Scored]) -> Report {
    let (title, table) = match laws {
        [law] => (format!("Control law {}", law.name), of_one(law, scored)),
        _ => ("Control laws".to_owned(), side_by_side(laws, scored)),
    };
    Report { title, blocks: vec![Block::Table(table)] }
}

fn side_by_side(laws: &[&Law], scored: &[Scored]) -> Table {
    let names = laws.iter().map(|law| Column::numbers(law.name));
    let columns = [Column::words("plant"), Column::words("scenario")].into_iter().chain(names).collect();
    let row = |(plant, scenario, scores): &Scored| {
        let names = [plant.name, scenario.name].map(Cell::text);
        names.into_iter().chain(scores.iter().map(|scores| Cell::Share(scores.median.settled))).collect()
    };
    let table = Table::new(PRODUCTIVITY, columns, scored.iter().map(row).collect());
    table.expect("a row has two names and a cell for each law").with_note(format!(
        "Share of the productivity with the best fixed limit, in the second half of {} of each phase, and of \
         the phase in which it is the lowest; with noise, the median of {RUNS} runs.",
        time(PHASE)
    ))
}

const PRODUCTIVITY: &str = "Productivity with each law";

fn of_one(law: &Law, scored: &[Scored]) -> Table {
    let row = |(plant, scenario, scores): &Scored| {
        let [Scores { median, worst }] = scores[..] else { return [(); 9].map(|()| Cell::text("")) };
        [
            Cell::text(plant.name),
            Cell::text(scenario.name),
            Cell::Share(median.settled),
            Cell::Share(worst.settled),
            rise(median.rise),
            rise(worst.rise),
            number(median.spread, Unit::Count),
            number(worst.spread, Unit::Count),
            Cell::Share(median.bound),
        ]
    };
    let columns = [
        Column::words("plant"),
        Column::words("scenario"),
        Column::numbers("productivity"),
        Column::numbers("lowest"),
        Column::numbers("time to 90 %"),
        Column::numbers("longest"),
        Column::numbers("spread"),
        Column::numbers("largest"),
        Column::numbers("units wait"),
    ];
    Table::of(&format!("{}: {}", law.name, law.about), columns, scored.iter().map(row)).with_note(format!(
        "Productivity: share of that with the best fixed limit, in the second half of {} of each phase, and of \
         the phase in which it is the lowest. Time to 90 %: to the end of the first second with that share, in \
         the phase in which it took longest. Spread: largest ratio of a limit and the median one in the second \
         half. Units wait: share of that time. With noise, the median of {RUNS} runs, and the worst of them.",
        time(PHASE)
    ))
}

fn rise(rise: Option<Duration>) -> Cell {
    let never = || Cell::Missing("90 % is never reached".to_owned());
    rise.map_or_else(never, |rise| number(rise.as_secs_f64() * 1e9, Unit::Nanoseconds))
}

/// Returns how a run went: the first ten seconds of each phase, and every tenth one after them.
pub fn course(run: &Run, best_per_s: &[f64]) -> Block {
    let is_shown = |second: &Moment| {
        let in_phase = (second.end.as_secs() - 1) % PHASE.as_secs() + 1;
        in_phase <= 10 || in_phase.is_multiple_of(10)
    };
    let seconds = run.seconds().filter_map(|second| Some((second.last()?, share(second, best_per_s))));
    let rows = seconds.filter(|(last, _)| is_shown(last)).map(|(last, share)| {
        [
            number(last.end.as_secs_f64() * 1e9, Unit::Nanoseconds),
            Cell::Share(share),
            Cell::Count(u64::from(last.limit.units())),
            number(last.signal.in_flight, Unit::Count),
            number(last.signal.waiting, Unit::Count),
            Cell::text(last.reason),
        ]
    });
    let columns = [
        Column::numbers("time"),
        Column::numbers("productivity"),
        Column::numbers("limit"),
        Column::numbers("in flight"),
        Column::numbers("waiting"),
        Column::words("the law"),
    ];
    Block::Table(Table::of("Course of the run", columns, rows).with_note(
        "Productivity: share of that with the best fixed limit, in the second that ends at this time; the other \
         figures are those of its last period.",
    ))
}

/// Draws runs of laws on one plant in one scenario: their productivity, and, of a single law, its limit.
pub fn plots(
    (plant, scenario): (&Plant, &Scenario),
    runs: &[(&Law, Run)],
    best_per_s: &[f64],
) -> Result<Vec<Block>, NoFigure> {
    let title = |figure: &str| format!("{}, {}: {figure}", plant.name, scenario.name);
    let productivity = drawn(
        &title("productivity"),
        runs,
        ("share of the best productivity", Unit::Ratio),
        Height::Linear,
        |second| share(second, best_per_s),
    )?;
    let limit = match runs {
        [_] => Some(drawn(&title("limit"), runs, ("limit", Unit::Count), Height::Logarithmic, |second| {
            second.last().map_or(0.0, |last| f64::from(last.limit.units()))
        })?),
        _ => None,
    };
    Ok([productivity].into_iter().chain(limit).map(Block::Figure).collect())
}

/// Draws what a figure of each second was in several runs.
fn drawn(
    title: &str,
    runs: &[(&Law, Run)],
    (label, unit): (&str, Unit),
    height: Height,
    value: impl Fn(&[Moment]) -> f64,
) -> Result<Figure, NoFigure> {
    let axis = |label: &str, unit| Axis { label: label.to_owned(), unit };
    let line = |(law, run): &(&Law, Run)| Series {
        name: law.name.to_owned(),
        values: run.seconds().map(|second| Some(value(second))).collect(),
    };
    let ends = runs.iter().take(1).flat_map(|(_, run)| run.seconds()).filter_map(|second| second.last());
    let edges = std::iter::once(0.0).chain(ends.map(|last| last.end.as_secs_f64() * 1e9)).collect();
    let lines = runs.iter().map(line).collect();
    Course::new(title, axis("time", Unit::Nanoseconds), edges, axis(label, unit), height, lines)
        .map(Figure::Course)
}

/// Productivity in a second, as a share of that with the best fixed limit.
fn share(second: &[Moment], best_per_s: &[f64]) -> f64 {
    second.first().map_or(0.0, |first| mean_per_s(second) / best_per_s[first.phase])
}

fn number(value: f64, unit: Unit) -> Cell {
    Cell::Number { value, unit }
}

/// A time, as text.
pub fn time(time: Duration) -> String {
    scale::number(time.as_secs_f64() * 1e9, Unit::Nanoseconds).to_string()
}

#[cfg(test)]
mod tests {
    use assay_reflect::simulation::Score;
    use assay_report::{Colour, Style, Symbols};
    use expect_test::expect;

    use super::*;

    fn scored(scores: Vec<Scores>) -> Vec<Scored> {
        let (plant, scenario) = (Plant::named("cliff").unwrap(), Scenario::named("noise").unwrap());
        vec![(plant, scenario, scores)]
    }

    const SCORES: Scores = Scores {
        median: Score { settled: 0.985, rise: Some(Duration::from_millis(1_500)), spread: 1.5, bound: 1.0 },
        worst: Score { settled: 0.91, rise: None, spread: 2.0, bound: 1.0 },
    };

    fn text(report: &Report) -> String {
        let style = Style { width: 110, symbols: Symbols::Ascii, colour: Colour::Plain };
        assay_report::text::report(report, &style)
    }

    #[test]
    fn one_law_has_all_its_figures_and_several_their_productivity() {
        let [knee, vegas] = ["knee", "vegas"].map(|name| Law::named(name).unwrap());
        expect![[r#"
            Control law knee
            ================

            knee: Searches the lowest limit with the highest productivity by paired tests, and binds only where a higher
            one does harm.
             plant  scenario  productivity  lowest  time to 90 %  spread  largest  units wait
            ----------------------------------------------------------------------------------
             cliff  noise           98.5 %  91.0 %        1.50 s    1.50        2       100 %
             longest: 90 % is never reached.
             Productivity: share of that with the best fixed limit, in the second half of 120 s of each phase, and of the
             phase in which it is the lowest. Time to 90 %: to the end of the first second with that share, in the phase
             in which it took longest. Spread: largest ratio of a limit and the median one in the second half. Units wait:
             share of that time. With noise, the median of 20 runs, and the worst of them.
        "#]].assert_eq(&text(&report(&[knee], &scored(vec![SCORES]))));
        expect![[r#"
            Control laws
            ============

            Productivity with each law
             plant  scenario   vegas    knee
            ---------------------------------
             cliff  noise     98.5 %  98.5 %
             Share of the productivity with the best fixed limit, in the second half of 120 s of each phase, and of the
             phase in which it is the lowest; with noise, the median of 20 runs.
        "#]].assert_eq(&text(&report(&[vegas, knee], &scored(vec![SCORES; 2]))));
    }
}
