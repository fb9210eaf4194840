//! Traces before and after a change: which calls appeared, vanished, became more or fewer, slower or faster.
//!
//! The calls of one trace share its moment of the machine, so periods of a trace are no repetitions: taken as
//! such, they made 45 to 86 % of pairs of traces of the same program differ. Repetitions are traces.

#[cfg(test)]
pub mod fixture;

use std::collections::{BTreeMap, BTreeSet};

use assay_quantity::Pair;
use assay_statistics::comparison::factor::common_factors;
use assay_statistics::comparison::family::{Comparison, Relation, Runs, SAME_WITHIN, compare_runs};
use assay_trace::view::Tally;
use assay_trace::view::outcomes::Outcomes;
use assay_trace::view::summary::Events;

/// Traces of each side from which differences are judged: with two, the test finds next to nothing.
pub const TRACES_MIN: usize = 3;

/// Kinds of calls from which there is a common factor. With two, the change of one is as good a factor as
/// that of the other, so the one that did not change seems to have changed.
const KINDS_MIN: usize = 5;

/// Kinds of calls that are left for the common factor at least, when those that changed are left out: a
/// majority of [`KINDS_MIN`].
const UNCHANGED_MIN: usize = 3;

/// Share of the time of a side from which a call has a row of its own. More rows would need more traces,
/// because the correction for their number grows.
const SHARE_MIN: f64 = 0.01;

/// The name of the time between calls.
const OUTSIDE: &str = "outside calls";

/// The traces of one side.
#[derive(Debug)]
pub struct Side {
    /// Their content.
    pub traces: Vec<Outcomes>,
    /// Units of work in each of them.
    pub units: f64,
    /// Number of traces that miss their end, or threads.
    pub incomplete: usize,
}

/// Two sides compared.
#[derive(Debug)]
pub struct Difference {
    /// Calls by the time that the kernel worked for them.
    pub work: Times,
    /// Calls by the time that their threads were off the CPU, and that time outside calls.
    pub wait: Times,
    /// Page faults, processes, threads and programs.
    pub events: Vec<Row>,
    /// What all calls of a trace have in common: the factor by which the times per call in `work` are
    /// divided.
    /// `None` if there are too few kinds of calls to find it.
    pub common: Option<Quantity>,
    /// Number of traces.
    pub traces: Pair<usize>,
    /// Whether there are enough traces to judge differences.
    pub is_judged: bool,
    /// Number of traces that miss their end, or threads.
    pub incomplete: Pair<usize>,
    /// Lost records.
    pub lost: Pair<u64>,
}

/// Calls by one kind of time.
#[derive(Debug)]
pub struct Times {
    /// The largest difference first.
    pub rows: Vec<Row>,
    /// Calls without a row of their own.
    pub others: Others,
    /// All calls, per unit of work; `None` for time off the CPU, whose periods outside calls are no calls.
    pub count: Option<Pair<f64>>,
    /// Their time, ns per unit of work.
    pub total_ns: Pair<f64>,
}

/// Calls without a row of their own, together; per unit of work.
#[derive(Debug)]
pub struct Others {
    /// Number of kinds of calls.
    pub kinds: usize,
    /// Number of calls.
    pub count: Pair<f64>,
    /// Their time, ns.
    pub time_ns: Pair<f64>,
}

/// A kind of call, or of event, on both sides.
#[derive(Debug)]
pub struct Row {
    /// Its name; that of a call has its descriptor and its failure.
    pub name: String,
    /// Which traces contain it, or time of it.
    pub presence: Presence,
    /// Its number, per unit of work.
    pub count: Pair<f64>,
    /// Its time in ns, per unit of work.
    pub time_ns: Pair<f64>,
    /// Its number in each trace, per unit of work; `None` if a trace does not contain it. The numbers of
    /// calls are compared in `work` only.
    pub counts: Option<Quantity>,
    /// Its time per call in each trace, ns; `None` if it has none in a trace.
    pub per_call: Option<Quantity>,
}

/// Which traces contain a kind of call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Presence {
    /// Every trace.
    Everywhere,
    /// Every trace of B, and none of A.
    Appeared,
    /// Every trace of A, and none of B.
    Vanished,
    /// Some traces: this number on each side.
    Sometimes(Pair<usize>),
}

