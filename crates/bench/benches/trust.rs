//! Tests on this machine whether the figures are trustworthy, and how long they take.
//!
//!     cargo bench --package assay-bench --bench trust -- truth
//!     cargo bench --package assay-bench --bench trust -- coverage [REPEATS]
//!     cargo bench --package assay-bench --bench trust -- comparison [PAIRS]
//!     cargo bench --package assay-bench --bench trust -- turns [TRIALS] [EQUALS]
//!     cargo bench --package assay-bench --bench trust -- durations
//!     cargo bench --package assay-bench --bench trust -- drift
//!
//! `truth` measures bodies of known length; `coverage` repeats whole measurements and counts how often an
//! interval contains the mean of all of them; `comparison` compares a machine with itself, and with itself
//! slowed down by 2 %; `turns` does the same with two states that are measured alternately; `durations`
//! prints how long the processes of the quick profile take; `drift` lists the primitives whose first batches
//! differ in cost from the last ones. The executable of this experiment is also the program that the harness
//! starts for every sample.

#![expect(clippy::unwrap_used, reason = "a failed experiment ends with the error")]
#![expect(clippy::print_stdout, reason = "it prints tables")]

mod support;

use std::arch::asm;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::process::ExitCode;
use std::slice;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use assay_bench::benchmark::{Participants, Sharing, Timing};
use assay_bench::platform::clock::{Source, monotonic};
use assay_bench::sample::evidence::Watch;
use assay_bench::sample::harness::{self, Nothing, Schedule};
use assay_bench::{
    Benchmark, Calibration, Finding, Operation, Outcome, Plan, Prepared, Profile, Spawner, alternate,
    calibrate, catalogue, cost_of, delayed_sample_main, find, measure, pairs_of, sample_main, values_of,
};
use assay_quantity::evidence::CYCLE_NS;
use assay_quantity::{Cost, Estimate, Pair, PrimitiveId, Sample, Unit, Verdict};
use assay_statistics::aspect::value;
use assay_statistics::comparison::family::{Relation, SAME_WITHIN, Side, compare_costs, compare_in_turns};
use assay_statistics::slope::NoCost;
use assay_statistics::{cost_ns, trimmed_mean};

use support::{end, plan, real, spawner};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |text: Option<&&str>, usual| text.map_or(usual, |text| text.parse().unwrap());
    match words.as_slice() {
        ["sample", request] => return end(sample_main(request, &mut io::stdout()).is_ok()),
        ["delayed", delay_ns, request] => {
            let delay_ns = delay_ns.parse().unwrap();
            return end(delayed_sample_main(request, delay_ns, &mut io::stdout()).is_ok());
        }
        ["truth"] => truth(),
        ["coverage", rest @ ..] => coverage(number(rest.first(), 50)),
        ["comparison", rest @ ..] => comparison(number(rest.first(), 40)),
        ["turns", rest @ ..] => turns(number(rest.first(), 10), number(rest.get(1), 200)),
        ["durations"] => durations(),
        ["drift"] => drift(),
        _ => {
            durations();
            drift();
            truth();
            coverage(10);
            comparison(10);
            turns(1, 5);
        }
    }
    ExitCode::SUCCESS
}

/// Twelve primitives from the cheapest to the most expensive, of every kind of sharing.
const CHOSEN: [&str; 12] = [
    "call.null",
    "null.write{size=1B}",
    "file.stat",
    "file.open_close",
    "signal.deliver",
    "pipe.round_trip{size=1B,cpus=same}",
    "process.context_switch{processes=2,cpus=same}",
    "tcp.round_trip{size=1B,cpus=same}",
    "tcp.send{size=4KiB,buffer=reused}",
    "memory.read{level=l2}",
    "memory.load{level=l2}",
    "page_fault.anonymous",
];

fn chosen() -> Vec<Benchmark> {
    CHOSEN.iter().map(|id| find(&id.parse().unwrap()).unwrap()).collect()
}

fn samples(plan: &Plan, benchmarks: &[Benchmark], spawner: &Spawner) -> Vec<Vec<Sample>> {
    let stop = AtomicBool::new(false);
    let findings = measure(plan, benchmarks, &[], spawner, &stop, &mut |_, _| {}).unwrap();
    let of = |finding: Finding| match finding {
        Finding::Measured(measured) => measured.samples,
        Finding::Unmeasured(missing) => panic!("{}: {}", missing.primitive, missing.reason),
    };
    findings.into_iter().map(of).collect()
}

