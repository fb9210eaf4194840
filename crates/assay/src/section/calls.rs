//! How long the calls of one name took: the distribution as bars, its modes as a table, and what the calls of
//! a mode have in common.

use std::num::NonZeroUsize;

use assay_quantity::Unit;
use assay_report::{Bar, Bars, Block, Cell, Column, Figure, Length, Table, scale};
use assay_trace::container::Origin;
use assay_trace::histogram::Histogram;
use assay_trace::view::calls::{CallTimes, DIFFERENCE_MIN, Dependence, Mode};

use super::real;
use super::trace::{NOT_RECORDED, lost, mean, share, time};

/// Returns the tables and the figure; `name` is what was chosen, such as `read`.
pub fn calls(times: &CallTimes, origin: Origin, name: &str) -> Vec<Block> {
    let mut blocks = vec![Block::Table(modes(times, origin, name))];
    if times.modes.len() > 1 {
        blocks.push(Block::Table(differences(times)));
    }
    if !(times.dependences.is_empty() && times.dropped.is_empty()) {
        blocks.push(Block::Table(dependences(times)));
    }
    blocks.extend(distribution(&times.all.elapsed, name).map(Block::Figure));
    blocks
}

/// Returns the modes and where their time went.
fn modes(times: &CallTimes, origin: Origin, name: &str) -> Table {
    let modes = times.modes.iter().zip(1..).map(|(mode, number)| (Cell::Count(number), mode));
    let all = (!times.modes.is_empty()).then_some((Cell::text("all"), &times.all));
    let whole = &times.all.tally;
    let rows = modes.chain(all).map(|(name, mode)| {
        let tally = &mode.tally;
        let mean = |sum_ns| mean(sum_ns, tally.calls, Unit::Nanoseconds);
        [
            name,
            Cell::Count(tally.calls),
            share(tally.calls, whole.calls),
            share(tally.elapsed_ns, whole.elapsed_ns),
            time(real(mode.min_ns)),
            quantile(&mode.elapsed, mode, 50),
            time(real(mode.max_ns)),
            mean(tally.kernel_ns),
            mean(tally.off_cpu_ns),
            mean(tally.irq_ns()),
        ]
    });
    let columns = [
        Column::numbers("mode"),
        Column::numbers("calls"),
        Column::numbers("share of calls"),
        Column::numbers("of time"),
        Column::numbers("min"),
        Column::numbers("p50"),
        Column::numbers("max"),
        Column::numbers("working"),
        Column::numbers("off the CPU"),
        Column::numbers("interrupts"),
    ];
    let table = Table::of(&format!("Times of {name}"), columns, rows);
    let table = match origin {
        Origin::Probe => table.with_note(
            "Min, p50 (within 6.25 %), max: elapsed times. Working, with network softirqs, off the CPU, other \
             interrupts: where they went, on average per call.",
        ),
        Origin::Strace => ["working", "off the CPU", "interrupts"]
            .into_iter()
            .fold(table, |table, unknown| table.with_missing(unknown, NOT_RECORDED))
            .with_note("Min, p50 (within 6.25 %), max: elapsed times."),
    };
    table
        .with_note(format!(
            "Calls that failed: {}. Calls that never returned, in no row: {}.",
            times.errors, times.unfinished
        ))
        .with_note(lost(times.lost))
}

/// Returns what the calls of each mode have in common.
fn differences(times: &CallTimes) -> Table {
    let of_mode = |(mode, number): (&Mode, u64)| {
        let row = |property, value: &str, [share, share_of_others]: [Cell; 2]| {
            [Cell::Count(number), Cell::text(property), Cell::text(value), share, share_of_others]
        };
        let differences = mode.differences.iter();
        let rows = differences
            .map(|it| row(it.property.name(), &it.value, [it.share, it.share_of_others].map(Cell::Share)));
        let none = row("none clear", "", ["", ""].map(Cell::text));
        let none = mode.differences.is_empty().then_some(none);
        rows.chain(none).collect::<Vec<_>>()
    };
    let columns = [
        Column::numbers("mode"),
        Column::words("property"),
        Column::words("value"),
        Column::numbers("of its calls"),
        Column::numbers("of the others"),
    ];
    let rows = times.modes.iter().zip(1..).flat_map(of_mode);
    Table::of("How the calls of a mode differ from the others", columns, rows).with_note(format!(
        "The values whose shares differ by at least {} percentage points.",
        100.0 * DIFFERENCE_MIN
    ))
}

