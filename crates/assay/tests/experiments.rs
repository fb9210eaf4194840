//! How the experiment on later runs reads the figures of runs (`bench/again`): the measuring itself is `make again`.

#![expect(clippy::unwrap_used, reason = "a helper of a test may panic")]

use std::path::PathBuf;
use std::process::Command;

use tempfile::NamedTempFile;

const SCRIPT: &str = "../../bench/again/summary.awk";

/// What the script prints of the tables of runs, and whether it succeeds.
fn summary(tables: &str) -> (String, bool) {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), tables).unwrap();
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(SCRIPT);
    let output = Command::new("awk").arg("-f").args([&script, file.path()]).output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.success())
}

/// A run with the costs of two primitives, and the intervals of the second one if it is known what a later run gives.
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
    let (table, succeeds) = summary(&tables.concat());
    assert!(succeeds, "{table}");
    let fields = |name: &str| -> Vec<String> {
        let row = table.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{table}"));
        row.split_whitespace().filter(|word| *word != "%").map(str::to_owned).collect()
    };
    // 60 with 61 and 69, 61 with 69: within 1 once, within the wider intervals twice.
    assert_eq!(fields("pipe.round_trip{size=1B,cpus=same}"), ["3", "33.3", "1.7", "66.7", "18.6"]);
    assert_eq!(fields("call.null"), ["0", "-", "-", "-", "-"]);
    assert!(table.contains("4 runs.") && table.contains("in 33.3 % of 3 pairs"), "{table}");
}

#[test]
fn runs_without_any_interval_are_an_error() {
    let (said, succeeds) = summary(&[run(100.0, 50.0, None), run(100.0, 60.0, None)].concat());
    assert!(!succeeds && said.contains("No run has an interval"), "{said}");
}
