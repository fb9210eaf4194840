//! Compares the measured memory hierarchy with an independent program on this machine.
//!
//!     cargo bench --package assay-bench --bench hierarchy -- chase [PASSES]
//!     cargo bench --package assay-bench --bench hierarchy -- levels [SWEEPS]
//!
//! `chase` compares the cost of `memory.load` with that of an independent pointer chase, which shares no code
//! with it, alternately; `levels` repeats the sweep that finds the effective size of each cache. The
//! executable of this experiment is also the program that is started for every sample and every chase.

#![expect(clippy::unwrap_used, reason = "a failed experiment ends with the error")]
#![expect(clippy::print_stdout, reason = "it prints tables")]

mod support;

use std::hint::black_box;
use std::io;
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;

use assay_bench::platform::clock::monotonic;
use assay_bench::platform::describe::CacheSizes;
use assay_bench::sweep::sweep;
use assay_bench::{Calibration, Finding, calibrate, find, measure, sample_main};
use assay_quantity::{Estimate, Size, Unit};
use assay_statistics::{cost_ns, median};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use support::{end, plan, real, spawner};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |text: Option<&&str>, usual| text.map_or(usual, |text| text.parse().unwrap());
    match words.as_slice() {
        ["sample", request] => {
            return end(sample_main(request, &mut io::stdout()).is_ok());
        }
        ["one-chase", set] => println!("{}", chase_ns(set.parse().unwrap())),
        ["chase", rest @ ..] => beside_chase(number(rest.first(), 20)),
        ["levels", rest @ ..] => repeated_sweep(number(rest.first(), 10)),
        _ => {
            beside_chase(5);
            repeated_sweep(3);
        }
    }
    ExitCode::SUCCESS
}

/// Working sets from the first cache level to memory.
const SETS: [Size; 17] = [
    Size::kib(16),
    Size::kib(24),
    Size::kib(64),
    Size::kib(128),
    Size::kib(256),
    Size::kib(512),
    Size::kib(768),
    Size::mib(1),
    Size::kib(1536),
    Size::mib(2),
    Size::mib(3),
    Size::mib(4),
    Size::mib(6),
    Size::mib(8),
    Size::mib(12),
    Size::mib(16),
    Size::mib(64),
];

/// A line that contains the address of the next one.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(*const Line);

/// Laps before a chase is timed, and minimum laps of each timing.
const LAPS: usize = 10;

/// Minimum loads of a timing.
const LOADS: usize = 1 << 20;

/// Number of timings, the best of which counts.
const TIMINGS: usize = 3;

/// Returns the time of a load along a chain of pointers through every line of a working set in random order,
/// ns.
fn chase_ns(set: Size) -> f64 {
    let lines = usize::try_from(set.bytes()).unwrap() / size_of::<Line>();
    let mut order: Vec<usize> = (0..lines).collect();
    order.shuffle(&mut Pcg64Mcg::seed_from_u64(u64::from(std::process::id())));
    let mut memory = vec![Line(std::ptr::null()); lines];
    let first = memory.as_mut_ptr();
    for (position, line) in order.iter().enumerate() {
        memory[*line].0 = first.wrapping_add(order[(position + 1) % lines]);
    }
    drop(order);
    let mut at = first.cast_const();
    let mut go = |loads: usize| {
        let begun = now_ns();
        for _ in 0..loads {
            // SAFETY: every line contains the address of a line of the same vector, which is still alive.
            at = unsafe { (*at).0 };
        }
        black_box(at);
        (now_ns() - begun) / real(loads)
    };
    let _ = go(LAPS * lines);
    (0..TIMINGS).map(|_| go(LOADS.max(LAPS * lines))).fold(f64::INFINITY, f64::min)
}

/// Runs one process of `memory.load`; `None` if it failed.
fn sample_ns(set: Size, seed: u64, clock: &Calibration) -> Option<f64> {
    let load = find(&format!("memory.load{{set={set}}}").parse().unwrap()).unwrap();
    let stop = AtomicBool::new(false);
    let findings =
        measure(&plan(seed, 1, clock), &[load], &[], &spawner(&["sample"]), &stop, &mut |_, _| {}).unwrap();
    match &findings[0] {
        Finding::Measured(measured) => cost_ns(&measured.samples[0]).ok(),
        Finding::Unmeasured(_) => None,
    }
}

/// Measures both alternately, each time in a separate process.
fn beside_chase(passes: u64) {
    let clock = calibrate();
    let mut pairs = vec![Vec::new(); SETS.len()];
    for pass in 0..passes {
        for (set, pairs) in SETS.into_iter().zip(&mut pairs) {
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["one-chase", &set.to_string()])
                .output()
                .unwrap();
            let chase: f64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
            pairs.extend(sample_ns(set, pass, &clock).map(|sample| (chase, sample)));
        }
    }
    println!(
        "memory.load and an independent chase, best of {TIMINGS}; {passes} processes each, alternately\n"
    );
    println!("{:>8}  {:>20}  {:>20}  {:>18}", "set", "chase, ns", "memory.load, ns", "load over chase");
    for (set, pairs) in SETS.iter().zip(&pairs) {
        let over = |value: fn(&(f64, f64)) -> f64| {
            shown(median(&pairs.iter().map(value).collect::<Vec<f64>>(), Unit::Nanoseconds).unwrap())
        };
        let (chase, load) = (over(|(chase, _)| *chase), over(|(_, sample)| *sample));
        println!("{set:>8}  {chase:>20}  {load:>20}  {:>18}", over(|(chase, sample)| sample / chase));
    }
}

/// Formats a median and its interval.
fn shown(Estimate { point, interval, .. }: Estimate) -> String {
    format!("{point:.2} ({:.2}-{:.2})", interval.low, interval.high)
}

/// Repeats the same sweep: prints each result, and how often it is within one step of the median.
fn repeated_sweep(sweeps: u64) {
    let clock = calibrate();
    let stop = AtomicBool::new(false);
    let mut found: Vec<CacheSizes> = Vec::new();
    println!("\nEffective size of each cache according to a sweep\n");
    for seed in 0..sweeps {
        let begun = now_ns();
        let sweep = sweep(&plan(seed, 1, &clock), &spawner(&["sample"]), &stop).unwrap();
        println!("{sweep}; {:.1} s", (now_ns() - begun) / 1e9);
        found.push(sweep.effective());
    }
    for (name, level) in [
        ("L1d", (|sizes| sizes.l1) as fn(&CacheSizes) -> Option<Size>),
        ("L2", |sizes| sizes.l2),
        ("L3", |sizes| sizes.l3),
    ] {
        let mut sizes: Vec<Size> = found.iter().filter_map(level).collect();
        sizes.sort();
        let Some(middle) = sizes.get(sizes.len() / 2) else {
            println!("{name}: never detected");
            continue;
        };
        // Two steps are a doubling.
        let is_near =
            |size: &&Size| size.bytes() * 2 / 3 <= middle.bytes() && middle.bytes() <= size.bytes() / 2 * 3;
        let near = sizes.iter().filter(is_near).count();
        println!("{name}: {near} of {sweeps} within one step of {middle}");
    }
}

#[expect(clippy::cast_precision_loss, reason = "an experiment's nanoseconds are far below 2^52")]
fn now_ns() -> f64 {
    monotonic::now_ns() as f64
}
