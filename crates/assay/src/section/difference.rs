//! The difference between traces before and after a change, as tables.

use assay_quantity::{Pair, Unit};
use assay_report::{Block, Cell, Column, Report, Table};
use assay_statistics::comparison::family::Relation;

use super::trace::{NO_LOSS, time};
use crate::phase::difference::{Difference, Others, Presence, Quantity, Row, TRACES_MIN, Times};

/// Returns the report; `names` are those of the traces, and `per` is what counts and times are divided by.
pub fn report(difference: &Difference, names: Pair<String>, per: &str) -> Report {
    let Difference { work, wait, events, common, traces, .. } = difference;
    let words = Words { time: "working", changes: ["slower", "faster"], traces: *traces };
    let title = format!("Time that the kernel worked for calls, per {per}");
    let mut tables = vec![
        times(&title, work, common.as_ref(), words)
            .with_note(relative(difference))
            .with_note(judged(difference)),
    ];
    if !wait.rows.is_empty() {
        let words = Words { time: "off the CPU", changes: ["longer", "shorter"], ..words };
        tables.push(times(&format!("Time off the CPU, per {per}"), wait, None, words).with_note(
            "Outside calls, threads are preempted, or page faults stop them. These ratios are not relative to \
             what calls have in common.",
        ));
    }
    if !events.is_empty() {
        tables.push(self::events(&format!("Other events, per {per}"), events, words));
    }
    if let Some(last) = tables.pop() {
        tables.push(missing(difference).into_iter().fold(last, Table::with_note));
    }
    Report {
        title: format!("{} compared with {}", names.b, names.a),
        blocks: tables.into_iter().map(Block::Table).collect(),
    }
}