/// Returns the times by the values of the properties that they depend on.
fn dependences(times: &CallTimes) -> Table {
    let of_property = |dependence: &Dependence| {
        let row = |(value, elapsed): (&str, &Histogram)| {
            let (property, share) = (dependence.property.name(), Cell::Share(dependence.share));
            let [p50, p99] = [50, 99].map(|per_cent| quantile(elapsed, &times.all, per_cent));
            [Cell::text(property), share, Cell::text(value), Cell::Count(elapsed.total()), p50, p99]
        };
        let values = dependence.values.iter().map(|it| (it.value.as_str(), &it.elapsed));
        let others = Some(("all others", &dependence.others)).filter(|(_, others)| others.total() > 0);
        values.chain(others).map(row).collect::<Vec<_>>()
    };
    let columns = [
        Column::words("property"),
        Column::numbers("explains"),
        Column::words("value"),
        Column::numbers("calls"),
        Column::numbers("p50"),
        Column::numbers("p99"),
    ];
    let rows = times.dependences.iter().flat_map(of_property);
    let table = Table::of("What the time depends on", columns, rows).with_note(
        "Explains: the share of the variance of the logarithm of the elapsed time, by this property alone. P50 and \
         p99: within 6.25 %.",
    );
    times.dropped.iter().fold(table, |table, (property, calls)| {
        table.with_note(format!(
            "{}: too many values; the values of {calls} calls are not compared.",
            property.name()
        ))
    })
}

/// Bars of a distribution, at most.
const BARS_MAX: NonZeroUsize = NonZeroUsize::new(32).expect("it is not 0");

/// Returns the distribution as bars; `None` if there is no call.
fn distribution(elapsed: &Histogram, name: &str) -> Option<Figure> {
    let bar = |(low, _, calls): (u64, u64, u64)| Bar {
        label: format!("from {}", scale::number(real(low), Unit::Nanoseconds)),
        length: Length::Number(real(calls)),
        parts: Vec::new(),
    };
    let bars: Vec<_> = elapsed.classes(BARS_MAX).into_iter().map(bar).collect();
    let title = format!("Calls of {name} by elapsed time");
    (!bars.is_empty()).then(|| {
        Figure::Bars(Bars::new(&title, Unit::Count, bars).expect("counts are finite and have one unit"))
    })
}

/// Returns a percentile of some calls of `mode`.
fn quantile(elapsed: &Histogram, mode: &Mode, per_cent: u32) -> Cell {
    let ns = elapsed.quantile(per_cent, 100);
    ns.map_or(Cell::text(""), |ns| time(real(ns.clamp(mode.min_ns, mode.max_ns))))
}

#[cfg(test)]
mod tests {
    use assay_report::{Colour, Report, Style, Symbols};
    use assay_trace::record::{Call, Event, Lost, Record};
    use assay_trace::view::View;
    use assay_trace::view::calls::FindModes;
    use assay_trace::{Descriptor, syscall};
    use expect_test::{Expect, expect};

    use super::*;

    /// Adds a read with this result that takes this long, and sleeps for half of it if that is long.
    fn read(view: &mut FindModes, result: i64, elapsed_ns: u64) {
        let sleeps = elapsed_ns > 10_000;
        let event = Event::Call(Call {
            number: syscall::number("read").unwrap(),
            args: [3, 0x7f00, 4_096, 0, 0, 0],
            result,
            descriptor: Descriptor::File,
            inode: 9,
            elapsed_ns,
            blocked_ns: if sleeps { elapsed_ns / 2 } else { 0 },
            voluntary: sleeps.into(),
            ..Call::default()
        });
        view.record(&Record { begin_ns: 0, process: 1, thread: 1, cpu: 0, lost_before: 0, event });
    }

    fn expect_text(view: FindModes, expected: &Expect) {
        let report =
            Report { title: "x.trace".to_owned(), blocks: calls(&view.finish(), Origin::Probe, "read file") };
        let style = Style { width: 110, symbols: Symbols::Ascii, colour: Colour::Plain };
        expected.assert_eq(&assay_report::text::report(&report, &style));
    }

