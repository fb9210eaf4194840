//! What a program did over time.

use assay_quantity::Unit;
use assay_report::{Block, Cell, Column, Table, scale};
use assay_trace::container::Origin;
use assay_trace::view::timeline::{Interval, Timeline};

use super::real;
use super::trace::{NOT_RECORDED, lost, mean, time};

/// Threads that a difference must have to matter: 1 % of one.
const THREADS: f64 = 0.01;

/// Why a value is missing if the filters select calls.
const OF_CALLS: &str = "the filters select calls";

/// Why the busiest program and call of an imported trace are missing.
const NO_CPU_TIME: &str = "strace does not record how long a thread is on a CPU";

/// Returns the table.
pub fn timeline(timeline: &Timeline, origin: Origin) -> Vec<Block> {
    let interval_ns = real(timeline.interval_ns);
    let threads = |header| Column::numbers_down_to(header, Unit::Count, THREADS);
    let (outside, inside) = match origin {
        Origin::Probe => ("user", "working"),
        Origin::Strace => ("outside calls", "in calls"),
    };
    let mut columns = vec![
        Column::numbers_down_to("begin", Unit::Nanoseconds, interval_ns),
        Column::numbers("calls"),
        Column::numbers("failed calls"),
        Column::numbers("page faults"),
        threads(outside),
        threads(inside),
        threads("interrupts"),
        threads("waiting"),
        threads("blocked"),
        Column::words("program"),
        Column::words("call"),
    ];
    let mut rows: Vec<Vec<Cell>> = timeline.intervals.iter().map(row).collect();
    if timeline.lost > 0 {
        columns.push(Column::numbers("lost"));
        let lost = timeline.intervals.iter().map(|interval| Cell::Count(interval.lost));
        rows.iter_mut().zip(lost).for_each(|(row, lost)| row.push(lost));
    }
    let length = scale::Scale::of(Unit::Nanoseconds, interval_ns).number_down_to(interval_ns, interval_ns);
    let title = format!("Timeline, in intervals of {length}");
    let table = Table::new(&title, columns, rows).expect("a row has a cell for each column");
    let has_outside = timeline.intervals.iter().any(|interval| interval.user_ns.is_some());
    let table = match origin {
        Origin::Probe => table.with_note(states(has_outside)),
        Origin::Strace => {
            let unknown =
                ["page faults", "interrupts", "waiting", "blocked"].map(|header| (header, NOT_RECORDED));
            unknown
                .into_iter()
                .chain(["program", "call"].map(|header| (header, NO_CPU_TIME)))
                .fold(table, |table, (header, reason)| table.with_missing(header, reason))
                .with_note("Outside calls, in calls: the mean number of threads.")
        }
    };
    let table = table.with_note(lost(timeline.lost));
    let table = if timeline.lost > 0 && has_outside {
        table.with_note(format!(
            "Lost calls count as {outside}, and so does a thread after its end if that is lost."
        ))
    } else {
        table
    };
    vec![Block::Table(table)]
}

/// Returns the note on the columns; `has_user` says whether user is one of them.
fn states(has_user: bool) -> String {
    let user = if has_user { "user, on a CPU outside calls; " } else { "" };
    format!(
        "Mean numbers of threads: {user}working, in calls for which the kernel works; interrupts, in interrupts during \
         calls; waiting, runnable without a CPU; blocked, not runnable. Program: the one with the most time on a CPU. \
         Call: the one for which the kernel works longest."
    )
}

fn row(interval: &Interval) -> Vec<Cell> {
    let threads = |time_ns| mean(time_ns, interval.length_ns, Unit::Count);
    let of_calls = || Cell::Missing(OF_CALLS.to_owned());
    let times = &interval.times;
    vec![
        time(real(interval.begin_ns)),
        Cell::Count(interval.calls),
        Cell::Count(interval.errors),
        interval.faults.map_or_else(of_calls, Cell::Count),
        interval.user_ns.map_or_else(of_calls, threads),
        threads(times.working_ns),
        threads(times.interrupts_ns),
        threads(times.waiting_ns),
        threads(times.blocked_ns),
        Cell::text(interval.program.clone().unwrap_or_default()),
        Cell::text(interval.call.clone().unwrap_or_default()),
    ]
}

#[cfg(test)]
mod tests {
    use assay_report::{Colour, Report, Style, Symbols};
    use assay_trace::view::StateTimes;
    use expect_test::{Expect, expect};

    use super::*;

