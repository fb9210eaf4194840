//! The units of work of a trace as tables: their phases, their calls and their variants.

use std::collections::BTreeMap;

use assay_quantity::Unit;
use assay_report::{Block, Cell, Column, Table};
use assay_trace::container::Origin;
use assay_trace::view::Tally;
use assay_trace::view::phases::{Phase, Phases, Side, Step, UnitsOfWork, Variant};

use super::real;
use super::trace::{NO_LOSS, NOT_RECORDED, mean, share, time};

/// Returns the tables.
pub fn phases(phases: &Phases, origin: Origin) -> Vec<Block> {
    let words = Words::of(origin);
    let mut blocks = vec![Block::Table(overview(phases, &words))];
    for units in &phases.kinds {
        blocks.extend(
            [by_phase(units, &words), by_call(units, &words), by_variant(units, &words)].map(Block::Table),
        );
    }
    blocks
}

/// The words for the time of calls.
struct Words {
    time: &'static str,
    meaning: &'static str,
    origin: Origin,
}

impl Words {
    fn of(origin: Origin) -> Self {
        match origin {
            Origin::Probe => Self {
                time: "working",
                meaning: "Working: time that the kernel worked; share: of this time.",
                origin,
            },
            Origin::Strace => Self {
                time: "elapsed",
                meaning: "Elapsed: time of the calls, including waiting; share: of this time.",
                origin,
            },
        }
    }

    /// Marks what is not recorded.
    fn mark(&self, table: Table) -> Table {
        match self.origin {
            Origin::Probe => table,
            Origin::Strace => table.with_missing("off the CPU", NOT_RECORDED),
        }
    }
}

fn name(units: &UnitsOfWork) -> String {
    let verb = match units.side {
        Side::Answers => "answered",
        Side::Asks => "made",
    };
    format!("request {verb} over {}", units.descriptor.name())
}

/// Returns the calls in and outside units of work.
fn overview(phases: &Phases, words: &Words) -> Table {
    let inside = phases.kinds.iter().map(|units| (name(units), Cell::Count(units.units), units.total()));
    let outside = ("outside units of work".to_owned(), Cell::text(""), phases.outside);
    let rows: Vec<_> = inside.chain([outside]).collect();
    let mut total = Tally::default();
    rows.iter().for_each(|(_, _, tally)| total.merge(tally));
    let rows =
        rows.into_iter().chain([("total".to_owned(), Cell::text(""), total)]).map(|(name, units, tally)| {
            [
                Cell::text(name),
                units,
                Cell::Count(tally.calls),
                time(real(tally.kernel_ns)),
                share(tally.kernel_ns, total.kernel_ns),
            ]
        });
    let columns = [
        Column::words("unit of work"),
        Column::numbers("units"),
        Column::numbers("calls"),
        Column::numbers_in(words.time, Unit::Nanoseconds),
        Column::numbers("share"),
    ];
    let mut table = Table::of("Units of work", columns, rows);
    if phases.kinds.is_empty() {
        table = table.with_note("No unit of work was found: no request was answered over a socket.");
    }
    if phases.unfinished > 0 {
        table = table.with_note(format!("Calls that never returned, in no row: {}.", phases.unfinished));
    }
    table.with_note(match phases.lost {
        0 => NO_LOSS.to_owned(),
        records => format!("{records} records were LOST: units of work may be divided or joined."),
    })
}

/// Returns the phases of a unit of work, on average over all.
fn by_phase(units: &UnitsOfWork, words: &Words) -> Table {
    let mut phases: BTreeMap<Phase, Tally> = BTreeMap::new();
    for row in &units.steps {
        phases.entry(row.step.phase).or_default().merge(&row.tally);
    }
    let total = units.total();
    let rows =
        phases.iter().map(|(phase, tally)| (phase.name(units.side), tally)).chain([("total", &total)]).map(
            |(name, tally)| {
                let [calls, bytes, working, off_cpu] = per_unit(units, tally);
                [Cell::text(name), calls, bytes, working, off_cpu, share(tally.kernel_ns, total.kernel_ns)]
            },
        );
    let columns = [
        Column::words("phase"),
        Column::numbers("calls"),
        Column::numbers("bytes"),
        Column::numbers_in(words.time, Unit::Nanoseconds),
        Column::numbers_in("off the CPU", Unit::Nanoseconds),
        Column::numbers("share"),
    ];
    let table = Table::of(&format!("Phases of a {}", name(units)), columns, rows);
    words.mark(table).with_note(format!("Averages per unit of work. {}", words.meaning))
}