/// A positive quantity of every trace.
#[derive(Debug, Clone)]
pub struct Quantity {
    /// Its values, one for each trace.
    pub runs: Runs,
    /// The comparison; `None` if there are too few traces.
    pub comparison: Option<Comparison>,
}

/// A kind of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Time {
    Work,
    Wait,
}

/// The calls of each trace of a side.
struct Calls {
    traces: Vec<BTreeMap<String, Tally>>,
    units: f64,
}

/// Compares two sides.
#[must_use]
pub fn difference(sides: &Pair<Side>) -> Difference {
    let mut work = Times::of(sides, Time::Work);
    let counted = vec![true; work.rows.len()];
    let common = without_common_factor(&mut work.rows, &counted, KINDS_MIN);
    let traces = sides.as_ref().map(|side| side.traces.len());
    let mut found = Difference {
        work,
        wait: Times::of(sides, Time::Wait),
        events: events(sides),
        common,
        traces,
        is_judged: traces.a.min(traces.b) >= TRACES_MIN,
        incomplete: sides.as_ref().map(|side| side.incomplete),
        lost: sides.as_ref().map(|side| side.traces.iter().map(|trace| trace.events.lost).sum()),
    };
    if found.is_judged {
        found.judge(counted);
    }
    found
}

impl Difference {
    /// Judges all quantities, with a common factor from the calls that did not change. Without this step, in
    /// 27 % of 300 trials with two of eight calls of nginx 50 % slower, and in 21 % with six of 19 calls of
    /// make, another call seemed to have changed; with it, in 1 % and 5 % (six traces of each side).
    fn judge(&mut self, mut counted: Vec<bool>) {
        loop {
            self.judge_once();
            // A call that changed has moved the factor: without it, the others are judged again.
            let Some(farthest) = farthest(&self.work.rows, &counted) else { return };
            counted[farthest] = false;
            let Some(common) = &mut self.common else { return };
            let Some(rest) = without_common_factor(&mut self.work.rows, &counted, UNCHANGED_MIN) else {
                return;
            };
            common.scale(&rest, |value, factor| value * factor);
        }
    }

    /// Judges all quantities together, because the correction depends on their number.
    fn judge_once(&mut self) {
        let rows = self.work.rows.iter_mut().chain(&mut self.wait.rows).chain(&mut self.events);
        let quantities = rows.flat_map(|row| row.counts.iter_mut().chain(&mut row.per_call));
        let quantities: Vec<&mut Quantity> = quantities.chain(&mut self.common).collect();
        let runs: Vec<Runs> = quantities.iter().map(|quantity| quantity.runs.clone()).collect();
        for (quantity, comparison) in quantities.into_iter().zip(compare_runs(&runs, SAME_WITHIN)) {
            quantity.comparison = Some(comparison);
        }
    }
}

/// Returns the position of the row that changed most of those that count and are slower or faster.
fn farthest(rows: &[Row], counted: &[bool]) -> Option<usize> {
    let distance = |row: &Row| {
        let comparison = row.per_call.as_ref()?.comparison?;
        let changed = matches!(comparison.relation, Relation::Faster | Relation::Slower);
        Some(comparison.ratio.filter(|_| changed)?.estimate.point.ln().abs())
    };
    let rows = rows.iter().zip(counted).enumerate().filter(|(_, (_, counts))| **counts);
    let distances = rows.filter_map(|(position, (row, _))| Some((position, distance(row)?)));
    distances.max_by(|one, other| one.1.total_cmp(&other.1)).map(|(position, _)| position)
}

/// Divides the times per call by the factor that the calls of a trace have in common, and returns it. It is
/// found from the rows that count, at least `kinds_min`.
fn without_common_factor(rows: &mut [Row], counted: &[bool], kinds_min: usize) -> Option<Quantity> {
    let counted = rows.iter().zip(counted).filter(|(_, counts)| **counts);
    let values: Vec<&Pair<Vec<f64>>> =
        counted.filter_map(|(row, _)| Some(&row.per_call.as_ref()?.runs.values)).collect();
    let traces_of_a = values.first()?.a.len();
    let times: Vec<Vec<f64>> = values.iter().map(|values| [&values.a[..], &values.b].concat()).collect();
    let mut a = common_factors(&times).filter(|_| times.len() >= kinds_min)?;
    let b = a.split_off(traces_of_a);
    let factor = Quantity::of(Pair { a, b }, Pair { a: 0.0, b: 0.0 })?;
    for times in rows.iter_mut().filter_map(|row| row.per_call.as_mut()) {
        times.scale(&factor, |value, factor| value / factor);
    }
    Some(factor)
}

