//! Tests of the scripts that read the figures of experiments (`make again`, `make peers`).

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::NamedTempFile;

/// Runs a script of `bench` with awk on a text, with these variables. Returns its output, and whether it
/// succeeds.
fn awk(script: &Path, variables: &[(&str, &str)], text: &str) -> (String, bool) {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let scripts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../bench");
    let mut command = Command::new("awk");
    for (name, value) in variables {
        command.arg("-v").arg(format!("{name}={value}"));
    }
    command.arg("-f").arg(scripts.join("quantile.awk")).arg("-f").arg(scripts.join(script)).arg(file.path());
    let output = command.output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.success())
}

fn again(costs: &str) -> (String, bool) {
    awk(Path::new("again/summary.awk"), &[], costs)
}

fn peers(figures: &str) -> (String, bool) {
    awk(Path::new("peers/summary.awk"), &[], figures)
}

/// Returns the fields of the table's row for `name`, after the name.
fn row(table: &str, name: &str) -> Vec<String> {
    let row = table.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{table}"));
    row.split_whitespace().filter(|word| *word != "%").map(str::to_owned).collect()
}

/// Returns a run with the costs of two primitives, and the interval of the second one if measured again, if
/// known.
fn run(null: f64, pipe: f64, again: Option<(f64, f64)>) -> String {
    let (header, of_null, of_pipe) = match again {
        None => ("if measured again_missing", String::from("too few"), String::from("too few")),
        Some((low, high)) => (
            "if measured again,if measured again_low,if measured again_high,if measured again_missing",
            String::from(",,,needs more"),
            format!("9,{low},{high},"),
        ),
    };
    format!(
        "What its primitives cost\nprimitive,typical,typical_low,typical_high,{header},verdict\n\
         call.null,{null},{},{},{of_null},steady\n\
         \"pipe.round_trip{{size=1B,cpus=same}}\",{pipe},{},{},{of_pipe},\"2 modes: 1, 2\"\n\n",
        null - 1.0,
        null + 1.0,
        pipe - 1.0,
        pipe + 1.0,
    )
}

#[test]
fn each_run_with_an_interval_is_paired_with_every_later_one() {
    let tables = [
        run(100.0, 50.0, None),
        run(100.0, 60.0, Some((40.0, 70.0))),
        run(100.0, 61.0, Some((50.0, 65.0))),
        run(100.0, 69.0, None),
    ];
    let (table, succeeds) = again(&tables.concat());
    assert!(succeeds, "{table}");
    // 60 with 61 and 69, 61 with 69: within 1 once, within the wider intervals twice.
    assert_eq!(row(&table, "pipe.round_trip{size=1B,cpus=same}"), ["3", "33.3", "1.7", "66.7", "18.6"]);
    assert_eq!(row(&table, "call.null"), ["0", "-", "-", "-", "-"]);
    assert!(table.contains("4 runs.") && table.contains("in 33.3 % of 3 pairs"), "{table}");
}

#[test]
fn runs_without_any_interval_are_an_error() {
    let (said, succeeds) = again(&[run(100.0, 50.0, None), run(100.0, 60.0, None)].concat());
    assert!(!succeeds && said.contains("No run has an interval"), "{said}");
}

/// Returns rounds of one test: the figures of lmbench by default, of lmbench bound to a processor, and of
/// assay.
fn rounds(test: &str, step: &str, rounds: &[[&str; 3]]) -> String {
    let mut text = String::new();
    for ([lmbench, bound, assay], round) in rounds.iter().zip(1..) {
        writeln!(text, "{round}|lmbench|{test}|{lmbench}|{step}").unwrap();
        writeln!(text, "{round}|bound|{test}|{bound}|{step}").unwrap();
        writeln!(text, "{round}|assay|{test}|{assay}").unwrap();
    }
    text
}

#[test]
fn programs_are_compared_over_the_same_whole_rounds() {
    let whole = [["90", "98", "49.5"], ["110", "102", "50.5"]].repeat(3);
    let (table, succeeds) = peers(&rounds("pipe", "0.1", &whole));
    assert!(succeeds, "{table}");
    let fields = row(&table, "pipe");
    assert_eq!(fields[..6], ["100", "11.0", "100", "2.2", "50", "1.1"], "{table}");
    assert_eq!([&fields[6], &fields[8]], ["0.10", "0.50"], "{table}");

    // A round in which a program has no figure is skipped, as is an interrupted round.
    let with_a_gap = [&whole[..], &[["900", "", "70"]]].concat();
    let interrupted = rounds("pipe", "0.1", &with_a_gap) + "8|lmbench|pipe|800|0.1\n";
    let (table, _) = peers(&interrupted);
    assert_eq!(row(&table, "pipe")[..6], fields[..6], "{table}");
    assert!(table.contains("pipe: no figure of bound in 1 of 7 rounds"), "{table}");

    let (said, succeeds) = peers(&rounds("pipe", "0.1", &whole[..1]));
    assert!(!succeeds && said.contains("No comparison: no test has two rounds"), "{said}");
}