/// A call is in a row of its own if it has at least this share of the units of work or of their working time.
const SHARE_MIN: f64 = 0.01;

/// Returns the calls of each phase, on average over all units of work.
fn by_call(units: &UnitsOfWork, words: &Words) -> Table {
    let total_ns = real(units.total().kernel_ns);
    let is_rare = |tally: &Tally| {
        real(tally.calls) < SHARE_MIN * real(units.units) && real(tally.kernel_ns) < SHARE_MIN * total_ns
    };
    let mut rare: BTreeMap<Phase, Tally> = BTreeMap::new();
    for row in units.steps.iter().filter(|row| is_rare(&row.tally)) {
        rare.entry(row.step.phase).or_default().merge(&row.tally);
    }
    let frequent = units.steps.iter().filter(|row| !is_rare(&row.tally));
    let mut rows: Vec<_> = frequent.map(|row| (row.step.phase, row.step.outcome.text(), row.tally)).collect();
    rows.extend(rare.into_iter().map(|(phase, tally)| (phase, "rare calls".to_owned(), tally)));
    // Within a phase, the order stays.
    rows.sort_by_key(|(phase, _, _)| *phase);
    let rows = rows.into_iter().map(|(phase, call, tally)| {
        let [calls, bytes, working, off_cpu] = per_unit(units, &tally);
        [Cell::text(phase.name(units.side)), Cell::text(call), calls, bytes, working, off_cpu]
    });
    let columns = [
        Column::words("phase"),
        Column::words("call"),
        Column::numbers("calls"),
        Column::numbers("bytes"),
        Column::numbers_in(words.time, Unit::Nanoseconds),
        Column::numbers_in("off the CPU", Unit::Nanoseconds),
    ];
    let table = Table::of(&format!("Calls of a {}", name(units)), columns, rows);
    words.mark(table).with_note(format!(
        "Averages per unit of work; in a phase, in the order in which they first occurred. Rare: each less than \
         once in 100 units of work, and less than 1 % of the {} time.",
        words.time
    ))
}

/// Returns the variants, and how they differ from the most frequent one.
fn by_variant(units: &UnitsOfWork, words: &Words) -> Table {
    let most_frequent = units.variants.first().map_or(&[][..], |variant| &variant.steps);
    let rows = units.variants.iter().enumerate().map(|(position, variant)| {
        let difference = match position {
            0 => String::new(),
            _ => difference(most_frequent, &variant.steps),
        };
        row(units, variant, difference)
    });
    let rest = units.rest.iter().map(|rest| row(units, rest, "other variants".to_owned()));
    let idle = units.idle.iter().map(|idle| {
        let mut row = row(units, idle, "no request on a connection".to_owned());
        // They are not part of the units of work.
        row[1] = Cell::text("");
        row
    });
    let columns = [
        Column::numbers("units"),
        Column::numbers("share"),
        Column::numbers("calls"),
        Column::numbers_in(words.time, Unit::Nanoseconds),
        Column::numbers_in("p50", Unit::Nanoseconds),
        Column::numbers_in("p99", Unit::Nanoseconds),
        Column::words("difference from the first"),
    ];
    let first = match units.variants.first() {
        Some(first) => enumerated(first.steps.iter().map(|step| step.outcome.text()).collect(), SEQUENCE_MAX),
        None => "longer than 512 steps".to_owned(),
    };
    Table::of(&format!("Variants of a {}", name(units)), columns, rows.chain(rest).chain(idle)).with_note(format!(
        "The first: {}. A sequence that repeats itself is there once. Waits and calls for locks, which depend on \
         timing, make no variant; calls and {}, averages of the variant, include them. p50 and p99: from the \
         request to the last bytes before the next one.",
        first, words.time
    ))
}