/// The number of events of a kind in a trace.
type Count = fn(&Events) -> u64;

const EVENTS: [(&str, Count); 7] = [
    ("page faults in user mode", |events| events.user_faults),
    ("page faults in the kernel", |events| events.kernel_faults),
    ("processes created", |events| events.processes),
    ("threads created", |events| events.threads),
    ("programs executed", |events| events.execs),
    ("calls that never returned", |events| events.unfinished),
    ("periods off the CPU outside calls", |events| events.off_cpu),
];

/// Returns the events that any trace contains.
fn events(sides: &Pair<Side>) -> Vec<Row> {
    let rows = EVENTS.into_iter().map(|(name, count)| {
        let tally = |trace: &Outcomes| Tally { calls: count(&trace.events), ..Tally::default() };
        let tallies = |side: &Side| (side.traces.iter().map(tally).collect(), side.units);
        Row::of(name.to_owned(), sides.as_ref().map(tallies), Time::Work)
    });
    rows.filter(|row| row.count.a + row.count.b > 0.0).collect()
}

impl Calls {
    fn of(side: &Side, time: Time) -> Self {
        let calls = |trace: &Outcomes| {
            let mut calls = BTreeMap::new();
            let mut add = |name: String, tally: &Tally| {
                calls.entry(name).or_insert_with(Tally::default).merge(tally);
            };
            trace.calls.iter().for_each(|(outcome, tally)| add(outcome.text(), tally));
            let Events { off_cpu, off_cpu_blocked_ns, off_cpu_waiting_ns, .. } = trace.events;
            let off_cpu_ns = off_cpu_blocked_ns.saturating_add(off_cpu_waiting_ns);
            if time == Time::Wait {
                add(OUTSIDE.to_owned(), &Tally { calls: off_cpu, off_cpu_ns, ..Tally::default() });
            }
            calls
        };
        Self { traces: side.traces.iter().map(calls).collect(), units: side.units }
    }

    fn named(&self, name: &str) -> (Vec<Tally>, f64) {
        (self.traces.iter().map(|calls| calls.get(name).copied().unwrap_or_default()).collect(), self.units)
    }
}

impl Time {
    fn of(self, tally: &Tally) -> u64 {
        match self {
            Self::Work => tally.kernel_ns,
            Self::Wait => tally.off_cpu_ns,
        }
    }
}

impl Times {
    fn of(sides: &Pair<Side>, time: Time) -> Self {
        let calls = sides.as_ref().map(|side| Calls::of(side, time));
        let traces = || calls.a.traces.iter().chain(&calls.b.traces);
        let names: BTreeSet<&String> = traces().flat_map(BTreeMap::keys).collect();
        let row =
            |name: &&String| Row::of((*name).clone(), calls.as_ref().map(|side| side.named(name)), time);
        let all: Vec<Row> =
            names.iter().map(row).filter(|row| time == Time::Work || row.has_time()).collect();
        let total = Pair { a: sum(&all, |row| row.time_ns.a), b: sum(&all, |row| row.time_ns.b) };
        let count = Pair { a: sum(&all, |row| row.count.a), b: sum(&all, |row| row.count.b) };
        let count = Some(count).filter(|_| time == Time::Work);
        let (mut rows, others): (Vec<Row>, Vec<Row>) = all.into_iter().partition(|row| {
            let is_large = |time_ns: f64, total_ns: f64| time_ns > 0.0 && time_ns >= SHARE_MIN * total_ns;
            let is_new = matches!(row.presence, Presence::Appeared | Presence::Vanished);
            is_large(row.time_ns.a, total.a)
                || is_large(row.time_ns.b, total.b)
                || (is_new && time == Time::Work)
        });
        rows.sort_by(|one, other| other.change_ns().abs().total_cmp(&one.change_ns().abs()));
        let others = Others {
            kinds: others.len(),
            count: Pair { a: sum(&others, |row| row.count.a), b: sum(&others, |row| row.count.b) },
            time_ns: Pair { a: sum(&others, |row| row.time_ns.a), b: sum(&others, |row| row.time_ns.b) },
        };
        Self { rows, others, count, total_ns: total }
    }
}