/// The words of a table.
#[derive(Debug, Clone, Copy)]
struct Words {
    time: &'static str,
    /// For more and for less time per call.
    changes: [&'static str; 2],
    /// Number of traces.
    traces: Pair<usize>,
}

fn times(title: &str, times: &Times, common: Option<&Quantity>, words: Words) -> Table {
    let columns = [
        Column::words("call"),
        Column::numbers("calls A"),
        Column::numbers("calls B"),
        Column::numbers(&format!("{} A", words.time)),
        Column::numbers(&format!("{} B", words.time)),
        Column::numbers("difference"),
        Column::numbers("per call, B/A"),
        Column::words("change"),
    ];
    let rows = times.rows.iter().map(|row| {
        let ratio = row.per_call.as_ref().map_or(Cell::text(""), ratio);
        cells(&row.name, Some(row.count), row.time_ns, [ratio, Cell::text(words.of(row))])
    });
    let last = [rest(&times.others), Some(total(times)), common.map(|common| in_common(common, words))];
    Table::of(title, columns, rows.chain(last.into_iter().flatten()))
}

fn cells(name: &str, count: Option<Pair<f64>>, time_ns: Pair<f64>, [ratio, change]: [Cell; 2]) -> [Cell; 8] {
    let count = count.map_or([Cell::text(""), Cell::text("")], counts);
    let [calls_a, calls_b] = count;
    let difference = time(time_ns.b - time_ns.a);
    [Cell::text(name), calls_a, calls_b, time(time_ns.a), time(time_ns.b), difference, ratio, change]
}

/// Returns the row of the calls that have none of their own.
fn rest(others: &Others) -> Option<[Cell; 8]> {
    let Others { kinds, count, time_ns } = others;
    let name = if *kinds == 1 { "1 other kind of call" } else { &format!("{kinds} other kinds of calls") };
    (*kinds > 0).then(|| cells(name, Some(*count), *time_ns, [Cell::text(""), Cell::text("")]))
}

/// Returns the row of all calls.
fn total(times: &Times) -> [Cell; 8] {
    cells("total", times.count, times.total_ns, [Cell::text(""), Cell::text("")])
}

/// Returns the row of what all calls have in common.
fn in_common(common: &Quantity, words: Words) -> [Cell; 8] {
    let change = relation(Some(common)).and_then(|relation| word(relation, words.changes));
    let empty = || Cell::text("");
    let name = Cell::text("all calls in common");
    [name, empty(), empty(), empty(), empty(), empty(), ratio(common), Cell::text(change.unwrap_or_default())]
}

fn counts(count: Pair<f64>) -> [Cell; 2] {
    [count.a, count.b].map(|value| Cell::Number { value, unit: Unit::Count })
}

fn events(title: &str, events: &[Row], words: Words) -> Table {
    let rows = events.iter().map(|row| {
        let [a, b] = counts(row.count);
        let ratio = |counts: &Quantity| Cell::Number { value: counts.ratio(), unit: Unit::Ratio };
        let ratio = row.counts.as_ref().map_or(Cell::text(""), ratio);
        [Cell::text(&row.name), a, b, ratio, Cell::text(words.of(row))]
    });
    let [a, b, ratio] = ["A", "B", "B/A"].map(Column::numbers);
    Table::of(title, [Column::words("event"), a, b, ratio, Column::words("change")], rows)
}

/// Returns the ratio, with its interval if there is one.
fn ratio(quantity: &Quantity) -> Cell {
    match quantity.comparison.and_then(|comparison| comparison.ratio) {
        Some(ratio) => Cell::from(ratio.estimate),
        None => Cell::Number { value: quantity.ratio(), unit: Unit::Ratio },
    }
}

fn relation(quantity: Option<&Quantity>) -> Option<Relation> {
    Some(quantity?.comparison?.relation)
}

impl Words {
    /// Returns how a call or an event changed; nothing if no change is shown.
    fn of(self, row: &Row) -> String {
        match row.presence {
            Presence::Appeared => "new".to_owned(),
            Presence::Vanished => "gone".to_owned(),
            Presence::Sometimes(contain) => format!(
                "in {} of {} traces of A and {} of {} of B",
                contain.a, self.traces.a, contain.b, self.traces.b
            ),
            Presence::Everywhere => {
                let count = relation(row.counts.as_ref()).and_then(|one| word(one, ["more", "fewer"]));
                let time = relation(row.per_call.as_ref()).and_then(|one| word(one, self.changes));
                [count, time].into_iter().flatten().collect::<Vec<&str>>().join(", ")
            }
        }
    }
}

fn word(relation: Relation, [higher, lower]: [&'static str; 2]) -> Option<&'static str> {
    match relation {
        Relation::Slower => Some(higher),
        Relation::Faster => Some(lower),
        Relation::SameWithin(_)
        | Relation::Indistinguishable
        | Relation::AsPrinted(_)
        | Relation::NotComparable(_) => None,
    }
}

/// Explains what the ratios of the times per call are relative to.
fn relative(difference: &Difference) -> &'static str {
    match difference.common {
        Some(_) => {
            "A busy neighbour slows all calls, so the ratios of the calls are relative to what all of them have \
             in common. If most calls became slower, that is what they have in common, and the others seem to be \
             faster."
        }
        None => {
            "A busy neighbour slows all calls; there are too few kinds of calls here to compare them relative \
             to what they have in common."
        }
    }
}

fn judged(difference: &Difference) -> String {
    if difference.is_judged {
        "More, fewer, slower, faster, longer and shorter are corrected for the number of comparisons (Holm): of \
         equal programs recorded in turns, at most 5 % of reports contain one of them. New and gone are not: \
         calls that depend on timing, such as those for locks, come and go by chance."
            .to_owned()
    } else {
        format!(
            "Times depend on the moment, and so may counts, and which calls there are: to see which differences \
             are more than chance, record A and B in turns, at least {TRACES_MIN} traces each."
        )
    }
}

/// States what is missing in the traces.
fn missing(difference: &Difference) -> Vec<String> {
    let Difference { traces, incomplete, lost, .. } = difference;
    let lost = match lost {
        Pair { a: 0, b: 0 } => NO_LOSS.to_owned(),
        Pair { a, b } => format!(
            "{a} records of A and {b} of B were LOST: calls are missing, so new, gone, more and fewer may be wrong."
        ),
    };
    let incomplete = (incomplete.a + incomplete.b > 0).then(|| {
        format!(
            "{} of {} traces of A and {} of {} of B are INCOMPLETE: they lack their end, or threads.",
            incomplete.a, traces.a, incomplete.b, traces.b
        )
    });
    std::iter::once(lost).chain(incomplete).collect()
}

#[cfg(test)]
mod tests {
    use assay_report::{Colour, Style, Symbols};
    use expect_test::{Expect, expect};

    use super::*;
    use crate::phase::difference::fixture::{Made, trace, usual};
    use crate::phase::difference::{Side, difference};

    /// Compares sides of traces that make these calls.
    fn expect_text(sides: Pair<Vec<Vec<Made>>>, expected: &Expect) {
        let side = |calls: Vec<Vec<Made>>, lost: u64| {
            let trace = |calls: &Vec<Made>| {
                let mut trace = trace(calls);
                (trace.events.lost, trace.events.user_faults) = (lost, 10);
                trace
            };
            let incomplete = usize::from(lost > 0);
            Side { traces: calls.iter().map(trace).collect(), units: 10.0, incomplete }
        };
        let sides = Pair { a: side(sides.a, 0), b: side(sides.b, 2) };
        let names = Pair { a: "a.trace".to_owned(), b: "b.trace".to_owned() };
        let report = report(&difference(&sides), names, "request");
        let style = Style { width: 120, symbols: Symbols::Ascii, colour: Colour::Plain };
        expected.assert_eq(&assay_report::text::report(&report, &style));
    }

    #[test]
    fn words_show_how_calls_changed_and_notes_what_they_rest_on() {
        let both =
            [("getpid", 1, 1, 100, 0), ("pause", 1, -4, 90_000, 80_000), ("poll", 1, 0, 50_000, 40_000)];
        let a = [&usual(10)[..], &both].concat();
        let mut b = a.clone();
        (b[0].1, b[0].3, b[1].1, b[1].3) = (100, 19_000, 1, 4_000);
        (b[7].3, b[7].4, b[8].3, b[8].4) = (130_000, 120_000, 30_000, 20_000);
        b.push(("openat", 5, -2, 400, 0));
        let once = [&b[..], &[("fsync", 1, 0, 90_000, 0)]].concat();
        expect_text(
            Pair { a: vec![a.clone(), a.clone(), a], b: vec![b.clone(), b, once] },
            &expect![[r#"
            b.trace compared with a.trace
            =============================

            Time that the kernel worked for calls, per request
             call                  calls A  calls B  working A  working B  difference  per call, B/A  change
            ----------------------------------------------------------------------------------------------------------------
             read                    1      10        10.0  us  190    us   180    us     190 +- 0 %  more, slower
             write                   1       0.100    10.0  us  400    ns    -9.60 us      40 +- 0 %  faster
             fsync                   0       0.0333    0    ns    3.00 us     3.00 us                 in 0 of 3 traces of A
                                                                                                      and 1 of 3 of B
             openat = ENOENT         0       0.500     0    ns  200    ns   200    ns                 new
             brk                     1       1        10.0  us   10.0  us     0    ns     100 +- 0 %
             close                   1       1        10.0  us   10.0  us     0    ns     100 +- 0 %
             mmap                    1       1        10.0  us   10.0  us     0    ns     100 +- 0 %
             openat                  1       1        10.0  us   10.0  us     0    ns     100 +- 0 %
             pause = EINTR           0.100   0.100     1.00 us    1.00 us     0    ns     100 +- 0 %
             poll                    0.100   0.100     1.00 us    1.00 us     0    ns     100 +- 0 %
             1 other kind of call    0.100   0.100    10.0  ns   10.0  ns     0    ns
             total                   6.30   14.9      62.0  us  236    us   174    us
             all calls in common                                                          100 +- 0 %
             +- is the interval that covers the true value with 95 % confidence.
             A busy neighbour slows all calls, so the ratios of the calls are relative to what all of them have in common. If most
             calls became slower, that is what they have in common, and the others seem to be faster.
             More, fewer, slower, faster, longer and shorter are corrected for the number of comparisons (Holm): of equal programs
             recorded in turns, at most 5 % of reports contain one of them. New and gone are not: calls that depend on timing, such
             as those for locks, come and go by chance.

            Time off the CPU, per request
             call           calls A  calls B  off the CPU A  off the CPU B  difference  per call, B/A  change
            ---------------------------------------------------------------------------------------------------
             pause = EINTR    0.100    0.100        8.00 us       12.0  us     4.00 us     150 +- 0 %  longer
             poll             0.100    0.100        4.00 us        2.00 us    -2.00 us      50 +- 0 %  shorter
             total                                 12.0  us       14.0  us     2.00 us
             +- is the interval that covers the true value with 95 % confidence.
             Outside calls, threads are preempted, or page faults stop them. These ratios are not relative to what calls have in
             common.

            Other events, per request
             event                     A  B    B/A  change
            -----------------------------------------------
             page faults in user mode  1  1  100 %
             0 records of A and 6 of B were LOST: calls are missing, so new, gone, more and fewer may be wrong.
             0 of 3 traces of A and 1 of 3 of B are INCOMPLETE: they lack their end, or threads.
        "#]],
        );
    }

    #[test]
    fn a_pair_of_traces_shows_what_is_new_and_judges_nothing() {
        let a = usual(1)[..4].to_vec();
        let b = [&a[1..], &[("openat", 5, -2, 400, 0)]].concat();
        expect_text(
            Pair { a: vec![a], b: vec![b] },
            &expect![[r#"
            b.trace compared with a.trace
            =============================

            Time that the kernel worked for calls, per request
             call             calls A  calls B  working A  working B  difference  per call, B/A  change
            --------------------------------------------------------------------------------------------
             read                   1    0        1.00 us    0    ns    -1.00 us                 gone
             openat = ENOENT        0    0.500    0    ns  200    ns   200    ns                 new
             close                  1    1        1.00 us    1.00 us     0    ns          100 %
             openat                 1    1        1.00 us    1.00 us     0    ns          100 %
             write                  1    1        1.00 us    1.00 us     0    ns          100 %
             total                  4    3.50     4.00 us    3.20 us  -800    ns
             A busy neighbour slows all calls; there are too few kinds of calls here to compare them relative to what they have in
             common.
             Times depend on the moment, and so may counts, and which calls there are: to see which differences are more than
             chance, record A and B in turns, at least 3 traces each.

            Other events, per request
             event                     A  B    B/A  change
            -----------------------------------------------
             page faults in user mode  1  1  100 %
             0 records of A and 2 of B were LOST: calls are missing, so new, gone, more and fewer may be wrong.
             0 of 1 traces of A and 1 of 1 of B are INCOMPLETE: they lack their end, or threads.
        "#]],
        );
    }
}