fn row(units: &UnitsOfWork, variant: &Variant, difference: String) -> [Cell; 7] {
    let optional = |ns: Option<u64>| ns.map_or(Cell::text(""), |ns| time(real(ns)));
    [
        Cell::Count(variant.units),
        share(variant.units, units.units),
        mean(variant.calls, variant.units, Unit::Count),
        mean(variant.kernel_ns, variant.units, Unit::Nanoseconds),
        optional(variant.time_ns),
        optional(variant.time_p99_ns),
        Cell::text(difference),
    ]
}

/// Calls of a difference that are named.
const NAMED_MAX: usize = 5;

/// Calls of the most frequent variant that are named.
const SEQUENCE_MAX: usize = 40;

/// Returns which steps of one sequence the other one has not, and the reverse.
fn difference(from: &[Step], to: &[Step]) -> String {
    let [also, without] = [(to, from), (from, to)].map(|(these, those)| missing(these, those));
    match (also.as_str(), without.as_str()) {
        ("", "") => "in another order, or in other phases or threads".to_owned(),
        (also, "") => format!("also {also}"),
        ("", without) => format!("without {without}"),
        (also, without) => format!("also {also}; without {without}"),
    }
}

/// Returns the calls of `these` that `those` does not have, each as often as it has fewer of it.
fn missing(these: &[Step], those: &[Step]) -> String {
    let mut those: Vec<_> = those.iter().map(|step| step.outcome.text()).collect();
    let mut texts: Vec<_> = these.iter().map(|step| step.outcome.text()).collect();
    texts.retain(|text| match those.iter().position(|other| other == text) {
        Some(position) => {
            those.swap_remove(position);
            false
        }
        None => true,
    });
    enumerated(texts, NAMED_MAX)
}

/// Joins up to `most` texts and counts the others.
fn enumerated(mut texts: Vec<String>, most: usize) -> String {
    let more = texts.len().saturating_sub(most);
    texts.truncate(most);
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    texts.join(", ")
}

/// Returns calls, bytes, working time and time off the CPU per unit of work.
fn per_unit(units: &UnitsOfWork, tally: &Tally) -> [Cell; 4] {
    let bytes = match tally.bytes {
        0 => Cell::text(""),
        bytes => mean(bytes, units.units, Unit::Bytes),
    };
    [
        mean(tally.calls, units.units, Unit::Count),
        bytes,
        mean(tally.kernel_ns, units.units, Unit::Nanoseconds),
        mean(tally.off_cpu_ns, units.units, Unit::Nanoseconds),
    ]
}

#[cfg(test)]
mod tests {
    use assay_report::{Colour, Report, Style, Symbols};
    use assay_trace::Descriptor;
    use assay_trace::record::{Call, Event, Lost, Record};
    use assay_trace::syscall;
    use assay_trace::view::View;
    use assay_trace::view::phases::FindPhases;
    use expect_test::expect;

    use super::*;

    /// Adds a call of 1 us: its name, descriptor, inode and result.
    fn call(view: &mut FindPhases, (name, descriptor, inode, result): (&str, Descriptor, u64, i64)) {
        let event = Event::Call(Call {
            number: syscall::number(name).unwrap(),
            result,
            descriptor,
            inode,
            elapsed_ns: 1_000,
            blocked_ns: 400,
            ..Call::default()
        });
        view.record(&Record { begin_ns: 0, process: 1, thread: 1, cpu: 0, lost_before: 0, event });
    }

    fn shown(view: FindPhases) -> String {
        shown_of(view, Origin::Probe)
    }

    fn shown_of(view: FindPhases, origin: Origin) -> String {
        let report = Report { title: "x.trace".to_owned(), blocks: phases(&view.finish(), origin) };
        let style = Style { width: 110, symbols: Symbols::Ascii, colour: Colour::Plain };
        assay_report::text::report(&report, &style)
    }

