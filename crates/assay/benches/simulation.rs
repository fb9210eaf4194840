//! Speed of simulated machines: instructions of the guest for each second of processor time, unobserved,
//! counted, attributed, and each of them with the clock of instructions. Run by `make bench`.
//!
//! The limit is QEMU without a plugin. Firmware and boot are not part of it: each figure is the difference
//! of two runs, with and without the work.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot run aborts")]

use std::process::Command;

use assay_process::accounting::{Who, usage};
use assay_quantity::Unit;
use assay_statistics::estimator;

/// Rounds, in each of which every mode runs once. The ratios are computed per round, so that a drift of the
/// machine cancels out.
const ROUNDS: usize = 6;

/// About half of the instructions are the kernel's.
const WORK: &str = "seq 80000 | sort -r | gzip | md5sum; for i in $(seq 1000); do (:); done; ls -lR / | wc";

const MODES: [(&str, &[&str]); 5] = [
    ("plain", &["--observe", "nothing"]),
    ("counted", &["--observe", "count"]),
    ("attributed", &["--observe", "services"]),
    ("deterministic", &["--observe", "nothing", "--deterministic"]),
    ("deterministic, attributed", &["--observe", "services", "--deterministic"]),
];

fn main() {
    let instructions = instructions();
    let rounds: Vec<[f64; MODES.len()]> = (0..ROUNDS)
        .map(|_| MODES.map(|(_, arguments)| cpu_s(WORK, arguments) - cpu_s("true", arguments)))
        .collect();
    println!("{:.0} million instructions", instructions / 1e6);
    println!("{:<26} {:>22} {:>24}", "mode", "million instructions/s", "speed, plain = 1");
    for (mode, (name, _)) in MODES.iter().enumerate() {
        let of_rounds = |value: fn(&[f64; MODES.len()], usize) -> f64| {
            let values: Vec<f64> = rounds.iter().map(|round| value(round, mode)).collect();
            estimator::median(&values, Unit::Ratio).unwrap()
        };
        let speed = instructions / of_rounds(|round, mode| round[mode]).point / 1e6;
        let ratio = of_rounds(|round, mode| round[0] / round[mode]);
        let interval = ratio.interval;
        println!(
            "{name:<26} {speed:>22.0} {:>8.2} [{:.2} .. {:.2}]",
            ratio.point, interval.low, interval.high
        );
    }
}

/// Seconds of processor time of QEMU, and of `assay` itself, for a command.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of minutes")]
fn cpu_s(command: &str, arguments: &[&str]) -> f64 {
    let before = usage(Who::Children).unwrap().cpu_ns;
    report(command, arguments);
    (usage(Who::Children).unwrap().cpu_ns - before) as f64 / 1e9
}

/// Instructions of the work.
fn instructions() -> f64 {
    let count = |command| {
        let report = report(command, &["--observe", "count"]);
        let all = report.lines().find_map(|line| line.strip_prefix("all,")).unwrap().to_owned();
        all.split(',').next().unwrap().parse::<f64>().unwrap()
    };
    count(WORK) - count("true")
}

fn report(command: &str, arguments: &[&str]) -> String {
    let mut assay = Command::new(env!("CARGO_BIN_EXE_assay"));
    let output = assay.args(["sim", "run", "--csv", "--guest-command", command]).args(arguments).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
