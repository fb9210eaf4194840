//! The difference between traces before and after a change, as tables.

use assay_quantity::{Pair, Unit};
use assay_report::{Block, Cell, Column, Report, Table};
use assay_statistics::comparison::family::Relation;

use super::trace::{NO_LOSS, time};
use crate::phase::difference::{Difference, Others, Presence, Quantity, Row, TRACES_MIN, Times};

/// Returns the report; `names` are those of the traces, and `per` is what counts and times are divided by.
pub fn report(difference: &Difference, names: Pair<String>, per: &str) -> Report {
    let Difference { work, wait, events, common, traces, .. } = difference;
    let words = Words { slower: "slower", faster: "faster", traces: *traces };
    let title = format!("Time that the kernel worked for calls, per {per}");
    let mut tables = vec![
        times(&title, "working", work, common.as_ref(), words)
            .with_note(relative(difference))
            .with_note(judged(difference)),
    ];
    if !wait.rows.is_empty() {
        let words = Words { slower: "longer", faster: "shorter", ..words };
        let title = format!("Time off the CPU, per {per}");
        tables.push(
            times(&title, "off the CPU", wait, None, words)
                .with_note("Outside calls, threads are preempted, or page faults stop them."),
        );
    }
    if !events.is_empty() {
        tables.push(self::events(&format!("Other events, per {per}"), events, words));
    }
    if let Some(last) = tables.pop() {
        tables.push(last.with_note(lost(difference.lost)));
    }
    Report {
        title: format!("{} compared with {}", names.b, names.a),
        blocks: tables.into_iter().map(Block::Table).collect(),
    }
}

/// The words for differences.
#[derive(Debug, Clone, Copy)]
struct Words {
    slower: &'static str,
    faster: &'static str,
    /// Number of traces.
    traces: Pair<usize>,
}

fn times(title: &str, what: &str, times: &Times, common: Option<&Quantity>, words: Words) -> Table {
    let columns = [
        Column::words("call"),
        Column::numbers("calls A"),
        Column::numbers("calls B"),
        Column::numbers(&format!("{what} A")),
        Column::numbers(&format!("{what} B")),
        Column::numbers("difference"),
        Column::numbers("per call, B/A"),
        Column::words("change"),
    ];
    let all = [rest(&times.others), Some(total(times, common, words))];
    let rows = times.rows.iter().map(|row| {
        let [a, b] = [time(row.time_ns.a), time(row.time_ns.b)];
        let ratio = row.per_call.as_ref().map_or(Cell::text(""), ratio);
        let [name, calls_a, calls_b] = counts(&row.name, row.count);
        [name, calls_a, calls_b, a, b, time(row.change_ns()), ratio, Cell::text(words.of(row))]
    });
    Table::of(title, columns, rows.chain(all.into_iter().flatten()))
}

/// Returns the row of the calls that have none of their own.
fn rest(others: &Others) -> Option<[Cell; 8]> {
    let Others { kinds, count, time_ns } = others;
    let name = if *kinds == 1 { "1 other kind of call" } else { &format!("{kinds} other kinds of calls") };
    (*kinds > 0).then(|| sums(name, *count, *time_ns))
}

/// Returns the row of all calls.
fn total(times: &Times, common: Option<&Quantity>, words: Words) -> [Cell; 8] {
    let [name, calls_a, calls_b, a, b, difference, ..] = sums("total", times.count, times.total_ns);
    let ratio = common.map_or(Cell::text(""), ratio);
    let word = relation(common).and_then(|relation| word(relation, words.slower, words.faster));
    [name, calls_a, calls_b, a, b, difference, ratio, Cell::text(word.unwrap_or_default())]
}

fn sums(name: &str, count: Pair<f64>, time_ns: Pair<f64>) -> [Cell; 8] {
    let [name, a, b] = counts(name, count);
    let difference = time(time_ns.b - time_ns.a);
    [name, a, b, time(time_ns.a), time(time_ns.b), difference, Cell::text(""), Cell::text("")]
}