    #[test]
    fn rare_calls_share_a_row_and_a_variant_is_a_difference() {
        let mut view = FindPhases::default();
        let socket = |name, result| (name, Descriptor::Tcp4, 9, result);
        let plain = |name| (name, Descriptor::None, 0, 0);
        call(&mut view, plain("getpid"));
        for request in 0..200 {
            call(&mut view, socket("read", 80));
            match request {
                50 => ["getpid", "brk", "getuid", "getgid", "gettid", "sysinfo", "getppid"]
                    .iter()
                    .for_each(|name| call(&mut view, plain(name))),
                60..62 => call(&mut view, plain("getpid")),
                _ => call(&mut view, ("openat", Descriptor::File, 3, 5)),
            }
            call(&mut view, socket("write", 8_192));
        }
        expect![[r#"
            x.trace
            =======

            Units of work
             unit of work                units  calls  working [us]      share
            -------------------------------------------------------------------
             request answered over tcp4    200    606       364       99.8   %
             outside units of work                  1         0.600    0.165 %
             total                                607       364      100     %
             No record was lost.

            Phases of a request answered over tcp4
             phase     calls      bytes  working [ns]  off the CPU [ns]     share
            ----------------------------------------------------------------------
             request  1       80    B           600               400     33.0  %
             files    0.985                     591               394     32.5  %
             other    0.0450                     27.0              18.0    1.49 %
             answer   1        8    KiB         600               400     33.0  %
             total    3.03     8.08 KiB        1818              1212    100    %
             Averages per unit of work. Working: time that the kernel worked; share: of this time.

            Calls of a request answered over tcp4
             phase    call          calls   bytes  working [ns]  off the CPU [ns]
            ----------------------------------------------------------------------
             request  read tcp4    1       80 B          600               400
             files    openat file  0.985                 591               394
             other    getpid       0.0150                  9.00              6.00
             other    rare calls   0.0300                 18.0              12.0
             answer   write tcp4   1        8 KiB        600               400
             Averages per unit of work; in a phase, in the order in which they first occurred. Rare: each less than once
             in 100 units of work, and less than 1 % of the working time.

            Variants of a request answered over tcp4
             units     share  calls  working [us]  p50 [ns]  p99 [ns]  difference from the first
            -----------------------------------------------------------------------------------------------------------
               197  98.5   %      3          1.80         0         0
                 2   1.00  %      3          1.80         0         0  also getpid; without openat file
                 1   0.500 %      9          5.40         0         0  also getpid, brk, getuid, getgid, gettid, and 2
                                                                       more; without openat file
             The first: read tcp4, openat file, write tcp4. A sequence that repeats itself is there once. Waits and calls
             for locks, which depend on timing, make no variant; calls and working, averages of the variant, include them.
             p50 and p99: from the request to the last bytes before the next one.
        "#]].assert_eq(&shown(view));
    }

    #[test]
    fn an_imported_trace_has_elapsed_times_only() {
        let mut view = FindPhases::default();
        for name in ["read", "write", "read", "write"] {
            call(&mut view, (name, Descriptor::Tcp4, 7, 80));
        }
        let text = shown_of(view, Origin::Strace);
        assert!(text.contains("request answered over tcp4"), "{text}");
        assert!(!text.contains("orking") && text.contains("less than 1 % of the elapsed time"), "{text}");
        assert_eq!(text.matches(" off the CPU").count(), 2, "{text}");
        assert_eq!(text.matches(" off the CPU: strace does not record it.").count(), 2, "{text}");
    }

    #[test]
    fn a_trace_without_requests_and_with_losses_says_so() {
        let mut view = FindPhases::default();
        view.lost(&Lost { time_ns: 0, cpu: 0, records: 7 });
        call(&mut view, ("getpid", Descriptor::None, 0, 1));
        let text = shown(view);
        assert!(text.contains("no request was answered over a socket"), "{text}");
        assert!(text.contains("7 records were LOST: units of work may be divided or joined"), "{text}");
    }
}