fn quick() -> Vec<Benchmark> {
    catalogue().into_iter().filter(|benchmark| benchmark.profile == Profile::Quick).collect()
}

/// Number of processes of each primitive; their median is its duration.
const DURATIONS: usize = 5;

/// Maximum duration of a process of the quick profile, ms. The profile has 54 s for at least five processes
/// of each of about 230 primitives: 47 ms for each on average, and twice that for a few.
const LONGEST_MS: f64 = 100.0;

/// Prints the durations of processes of the quick profile: the longest ones, those that are too long, and the
/// sum of all.
fn durations() {
    let quick = quick();
    let plan = plan(1, DURATIONS, &calibrate());
    let (stop, mut took) = (AtomicBool::new(false), HashMap::<PrimitiveId, Vec<f64>>::new());
    let mut begun_ns = monotonic::now_ns();
    measure(&plan, &quick, &[], &spawner(&["sample"]), &stop, &mut |primitive, outcome| {
        let ms = Duration::from_nanos(monotonic::now_ns() - begun_ns).as_secs_f64() * 1e3;
        if matches!(outcome, Outcome::Sample(_)) {
            took.entry(primitive.clone()).or_default().push(ms);
        }
        begun_ns = monotonic::now_ns();
    })
    .unwrap();
    let mut medians: Vec<(f64, PrimitiveId)> =
        took.into_iter().map(|(primitive, ms)| (median(ms.into_iter()), primitive)).collect();
    medians.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("duration of a process of the quick profile, median of {DURATIONS}");
    let too_long = medians.iter().filter(|(ms, _)| *ms > LONGEST_MS).count();
    for (ms, primitive) in &medians[..too_long.max(10)] {
        let remark = if *ms > LONGEST_MS { "  too long: it belongs in the full profile" } else { "" };
        println!("{ms:>9.1} ms  {primitive}{remark}");
    }
    let round_s = medians.iter().map(|(ms, _)| ms).sum::<f64>() / 1e3;
    println!("{round_s:>9.2} s   a process of each of the {} primitives", medians.len());
}

/// Number of processes of each primitive; their median is its drift.
const DRIFT: usize = 11;

/// Maximum relative difference in cost between the first and the last batches.
const DRIFT_MAX: f64 = 0.1;

/// Lists the primitives whose cost is not steady from the first batch: compares the first quarter of a
/// process's batches with its last quarter. Shorter batches, in which the fixed cost is a larger part, are
/// omitted.
fn drift() {
    let quick = quick();
    let stop = AtomicBool::new(false);
    let findings =
        measure(&plan(1, DRIFT, &calibrate()), &quick, &[], &spawner(&["sample"]), &stop, &mut |_, _| {})
            .unwrap();
    println!("cost in the first batches divided by that in the last ones, median of {DRIFT} processes");
    let mut drifts: Vec<(f64, PrimitiveId)> = Vec::new();
    for finding in findings {
        match finding {
            Finding::Measured(measured) => {
                drifts.push((median(measured.samples.iter().map(drift_of)), measured.primitive));
            }
            Finding::Unmeasured(missing) => println!("{}: {}", missing.primitive, missing.reason),
        }
    }
    drifts.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (ratio, primitive) in drifts.iter().filter(|(ratio, _)| (ratio - 1.0).abs() > DRIFT_MAX) {
        println!("{ratio:>9.2}  {primitive}");
    }
    let steady = drifts.iter().filter(|(ratio, _)| (ratio - 1.0).abs() <= DRIFT_MAX).count();
    println!("{steady} of {} primitives are within {:.0} %", drifts.len(), 100.0 * DRIFT_MAX);
}

fn drift_of(sample: &Sample) -> f64 {
    let longest = sample.observations.iter().map(|batch| batch.operations).max().unwrap_or(0);
    let costs: Vec<f64> = sample
        .observations
        .iter()
        .filter(|batch| 2 * batch.operations >= longest)
        .map(|batch| batch.elapsed_ns / batch.operations as f64)
        .collect();
    let quarter = costs.len().div_ceil(4);
    median(costs[..quarter].iter().copied()) / median(costs[costs.len() - quarter..].iter().copied())
}