fn counts(name: &str, count: Pair<f64>) -> [Cell; 3] {
    let count = count.map(|value| Cell::Number { value, unit: Unit::Count });
    [Cell::text(name), count.a, count.b]
}

fn events(title: &str, events: &[Row], words: Words) -> Table {
    let rows = events.iter().map(|row| {
        let [name, a, b] = counts(&row.name, row.count);
        [name, a, b, row.counts.as_ref().map_or(Cell::text(""), ratio), Cell::text(words.of(row))]
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
    /// Returns how a call or an event changed; nothing if that is not judged.
    fn of(self, row: &Row) -> String {
        match row.presence {
            Presence::Appeared => "new".to_owned(),
            Presence::Vanished => "gone".to_owned(),
            Presence::Sometimes(contain) => format!(
                "in {} of {} traces of A and {} of {} of B",
                contain.a, self.traces.a, contain.b, self.traces.b
            ),
            Presence::Everywhere => self.judged(row),
        }
    }

    fn judged(self, row: &Row) -> String {
        let (calls, time) = (relation(row.counts.as_ref()), relation(row.per_call.as_ref()));
        let calls_word = calls.and_then(|relation| word(relation, "more", "fewer"));
        let time_word = time.and_then(|relation| word(relation, self.slower, self.faster));
        let words: Vec<&str> = [calls_word, time_word].into_iter().flatten().collect();
        words.join(", ")
    }
}

fn word(relation: Relation, slower: &'static str, faster: &'static str) -> Option<&'static str> {
    match relation {
        Relation::Slower => Some(slower),
        Relation::Faster => Some(faster),
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
            "The ratio in the last row is what all calls have in common. The others are relative to it, because \
             a busy neighbour slows all calls."
        }
        None => {
            "A busy neighbour slows all calls; there are too few kinds of calls here to compare them relative \
             to what they have in common."
        }
    }
}

fn judged(difference: &Difference) -> String {
    if difference.is_judged {
        "More, fewer, slower and faster are corrected for the number of comparisons (Holm): for equal programs, \
         95 % of reports contain none of them. Without a word, no difference is shown."
            .to_owned()
    } else {
        format!(
            "Times of a single trace depend on its moment: to see which differences are more than chance, record \
             A and B in turns, at least {TRACES_MIN} traces each."
        )
    }
}

fn lost(lost: Pair<u64>) -> String {
    match lost {
        Pair { a: 0, b: 0 } => NO_LOSS.to_owned(),
        Pair { a, b } => format!(
            "{a} records of A and {b} of B were LOST: calls may be missing, and seem to be new or gone."
        ),
    }
}

#[cfg(test)]
mod tests {
    use assay_report::{Colour, Style, Symbols};
    use expect_test::{Expect, expect};

    use super::*;
    use crate::phase::difference::fixture::{Made, trace, usual};
    use crate::phase::difference::{Side, difference};

    /// Compares traces of A, one for each slowness, with traces of B that also make the other calls.
    fn expect_text(slownesses: &[u64], other: &[Made], expected: &Expect) {
        let side = |other: &[Made], lost: u64| {
            let trace = |slowness: &u64| {
                let mut trace = trace(&[&usual(*slowness)[1..], other].concat());
                (trace.events.lost, trace.events.user_faults) = (lost, 10);
                trace
            };
            Side { traces: slownesses.iter().map(trace).collect(), units: 10.0 }
        };
        let sides = Pair { a: side(&usual(1)[..1], 0), b: side(other, 2) };
        let names = Pair { a: "a.trace".to_owned(), b: "b.trace".to_owned() };
        let report = report(&difference(&sides), names, "request");
        let style = Style { width: 120, symbols: Symbols::Ascii, colour: Colour::Plain };
        expected.assert_eq(&assay_report::text::report(&report, &style));
    }