fn sum(rows: &[Row], of: fn(&Row) -> f64) -> f64 {
    rows.iter().map(of).sum()
}

impl Row {
    /// Returns a row for the tallies of each trace of a side, and the units of work in it.
    fn of(name: String, sides: Pair<(Vec<Tally>, f64)>, time: Time) -> Self {
        let sides = sides.as_ref();
        let is_there = |tally: &&Tally| match time {
            Time::Work => tally.calls > 0,
            Time::Wait => tally.off_cpu_ns > 0,
        };
        let contain = sides.map(|(tallies, _)| tallies.iter().filter(is_there).count());
        let traces = sides.map(|(tallies, _)| tallies.len());
        let presence = match (contain.a, contain.b) {
            (0, b) if b == traces.b => Presence::Appeared,
            (a, 0) if a == traces.a => Presence::Vanished,
            (a, b) if (a, b) == (traces.a, traces.b) => Presence::Everywhere,
            _ => Presence::Sometimes(contain),
        };
        let each = |of: &dyn Fn(&Tally, f64) -> f64| {
            sides.map(|(tallies, units)| tallies.iter().map(|tally| of(tally, *units)).collect::<Vec<f64>>())
        };
        let counts = each(&|tally, units| real(tally.calls) / units);
        let times_ns = each(&|tally, units| real(time.of(tally)) / units);
        let per_call_ns = each(&|tally, _| real(time.of(tally)) / real(tally.calls.max(1)));
        Self {
            name,
            presence,
            count: counts.as_ref().map(|counts| mean(counts)),
            time_ns: times_ns.as_ref().map(|times| mean(times)),
            counts: Quantity::of(counts, sides.map(|(_, units)| 1.0 / units)).filter(|_| time == Time::Work),
            per_call: Quantity::of(per_call_ns, Pair { a: 0.0, b: 0.0 }),
        }
    }

    /// Returns how much more time it takes on B, ns per unit of work.
    #[must_use]
    pub fn change_ns(&self) -> f64 {
        self.time_ns.b - self.time_ns.a
    }

    fn has_time(&self) -> bool {
        self.time_ns.a + self.time_ns.b > 0.0
    }
}

impl Quantity {
    /// Returns `None` if a value is not positive: it has no ratio.
    fn of(values: Pair<Vec<f64>>, step: Pair<f64>) -> Option<Self> {
        let all_positive = values.a.iter().chain(&values.b).all(|value| *value > 0.0);
        all_positive.then_some(Self { runs: Runs { values, step }, comparison: None })
    }