/// Returns the (upper) median.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A chain of dependent additions: each takes one cycle on every processor. The loop around the chain
/// executes in parallel with it and adds no time if the chain is longer.
struct Chain<const ADDITIONS: usize>;

impl<const ADDITIONS: usize> Operation for Chain<ADDITIONS> {
    fn run(&mut self, operations: u64) -> io::Result<()> {
        let mut value = 0_u64;
        for _ in 0..operations {
            // SAFETY: adds to one register.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                asm!(
                    ".rept {n}", "add {v}, {one}", ".endr",
                    n = const ADDITIONS, v = inout(reg) value, one = in(reg) 1_u64
                );
            }
            // SAFETY: adds to one register.
            #[cfg(target_arch = "aarch64")]
            unsafe {
                asm!(".rept {n}", "add {v}, {v}, #1", ".endr", n = const ADDITIONS, v = inout(reg) value);
            }
        }
        if value == operations * ADDITIONS as u64 {
            Ok(())
        } else {
            Err(io::Error::other("additions are missing"))
        }
    }

    fn disarm(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Creates an operation of known length.
type Body = fn() -> Box<dyn Operation>;

/// Measures bodies of known length with the harness in this process.
fn truth() {
    let clock = calibrate();
    let bodies: [(u32, Body); 9] = [
        (0, || Box::new(Nothing(Timing::Elapsed))),
        (0, || Box::new(Chain::<0>)),
        (8, || Box::new(Chain::<8>)),
        (16, || Box::new(Chain::<16>)),
        (32, || Box::new(Chain::<32>)),
        (64, || Box::new(Chain::<64>)),
        (128, || Box::new(Chain::<128>)),
        (256, || Box::new(Chain::<256>)),
        (512, || Box::new(Chain::<512>)),
    ];
    println!("bodies of known length; each sample in cycles of the core's clock during this sample");
    println!("{:>9} {:>12} {:>18} {:>10} {:>10}", "additions", "ns", "cycles recovered", "+-", "error");
    for (number, (length, body)) in bodies.iter().enumerate() {
        let samples: Vec<(f64, f64)> =
            (0..PROCESSES).filter_map(|_| cost_and_cycle(&clock, body())).collect();
        let of = |value: &dyn Fn(&(f64, f64)) -> f64| {
            trimmed_mean(&samples.iter().map(value).collect::<Vec<f64>>(), Unit::Nanoseconds)
        };
        let (Ok(ns), Ok(cycles)) = (of(&|sample| sample.0), of(&|sample| sample.0 / sample.1)) else {
            println!("{length:>9} cannot be compared: cycles are not measured on this architecture");
            continue;
        };
        let (half, length) = (cycles.interval.half_width(), f64::from(*length));
        let error = match number {
            0 => "(nothing)".to_owned(),
            1 => "(a loop around nothing)".to_owned(),
            _ => format!("{:>9.2}%", 100.0 * (cycles.point / length - 1.0)),
        };
        println!("{length:>9} {:>12.4} {:>18.3} {half:>10.3} {error}", ns.point, cycles.point);
    }
}

/// Returns the cost that the harness measures for an operation and the cycle time of the core at the same
/// time, both in ns. `None` if the cycle time is unknown.
fn cost_and_cycle(calibration: &Calibration, operation: Box<dyn Operation>) -> Option<(f64, f64)> {
    let clock: Source = calibration.source;
    let mut prepared = Prepared { operation, baseline: None, sharing: Sharing::Alone };
    let mut watch = Watch::begin(clock).unwrap();
    watch.open(&Participants { sharing: Sharing::Alone, cpu: 0, copies: 0 }).unwrap();
    let schedule = Schedule::for_resolution(calibration.resolution_ns);
    let batches = harness::sample(&clock, &mut watch, schedule, &mut prepared).unwrap();
    let cost = match cost_ns(&Sample { observations: batches.observations, ..Sample::default() }) {
        // The cost of an empty operation may be below zero.
        Ok(cost) | Err(NoCost::NotPositive(cost)) => cost,
        Err(none) => panic!("{none}"),
    };
    value(&batches.evidence, CYCLE_NS).map(|cycle_ns| (cost, cycle_ns))
}

/// Repeats whole measurements, and counts how often an interval contains the mean of all of them.
fn coverage(repeats: usize) {
    let (clock, benchmarks, spawner) = (calibrate(), chosen(), spawner(&["sample"]));
    let costs: Vec<Vec<Cost>> = (0..repeats)
        .map(|repeat| {
            // As in a normal run: until the figure is precise enough.
            let plan = Plan {
                processes_min: 8,
                processes_max: 40,
                relative_half_width: 0.01,
                budget: Duration::from_secs(10),
                ..plan(repeat as u64, 0, &clock)
            };
            samples(&plan, &benchmarks, &spawner)
                .iter()
                .zip(&benchmarks)
                .map(|(samples, benchmark)| cost_of(&benchmark.primitive, samples, 0, None).unwrap())
                .collect()
        })
        .collect();
    println!("coverage of {repeats} repeats; disturbed figures are omitted and counted");
    println!(
        "{:<50} {:>12} {:>8} {:>8} {:>9} {:>13}",
        "primitive", "all repeats", "cv", "+-", "covered", "disturbed"
    );
    let (mut covered_of_all, mut believable) = (0, 0);
    for (number, benchmark) in benchmarks.iter().enumerate() {
        let is_clean = |cost: &&Cost| !matches!(cost.verdict, Some(Verdict::Disturbed(_)));
        let own: Vec<Estimate> =
            costs.iter().map(|repeat| &repeat[number]).filter(is_clean).map(|cost| cost.typical).collect();
        let (id, disturbed) = (benchmark.primitive.to_string(), repeats - own.len());
        let points: Vec<f64> = own.iter().map(|estimate| estimate.point).collect();
        // The same estimator as in each repeat: a few outliers would move a mean and make the others wrong.
        let Ok(Estimate { point: truth, .. }) = trimmed_mean(&points, Unit::Nanoseconds) else {
            println!("{id:<50} {:>12} {:>8} {:>8} {:>9} {disturbed:>13}", "-", "", "", "");
            continue;
        };
        let (_, cv) = spread(&points);
        let covered =
            own.iter().filter(|one| one.interval.low <= truth && truth <= one.interval.high).count();
        let width = own.iter().map(Estimate::relative_half_width).sum::<f64>() / real(own.len());
        let share = 100.0 * real(covered) / real(own.len());
        println!(
            "{id:<50} {truth:>12.4} {:>7.2}% {:>7.2}% {share:>8.1}% {disturbed:>13}",
            100.0 * cv,
            100.0 * width
        );
        covered_of_all += covered;
        believable += own.len();
    }
    println!("all: {:.1} % of {believable} covered", 100.0 * real(covered_of_all) / real(believable.max(1)));
}

/// Compares each of the chosen primitives with itself and with itself made 2 % slower, all of them in the
/// same rounds of the same minutes, and corrects for their number as `assay compare` does. Primitives that
/// cannot be compared, because they are disturbed or have several modes, do not count as comparisons.
fn comparison(pairs: usize) {
    let (clock, benchmarks) = (calibrate(), chosen());
    let mut of_equals = vec![Tally::default(); benchmarks.len()];
    let mut of_slower = of_equals.clone();
    let mut with_alarm = 0;
    for pair in 0..pairs {
        let [a, same, slower] = three(&benchmarks, &clock, pair as u64);
        let (equals, slowed) = (relations(&benchmarks, &a, &same), relations(&benchmarks, &a, &slower));
        let is_different = |relation: &Relation| matches!(relation, Relation::Faster | Relation::Slower);
        let alarms = equals.iter().filter(|relation| is_different(relation)).count();
        let found = slowed.iter().filter(|relation| **relation == Relation::Slower).count();
        println!("pair {pair}: {alarms} false alarms, {found} slowdowns found");
        with_alarm += usize::from(alarms > 0);
        for (number, (equal, slowed)) in equals.iter().zip(&slowed).enumerate() {
            of_equals[number].add(*equal, is_different(equal));
            of_slower[number].add(*slowed, *slowed == Relation::Slower);
        }
    }
    println!("{pairs} comparisons of {} primitives, {PROCESSES} processes each", benchmarks.len());
    println!("{:<50} {:>18} {:>18}", "primitive", "false alarms", "2 % found");
    for (benchmark, (equals, slower)) in benchmarks.iter().zip(of_equals.iter().zip(&of_slower)) {
        println!(
            "{:<50} {:>18} {:>18}",
            benchmark.primitive.to_string(),
            equals.to_string(),
            slower.to_string()
        );
    }
    let all = Tally::sum(&of_slower);
    println!("comparisons of equals with a false alarm: {with_alarm} of {pairs}");
    println!("slowdowns of 2 % found: {all}, {:.1} %", 100.0 * real(all.reported) / real(all.judged.max(1)));
}

/// Primitives for which an alternating measurement must find a change.
const CHANGED: [&str; 5] = [
    "call.null",
    "pipe.round_trip{size=1B,cpus=same}",
    "tcp.round_trip{size=1B,cpus=same}",
    "page_fault.anonymous",
    "process.context_switch{processes=2,cpus=same}",
];

/// Time for a comparison of equals, and for a comparison with a slowdown.
const EQUAL: Duration = Duration::from_secs(5);
const SLOWED: Duration = Duration::from_secs(20);

/// Counts how often `trials` comparisons of each primitive find a slowdown of 2 %, and how often `equals`
/// comparisons in total find a difference between equals.
fn turns(trials: usize, equals: usize) {
    let clock = calibrate();
    let benchmarks = CHANGED.map(|id| find(&id.parse().unwrap()).unwrap());
    let mut alarms = vec![Tally::default(); benchmarks.len()];
    let mut found = alarms.clone();
    for trial in 0..equals {
        let number = trial % benchmarks.len();
        let relation = in_turns(&benchmarks[number], EQUAL, 0.0, trial, &clock);
        alarms[number].add(relation, matches!(relation, Relation::Faster | Relation::Slower));
    }
    for trial in 0..trials {
        for (benchmark, found) in benchmarks.iter().zip(&mut found) {
            let taken = samples(
                &plan(trial as u64, PROCESSES, &clock),
                slice::from_ref(benchmark),
                &spawner(&["sample"]),
            );
            let costs: Vec<f64> = taken[0].iter().filter_map(|sample| cost_ns(sample).ok()).collect();
            let delay_ns = 0.02 * trimmed_mean(&costs, Unit::Nanoseconds).unwrap().point;
            let relation = in_turns(benchmark, SLOWED, delay_ns, equals + trial, &clock);
            found.add(relation, relation == Relation::Slower);
        }
    }
    println!("{:<50} {:>18} {:>18}", "primitive, alternating", "false alarms, 5 s", "2 % found, 20 s");
    for (benchmark, (alarms, found)) in benchmarks.iter().zip(alarms.iter().zip(&found)) {
        println!(
            "{:<50} {:>18} {:>18}",
            benchmark.primitive.to_string(),
            alarms.to_string(),
            found.to_string()
        );
    }
    let all = Tally::sum(&alarms);
    let bound = 100.0 * upper_bound(all.reported, all.judged);
    println!("false alarms: {all}, upper bound of 95 % {bound:.1} %");
    println!("slowdowns of 2 % found: {}", Tally::sum(&found));
}

/// Compares one primitive with itself with every operation made longer, measured alternately.
fn in_turns(
    benchmark: &Benchmark,
    budget: Duration,
    delay_ns: f64,
    trial: usize,
    clock: &Calibration,
) -> Relation {
    let plan = Plan { budget, ..plan(trial as u64, 0, clock) };
    let (usual, slowed) = (spawner(&["sample"]), spawner(&["delayed", &delay_ns.to_string()]));
    let spawners = Pair { a: &usual, b: if delay_ns > 0.0 { &slowed } else { &usual } };
    let stop = AtomicBool::new(false);
    let benchmarks = slice::from_ref(benchmark);
    let findings = alternate(&plan, benchmarks, spawners, &stop, &mut |_| {}, &mut |_, _, _| {}).unwrap();
    let [a, b] = [&findings.a[0], &findings.b[0]].map(|finding| match finding {
        Finding::Measured(measured) => &measured.samples[..],
        Finding::Unmeasured(missing) => panic!("{}: {}", missing.primitive, missing.reason),
    });
    let pairs = pairs_of(&benchmark.primitive, Pair { a, b });
    let comparison = compare_in_turns(&[pairs], SAME_WITHIN)[0];
    let ratio = comparison.ratio.unwrap().estimate;
    let half = 50.0 * (ratio.interval.high - ratio.interval.low);
    println!(
        "{} {delay_ns:.1} ns longer: {:+.2} % ± {half:.2}, {} pairs, {}",
        benchmark.primitive,
        100.0 * (ratio.point - 1.0),
        ratio.values,
        comparison.relation
    );
    comparison.relation
}

/// Returns the upper end of the one-sided 95 % interval of a share (Clopper and Pearson), in steps of a
/// thousandth.
fn upper_bound(reported: usize, judged: usize) -> f64 {
    let at_most = |probability: f64| {
        let mut term = (1.0 - probability).powi(i32::try_from(judged).unwrap());
        let mut sum = term;
        for count in 0..reported {
            term *= real(judged - count) / real(count + 1) * probability / (1.0 - probability);
            sum += term;
        }
        sum
    };
    (1..1000).map(|thousandth| real(thousandth) / 1000.0).find(|p| at_most(*p) <= 0.05).unwrap_or(1.0)
}

/// Number of positive results and of comparisons made.
#[derive(Debug, Clone, Default)]
struct Tally {
    reported: usize,
    judged: usize,
}

impl Tally {
    fn sum(all: &[Self]) -> Self {
        let add = |a: Self, b: &Self| Self { reported: a.reported + b.reported, judged: a.judged + b.judged };
        all.iter().fold(Self::default(), add)
    }

    fn add(&mut self, relation: Relation, is_reported: bool) {
        self.judged += usize::from(!matches!(relation, Relation::NotComparable(_)));
        self.reported += usize::from(is_reported);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.reported, self.judged)
    }
}