    #[test]
    fn words_say_how_calls_changed_and_notes_what_they_rest_on() {
        let other = [("read", 20, 7, 1_900, 800), ("openat", 5, -2, 400, 0)];
        expect_text(
            &[1, 1, 1],
            &other,
            &expect![[r#"
                b.trace compared with a.trace
                =============================

                Time that the kernel worked for calls, per request
                 call             calls A  calls B  working A  working B  difference  per call, B/A  change
                --------------------------------------------------------------------------------------------------
                 read                   1    2        1.00 us    2.20 us     1.20 us     110 +- 0 %  more, slower
                 openat = ENOENT        0    0.500    0    ns  200    ns   200    ns                 new
                 brk                    1    1        1.00 us    1.00 us     0    ns     100 +- 0 %
                 close                  1    1        1.00 us    1.00 us     0    ns     100 +- 0 %
                 mmap                   1    1        1.00 us    1.00 us     0    ns     100 +- 0 %
                 openat                 1    1        1.00 us    1.00 us     0    ns     100 +- 0 %
                 write                  1    1        1.00 us    1.00 us     0    ns     100 +- 0 %
                 total                  6    7.50     6.00 us    7.40 us     1.40 us     100 +- 0 %
                 +- is the interval that covers the true value with 95 % confidence.
                 The ratio in the last row is what all calls have in common. The others are relative to it, because a busy neighbour
                 slows all calls.
                 More, fewer, slower and faster are corrected for the number of comparisons (Holm): for equal programs, 95 % of reports
                 contain none of them. Without a word, no difference is shown.

                Time off the CPU, per request
                 call   calls A  calls B  off the CPU A  off the CPU B  difference  per call, B/A  change
                ------------------------------------------------------------------------------------------
                 read         1        2           0 ns        1.60 us     1.60 us                 more
                 total        1        2           0 ns        1.60 us     1.60 us
                 Outside calls, threads are preempted, or page faults stop them.

                Other events, per request
                 event                     A  B         B/A  change
                ----------------------------------------------------
                 page faults in user mode  1  1  100 +- 0 %
                 +- is the interval that covers the true value with 95 % confidence.
                 0 records of A and 6 of B were LOST: calls may be missing, and seem to be new or gone.
            "#]],
        );
    }

    #[test]
    fn a_pair_of_traces_shows_what_is_new_and_judges_nothing() {
        expect_text(
            &[1],
            &[("openat", 5, -2, 400, 0)],
            &expect![[r#"
                b.trace compared with a.trace
                =============================

                Time that the kernel worked for calls, per request
                 call             calls A  calls B  working A  working B  difference  per call, B/A  change
                --------------------------------------------------------------------------------------------
                 read                   1    0        1.00 us    0    ns    -1.00 us                 gone
                 openat = ENOENT        0    0.500    0    ns  200    ns   200    ns                 new
                 brk                    1    1        1.00 us    1.00 us     0    ns          100 %
                 close                  1    1        1.00 us    1.00 us     0    ns          100 %
                 mmap                   1    1        1.00 us    1.00 us     0    ns          100 %
                 openat                 1    1        1.00 us    1.00 us     0    ns          100 %
                 write                  1    1        1.00 us    1.00 us     0    ns          100 %
                 total                  6    5.50     6.00 us    5.20 us  -800    ns          100 %
                 The ratio in the last row is what all calls have in common. The others are relative to it, because a busy neighbour
                 slows all calls.
                 Times of a single trace depend on its moment: to see which differences are more than chance, record A and B in turns,
                 at least 3 traces each.

                Other events, per request
                 event                     A  B    B/A  change
                -----------------------------------------------
                 page faults in user mode  1  1  100 %
                 0 records of A and 2 of B were LOST: calls may be missing, and seem to be new or gone.
            "#]],
        );
    }
}