    #[test]
    fn modes_are_rows_and_what_explains_them_is_below() {
        let mut view = FindModes::default();
        for call in 0..100 {
            read(&mut view, 4_096, 400 + call);
            read(&mut view, 0, 150);
        }
        [4_096, -4].iter().for_each(|result| (0..15).for_each(|_| read(&mut view, *result, 40_000)));
        expect_text(
            view,
            &expect![[r#"
                x.trace
                =======

                Times of read file
                 mode  calls  share of calls   of time       min       p50       max    working  off the CPU  interrupts
                ---------------------------------------------------------------------------------------------------------
                    1    100          43.5 %    1.19 %  150   ns  150   ns  150   ns  150    ns      0    ns        0 ns
                    2    100          43.5 %    3.57 %  400   ns  463   ns  499   ns  450    ns      0    ns        0 ns
                    3     30          13.0 %   95.2  %   40.0 us   40.0 us   40.0 us   20.0  us     20.0  us        0 ns
                  all    230         100   %  100    %  150   ns  399   ns   40.0 us    2.87 us      2.61 us        0 ns
                 Min, p50 (within 6.25 %), max: elapsed times. Working, with network softirqs, off the CPU, other interrupts:
                 where they went, on average per call.
                 Calls that failed: 15. Calls that never returned, in no row: 0.
                 No record was lost.

                How the calls of a mode differ from the others
                 mode  property  value  of its calls  of the others
                ----------------------------------------------------
                    1  result    0           100   %          0   %
                    2  result    4096        100   %         11.5 %
                    3  sleep     yes         100   %          0   %
                    3  result    EINTR        50.0 %          0   %
                 The values whose shares differ by at least 50 percentage points.

                What the time depends on
                 property  explains  value       calls       p50       p99
                -----------------------------------------------------------
                 sleep       91.5 %  no            200  151   ns  495   ns
                 sleep       91.5 %  yes            30   38.9 us   38.9 us
                 result      63.2 %  4096          115  463   ns   38.9 us
                 result      63.2 %  0             100  151   ns  151   ns
                 result      63.2 %  all others     15   38.9 us   38.9 us
                 Explains: the share of the variance of the logarithm of the elapsed time, by this property alone. P50 and
                 p99: within 6.25 %.

                Calls of read file by elapsed time
                 from 128 ns   #########################################################################################  100
                 from 192 ns                                                                                              0
                 from 256 ns                                                                                              0
                 from 384 ns   #########################################################################################  100
                 from 512 ns                                                                                              0
                 from 768 ns                                                                                              0
                 from 1.02 us                                                                                             0
                 from 1.54 us                                                                                             0
                 from 2.05 us                                                                                             0
                 from 3.07 us                                                                                             0
                 from 4.10 us                                                                                             0
                 from 6.14 us                                                                                             0
                 from 8.19 us                                                                                             0
                 from 12.3 us                                                                                             0
                 from 16.4 us                                                                                             0
                 from 24.6 us                                                                                             0
                 from 32.8 us  ###########################                                                                30
            "#]],
        );
    }

    #[test]
    fn a_mode_that_nothing_explains_and_losses_are_named() {
        let mut view = FindModes::default();
        for _ in 0..50 {
            read(&mut view, 4_096, 300);
            read(&mut view, 4_096, 3_000);
        }
        view.lost(&Lost { time_ns: 0, cpu: 0, records: 7 });
        expect_text(
            view,
            &expect![[r#"
                x.trace
                =======

                Times of read file
                 mode  calls  share of calls   of time        min        p50        max    working  off the CPU  interrupts
                ------------------------------------------------------------------------------------------------------------
                    1     50          50.0 %    9.09 %  300    ns  300    ns  300    ns  300    ns         0 ns        0 ns
                    2     50          50.0 %   90.9  %    3.00 us    3.00 us    3.00 us    3.00 us         0 ns        0 ns
                  all    100         100   %  100    %  300    ns  303    ns    3.00 us    1.65 us         0 ns        0 ns
                 Min, p50 (within 6.25 %), max: elapsed times. Working, with network softirqs, off the CPU, other interrupts:
                 where they went, on average per call.
                 Calls that failed: 0. Calls that never returned, in no row: 0.
                 7 records were LOST: every count is a lower bound.

                How the calls of a mode differ from the others
                 mode  property    value  of its calls  of the others
                ------------------------------------------------------
                    1  none clear
                    2  none clear
                 The values whose shares differ by at least 50 percentage points.

                Calls of read file by elapsed time
                 from 288 ns   ##########################################################################################  50
                 from 320 ns                                                                                               0
                 from 352 ns                                                                                               0
                 from 384 ns                                                                                               0
                 from 416 ns                                                                                               0
                 from 448 ns                                                                                               0
                 from 480 ns                                                                                               0
                 from 512 ns                                                                                               0
                 from 576 ns                                                                                               0
                 from 640 ns                                                                                               0
                 from 704 ns                                                                                               0
                 from 768 ns                                                                                               0
                 from 832 ns                                                                                               0
                 from 896 ns                                                                                               0
                 from 960 ns                                                                                               0
                 from 1.02 us                                                                                              0
                 from 1.15 us                                                                                              0
                 from 1.28 us                                                                                              0
                 from 1.41 us                                                                                              0
                 from 1.54 us                                                                                              0
                 from 1.66 us                                                                                              0
                 from 1.79 us                                                                                              0
                 from 1.92 us                                                                                              0
                 from 2.05 us                                                                                              0
                 from 2.30 us                                                                                              0
                 from 2.56 us                                                                                              0
                 from 2.82 us  ##########################################################################################  50
            "#]],
        );
    }

    #[test]
    fn without_calls_there_is_no_row_and_no_figure() {
        expect_text(
            FindModes::default(),
            &expect![[r#"
                x.trace
                =======

                Times of read file
                 mode  calls  share of calls  of time  min  p50  max  working  off the CPU  interrupts
                ---------------------------------------------------------------------------------------
                 Min, p50 (within 6.25 %), max: elapsed times. Working, with network softirqs, off the CPU, other interrupts:
                 where they went, on average per call.
                 Calls that failed: 0. Calls that never returned, in no row: 0.
                 No record was lost.
            "#]],
        );
    }
}