#[test]
fn an_interval_contains_the_ratio_and_is_wider_the_more_it_varies_between_rounds() {
    let alike = [["90", "90", "99"], ["110", "110", "101"], ["100", "100", "100"]].repeat(4);
    let mut odd = alike.clone();
    odd[7] = ["100", "100", "110"];
    let interval = |figures: &[[&str; 3]]| -> (f64, f64, f64) {
        let (table, _) = peers(&rounds("stat", "0.1", figures));
        let fields = row(&table, "stat");
        let (low, high) = fields[7].trim_matches(['(', ')']).split_once('-').unwrap();
        (fields[6].parse().unwrap(), low.parse().unwrap(), high.parse().unwrap())
    };
    let (ratio, low, high) = interval(&alike);
    assert!(low <= ratio && ratio <= high && high / low < 1.1, "{low} {ratio} {high}");
    let (ratio, low, high) = interval(&odd);
    assert!(low < ratio && ratio < high && high / low > 2.0, "{low} {ratio} {high}");
}

#[test]
fn a_figure_that_is_rounded_to_the_same_value_in_every_round_has_no_ratio() {
    let coarse = rounds("add", "0.01", &[["0.81", "0.83", "0.8118"], ["0.81", "0.81", "0.8122"]].repeat(3));
    let fine = rounds("stat", "0.1", &[["90", "90", "99"], ["110", "110", "101"]].repeat(3));
    let (table, _) = peers(&(coarse + &fine));
    // 0.01 / sqrt(12) of 0.81 is 0.36 %.
    let fields = row(&table, "add");
    assert_eq!([&fields[1], &fields[3], &fields[6]], ["<0.4", "1.3", "-"], "{table}");
    assert!(table.contains("assay/lmbench  0.10 (") && table.contains("above 1 in 0 of 1 tests"), "{table}");
    assert!(table.contains("above 1 in 0 of 2 tests"), "{table}");
}

#[test]
fn tests_in_which_assay_varies_more_are_counted() {
    let better = rounds("stat", "0.1", &[["90", "90", "99"], ["110", "110", "101"]].repeat(3));
    let worse = rounds("tcp", "0.1", &[["99", "90", "90"], ["101", "110", "110"]].repeat(3));
    let (table, _) = peers(&(better + &worse));
    assert!(table.contains("assay/lmbench  5.05 (") && table.contains("above 1 in 1 of 2 tests"), "{table}");
    assert!(table.contains("assay/bound    0.55 (") && table.contains("above 1 in 0 of 2 tests"), "{table}");
}

#[test]
fn figures_of_lmbench_are_read_with_their_printed_resolution() {
    let figure = |field: &str, unit: &str, output: &str| {
        let (text, succeeds) =
            awk(Path::new("peers/figure.awk"), &[("field", field), ("unit", unit)], output);
        assert!(succeeds);
        text.trim_end().to_owned()
    };
    assert_eq!(figure("1", "us", "Simple stat: 1.0279 microseconds\n"), "1027.9|0.1");
    assert_eq!(figure("0", "us", "\n\"size=0k ovr=0.36\n2 1.74\n"), "1740|10");
    assert_eq!(
        figure("int64 mul", "ns", "int64 add: 0.00 nanoseconds\nint64 mul: 0.82 nanoseconds\n"),
        "0.82|0.01"
    );
    assert_eq!(figure("0", "MB/s", "268.44 20000.00\n"), "0.05|2.5e-08");
    assert_eq!(figure("int64 add", "ns", "int64 add: 0.00 nanoseconds\n"), "");
    assert_eq!(figure("1", "us", "bind: Address already in use\n"), "");
    assert_eq!(figure("1", "us", ""), "");
}

#[test]
fn costs_of_assay_are_read_only_from_the_table_of_costs() {
    let table = "Description of the machine\r\nfact,value\r\nfile.stat,7\r\n\r\nWhat its primitives cost\r\n\
                 primitive,typical,typical_low\r\ncall.null,165.5,165\r\n\"pipe.round_trip{size=1B,cpus=same}\",4900.25,4\r\n\
                 \r\nWhat was not measured\r\nprimitives,reason\r\nfile.stat,it needs a file system\r\n";
    let cost = |id: &str| awk(Path::new("peers/cost.awk"), &[("id", id)], table).0;
    assert_eq!(cost("call.null"), "165.5\n");
    assert_eq!(cost("pipe.round_trip{size=1B,cpus=same}"), "4900.25\n");
    assert_eq!(cost("pipe.round_trip"), "");
    assert_eq!(cost("file.stat"), "");
}