    fn sample() -> Timeline {
        let times = StateTimes {
            working_ns: 6_120_000,
            blocked_ns: 33_000_000,
            waiting_ns: 55_000,
            interrupts_ns: 0,
        };
        let first = Interval {
            begin_ns: 980_000_000,
            length_ns: 11_000_000,
            calls: 12_345,
            errors: 67,
            faults: Some(8),
            lost: 0,
            user_ns: Some(4_400_000),
            times,
            program: Some("cc1".to_owned()),
            call: Some("read file".to_owned()),
        };
        let second =
            Interval { begin_ns: 1_000_000_000, faults: Some(0), user_ns: Some(0), ..Interval::default() };
        Timeline { interval_ns: 20_000_000, intervals: vec![first, second], lost: 0 }
    }

    fn expect_text(shown: &Timeline, origin: Origin, expected: &Expect) {
        let report = Report { title: "x.trace".to_owned(), blocks: timeline(shown, origin) };
        let style = Style { width: 120, symbols: Symbols::Ascii, colour: Colour::Plain };
        expected.assert_eq(&assay_report::text::report(&report, &style));
    }

    #[test]
    fn an_interval_is_a_row_with_the_mean_number_of_threads_in_each_state() {
        expect_text(
            &sample(),
            Origin::Probe,
            &expect![[r#"
                x.trace
                =======

                Timeline, in intervals of 20 ms
                 begin [s]   calls  failed calls  page faults  user  working  interrupts  waiting  blocked  program  call
                ---------------------------------------------------------------------------------------------------------------
                      0.98  12,345            67            8  0.40     0.56           0     0.01     3.00  cc1      read file
                      1.00       0             0            0  0        0              0     0        0
                 Mean numbers of threads: user, on a CPU outside calls; working, in calls for which the kernel works; interrupts, in
                 interrupts during calls; waiting, runnable without a CPU; blocked, not runnable. Program: the one with the most time on
                 a CPU. Call: the one for which the kernel works longest.
                 No record was lost.
            "#]],
        );
    }

    #[test]
    fn what_strace_does_not_record_has_no_column() {
        expect_text(
            &sample(),
            Origin::Strace,
            &expect![[r#"
                x.trace
                =======

                Timeline, in intervals of 20 ms
                 begin [s]   calls  failed calls  outside calls  in calls
                ----------------------------------------------------------
                      0.98  12,345            67           0.40      0.56
                      1.00       0             0           0         0
                 page faults: strace does not record it.
                 interrupts: strace does not record it.
                 waiting: strace does not record it.
                 blocked: strace does not record it.
                 program: strace does not record how long a thread is on a CPU.
                 call: strace does not record how long a thread is on a CPU.
                 Outside calls, in calls: the mean number of threads.
                 No record was lost.
            "#]],
        );
    }

    #[test]
    fn lost_records_have_a_column() {
        let mut shown = sample();
        shown.lost = 7;
        shown.intervals[1].lost = 7;
        expect_text(
            &shown,
            Origin::Probe,
            &expect![[r#"
                x.trace
                =======

                Timeline, in intervals of 20 ms
                 begin [s]   calls  failed calls  page faults  user  working  interrupts  waiting  blocked  program  call       lost
                ---------------------------------------------------------------------------------------------------------------------
                      0.98  12,345            67            8  0.40     0.56           0     0.01     3.00  cc1      read file     0
                      1.00       0             0            0  0        0              0     0        0                            7
                 Mean numbers of threads: user, on a CPU outside calls; working, in calls for which the kernel works; interrupts, in
                 interrupts during calls; waiting, runnable without a CPU; blocked, not runnable. Program: the one with the most time on
                 a CPU. Call: the one for which the kernel works longest.
                 7 records were LOST: every count is a lower bound.
                 Lost calls count as user, and so does a thread after its end if that is lost.
            "#]],
        );
    }

    #[test]
    fn what_is_outside_selected_calls_has_no_column() {
        let mut shown = sample();
        shown.intervals.iter_mut().for_each(|interval| (interval.faults, interval.user_ns) = (None, None));
        expect_text(
            &shown,
            Origin::Probe,
            &expect![[r#"
            x.trace
            =======

            Timeline, in intervals of 20 ms
             begin [s]   calls  failed calls  working  interrupts  waiting  blocked  program  call
            --------------------------------------------------------------------------------------------
                  0.98  12,345            67     0.56           0     0.01     3.00  cc1      read file
                  1.00       0             0     0              0     0        0
             page faults: the filters select calls.
             user: the filters select calls.
             Mean numbers of threads: working, in calls for which the kernel works; interrupts, in interrupts during calls; waiting,
             runnable without a CPU; blocked, not runnable. Program: the one with the most time on a CPU. Call: the one for which
             the kernel works longest.
             No record was lost.
        "#]],
        );
    }
}