    /// Returns the mean of B over that of A.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        mean(&self.runs.values.b) / mean(&self.runs.values.a)
    }

    /// Combines each value with that of the same trace.
    fn scale(&mut self, other: &Self, combine: fn(f64, f64) -> f64) {
        let scale = |values: &mut [f64], others: &[f64]| {
            values.iter_mut().zip(others).for_each(|(value, other)| *value = combine(*value, *other));
        };
        scale(&mut self.runs.values.a, &other.runs.values.a);
        scale(&mut self.runs.values.b, &other.runs.values.b);
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / real(u64::try_from(values.len()).unwrap_or(u64::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "counts and times of a trace are far below 2^52")]
fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use assay_statistics::comparison::family::Relation;

    use super::fixture::{trace, usual};
    use super::*;

    fn sides(a: Vec<Outcomes>, b: Vec<Outcomes>) -> Pair<Side> {
        Pair { a, b }.map(|traces| Side { traces, units: 1.0, incomplete: 0 })
    }

    fn row<'a>(times: &'a Times, name: &str) -> &'a Row {
        times.rows.iter().find(|row| row.name == name).unwrap()
    }

    fn judged(quantity: Option<&Quantity>) -> Relation {
        quantity.unwrap().comparison.unwrap().relation
    }

    #[test]
    fn calls_that_only_one_side_has_are_new_or_gone_whatever_time_they_take() {
        let mut b = [trace(&usual(1)), trace(&usual(1))];
        for (trace, failed) in b
            .iter_mut()
            .zip([&[("openat", 1, -2, 1, 0), ("brk", 1, -12, 1, 0)][..], &[("openat", 1, -2, 1, 0)]])
        {
            let failed = self::trace(failed);
            trace.calls.extend(failed.calls);
        }
        let found = difference(&sides(vec![trace(&usual(1))], b.to_vec()));
        assert_eq!(row(&found.work, "openat = ENOENT").presence, Presence::Appeared);
        assert_eq!(row(&found.work, "openat").presence, Presence::Everywhere);
        assert_eq!((found.work.others.kinds, found.work.others.count), (1, Pair { a: 0.0, b: 0.5 }));
        let back = difference(&sides(b.to_vec(), vec![trace(&usual(1))]));
        assert_eq!(row(&back.work, "openat = ENOENT").presence, Presence::Vanished);
        let large = trace(&[("fsync", 1, 0, 90_000, 0)]);
        let found = difference(&sides(vec![trace(&usual(1))], vec![large, trace(&usual(1))]));
        assert_eq!(row(&found.work, "fsync").presence, Presence::Sometimes(Pair { a: 0, b: 1 }));
    }

    #[test]
    fn a_slower_call_is_found_although_the_traces_differ_by_a_common_factor() {
        let side = |slownesses: [u64; 4], reads_ns: u64| {
            let trace = |slowness: u64| {
                let mut calls = usual(slowness);
                calls[0].3 += reads_ns * slowness;
                // The traces of a side also differ by themselves.
                calls[1].3 += slowness;
                self::trace(&calls)
            };
            slownesses.map(trace).to_vec()
        };
        let found = difference(&sides(side([10, 22, 15, 31], 0), side([17, 33, 11, 27], 500)));
        assert_eq!(judged(row(&found.work, "read").per_call.as_ref()), Relation::Slower);
        assert_eq!(judged(row(&found.work, "read").counts.as_ref()), Relation::Indistinguishable);
        for name in ["write", "openat", "close", "mmap", "brk"] {
            assert_eq!(judged(row(&found.work, name).per_call.as_ref()), Relation::SameWithin(SAME_WITHIN));
        }
        let common = found.common.unwrap();
        assert_eq!(judged(Some(&common)), Relation::Indistinguishable);
        let factors = &common.runs.values.a;
        assert!((factors[1] / factors[0] - 2.2).abs() < 1e-9, "{common:?}");
        assert_eq!(found.work.rows[0].name, "read");
    }

    #[test]
    fn calls_that_did_not_change_keep_their_word_if_two_of_six_became_slower() {
        let mut state = 1;
        let mut side = |change_percent: u64| {
            let mut trace = |_| {
                let mut calls = usual(100);
                for (kind, call) in calls.iter_mut().enumerate() {
                    // Noise of at most 4 %.
                    state = u64::wrapping_mul(state, 6_364_136_223_846_793_005).wrapping_add(1);
                    call.3 = call.3 * (1_000 + (state >> 33) % 80 - 40) / 1_000;
                    call.3 += if kind < 2 { call.3 * change_percent / 100 } else { 0 };
                }
                self::trace(&calls)
            };
            (0..20).map(&mut trace).collect::<Vec<_>>()
        };
        let found = difference(&sides(side(0), side(50)));
        for row in &found.work.rows {
            let is_slower = judged(row.per_call.as_ref()) == Relation::Slower;
            assert_eq!(is_slower, ["read", "write"].contains(&&*row.name), "{row:?}");
            assert_ne!(judged(row.per_call.as_ref()), Relation::Faster, "{row:?}");
        }
        assert_ne!(judged(found.common.as_ref()), Relation::Slower);
    }

    #[test]
    fn time_off_the_cpu_that_every_trace_of_one_side_has_is_new_or_gone() {
        let sleeping = |blocked_ns| trace(&[("pause", 1, -4, 9_000, blocked_ns)]);
        let found = difference(&sides(vec![sleeping(0), sleeping(0)], vec![sleeping(8_000)]));
        assert_eq!(row(&found.wait, "pause = EINTR").presence, Presence::Appeared);
        assert_eq!(row(&found.work, "pause = EINTR").presence, Presence::Everywhere);
        assert!(row(&found.wait, "pause = EINTR").counts.is_none(), "its number is compared once");
        let found = difference(&sides(vec![sleeping(0), sleeping(8_000)], vec![sleeping(8_000)]));
        assert_eq!(row(&found.wait, "pause = EINTR").presence, Presence::Sometimes(Pair { a: 1, b: 1 }));
    }

    #[test]
    fn more_calls_are_found_and_few_traces_or_few_kinds_of_calls_are_not_judged_beyond_what_they_show() {
        let more = |slowness| {
            let mut calls = usual(slowness);
            calls[2].1 = 100;
            trace(&calls)
        };
        let less = |slowness| trace(&usual(slowness));
        let found = difference(&sides(vec![less(2), less(3), less(5)], vec![more(4), more(1), more(3)]));
        assert_eq!(judged(row(&found.work, "openat").counts.as_ref()), Relation::Slower);
        let found = difference(&sides(vec![less(2), less(3), less(5)], vec![more(4), more(1)]));
        assert!(!found.is_judged && row(&found.work, "openat").counts.as_ref().unwrap().comparison.is_none());
        let few = || vec![trace(&usual(1)[..4])];
        assert!(difference(&sides(few(), few())).common.is_none());
    }

    #[test]
    fn everything_is_in_a_row_or_among_the_others_per_unit_of_work() {
        let mut calls = usual(100);
        calls.push(("getpid", 5, 1, 100, 0));
        calls.push(("pause", 1, -4, 9_000, 8_000));
        let mut a = trace(&calls);
        (a.events.off_cpu, a.events.off_cpu_waiting_ns, a.events.lost) = (2, 1_000, 3);
        (a.events.user_faults, a.events.execs) = (4, 1);
        let b = trace(&usual(100));
        let two = |trace: Outcomes, units| Side { traces: vec![trace.clone(), trace], units, incomplete: 0 };
        let found = difference(&Pair { a: two(a, 2.0), b: two(b, 4.0) });
        let names = |times: &Times| times.rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>();
        assert!(names(&found.work).contains(&"getpid".to_owned()), "it is gone");
        assert_eq!(names(&found.wait), ["pause = EINTR", "outside calls"]);
        assert_eq!(row(&found.wait, "outside calls").time_ns, Pair { a: 500.0, b: 0.0 });
        assert_eq!((found.work.count, found.wait.count), (Some(Pair { a: 33.0, b: 15.0 }), None));
        assert!(!names(&found.work).contains(&"outside calls".to_owned()));
        let work_ns = (60.0 * 100_000.0 + 500.0 + 1_000.0) / 2.0;
        assert_eq!(found.work.total_ns, Pair { a: work_ns, b: 60.0 * 100_000.0 / 4.0 });
        let counts: Vec<(&str, Pair<f64>)> = found.events.iter().map(|row| (&*row.name, row.count)).collect();
        assert_eq!(
            counts,
            [
                ("page faults in user mode", Pair { a: 2.0, b: 0.0 }),
                ("programs executed", Pair { a: 0.5, b: 0.0 }),
                ("periods off the CPU outside calls", Pair { a: 1.0, b: 0.0 }),
            ]
        );
        assert_eq!(found.lost, Pair { a: 6, b: 0 });
    }

    #[test]
    fn the_time_of_rows_and_others_is_that_of_all_calls() {
        let mut calls = usual(100);
        calls.push(("getpid", 5, 1, 100, 0));
        let trace = trace(&calls);
        let found = difference(&sides(vec![trace.clone()], vec![trace]));
        let rows_ns: f64 = found.work.rows.iter().map(|row| row.time_ns.a).sum();
        assert_eq!((found.work.others.kinds, found.work.rows.len()), (1, 6));
        assert!((rows_ns + found.work.others.time_ns.a - found.work.total_ns.a).abs() < 1e-6);
        assert!((found.work.others.time_ns.a - 500.0).abs() < 1e-9 && found.wait.rows.is_empty());
    }
}