/// Number of processes of each side of a comparison, and number of turns in which they are taken.
const PROCESSES: usize = 40;
const TURNS: usize = 10;

/// Returns samples of three machines: this one twice, and this one with every operation made 2 % longer,
/// measured alternately.
fn three(benchmarks: &[Benchmark], clock: &Calibration, pair: u64) -> [Vec<Vec<Sample>>; 3] {
    let mut machines: [Vec<Vec<Sample>>; 3] = Default::default();
    machines.iter_mut().for_each(|machine| machine.resize_with(benchmarks.len(), Vec::new));
    let mut delays_ns = vec![0.0; benchmarks.len()];
    for turn in 0..TURNS {
        for (side, machine) in machines.iter_mut().enumerate() {
            let seed = pair * 1000 + (turn * 3 + side) as u64;
            for (number, benchmark) in benchmarks.iter().enumerate() {
                let delay = delays_ns[number].to_string();
                let arguments = if side == 2 { vec!["delayed", &delay] } else { vec!["sample"] };
                let plan = plan(seed, PROCESSES / TURNS, clock);
                let taken = samples(&plan, slice::from_ref(benchmark), &spawner(&arguments));
                machine[number].extend(taken.into_iter().flatten());
                if turn + side == 0 {
                    let costs: Vec<f64> = machine[number].iter().filter_map(|s| cost_ns(s).ok()).collect();
                    delays_ns[number] = 0.02 * trimmed_mean(&costs, Unit::Nanoseconds).unwrap().point;
                }
            }
        }
    }
    machines
}

/// Returns the relation of each cost in b to that in a.
fn relations(benchmarks: &[Benchmark], a: &[Vec<Sample>], b: &[Vec<Sample>]) -> Vec<Relation> {
    let cost = |benchmark: &Benchmark, samples: &Vec<Sample>| {
        let cost = cost_of(&benchmark.primitive, samples, 0, None).unwrap();
        (cost, values_of(&benchmark.primitive, samples))
    };
    let of = |machine: &[Vec<Sample>]| -> Vec<(Cost, Vec<f64>)> {
        benchmarks.iter().zip(machine).map(|(benchmark, samples)| cost(benchmark, samples)).collect()
    };
    let (a, b) = (of(a), of(b));
    let pairs: Vec<_> = a.iter().zip(&b).map(|(a, b)| Pair { a: side(a), b: side(b) }).collect();
    compare_costs(&pairs, SAME_WITHIN).into_iter().map(|comparison| comparison.relation).collect()
}

fn side((cost, values): &(Cost, Vec<f64>)) -> Side<'_> {
    Side { cost, values: Some(values) }
}

fn spread(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / real(values.len());
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (real(values.len()) - 1.0)).sqrt() / mean)
}
